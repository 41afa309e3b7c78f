"""Which messages a node has met, in memory that grows with the gaps and not with the messages.

Numbers of one origin start at 1 and have no gaps, so the highest one met and the few below it that are still missing
say it all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId, Origin, publisher_of
from ordercast.core.state import State

Summary = tuple[tuple[Origin, int, tuple[int, ...]], ...]
"""Per origin: the highest number met, and which below it were not. Sorted, so that equal knowledge has equal bytes."""

GAP_LIMIT = 1 << 20
"""No origin can be this many messages ahead of itself; a number further off is nonsense, not news."""


class Seen(State):
    """Remembers (origin, number) pairs; each is new exactly once."""

    durable: ClassVar[tuple[str, ...]] = ("highest", "missing")

    def __init__(self) -> None:
        self.highest: dict[Origin, int] = {}
        self.missing: dict[Origin, set[int]] = {}

    def add(self, origin: Origin, number: int, by: NodeId | None = None) -> bool:
        """Remember the pair; whether it is new. If it cannot be, whoever passed it on is to blame."""
        highest = self.highest.get(origin, 0)
        if number == highest + 1:
            self.highest[origin] = number
            return True
        return self._add_out_of_order(origin, number, highest, by)

    def _add_out_of_order(self, origin: Origin, number: int, highest: int, by: NodeId | None) -> bool:
        if number > highest:
            if number - highest > GAP_LIMIT:
                blamed = publisher_of(origin) if by is None else by
                raise PeerError(blamed, f"jumps from message {highest} of {origin} to message {number}")
            self.missing.setdefault(origin, set()).update(range(highest + 1, number))
            self.highest[origin] = number
            return True
        missing = self.missing.get(origin)
        if missing is None or number not in missing:
            return False
        missing.discard(number)
        if not missing:
            del self.missing[origin]
        return True

    def summary(self, but: Iterable[tuple[Origin, int]] = ()) -> Summary:
        """All that was met except the pairs in `but`."""
        absent = {origin: set(numbers) for origin, numbers in self.missing.items()}
        for origin, number in but:
            absent.setdefault(origin, set()).add(number)
        return tuple(
            (origin, highest, tuple(sorted(absent.get(origin, ())))) for origin, highest in sorted(self.highest.items())
        )

    def merge(self, summary: Summary) -> None:
        """Count what `summary` has met as met here."""
        for origin, highest, absent in summary:
            mine = self.highest.get(origin, 0)
            missing = {number for number in self.missing.pop(origin, ()) if number > highest or number in absent}
            missing.update(number for number in absent if number > mine)
            if missing:
                self.missing[origin] = missing
            self.highest[origin] = max(mine, highest)

    def next_absent(self, origin: Origin, number: int) -> int:
        """The first number from `number` on that was not met."""
        highest = self.highest.get(origin, 0)
        if number > highest:
            return number
        missing = self.missing.get(origin, ())
        if number in missing:
            return number
        return min((absent for absent in missing if absent > number), default=highest + 1)
