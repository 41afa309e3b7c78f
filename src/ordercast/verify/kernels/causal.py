"""Causal order: if m1 happened before m2, nobody delivers m2 first, nor (strictly) without an m1 that it was owed.

Columns are receivers, rows are messages in publish order, kept in a store while any later message reads them. A row
holds, for each receiver, the latest position at which the receiver delivered anything in the message's causal past; a
delivery at an earlier position than that is the violation. What a receiver owed and never delivered stands just before
the place up to which it was due, or behind everything. The past runs through messages the receiver never gets, because
rows do not care who receives them.

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
    first: int, row: Ints, before: Ints, edge_off: Offsets, edges: Ints, per_message: int, store: Ints,
    messages: Ints, at: int, start: Offsets, column: Ints, position: Ints,
    found: Ints, named: Ints, latest: Ints, counts: Offsets, cap: int,
) -> None:  # fmt: skip
    """Count the deliveries out of causal order, and name some: message, column, and the latest position in its past.

    The messages are those of one stretch, from `first` on; positions are known of `messages`, from entry `at` on, which
    is what `start`, and a message's number in `found`, count. `store`, `found`, `named`, `latest` and `counts` (all,
    and those named) go from stretch to stretch. Named are, in publish order, the first `cap` of each column, and as
    many more where that latest position is a new one.
    """
    width = store.shape[1]
    for r in range(row.size):
        past = store[row[r]]
        if before[r] < 0:
            past[:] = -1
        elif before[r] != row[r]:
            past[:] = store[before[r]]
        for i in range(edge_off[r], edge_off[r + 1]):
            theirs = store[edges[i]]
            for c in range(width):
                past[c] = max(past[c], theirs[c])
        if r % per_message < per_message - 1:  # Of two rows, the second is the message.
            continue
        if at == messages.size or messages[at] != first + r // per_message:
            continue
        for i in range(start[at], start[at + 1]):
            c = column[i]
            if past[c] > position[i] and position[i] < MISSED and position[i] % 2 == 0:
                counts[0] += 1
                if named[c] < cap or (past[c] != latest[c] and named[c] < 2 * cap):
                    found[0, counts[1]] = at
                    found[1, counts[1]] = c
                    found[2, counts[1]] = latest[c] = past[c]
                    named[c] += 1
                    counts[1] += 1
        for i in range(start[at], start[at + 1]):
            past[column[i]] = max(past[column[i]], position[i])
        at += 1
