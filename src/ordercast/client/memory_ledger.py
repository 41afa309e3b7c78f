"""A client's ledger in memory: the reference for the one on disk, and the disk of the simulator's clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat

from msgspec.structs import replace

from ordercast.client.ports import NO_SEALS, MissedFilters, SavedClient, SavedReplay, SavedTopic
from ordercast.core.ids import Origin, Topic, ticketed
from ordercast.pubsub.closed import Closed, ClosedSessions
from ordercast.pubsub.cuts import plain
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Received, Vector
from ordercast.pubsub.seals import cut


class _Topic:
    def __init__(self) -> None:
        self.receives: bool | None = None
        self.granted = False
        self.counter = 0
        self.outbox: dict[int, Publication] = {}
        self.history: list[tuple[Publication, bytes]] = []
        """Each with its seal, which may be empty."""
        self.untaken = 0
        self.have = Received()
        self.base: Vector = {}
        self.base_seals: dict[Origin, bytes] = {}
        self.replay: SavedReplay | None = None
        self.safe: tuple[int, tuple[int, ...]] = (0, ())

    def fold(self, closed: ClosedSessions) -> None:
        for origin in [origin for origin in {*self.have.summary(), *self.base} if origin in closed]:
            self.have.forget(origin)
            self.base.pop(origin, None)
            self.base_seals.pop(origin, None)
        taken = len(self.history) - self.untaken
        self.history[:taken] = [one for one in self.history[:taken] if one[0].origin not in closed]

    def saved(self, mine: Origin) -> SavedTopic:
        outbox = [replace(self.outbox[number], origin=mine) for number in sorted(self.outbox)]
        history = [entry for entry, _ in self.history]
        seals = {(entry.origin, entry.number): seal for entry, seal in self.history if seal}
        return SavedTopic(
            self.receives, self.granted, self.counter, outbox, history, self.untaken, self.have.summary(),
            dict(self.base), seals, dict(self.base_seals), self.replay, self.safe,
        )  # fmt: skip


class MemoryClientLedger:
    """Implements `ClientLedger`; `saved` is what the next life of the same session begins with."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self._attach_no = 0
        self._watched: tuple[str, ...] = ()
        self._followed: tuple[str, ...] = ()
        self._granted = False
        self._missed = MissedFilters()
        self._gaps: set[Topic] = set()
        self._topics: dict[Topic, _Topic] = {}
        self._plain = origin
        self._ticket, self._ticket_seal = "", b""
        self._closed = ClosedSessions()
        self.unanswered: list[Publication] = []
        """What a session that was given up was never told to be safe."""

    def saved(self) -> SavedClient:
        """A copy: nothing that is written later shows in it."""
        topics = {topic: self._topics[topic].saved(self.origin) for topic in sorted(self._topics)}
        return SavedClient(
            self._attach_no, topics, self._watched, self._followed, self._ticket, self._ticket_seal,
            self._closed.summary(), self._granted, self._missed, tuple(sorted(self._gaps)),
        )  # fmt: skip

    def attach(self, attach_no: int) -> None:
        self._attach_no = attach_no

    def ticket(self, ticket: str, seal: bytes) -> None:
        """The outbox is given its origin when it is read."""
        self._ticket, self._ticket_seal = ticket, seal
        self.origin = ticketed(self._plain, ticket)

    def closed(self, closed: Closed) -> None:
        self._closed.merge(closed)
        for kept in self._topics.values():
            kept.fold(self._closed)

    def member(self, topic: Topic, receives: bool | None, *, granted: bool) -> None:
        kept = self._of(topic)
        kept.receives, kept.granted = receives, granted
        if receives is None:
            kept.history, kept.untaken = [], 0

    def safe(self, topic: Topic, low: int, extras: tuple[int, ...]) -> None:
        self._of(topic).safe = (low, extras)

    def watched(self, patterns: tuple[str, ...]) -> None:
        self._watched = patterns

    def followed(self, patterns: tuple[str, ...]) -> None:
        self._followed = patterns

    def granted(self) -> None:
        self._granted = True

    def missed(self, filters: MissedFilters) -> None:
        self._missed = filters

    def gap(self, topic: Topic, *, told: bool) -> None:
        (self._gaps.discard if told else self._gaps.add)(topic)

    def published(self, topic: Topic, publications: Sequence[Publication]) -> None:
        kept = self._of(topic)
        for publication in publications:
            kept.outbox[publication.number] = publication
            kept.counter = max(kept.counter, publication.number)

    def refused(self, topic: Topic, number: int) -> None:
        self._of(topic).outbox.pop(number, None)

    def delivered(self, topic: Topic, entries: Sequence[Publication], seals: bytes = b"") -> None:
        kept = self._of(topic)
        kept.history.extend(zip(entries, cut(seals, len(entries)) or repeat(b""), strict=False))
        kept.untaken += len(entries)
        for entry in entries:
            kept.have.add(entry.origin, entry.number)
            if entry.origin == self.origin:
                kept.outbox.pop(entry.number, None)

    def consumed(self, topic: Topic, count: int) -> None:
        kept = self._of(topic)
        kept.untaken = max(0, kept.untaken - count)

    def base(self, topic: Topic, base: Vector, seals: Mapping[Origin, bytes] = NO_SEALS) -> None:
        kept = self._of(topic)
        kept.base_seals = dict(seals)
        grown = {origin: number for origin, number in base.items() if number > kept.base.get(origin, 0)}
        kept.base.update(grown)
        low = kept.base.get
        kept.have.raise_to(kept.base)
        taken = len(kept.history) - kept.untaken
        stay = [one for one in kept.history[:taken] if one[0].number > low(one[0].origin, 0)]
        kept.history = stay + kept.history[taken:]
        for number in [number for number in kept.outbox if number <= grown.get(self.origin, 0)]:
            del kept.outbox[number]

    def replay(self, topic: Topic, replay: SavedReplay | None) -> None:
        kept = self._of(topic)
        kept.replay = replay
        if replay is not None and replay.until is not None:
            kept.have.raise_to(plain(replay.progress))

    def lost(self, unanswered: Sequence[Publication]) -> None:
        self.unanswered = list(unanswered)
        for kept in self._topics.values():
            kept.outbox = {}

    def _of(self, topic: Topic) -> _Topic:
        return self._topics.setdefault(topic, _Topic())
