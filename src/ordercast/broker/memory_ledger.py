"""A broker's ledger in memory: the reference for the one on disk, which keeps in it what its own log says.

The simulator's brokers use it as their disk.
"""

from __future__ import annotations

from collections import OrderedDict

from ordercast.broker.place import SavedBroker
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.pubsub.publications import Publication, PublicationId
from ordercast.pubsub.received import Vector


class MemoryBrokerLedger:
    """Implements `BrokerLedger` in memory; `saved` is what the next life begins with."""

    def __init__(self) -> None:
        self._entries: dict[Topic, OrderedDict[PublicationId, Publication]] = {}
        self._bases: dict[Topic, Vector] = {}
        self._roster: dict[Topic, tuple[Origin, ...]] = {}
        self._fenced: dict[Origin, int] = {}
        self._term = 0
        self._directory: dict[NodeId, str] = {}

    def entries(self, topic: Topic, entries: tuple[Publication, ...]) -> None:
        """What is written again (a prepared publication that is committed) takes its later place."""
        held = self._entries.setdefault(topic, OrderedDict())
        for entry in entries:
            key = (entry.origin, entry.number)
            held[key] = entry
            held.move_to_end(key)

    def base(self, topic: Topic, base: Vector) -> None:
        """A base never falls."""
        known = self._bases.setdefault(topic, {})
        for origin, number in base.items():
            known[origin] = max(known.get(origin, 0), number)
        held = self._entries.get(topic)
        while held:  # Of those behind the first that must stay, `saved` leaves out what is stable.
            (origin, number), entry = held.popitem(last=False)
            if number > known.get(origin, 0):
                held[origin, number] = entry
                held.move_to_end((origin, number), last=False)
                return

    def forget(self, topic: Topic) -> None:
        self._entries.pop(topic, None)
        self._bases.pop(topic, None)

    def roster(self, roster: dict[Topic, tuple[Origin, ...]], fenced: dict[Origin, int]) -> None:
        self._roster, self._fenced = dict(roster), dict(fenced)

    def members(self) -> tuple[dict[Topic, tuple[Origin, ...]], dict[Origin, int]]:
        """What is written down about members: who they are, and whose memberships are over."""
        return self._roster, self._fenced

    def roster_news(
        self, roster: dict[Topic, tuple[Origin, ...]], gone: tuple[Topic, ...], fenced: dict[Origin, int],
        forgotten: tuple[Origin, ...],
    ) -> None:  # fmt: skip
        """Only what has changed: topics with all their members, topics without any, ends to know and to forget."""
        self._roster.update(roster)
        for topic in gone:
            self._roster.pop(topic, None)
        self._fenced.update(fenced)
        for who in forgotten:
            self._fenced.pop(who, None)

    def term(self, number: int) -> None:
        """A term never falls."""
        self._term = max(self._term, number)

    def directory(self, directory: dict[NodeId, str]) -> None:
        self._directory = dict(directory)

    def saved(self) -> SavedBroker:
        """A copy: nothing that is written later shows in it."""
        entries: dict[Topic, list[Publication]] = {}
        for topic, held in sorted(self._entries.items()):
            low = self._bases.get(topic, {}).get
            left = [entry for entry in held.values() if entry.number > low(entry.origin, 0)]
            if left:
                entries[topic] = left
        bases = {topic: dict(base) for topic, base in sorted(self._bases.items())}
        return SavedBroker(entries, bases, dict(self._roster), dict(self._fenced), self._term, dict(self._directory))
