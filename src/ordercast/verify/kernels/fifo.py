"""FIFO order: what one publisher published first, every receiver delivers first, and skips nothing that it was owed."""

from __future__ import annotations

import numpy as np

from ordercast.verify.kernels.jit import Flags, Ints, Offsets, kernel


@kernel
def violations(
    first: int, last: int, ev: Ints, off: Offsets, owed_off: Offsets, owed: Ints, held: Flags, chain: Ints, chains: int
) -> tuple[int, Ints, Ints, Ints]:
    """Deliveries looked at, and for each violating one: message, receiver, the earliest message that it overtook.

    Each log is read backwards. Per publisher we keep the earliest message that is delivered further on or never: a
    delivery violates iff its publisher has one with a lower number, for numbers grow along each publisher's own order.
    """
    size = off[last] - off[first]
    found_message = np.empty(size, np.int32)
    found_receiver = np.empty(size, np.int32)
    found_skipped = np.empty(size, np.int32)
    found = 0
    deliveries = 0
    seen = np.full(chains, -1, np.int32)
    earliest = np.zeros(chains, np.int32)
    for c in range(first, last):
        for i in range(owed_off[c], owed_off[c + 1]):
            m = owed[i]
            g = chain[m]
            if held[m] and (seen[g] != c or m < earliest[g]):
                seen[g] = c
                earliest[g] = m
        for i in range(off[c + 1] - 1, off[c] - 1, -1):
            m = ev[i]
            if m < 0 or not held[m]:
                continue
            deliveries += 1
            g = chain[m]
            if seen[g] == c and earliest[g] < m:
                found_message[found] = m
                found_receiver[found] = c
                found_skipped[found] = earliest[g]
                found += 1
            else:
                seen[g] = c
                earliest[g] = m
    return deliveries, found_message[:found].copy(), found_receiver[:found].copy(), found_skipped[:found].copy()
