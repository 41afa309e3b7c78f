"""Received-sets: which publications of a topic a process has, in memory that grows with the gaps only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ordercast.core.ids import Origin
from ordercast.core.state import State

Summary = dict[Origin, tuple[int, tuple[int, ...]]]
"""On the wire: per publisher, everything up to the first number, and the sorted extras above it."""
Vector = dict[Origin, int]
"""Per publisher, everything up to this number."""


class Received(State):
    """Remembers (origin, number) pairs of one topic; each is new exactly once."""

    durable: ClassVar[tuple[str, ...]] = ("low", "extras")

    def __init__(self, summary: Summary | None = None) -> None:
        self.low: dict[Origin, int] = {}
        self.extras: dict[Origin, set[int]] = {}
        if summary:
            self.merge(summary)

    def add(self, origin: Origin, number: int) -> bool:
        """Remember the pair; whether it is new."""
        low = self.low.get(origin, 0)
        if number <= low:
            return False
        extras = self.extras.get(origin)
        if number != low + 1:
            if extras is None:
                self.extras[origin] = {number}
                return True
            if number in extras:
                return False
            extras.add(number)
            return True
        if extras:
            number = self._absorb(origin, number, extras)
        self.low[origin] = number
        return True

    def _absorb(self, origin: Origin, low: int, extras: set[int]) -> int:
        """The new low once the extras that follow it are part of the prefix."""
        while low + 1 in extras:
            low += 1
            extras.remove(low)
        if not extras:
            del self.extras[origin]
        return low

    def __contains__(self, pair: tuple[Origin, int]) -> bool:
        origin, number = pair
        if number <= self.low.get(origin, 0):
            return True
        extras = self.extras.get(origin)
        return extras is not None and number in extras

    def raise_to(self, base: Vector) -> None:
        """Everything up to `base` counts as received."""
        for origin, number in base.items():
            if number <= self.low.get(origin, 0):
                continue
            low = number
            if origin in self.extras:
                extras = self.extras[origin] = {extra for extra in self.extras[origin] if extra > number}
                low = self._absorb(origin, number, extras)
            self.low[origin] = low

    def forget(self, origin: Origin) -> None:
        """BRK-F7: its session is closed; whoever asks about it asks the set of closed sessions first."""
        self.low.pop(origin, None)
        self.extras.pop(origin, None)

    def merge(self, summary: Summary) -> None:
        """Everything in `summary` counts as received."""
        self.raise_to({origin: low for origin, (low, _) in summary.items()})
        for origin, (_, extras) in summary.items():
            for number in extras:
                self.add(origin, number)

    def update(self, pairs: Iterable[tuple[Origin, int]]) -> None:
        """Remember many pairs, most of which are the next of their publisher."""
        low, extras, add = self.low, self.extras, self.add
        for origin, number in pairs:
            if number == low.get(origin, 0) + 1 and origin not in extras:
                low[origin] = number
            else:
                add(origin, number)

    def summary(self) -> Summary:
        """For the wire, sorted, so that equal knowledge has equal bytes."""
        origins = sorted(self.low.keys() | self.extras.keys())
        return {origin: (self.low.get(origin, 0), tuple(sorted(self.extras.get(origin, ())))) for origin in origins}

    def vector(self) -> Vector:
        """The contiguous part only."""
        return dict(sorted(self.low.items()))
