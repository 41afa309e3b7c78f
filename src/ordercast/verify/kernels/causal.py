"""Causal order: if m1 happened before m2, nobody delivers m2 first, nor (strictly) without an m1 that it was owed.

Columns are receivers, rows are messages in publish order. A row holds, for each receiver, the latest position at which
the receiver delivered anything in the message's causal past; a delivery at an earlier position than that is the
violation. What a receiver owed and never delivered stands just before the place up to which it was due, or behind
everything. The past runs through messages the receiver never gets, because rows do not care who receives them.

Positions are counted in twos: a delivery at place i of a log stands at 2 i, what was due up to there at 2 i - 1, and a
message m that was due to the end at MISSED + m.
"""

from __future__ import annotations

import numpy as np

from ordercast.verify.kernels.jit import NEVER, Flags, Ints, Offsets, kernel

MISSED = NEVER


@kernel
def positions(
    first: int, last: int, ev: Ints, off: Offsets, owed_off: Offsets, owed: Ints, due: Ints, held: Flags, strict: bool
) -> tuple[Offsets, Ints, Ints, int]:
    """By message: (column, position) of its deliveries at receivers `first` to `last`, and of what they never got."""
    start = np.zeros(held.size + 1, np.int64)
    for i in range(off[first], off[last]):
        if ev[i] >= 0 and held[ev[i]]:
            start[ev[i] + 1] += 1
    deliveries = start.sum()
    if strict:
        for i in range(owed_off[first], owed_off[last]):
            start[owed[i] + 1] += held[owed[i]]
    for m in range(held.size):
        start[m + 1] += start[m]
    cursor = start[:-1].copy()
    column = np.empty(start[-1], np.int32)
    position = np.empty(start[-1], np.int32)
    for c in range(first, last):
        for i in range(off[c], off[c + 1]):
            m = ev[i]
            if m >= 0 and held[m]:
                column[cursor[m]] = c - first
                position[cursor[m]] = 2 * (i - off[c])
                cursor[m] += 1
        if strict:
            for i in range(owed_off[c], owed_off[c + 1]):
                m = owed[i]
                if held[m]:
                    column[cursor[m]] = c - first
                    position[cursor[m]] = MISSED + m if due[i] == NEVER else 2 * due[i] - 1
                    cursor[m] += 1
    return start, column, position, deliveries


@kernel
def violations(
    width: int, start: Offsets, column: Ints, position: Ints, prev: Ints, edge_off: Offsets, edges: Ints, refs: Ints,
    live: int, cap: int,
) -> tuple[int, Ints, Ints, Ints]:  # fmt: skip
    """Count the deliveries out of causal order, and name some: message, column, and the latest position in its past.

    Named are, in publish order, the first `cap` of each column, and as many more where that latest position is a new
    one.
    """
    rows = np.empty((live + 1, width), np.int32)
    free = np.arange(live + 1).astype(np.int32)
    frees = live + 1
    slot = np.full(prev.size, -1, np.int32)
    left = refs.copy()
    found_message = np.empty(2 * cap * width, np.int32)
    found_column = np.empty(2 * cap * width, np.int32)
    found_latest = np.empty(2 * cap * width, np.int32)
    named = np.zeros(width, np.int32)
    latest = np.full(width, -1, np.int32)
    kept = 0
    found = 0
    for m in range(prev.size):
        before = prev[m]
        if before >= 0 and left[before] == 1:
            mine = slot[before]  # Nobody else reads the previous publication's row: go on in it.
            left[before] = 0
        else:
            frees -= 1
            mine = free[frees]
            if before >= 0:
                left[before] -= 1
                rows[mine, :] = rows[slot[before], :]
            else:
                rows[mine, :] = -1
        past = rows[mine]
        for i in range(edge_off[m], edge_off[m + 1]):
            e = edges[i]
            theirs = rows[slot[e]]
            for c in range(width):
                past[c] = max(past[c], theirs[c])
            left[e] -= 1
            if left[e] == 0:
                free[frees] = slot[e]
                frees += 1
        for i in range(start[m], start[m + 1]):
            c = column[i]
            if past[c] > position[i] and position[i] < MISSED and position[i] % 2 == 0:
                found += 1
                if named[c] < cap or (past[c] != latest[c] and named[c] < 2 * cap):
                    found_message[kept] = m
                    found_column[kept] = c
                    found_latest[kept] = latest[c] = past[c]
                    named[c] += 1
                    kept += 1
        if refs[m] > 0:
            slot[m] = mine
            for i in range(start[m], start[m + 1]):
                past[column[i]] = max(past[column[i]], position[i])
        else:
            free[frees] = mine
            frees += 1
    return found, found_message[:kept].copy(), found_column[:kept].copy(), found_latest[:kept].copy()
