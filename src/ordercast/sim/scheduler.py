"""Virtual time: a heap of events, popped in order of time and, at one instant, in order of creation."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any

Event = tuple[int, int, Callable[[Any, Any], None], Any, Any]

NS_PER_MS = 1_000_000


def ns(milliseconds: float) -> int:
    return round(milliseconds * NS_PER_MS)


class Scheduler:
    """The clock of a run. Hot code pushes onto `heap` itself; everybody else calls `at`."""

    def __init__(self) -> None:
        self.now = 0
        self.heap: list[Event] = []
        self.order = count()
        self.background = 0
        """How many events in the heap do not keep the run from being at rest."""

    def at(self, time_ns: int, action: Callable[[Any, Any], None], a: Any = None, b: Any = None) -> None:
        heapq.heappush(self.heap, (max(time_ns, self.now), next(self.order), action, a, b))

    def run_until(self, time_ns: int) -> int:
        """Handle every event up to and including `time_ns`; returns how many there were."""
        heap = self.heap
        pop = heapq.heappop
        handled = 0
        while heap and heap[0][0] <= time_ns:
            self.now, _, action, a, b = pop(heap)
            action(a, b)
            handled += 1
        self.now = time_ns
        return handled

    def run_to_rest(self, deadline_ns: int) -> int:
        """Handle events until only background timers are left, or until the deadline."""
        heap = self.heap
        pop = heapq.heappop
        handled = 0
        while len(heap) > self.background and heap[0][0] <= deadline_ns:
            self.now, _, action, a, b = pop(heap)
            action(a, b)
            handled += 1
        return handled

    @property
    def at_rest(self) -> bool:
        return len(self.heap) <= self.background
