"""FIFO order: what one publisher published first, every receiver delivers first, and skips nothing that it was owed."""

from __future__ import annotations

import numpy as np

from ordercast.verify.kernels.jit import Flags, Ints, Offsets, kernel


@kernel
def violations(
    first: int, last: int, ev: Ints, off: Offsets, owed_off: Offsets, owed: Ints, due: Ints, held: Flags,
    line_off: Offsets, lines: Ints, count: int,
) -> tuple[int, Ints, Ints, Ints]:  # fmt: skip
    """Deliveries looked at, and for each violating one: message, receiver, the earliest message that it overtook.

    Each log is read backwards. Per line (a publisher, or a publisher and a key) we keep the earliest message that is
    delivered further on, or never and was due further on: a delivery violates iff one of its lines has one with a lower
    number, for numbers grow along each line.
    """
    size = off[last] - off[first]
    found_message = np.empty(size, np.int32)
    found_receiver = np.empty(size, np.int32)
    found_skipped = np.empty(size, np.int32)
    found = 0
    deliveries = 0
    seen = np.full(count, -1, np.int32)
    earliest = np.zeros(count, np.int32)
    for c in range(first, last):
        waits = owed_off[c]
        for i in range(off[c + 1] - 1, off[c] - 1, -1):
            while waits < owed_off[c + 1] and due[waits] > i - off[c]:
                m = owed[waits]
                waits += 1
                for j in range(line_off[m], line_off[m + 1]):
                    g = lines[j]
                    if held[m] and (seen[g] != c or m < earliest[g]):
                        seen[g] = c
                        earliest[g] = m
            m = ev[i]
            if m < 0 or not held[m]:
                continue
            deliveries += 1
            overtook = m
            for j in range(line_off[m], line_off[m + 1]):
                g = lines[j]
                if seen[g] == c and earliest[g] < m:
                    overtook = min(overtook, earliest[g])
                else:
                    seen[g] = c
                    earliest[g] = m
            if overtook < m:
                found_message[found] = m
                found_receiver[found] = c
                found_skipped[found] = overtook
                found += 1
    return deliveries, found_message[:found].copy(), found_receiver[:found].copy(), found_skipped[:found].copy()
