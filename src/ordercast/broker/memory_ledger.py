"""A broker's ledger in memory: the reference for the one on disk, which keeps in it what its own log says.

The simulator's brokers use it as their disk.
"""

from __future__ import annotations

from collections import OrderedDict

from ordercast.broker.place import SavedBroker
from ordercast.core.ids import Origin, Topic
from ordercast.pubsub.closed import Closed, ClosedSessions
from ordercast.pubsub.publications import Publication, PublicationId
from ordercast.pubsub.received import Vector
from ordercast.pubsub.tree_packets import KnownDirectory


class MemoryBrokerLedger:
    """Implements `BrokerLedger` in memory; `saved` is what the next life begins with."""

    def __init__(self) -> None:
        self._entries: dict[Topic, OrderedDict[PublicationId, Publication]] = {}
        self._prepared: dict[Topic, OrderedDict[PublicationId, Publication]] = {}
        """Totals that are in no log: nobody was given them, so that whatever is in the log comes before them."""
        self._bases: dict[Topic, Vector] = {}
        self._roster: dict[Topic, tuple[Origin, ...]] = {}
        self._fenced: dict[Origin, int] = {}
        self._closed = ClosedSessions()
        self._term = 0
        self._directory = KnownDirectory()

    def entries(self, topic: Topic, entries: tuple[Publication, ...], *, prepared: bool = False) -> None:
        """Write entries; one that is written again (a prepared publication, committed) takes its later place."""
        held, others = (some.setdefault(topic, OrderedDict()) for some in (self._entries, self._prepared))
        if prepared:
            held, others = others, held
        for entry in entries:
            key = (entry.origin, entry.number)
            others.pop(key, None)
            held[key] = entry
            held.move_to_end(key)

    def base(self, topic: Topic, base: Vector) -> None:
        """A base never falls."""
        known = self._bases.setdefault(topic, {})
        for origin, number in base.items():
            known[origin] = max(known.get(origin, 0), number)
        prepared = self._prepared.get(topic) or OrderedDict()
        for origin, number in [(origin, number) for origin, number in prepared if number <= known.get(origin, 0)]:
            del prepared[origin, number]
        held = self._entries.get(topic)
        while held:  # Of those behind the first that must stay, `saved` leaves out what is stable.
            (origin, number), entry = held.popitem(last=False)
            if number > known.get(origin, 0):
                held[origin, number] = entry
                held.move_to_end((origin, number), last=False)
                return

    def forget(self, topic: Topic) -> None:
        self._entries.pop(topic, None)
        self._prepared.pop(topic, None)
        self._bases.pop(topic, None)

    def roster(
        self, changed: dict[Topic, tuple[Origin, ...]], ended: dict[Origin, int], forgotten: tuple[Origin, ...] = ()
    ) -> None:
        self._roster.update(changed)
        for topic in [topic for topic, members in changed.items() if not members]:
            del self._roster[topic]
        self._fenced.update(ended)
        for who in forgotten:
            self._fenced.pop(who, None)

    def closed(self, closed: Closed) -> None:
        """Nothing of a folded session is kept one by one: neither its publications nor its base."""
        self._closed.merge(closed)
        for held in (*self._entries.values(), *self._prepared.values()):
            for key in [key for key in held if key[0] in self._closed]:
                del held[key]
        for base in self._bases.values():
            for origin in [origin for origin in base if origin in self._closed]:
                del base[origin]
        self._entries = {topic: held for topic, held in self._entries.items() if held}
        self._prepared = {topic: held for topic, held in self._prepared.items() if held}
        self._bases = {topic: base for topic, base in self._bases.items() if base}

    def term(self, number: int) -> None:
        """A term never falls."""
        self._term = max(self._term, number)

    def directory(self, directory: KnownDirectory) -> None:
        self._directory = directory

    def saved(self) -> SavedBroker:
        """A copy: nothing that is written later shows in it."""
        entries: dict[Topic, list[Publication]] = {}
        prepared: dict[Topic, int] = {}
        for topic in sorted(self._entries.keys() | self._prepared.keys()):
            low = self._bases.get(topic, {}).get
            logged, waiting = (
                [entry for entry in some.get(topic, {}).values() if entry.number > low(entry.origin, 0)]
                for some in (self._entries, self._prepared)
            )
            if logged or waiting:
                entries[topic] = logged + waiting
            if waiting:
                prepared[topic] = len(waiting)
        bases = {topic: dict(base) for topic, base in sorted(self._bases.items())}
        return SavedBroker(
            entries, bases, dict(self._roster), dict(self._fenced), self._closed.summary(), self._term,
            self._directory, prepared=prepared,
        )  # fmt: skip
