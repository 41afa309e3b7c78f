"""Judges what the applications of a group were handed: SHW-G1 to SHW-G4, from nothing but what they saw."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from ordercast.pubsub.publications import PublicationId


@dataclass
class Handed:
    """One time that an application was handed a unit."""

    unit: PublicationId
    keys: tuple[str, ...]
    by: str
    began: int
    ended: int | None = None
    done: bool = False
    """It said so and was still a member in its own eyes."""
    confirmed: int | None = None
    """When it was told that this is written down."""


@dataclass
class WorkStory:
    """Everything that happened to the work of one group."""

    owed: Collection[PublicationId]
    """What must be done in the end."""
    buried: Collection[PublicationId]
    history: list[Handed]
    """In the order of time."""
    given_up: Callable[[str], bool]
    """Whether that member was killed or given up: what it did may be done again."""
    precedes: Callable[[PublicationId, PublicationId], bool]
    """Whether the order of the topic puts the one before the other."""
    unkept: Callable[[int, int], bool] = lambda _start, _end: False
    """SHW-13: whether what the group wrote down within that time may be lost, as no copy of it was in the tree."""

    def problems(self) -> list[str]:
        """What was promised and not kept."""
        done = {handed.unit for handed in self.history if handed.done} | set(self.buried)
        found = [f"lost: {unit}" for unit in self.owed if unit not in done]
        return found + self._twice() + self._out_of_order() + self._at_one_time()

    def _twice(self) -> list[str]:
        """After a confirmation nobody is handed it again; and before, only if its holder was given up."""
        found = []
        for unit, times in _grouped(self.history, lambda handed: (handed.unit,)).items():
            for earlier in times[:-1]:
                if earlier.confirmed is not None:
                    assert earlier.ended is not None
                    if not self.unkept(earlier.ended, earlier.confirmed):
                        found.append(f"done for ever and handed out again: {unit}")
                elif not self.given_up(earlier.by):
                    found.append(f"handed out twice although {earlier.by} lives: {unit}")
        return found

    def _out_of_order(self) -> list[str]:
        """A unit is first handed out after all that precede it in one of its keys."""
        found = []
        first = {handed.unit: handed for handed in reversed(self.history)}
        ordered = [handed for handed in self.history if first[handed.unit] is handed]
        for key, times in _grouped(ordered, lambda handed: handed.keys).items():
            for i, earlier in enumerate(times):
                found += [
                    f"key {key} out of order: {later.unit} after {earlier.unit}"
                    for later in times[i + 1 :]
                    if self.precedes(later.unit, earlier.unit)
                ]
        return found

    def _at_one_time(self) -> list[str]:
        """Two units of one key are never in hand together, unless the holder of one was given up."""
        found = []
        for times in _grouped(self.history, lambda handed: handed.keys).values():
            for i, one in enumerate(times):
                for other in times[i + 1 :]:
                    apart = one.ended is not None and other.began >= one.ended
                    if not apart and one.unit != other.unit and not self.given_up(one.by):
                        found.append(f"{one.unit} and {other.unit} at one time: {one.by}, {other.by}")
        return found


def _grouped(history: Iterable[Handed], names: Callable[[Handed], tuple[object, ...]]) -> dict[object, list[Handed]]:
    groups: dict[object, list[Handed]] = {}
    for handed in history:
        for name in names(handed):
            groups.setdefault(name, []).append(handed)
    return groups
