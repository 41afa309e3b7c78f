"""Virtual time: a calendar of instants, each a list of events in order of planning.

A flood makes many events of one instant, and a list per instant takes them for the price of an append: only a new
instant costs a place in the heap. Background events, which do not keep a run from its rest, have a heap of their own.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import chain, count
from operator import length_hint
from typing import Any

Action = Callable[[Any, Any], None]
Event = tuple[Action, Any, Any]

NS_PER_MS = 1_000_000


def ns(milliseconds: float) -> int:
    return round(milliseconds * NS_PER_MS)


class Scheduler:
    """The clock of a run. Hot code appends to the lists of `instants` itself; everybody else calls `at`."""

    def __init__(self) -> None:
        self.now = 0
        self.instants: dict[int, list[Event]] = {}
        self._times: list[int] = []
        self._running: Iterator[Event] = iter(())
        self._background: list[tuple[int, int, Action, Any, Any]] = []
        self._order = count()
        self._ends = False
        """Whether nothing is planned in the background any more."""

    def at(self, time_ns: int, action: Action, a: Any = None, b: Any = None) -> None:
        """Call `action(a, b)` at a time, or now if that is past; after all that was planned for then before."""
        if time_ns < self.now:
            time_ns = self.now
        events = self.instants.get(time_ns)
        if events is None:
            self.instants[time_ns] = [(action, a, b)]
            heapq.heappush(self._times, time_ns)
        else:
            events.append((action, a, b))

    def at_free(self, time_ns: int, action: Action, a: Any, b: Any) -> bool:
        """Like `at`, if that is in the future and nothing is planned for then; else false, and nothing is planned."""
        if time_ns in self.instants or time_ns <= self.now:
            return False
        self.instants[time_ns] = [(action, a, b)]
        heapq.heappush(self._times, time_ns)
        return True

    def in_background(self, time_ns: int, action: Action, a: Any = None, b: Any = None) -> None:
        """Like `at`, but a run may come to its rest before; comes after everything else of its instant."""
        if not self._ends:
            heapq.heappush(self._background, (max(time_ns, self.now), next(self._order), action, a, b))

    def run_until(self, time_ns: int) -> int:
        """Handle every event up to and including `time_ns`; returns how many there were."""
        handled = self._run(time_ns)
        while self._background and self._background[0][0] <= time_ns:
            handled += self._run_background() + self._run(time_ns)
        self.now = time_ns
        return handled

    def run_to_rest(self, deadline_ns: int) -> int:
        """Handle events until only background ones are left, or until the deadline."""
        return self._run(deadline_ns)

    def drop_background(self) -> None:
        """Nothing in the background happens any more, neither what is planned nor what will be."""
        self._ends = True
        self._background.clear()

    @property
    def at_rest(self) -> bool:
        return not self.instants

    def pending(self) -> Iterator[Event]:
        """For use within an event: all that are still to come and not in the background, in no particular order."""
        current = self.instants.get(self.now, [])
        rest = current[len(current) - length_hint(self._running) :]
        return chain(rest, *(events for time, events in self.instants.items() if time != self.now))

    def _run(self, limit_ns: int) -> int:
        """Handle the calendar up to the limit, with the background events that come before something in it."""
        times, instants, background = self._times, self.instants, self._background
        handled = 0
        while times and times[0] <= limit_ns:
            if background and background[0][0] < times[0]:
                handled += self._run_background()
                continue
            self.now = now = heapq.heappop(times)
            events = instants[now]
            self._running = iter(events)
            for action, a, b in self._running:  # The list grows by what is planned for this very instant.
                action(a, b)
            handled += len(events)
            del instants[now]
        return handled

    def _run_background(self) -> int:
        self.now, _, action, a, b = heapq.heappop(self._background)
        action(a, b)
        return 1
