"""Real time: what anybody had delivered when a message was published comes before that message, everywhere."""

from __future__ import annotations

import numpy as np

from ordercast.verify.kernels.jit import Flags, Ints, Offsets, kernel


@kernel
def violations(
    ev: Ints, off: Offsets, owed_off: Offsets, owed: Ints, due: Ints, held: Flags, topic: Ints,
    topics: int, published_ns: Offsets, first_ns: Offsets,
) -> tuple[int, Ints, Ints, Ints]:  # fmt: skip
    """Deliveries looked at, and for each violating one: message, receiver, a message that should have come before it.

    Each log is read backwards. Per topic we keep, of the messages that are delivered further on, or never and were due
    further on, the one that was delivered first anywhere: if that was before the publication of the delivery at hand,
    they are out of order.
    """
    found_message = np.empty(ev.size, np.int32)
    found_receiver = np.empty(ev.size, np.int32)
    found_later = np.empty(ev.size, np.int32)
    found = 0
    deliveries = 0
    oldest = np.full(topics + 1, -1, np.int32)
    for c in range(off.size - 1):
        oldest[:] = -1
        waits = owed_off[c]
        for i in range(off[c + 1] - 1, off[c] - 1, -1):
            while waits < owed_off[c + 1] and due[waits] > i - off[c]:
                m = owed[waits]
                waits += 1
                if held[m] and (oldest[topic[m]] < 0 or first_ns[m] < first_ns[oldest[topic[m]]]):
                    oldest[topic[m]] = m
            m = ev[i]
            if m < 0 or not held[m]:
                continue
            deliveries += 1
            later = oldest[topic[m]]
            if later >= 0 and first_ns[later] < published_ns[m]:
                found_message[found] = m
                found_receiver[found] = c
                found_later[found] = later
                found += 1
            if later < 0 or first_ns[m] < first_ns[later]:
                oldest[topic[m]] = m
    return deliveries, found_message[:found].copy(), found_receiver[:found].copy(), found_later[:found].copy()
