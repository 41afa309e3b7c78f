"""The totals of a topic that are not committed yet, and the keys that they lock (BRK-L1)."""

from __future__ import annotations

from typing import ClassVar

from ordercast.broker.topics.holding import Queues
from ordercast.core.errors import InvariantError
from ordercast.core.ids import Origin
from ordercast.core.state import State
from ordercast.pubsub.publications import Publication, PublicationId


class PendingTotals(State):
    """Totals that every member has to have before they are committed."""

    derived: ClassVar[tuple[str, ...]] = ("weight",)
    ordered: ClassVar[tuple[str, ...]] = ("entries",)

    def __init__(self, *, by_key: bool) -> None:
        self.entries: dict[PublicationId, Publication] = {}
        self.locks: dict[str, int] = {}
        """Key to the number of pending totals that carry it."""
        self.numbers: dict[Origin, set[int]] = {}
        """Numbers of each client's pending totals."""
        self._top: dict[Origin, int] = {}
        """Per client, the highest number since it had none."""
        self.turns = Queues(by_key=by_key)
        """In which order the pending totals of one client are to be committed (BRK-L4)."""
        self.weight = 0
        """Bytes of them."""

    def add(self, entry: Publication) -> None:
        """Lock all its keys at once."""
        origin, number = pair = entry.origin, entry.number
        self.entries[pair] = entry
        self.weight += entry.weight
        numbers = self.numbers.get(origin)
        if numbers is None:
            numbers = self.numbers[origin] = set()
        numbers.add(number)
        if number > self._top.get(origin, 0):
            self._top[origin] = number
        self.turns.add(entry)
        locks = self.locks
        for key in entry.keys:
            locks[key] = locks.get(key, 0) + 1

    def remove(self, entry: Publication) -> list[str]:
        """Unlock; gives the keys that nothing locks any more."""
        origin, number = pair = entry.origin, entry.number
        del self.entries[pair]
        self.weight -= entry.weight
        numbers = self.numbers[origin]
        numbers.remove(number)
        if not numbers:
            del self.numbers[origin], self._top[origin]
        locks, unlocked = self.locks, []
        for key in entry.keys:
            left = locks[key] - 1
            if left:
                locks[key] = left
            else:
                del locks[key]
                unlocked.append(key)
        return unlocked

    def above(self, origin: Origin, low: int) -> list[int]:
        """Numbers of the client's pending totals that are higher."""
        if self._top.get(origin, 0) <= low:
            return []
        return [number for number in self.numbers[origin] if number > low]

    def check(self, topic: str) -> None:
        """BRK-I2: what is locked are the keys of the pending totals."""
        locks: dict[str, int] = {}
        for entry in self.entries.values():
            for key in entry.keys:
                locks[key] = locks.get(key, 0) + 1
        if locks != self.locks:
            raise InvariantError(f"topic {topic}: the locks {self.locks} are not those of the pending totals")
        if self.weight != sum(entry.weight for entry in self.entries.values()):
            raise InvariantError(f"topic {topic}: the pending totals do not weigh {self.weight} bytes")
