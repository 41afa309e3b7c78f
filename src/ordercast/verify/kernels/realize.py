"""Numbers the messages along one possible execution of the logs, or reports that there is none."""

from __future__ import annotations

import numpy as np

from ordercast.verify.kernels.jit import Flags, Ints, Offsets, kernel


@kernel
def publish_order(ev: Ints, off: Offsets, messages: int) -> tuple[Ints, Flags]:
    """Number every published message after all it depends on; flag deliveries that precede their own publication.

    What a log delivers after its last publication is in nobody's past, and is not looked at.

    Each log advances until it delivers something unpublished, and waits there for the publication. If all logs wait,
    some wait for each other in a circle: one of these deliveries is flagged and stepped over, as if it depended on
    nothing, and that breaks the circle.
    """
    columns = off.size - 1
    publisher = np.full(messages, -1, np.int32)
    stop = off[:-1].copy()
    for c in range(columns):
        for i in range(off[c], off[c + 1]):
            if ev[i] < 0:
                publisher[~ev[i]] = c
                stop[c] = i + 1
    number = np.full(messages, -1, np.int32)
    early = np.zeros(ev.size, np.uint8)
    cursor = off[:-1].copy()
    first_waiter = np.full(messages, -1, np.int32)
    next_waiter = np.full(columns, -1, np.int32)
    stack = np.arange(columns - 1, -1, -1).astype(np.int32)
    height = columns
    published = 0
    unfinished = 0
    while True:
        while height > 0:
            height -= 1
            c = stack[height]
            while cursor[c] < stop[c]:
                v = ev[cursor[c]]
                if v >= 0 and number[v] < 0:
                    next_waiter[c] = first_waiter[v]
                    first_waiter[v] = c
                    break
                if v < 0:
                    number[~v] = published
                    published += 1
                    waiter = first_waiter[~v]
                    while waiter >= 0:
                        stack[height] = waiter
                        height += 1
                        waiter = next_waiter[waiter]
                    first_waiter[~v] = -1
                cursor[c] += 1
        while unfinished < columns and cursor[unfinished] == stop[unfinished]:
            unfinished += 1
        if unfinished == columns:
            return number, early
        c = _in_a_circle(unfinished, ev, cursor, publisher)
        _stop_waiting(ev[cursor[c]], c, first_waiter, next_waiter)
        early[cursor[c]] = 1
        cursor[c] += 1
        stack[0] = c
        height = 1


@kernel
def _in_a_circle(start: int, ev: Ints, cursor: Offsets, publisher: Ints) -> int:
    """The lowest log of the circle that `start` waits for: each waits for what the next one has yet to publish."""
    slow = publisher[ev[cursor[start]]]
    fast = publisher[ev[cursor[slow]]]
    while slow != fast:
        slow = publisher[ev[cursor[slow]]]
        fast = publisher[ev[cursor[publisher[ev[cursor[fast]]]]]]
    lowest: int = slow
    c = publisher[ev[cursor[slow]]]
    while c != slow:
        lowest = min(lowest, c)
        c = publisher[ev[cursor[c]]]
    return lowest


@kernel
def _stop_waiting(message: int, column: int, first_waiter: Ints, next_waiter: Ints) -> None:
    """Take `column` out of the list of those that wait for `message`."""
    waiter = first_waiter[message]
    if waiter == column:
        first_waiter[message] = next_waiter[column]
        return
    while next_waiter[waiter] != column:
        waiter = next_waiter[waiter]
    next_waiter[waiter] = next_waiter[column]


@kernel
def renumbered(ev: Ints, number: Ints) -> Ints:
    """Logs with the messages' numbers in place of their codes."""
    renamed = np.empty_like(ev)
    for i in range(ev.size):
        renamed[i] = number[ev[i]] if ev[i] >= 0 else ~number[~ev[i]]
    return renamed


@kernel
def delivered_by(counts: Flags, ev: Ints, off: Offsets, messages: int) -> Flags:
    """Of each message: was it delivered in a log that counts?"""
    delivered = np.zeros(messages, np.uint8)
    for c in range(counts.size):
        if counts[c]:
            for i in range(off[c], off[c + 1]):
                if ev[i] >= 0:
                    delivered[ev[i]] = 1
    return delivered
