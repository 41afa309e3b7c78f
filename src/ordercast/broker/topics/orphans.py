"""Orphans: publications that were called safe and are kept when their publisher has gone.

A node that ends or is reset keeps what was not stable until its parent says that enough others hold it. If that word
cannot come any more, those entries are orphans, which the broker publishes again itself (adoption.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from ordercast.broker.place import SavedBroker
from ordercast.broker.roster_book import adopter, broker_of
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.core.ids import Origin, Topic
from ordercast.core.process import Connection
from ordercast.core.state import State
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Received, Summary
from ordercast.pubsub.topic_packets import TopicClose, TopicClosed


class KeptEntries(State):
    """Entries of a node that were not stable, and which of them the parent is known to hold."""

    def __init__(self, entries: list[Publication], upstream: Received) -> None:
        self.entries = entries
        self.upstream = upstream

    def leave_upstream(self) -> list[Publication]:
        """Keep only what the parent is known to hold; gives the rest."""
        rest = [entry for entry in self.entries if (entry.origin, entry.number) not in self.upstream]
        self.entries = [entry for entry in self.entries if (entry.origin, entry.number) in self.upstream]
        return rest


class Orphans(TopicsPart):
    """Publications that this broker keeps of topics in which it takes no part any more, or not yet again."""

    constant = (*TopicsPart.constant, "ledger")

    def __init__(self, state: TopicsState, saved: SavedBroker | None) -> None:
        super().__init__(state)
        self.closing: dict[Topic, dict[int, KeptEntries]] = {}
        self.followers: dict[Topic, list[tuple[Connection, int]]] = {}
        self.waiting: dict[Topic, deque[Publication]] = {}
        self.unasked: set[Topic] = set()
        """Topics with orphans that somebody has to look at, though nothing has happened in them since."""
        self.ledger = state.ledger
        self.closes = 0
        self.renamed: dict[Topic, int] = {}
        for topic, entries in sorted((saved.entries if saved else {}).items()):
            low = saved.base.get(topic, {}) if saved else {}
            self.take_over(topic, [entry for entry in entries if entry.number > low.get(entry.origin, 0)])

    # The close handshake

    def close(self, topic: Topic, kept: KeptEntries, *, flushed: bool) -> None:
        """BRK-S7.2: tell the parent. `flushed`: everything kept was sent to it before, on a channel that it kept open.

        Otherwise what the parent is not known to hold is an orphan at once.
        """
        close_id = 0
        if not flushed:
            self.take_over(topic, kept.leave_upstream())
        if kept.entries and self.waits_for_the_parent():
            self.closes += 1
            close_id = self.closes
            self.closing.setdefault(topic, {})[close_id] = kept
        self.state.send_up(TopicClose(topic, close_id))

    def waits_for_the_parent(self) -> bool:
        return True

    def closed(self, topic: Topic, close_id: int) -> None:
        stores = self.closing.get(topic, {})
        stores.pop(close_id, None)
        if not stores:
            self.closing.pop(topic, None)
        self.forget_if_over(topic)

    def forget_if_over(self, topic: Topic) -> None:
        if topic not in self.nodes and topic not in self.closing and topic not in self.waiting:
            self.ledger.forget(topic)

    def parent_forgot(self, topic: Topic) -> None:
        """It was reset itself: what was under way to it then is lost; for what it held it goes on to answer."""
        for _, kept in sorted(self.closing.get(topic, {}).items()):
            self.take_over(topic, kept.leave_upstream())

    def parent_lost(self) -> None:
        """The parent is gone and will confirm nothing more: what waits for its word becomes orphans."""
        closing, self.closing = self.closing, {}
        for topic in sorted(closing):
            for _, kept in sorted(closing[topic].items()):
                self.take_over(topic, kept.entries)

    def vouch(self, topic: Topic, closers: dict[Connection, dict[int, Summary]]) -> None:
        """Children that have closed wait for the same word as this broker, which was reset and holds what they had."""
        for child in sorted(closers):
            self.followers.setdefault(topic, []).extend((child, close_id) for close_id in sorted(closers[child]))

    def child_lost(self, child: Connection) -> None:
        for topic in sorted(self.followers):
            self.followers[topic] = [one for one in self.followers[topic] if one[0] != child]

    def answer_followers(self) -> None:
        """The word that children wait for has come, or what they had is published again."""
        for topic in sorted(self.followers):
            if topic not in self.closing and topic not in self.waiting:
                for child, close_id in self.followers.pop(topic):
                    self.wires.send(child, TopicClosed(topic, close_id))

    # Orphans

    def everything(self) -> Iterator[Publication]:
        """All that is kept here apart from the logs."""
        for queue in self.waiting.values():
            yield from queue
        for stores in self.closing.values():
            for kept in stores.values():
                yield from kept.entries

    def of(self, topic: Topic) -> Iterator[Publication]:
        """Entries of one topic that are kept apart from its log."""
        yield from self.waiting.get(topic, ())
        for kept in self.closing.get(topic, {}).values():
            yield from kept.entries

    def forget_closed(self) -> None:
        """BRK-F7: what is kept of folded sessions is known everywhere."""
        closed = self.book.closed
        for topic, queue in self.waiting.items():
            self.waiting[topic] = deque(entry for entry in queue if entry.origin not in closed)
        self.unasked.update(self.waiting)
        for stores in self.closing.values():
            for kept in stores.values():
                kept.entries = [entry for entry in kept.entries if entry.origin not in closed]

    def take_over(self, topic: Topic, entries: Iterable[Publication]) -> None:
        queue = self.waiting.get(topic, deque())
        known = {(entry.origin, entry.number) for entry in queue}
        closed = self.book.closed
        new = [e for e in entries if (e.origin, e.number) not in known and e.origin not in closed]
        if new and self.adopts():
            queue.extend(new)
            self.waiting[topic] = queue
            self.unasked.add(topic)
            self.wires.count("orphans", len(new))

    def adopts(self) -> bool:
        return True

    def adopter(self, topic: Topic) -> Origin:
        return adopter(self.tree.node, self.tree.life, self.renamed.get(topic, 0), topic)

    def published(self, topic: Topic) -> None:
        """None of the topic's orphans is left."""
        del self.waiting[topic]

    def denied(self, topic: Topic) -> None:
        """The root has fenced this member, for example while the broker was cut off: a new name asks again."""
        if topic in self.waiting:
            self.renamed[topic] = self.renamed.get(topic, 0) + 1
            self.unasked.add(topic)

    def begin(self, most: int) -> list[Topic]:
        """So many of the topics with orphans that nobody has looked at yet."""
        begun = sorted(self.unasked)[:most] if self.unasked else []
        self.unasked.difference_update(begun)
        return begun

    def former(self, member: Origin) -> bool:
        """Whether it is a member that an earlier life of this broker was."""
        broker = broker_of(member)
        return broker is not None and broker[0] == self.tree.node and broker[1] != self.tree.life
