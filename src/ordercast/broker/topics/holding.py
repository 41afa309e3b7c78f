"""Queues of each client's publications in order, and those that wait to be admitted (BRK-P2, BRK-P5).

In scope `session` the publications of a client stand in one queue, in scope `key` in one for each key. Nothing here
grows with what merely waits: a look is taken only at a publication that has something new to hope for.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from heapq import heappop, heappush
from typing import ClassVar

from ordercast.core.ids import Origin
from ordercast.core.state import State
from ordercast.pubsub.publications import Publication, PublicationId

QueueName = Origin | tuple[Origin, str]
"""A client, or a client and a key of its publications."""


class Queues(State):
    """Publications in the order of their numbers, client by client."""

    constant: ClassVar[tuple[str, ...]] = ("by_key",)

    def __init__(self, *, by_key: bool) -> None:
        self.by_key = by_key
        self._queues: dict[QueueName, list[int]] = {}
        """Heaps, of which the first is always there; others may be gone."""
        self._gone: set[tuple[QueueName, int]] = set()
        """Those in the heaps that have left before it was their turn."""

    def _names(self, entry: Publication) -> Sequence[QueueName]:
        return [(entry.origin, key) for key in entry.keys] if self.by_key else (entry.origin,)

    def add(self, entry: Publication) -> None:
        queues, number = self._queues, entry.number
        for name in self._names(entry) if self.by_key else (entry.origin,):
            queue = queues.get(name)
            if queue is None:
                queues[name] = [number]
            elif self._gone and (name, number) in self._gone:
                self._gone.remove((name, number))  # It has come back, to the place that it still has.
            else:
                heappush(queue, number)

    def behind(self, entry: Publication) -> bool:
        """Whether somebody stands where the entry, which is not there, would have to stand."""
        return any(name in self._queues for name in self._names(entry))

    def first(self, entry: Publication) -> bool:
        """Whether the entry, which is there, is the first wherever it stands."""
        queues, number = self._queues, entry.number
        if not self.by_key:
            return queues[entry.origin][0] == number
        return all(queues[name][0] == number for name in self._names(entry))

    def remove(self, entry: Publication) -> list[PublicationId]:
        """It goes; gives those that are now the first of a queue in which it was the first."""
        origin, number, queues = entry.origin, entry.number, self._queues
        following = []
        for name in self._names(entry) if self.by_key else (origin,):
            queue = queues[name]
            if queue[0] != number:
                self._gone.add((name, number))
                continue
            heappop(queue)
            if self._gone:
                self._skip(name, queue)
            if queue:
                following.append((origin, queue[0]))
            else:
                del queues[name]
        return following

    def _skip(self, name: QueueName, queue: list[int]) -> None:
        """Drop from the front what has left before."""
        while queue and (name, queue[0]) in self._gone:
            self._gone.remove((name, heappop(queue)))

    def frozen(self) -> Hashable:
        """Without the order inside a heap and those that are gone: neither shows."""
        gone = self._gone
        return frozenset(
            (name, frozenset(number for number in numbers if (name, number) not in gone))
            for name, numbers in self._queues.items()
        )

    def front(self, origin: Origin) -> PublicationId | None:
        """The client's first one; scope session only."""
        queue = self._queues.get(origin)
        return (origin, queue[0]) if queue else None


class Holding(State):
    """Publications of local clients that wait to be admitted."""

    constant: ClassVar[tuple[str, ...]] = ("_by_key",)
    derived: ClassVar[tuple[str, ...]] = ("weight",)

    def __init__(self, *, by_key: bool) -> None:
        self.of: dict[Origin, dict[int, Publication]] = {}
        """By client, in the order in which they came."""
        self.hopeful: set[PublicationId] = set()
        """Those whose obstacle may be gone, to be looked at again (BRK-P5)."""
        self._queues = Queues(by_key=by_key)
        self._locked_out: dict[str, set[PublicationId]] = {}
        """By key: those that are the first wherever they stand and wait for this key."""
        self._by_key = by_key
        self.weight = 0
        """Bytes of all of them."""

    def __contains__(self, origin: Origin) -> bool:
        return origin in self.of

    def __bool__(self) -> bool:
        return bool(self.of)

    def __len__(self) -> int:
        return sum(map(len, self.of.values()))

    def find(self, pair: PublicationId) -> Publication | None:
        held = self.of.get(pair[0])
        return held.get(pair[1]) if held is not None else None

    def behind(self, entry: Publication) -> bool:
        """BRK-P2: whether something that the same client published before, and must stay before, is held."""
        return entry.origin in self.of and self._queues.behind(entry)

    def add(self, entry: Publication) -> None:
        self.of.setdefault(entry.origin, {})[entry.number] = entry
        self.weight += entry.weight
        self._queues.add(entry)
        self.hopeful.add((entry.origin, entry.number))

    def remove(self, entry: Publication) -> list[PublicationId]:
        """Gives those that stood right behind it."""
        held = self.of[entry.origin]
        del held[entry.number]
        self.weight -= entry.weight
        if not held:
            del self.of[entry.origin]
        return self._queues.remove(entry)

    def drop(self, origin: Origin) -> None:
        """The client's session is over: what it has published and nobody has admitted never was."""
        for entry in list(self.of.get(origin, {}).values()):
            self.remove(entry)

    def first(self, entry: Publication) -> bool:
        return self._queues.first(entry)

    # What may give hope

    def wait_for(self, key: str, pair: PublicationId) -> None:
        self._locked_out.setdefault(key, set()).add(pair)

    def unlocked(self, key: str) -> None:
        if self._locked_out:
            self.hopeful.update(self._locked_out.pop(key, ()))

    def nothing_pending(self, origin: Origin) -> None:
        """Scope session: the client's last pending total is gone."""
        front = None if self._by_key else self._queues.front(origin)
        if front is not None:
            self.hopeful.add(front)

    def known(self, pairs: Iterable[PublicationId]) -> None:
        """These have arrived another way: look at those of them that are held again."""
        self.hopeful.update(pair for pair in pairs if self.find(pair) is not None)

    def stable(self, origin: Origin, number: int) -> None:
        """Everything of the client up to this number is stable."""
        for held in self.of.get(origin, ()):  # They came in the order of their numbers (BRK-P1).
            if held > number:
                break
            self.hopeful.add((origin, held))
