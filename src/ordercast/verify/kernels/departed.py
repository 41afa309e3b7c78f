"""Computes the past of a receiver that left: everything before what it had delivered by then."""

from __future__ import annotations

import numpy as np

from ordercast.verify.kernels.jit import Flags, Ints, Offsets, kernel


@kernel
def delivered_in(begins: Offsets, ends: Offsets, ev: Ints, held: Flags) -> Offsets:
    """Per message a bit for each of up to 62 stretches of logs: was it delivered there, and is it held?"""
    known = np.zeros(held.size, np.int64)
    for s in range(begins.size):
        for i in range(begins[s], ends[s]):
            if ev[i] >= 0 and held[ev[i]]:
                known[ev[i]] |= np.int64(1) << s
    return known


@kernel
def known_by(
    first: int, row: Ints, before: Ints, edge_off: Offsets, edges: Ints, per_message: int, store: Offsets,
    messages: Ints, until: int, known: Offsets,
) -> None:  # fmt: skip
    """Pass the bits of `known` on to everything in the past of their messages.

    Stretches come last first, each from its last message on; `known` is of `messages`, here up to entry `until`. A
    row's bits are what those who read it have passed on; they are taken out before an earlier message has the row.
    """
    for r in range(row.size - 1, -1, -1):
        bits = store[row[r]]
        store[row[r]] = 0
        is_message = r % per_message == per_message - 1  # Of two rows, the second is the message.
        if is_message and until > 0 and messages[until - 1] == first + r // per_message:
            until -= 1
            bits |= known[until]
            known[until] = bits
        if bits:
            if before[r] >= 0:
                store[before[r]] |= bits
            for i in range(edge_off[r], edge_off[r + 1]):
                store[edges[i]] |= bits


@kernel
def passed_in_line(
    begins: Offsets, ends: Offsets, ev: Ints, held: Flags, line_off: Offsets, lines: Ints, count: int, stretch: Offsets,
    message: Ints,
) -> Flags:  # fmt: skip
    """Flags on pairs of stretch and message: a later message of one of its lines was delivered there."""
    passed = np.zeros(message.size, np.uint8)
    latest = np.full(count, -1, np.int32)
    for s in range(begins.size):
        latest[:] = -1
        for i in range(begins[s], ends[s]):
            if ev[i] >= 0 and held[ev[i]]:
                for j in range(line_off[ev[i]], line_off[ev[i] + 1]):
                    latest[lines[j]] = max(latest[lines[j]], ev[i])
        for k in range(message.size):
            m = message[k]
            if stretch[k] == s and held[m]:
                for j in range(line_off[m], line_off[m + 1]):
                    if latest[lines[j]] > m:
                        passed[k] = 1
    return passed
