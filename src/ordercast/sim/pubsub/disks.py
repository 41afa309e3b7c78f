"""Disks of simulated processes: what was written in a turn is there for the next life."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ordercast.broker.place import Saved as BrokerSaved
from ordercast.client.ports import Saved as ClientSaved
from ordercast.client.ports import SavedTopic
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.state import duplicate
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Received, Vector


class BrokerDisk:
    """A broker's ledger that stays when the broker dies."""

    def __init__(self) -> None:
        self._entries: dict[Topic, dict[tuple[Origin, int], Publication]] = {}
        self._base: dict[Topic, Vector] = {}
        self._roster: dict[Topic, tuple[Origin, ...]] = {}
        self._fenced: dict[Origin, int] = {}
        self._term = 0
        self._directory: dict[NodeId, str] = {}

    def entries(self, topic: Topic, entries: tuple[Publication, ...]) -> None:
        kept = self._entries.setdefault(topic, {})
        for entry in entries:
            kept.pop((entry.origin, entry.number), None)
            kept[entry.origin, entry.number] = entry

    def base(self, topic: Topic, base: Vector) -> None:
        self._base[topic] = dict(base)
        kept = self._entries.get(topic, {})
        for origin, number in [pair for pair in kept if pair[1] <= base.get(pair[0], 0)]:
            del kept[origin, number]

    def forget(self, topic: Topic) -> None:
        self._entries.pop(topic, None)
        self._base.pop(topic, None)

    def roster(self, roster: dict[Topic, tuple[Origin, ...]], fenced: dict[Origin, int]) -> None:
        self._roster = dict(roster)
        self._fenced = dict(fenced)

    def term(self, number: int) -> None:
        self._term = number

    def directory(self, directory: dict[NodeId, str]) -> None:
        self._directory = dict(directory)

    def saved(self) -> BrokerSaved:
        """What a new life of the broker starts from."""
        entries = {topic: list(kept.values()) for topic, kept in self._entries.items() if kept}
        return BrokerSaved(
            entries, duplicate(self._base), dict(self._roster), dict(self._fenced), self._term, dict(self._directory)
        )


class ClientDisk:
    """A client's ledger that stays when the client dies."""

    def __init__(self) -> None:
        self._attach_no = 0
        self._watched: tuple[str, ...] = ()
        self._topics: dict[Topic, SavedTopic] = {}
        self._have: dict[Topic, Received] = {}

    def attach(self, attach_no: int) -> None:
        self._attach_no = attach_no

    def member(self, topic: Topic, receives: bool | None, *, granted: bool) -> None:
        kept = self._topic(topic)
        kept.receives, kept.granted = receives, granted

    def watched(self, patterns: tuple[str, ...]) -> None:
        self._watched = patterns

    def published(self, topic: Topic, publications: Sequence[Publication]) -> None:
        kept = self._topic(topic)
        kept.outbox.extend(publications)
        kept.counter = max(kept.counter, *(publication.number for publication in publications))

    def refused(self, topic: Topic, number: int) -> None:
        kept = self._topic(topic)
        kept.outbox = [publication for publication in kept.outbox if publication.number != number]

    def delivered(self, topic: Topic, entries: Sequence[Publication]) -> None:
        kept, have = self._topic(topic), self._have[topic]
        kept.history.extend(entries)
        kept.untaken += len(entries)
        ids = {(entry.origin, entry.number) for entry in entries}
        have.update(ids)
        if kept.outbox:
            kept.outbox = [entry for entry in kept.outbox if (entry.origin, entry.number) not in ids]

    def consumed(self, topic: Topic, count: int) -> None:
        self._topic(topic).untaken -= count

    def base(self, topic: Topic, base: Vector) -> None:
        kept = self._topic(topic)
        kept.base |= base
        self._have[topic].raise_to(base)
        untaken = kept.history[len(kept.history) - kept.untaken :]
        taken = kept.history[: len(kept.history) - kept.untaken]
        kept.history = [entry for entry in taken if entry.number > base.get(entry.origin, 0)] + untaken
        kept.outbox = [entry for entry in kept.outbox if entry.number > base.get(entry.origin, 0)]

    def saved(self) -> ClientSaved:
        """What the same session goes on from."""
        topics = {}
        for topic, kept in self._topics.items():
            topics[topic] = msgspec.structs.replace(
                kept, outbox=list(kept.outbox), history=list(kept.history), have=self._have[topic].summary(),
                base=dict(kept.base),
            )  # fmt: skip
        return ClientSaved(self._attach_no, topics, self._watched)

    def _topic(self, topic: Topic) -> SavedTopic:
        if topic not in self._topics:
            self._topics[topic] = SavedTopic(outbox=[], history=[], base={})
            self._have[topic] = Received()
        return self._topics[topic]
