"""Prefix order: no two receivers, both addressed by two messages, put them in opposite orders; never is last."""

from __future__ import annotations

import numpy as np

from ordercast.verify.kernels.jit import NEVER, Ints, Offsets, kernel


@kernel
def violations(
    queue: Ints, queue_off: Offsets, owed_off: Offsets, owed: Ints, start: Offsets, where: Ints, position: Ints,
    lacking_off: Offsets, lacking: Ints,
) -> tuple[Ints, Ints, Ints, Ints]:  # fmt: skip
    """Every (message, receiver) that another receiver orders the other way, with that receiver and the other message.

    For a receiver p, `far[q]` is the latest position at q of anything p delivered so far. If p now delivers, or never
    delivers, a message that q has before that position, then p and q disagree. `start`, `where`, `position` index the
    deliveries by message, `lacking_off` and `lacking` the receivers that a message was owed to and never reached.
    """
    queues = queue_off.size - 1
    size = queue.size + owed.size
    found_message = np.empty(size, np.int32)
    found_receiver = np.empty(size, np.int32)
    found_other = np.empty(size, np.int32)
    found_against = np.empty(size, np.int32)
    found = 0
    far = np.empty(queues, np.int32)
    farthest = np.empty(queues, np.int32)
    for p in range(queues):
        far[:] = -1
        held = queue_off[p + 1] - queue_off[p]
        for i in range(held + owed_off[p + 1] - owed_off[p]):
            m = queue[queue_off[p] + i] if i < held else owed[owed_off[p] + i - held]
            for k in range(start[m], start[m + 1]):
                q = where[k]
                if far[q] > position[k]:
                    found_message[found] = m
                    found_receiver[found] = p
                    found_other[found] = q
                    found_against[found] = farthest[q]
                    found += 1
                    break
            if i >= held:
                continue
            for k in range(start[m], start[m + 1]):
                if position[k] > far[where[k]]:
                    far[where[k]] = position[k]
                    farthest[where[k]] = m
            for k in range(lacking_off[m], lacking_off[m + 1]):
                if far[lacking[k]] < NEVER:
                    far[lacking[k]] = NEVER
                    farthest[lacking[k]] = m
    return (
        found_message[:found].copy(),
        found_receiver[:found].copy(),
        found_other[:found].copy(),
        found_against[:found].copy(),
    )
