"""A client's ledger in memory: the reference for the one on disk, and the disk of the simulator's clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat

from ordercast.client.ports import NO_SEALS, SavedClient, SavedTopic
from ordercast.core.ids import Origin, Topic
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

    def saved(self) -> SavedTopic:
        outbox = [self.outbox[number] for number in sorted(self.outbox)]
        history = [entry for entry, _ in self.history]
        seals = {(entry.origin, entry.number): seal for entry, seal in self.history if seal}
        return SavedTopic(
            self.receives, self.granted, self.counter, outbox, history, self.untaken, self.have.summary(),
            dict(self.base), seals, dict(self.base_seals),
        )  # fmt: skip


class MemoryClientLedger:
    """Implements `ClientLedger`; `saved` is what the next life of the same session begins with."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self._attach_no = 0
        self._watched: tuple[str, ...] = ()
        self._topics: dict[Topic, _Topic] = {}
        self.unanswered: list[Publication] = []
        """What a session that was given up was never told to be safe."""

    def saved(self) -> SavedClient:
        """A copy: nothing that is written later shows in it."""
        topics = {topic: self._topics[topic].saved() for topic in sorted(self._topics)}
        return SavedClient(self._attach_no, topics, self._watched)

    def attach(self, attach_no: int) -> None:
        self._attach_no = attach_no

    def member(self, topic: Topic, receives: bool | None, *, granted: bool) -> None:
        kept = self._of(topic)
        kept.receives, kept.granted = receives, granted
        if receives is None:
            kept.history, kept.untaken = [], 0

    def watched(self, patterns: tuple[str, ...]) -> None:
        self._watched = patterns

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
        kept.base.update({origin: number for origin, number in base.items() if number > kept.base.get(origin, 0)})
        low = kept.base.get
        kept.have.raise_to(kept.base)
        taken = len(kept.history) - kept.untaken
        stay = [one for one in kept.history[:taken] if one[0].number > low(one[0].origin, 0)]
        kept.history = stay + kept.history[taken:]
        for number in [number for number in kept.outbox if number <= low(self.origin, 0)]:
            del kept.outbox[number]

    def lost(self, unanswered: Sequence[Publication]) -> None:
        self.unanswered = list(unanswered)
        for kept in self._topics.values():
            kept.outbox = {}

    def _of(self, topic: Topic) -> _Topic:
        return self._topics.setdefault(topic, _Topic())
