"""Recovery of lost updates: keeps some for others, asks others for what is missing. docs/protocols/cluster.md CLU-4."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import ClassVar

from ordercast.core.state import State
from ordercast.protocols.cluster.events import (
    ENTRY_BITS,
    ENTRY_MASK,
    Event,
    Range,
    Value,
    causal_order,
    epoch_of,
    key_of,
    value_of,
)  # fmt: skip

FIFO, AGE = "fifo", "age"


class RecoveryBuffer(State):
    """The updates that others may ask for: `slots` of them, each put in once, the rest replaced.

    FIFO replaces the one that came first; AGE the one that was created first, as far as rounds tell.
    """

    constant: ClassVar[tuple[str, ...]] = ("slots", "replacement")
    ordered: ClassVar[tuple[str, ...]] = ("events",)

    def __init__(self, slots: int, replacement: str = FIFO) -> None:
        self.slots = slots
        self.replacement = replacement
        self.events: dict[int, Event] = {}
        self.arrivals: deque[int] = deque()
        """For FIFO only: keys in the order in which they came; the first ones of a dict take long to find."""
        self.births: dict[int, int] = {}
        """For AGE only: the round in which each was created."""

    def store(self, event: Event, born: int = 0) -> None:
        """CLU-4.1: a second insertion changes nothing: it would shorten the life of others."""
        key, events = event.key, self.events
        if key in events:
            return
        events[key] = event
        if self.replacement == FIFO:
            self.arrivals.append(key)
            if len(events) > self.slots:
                del events[self.arrivals.popleft()]
            return
        self.births[key] = born
        if len(events) > self.slots:
            oldest = min(self.births, key=self.births.__getitem__)
            del self.births[oldest], events[oldest]

    def inside(self, ranges: Iterable[Range]) -> list[Event]:
        """CLU-4.4: what is kept of the ranges, in causal order."""
        found: dict[int, Event] = {}
        for entry, low, high in ranges:
            for key in self._keys_inside(entry, low, high):
                found[key] = self.events[key]
        return sorted(found.values(), key=causal_order)

    def _keys_inside(self, entry: int, low: Value, high: Value) -> list[int]:
        """Mostly few numbers of one epoch: to look each up is cheaper than to look at everything that is kept."""
        events = self.events
        if not low and epoch_of(high) == 1:
            low = value_of(1, 0)  # Nothing is before the first epoch.
        if high - low < len(events):
            return [key for value in range(low + 1, high + 1) if (key := key_of(entry, value)) in events]
        return [key for key in events if key & ENTRY_MASK == entry and low < key >> ENTRY_BITS <= high]


class Asked(State):
    """CLU-4.3: what was asked for and when, so that many updates with one gap before them make one request."""

    def __init__(self) -> None:
        self.last: dict[int, tuple[Value, Value, int]] = {}
        """By entry: the range that was asked for last, and when."""

    def new_of(self, ranges: Iterable[Range], waiting: dict[int, Event], now_ns: int, patience_ns: int) -> list[Range]:
        """The parts of the ranges that nobody has and nobody was asked for within `patience_ns`; noted as asked for."""
        new: list[Range] = []
        for entry, low, high in ranges:
            low, high = trimmed(entry, low, high, waiting)  # noqa: PLW2901 - the range without its ends that are here
            last = self.last.get(entry)
            covered = last is not None and last[0] <= low and high <= last[1] and now_ns - last[2] < patience_ns
            if low < high and not covered:
                self.last[entry] = low, high, now_ns
                new.append((entry, low, high))
        return new


def trimmed(entry: int, low: Value, high: Value, waiting: dict[int, Event]) -> tuple[Value, Value]:
    """The range without what is here already at its two ends."""
    while high > low and (held := waiting.get(key_of(entry, high))) is not None:
        high = held.before
    while low < high and epoch_of(low) == epoch_of(high) and key_of(entry, low + 1) in waiting:
        low += 1
    return low, high
