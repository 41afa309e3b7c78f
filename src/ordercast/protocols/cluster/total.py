"""One order for everybody: updates are delivered by rising stamp, or not at all. docs/protocols/cluster.md, CLU-9.

The stamp of an update is known to everybody who has it, and sorts causally (CLU-1.5). An update is held for a while in
which those with lower stamps may still come; whichever comes later than that is passed over. So two processes never
deliver two updates in different orders, whatever is lost, late or dead: nobody has to be asked or agreed with.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import ClassVar

from ordercast.core.state import State
from ordercast.protocols.cluster.events import Event, causal_order

Stamp = tuple[int, int]
TOTAL = "total"


class TotalQueue(State):
    """Updates whose causal past is covered, on their way to the application."""

    durable: ClassVar[tuple[str, ...]] = ("last",)

    def __init__(self) -> None:
        self.last: Stamp = (0, 0)
        """The stamp that was delivered last: nothing at or below it ever will be."""
        self.held: list[tuple[Stamp, Event]] = []
        """By stamp, which no two updates share."""
        self.due: deque[tuple[int, Stamp]] = deque()
        """When each has been held for long enough; the first one first."""

    def add(self, event: Event, due_ns: int) -> bool:
        """CLU-9.1: hold it until then; false if it comes too late."""
        stamp = causal_order(event)
        if stamp <= self.last:
            return False
        place = bisect_left(self.held, (stamp,))
        if place == len(self.held) or self.held[place][0] != stamp:
            self.held.insert(place, (stamp, event))
            self.due.append((due_ns, stamp))
        return True

    def release_lowest(self) -> list[Event]:
        """There is no room for more: what comes first does not wait any longer."""
        return self._up_to(self.held[0][0])

    def release(self, now_ns: int) -> list[Event]:
        """CLU-9.2: what has been held for long enough, and everything below it."""
        highest = self.last
        while self.due and self.due[0][0] <= now_ns:
            highest = max(highest, self.due.popleft()[1])
        return self._up_to(highest)

    def release_all(self) -> list[Event]:
        """The order is kept no more: what is held comes first, in it."""
        self.due.clear()
        return self._up_to(self.held[-1][0]) if self.held else []

    def _up_to(self, highest: Stamp) -> list[Event]:
        released: list[Event] = []
        while self.held and self.held[0][0] <= highest:
            stamp, event = self.held.pop(0)
            self.last = stamp
            released.append(event)
        while self.due and self.due[0][1] <= self.last:
            self.due.popleft()
        return released

    def inherit(self, last: Stamp) -> None:
        """CLU-9.3: the application has got the state of somebody who had delivered up to here."""
        if last > self.last:
            self.held = [one for one in self.held if one[0] > last]
            self.due = deque(one for one in self.due if one[1] > last)
            self.last = last

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(event for _, event in self.held)

    @property
    def next_ns(self) -> int | None:
        """The time at which something is due next."""
        return self.due[0][0] if self.due else None
