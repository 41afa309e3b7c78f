"""Computes the past of a receiver that left: everything before what it had delivered by then."""

from __future__ import annotations

import numpy as np

from ordercast.verify.kernels.jit import Flags, Ints, Offsets, kernel


@kernel
def known_by(
    begins: Offsets, ends: Offsets, ev: Ints, held: Flags, prev: Ints, edge_off: Offsets, edges: Ints, rows: int
) -> Offsets:
    """Per row of the causal kernel a bit for each of up to 62 stretches of logs: was it known there?

    That is, it is in the past of a delivery there that is held to causal order, or is one.
    """
    known = np.zeros(prev.size, np.int64)
    for s in range(begins.size):
        for i in range(begins[s], ends[s]):
            if ev[i] >= 0 and held[ev[i]]:
                known[rows * ev[i] + rows - 1] |= np.int64(1) << s
    for m in range(prev.size - 1, -1, -1):
        if known[m]:
            if prev[m] >= 0:
                known[prev[m]] |= known[m]
            for i in range(edge_off[m], edge_off[m + 1]):
                known[edges[i]] |= known[m]
    return known


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
