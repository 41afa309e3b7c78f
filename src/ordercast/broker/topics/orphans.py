"""Nothing that was called safe is lost when its publisher has gone.

A node that ends or is reset keeps what was not stable until its parent says that enough others hold it. If that word
cannot come any more, those entries are orphans. The broker then becomes a member of its own that only publishes, is
confirmed by the root like any client, and publishes the orphans that are still unknown: one after the other, in their
old order, under their old ids. If a live member had delivered one, that member's history would have arrived before the
confirmation and the entry would be known; if none has, it is like something in an outbox.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from ordercast.broker.place import Saved
from ordercast.broker.roster_book import adopter, broker_of
from ordercast.broker.topics.ordering import Outflow
from ordercast.broker.topics.topic import TopicNode
from ordercast.core.ids import Origin, Topic
from ordercast.core.process import Connection
from ordercast.core.state import State
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Received, Summary
from ordercast.pubsub.topic_packets import TopicClose, TopicClosed

if TYPE_CHECKING:
    from ordercast.broker.topics.topics import Topics


class Store(State):
    """What a node had that was not stable, and what of it the parent is known to hold."""

    def __init__(self, entries: list[Publication], upstream: Received) -> None:
        self.entries = entries
        self.upstream = upstream

    def leave_upstream(self) -> list[Publication]:
        """Keep only what the parent is known to hold; gives the rest."""
        rest = [entry for entry in self.entries if (entry.origin, entry.number) not in self.upstream]
        self.entries = [entry for entry in self.entries if (entry.origin, entry.number) in self.upstream]
        return rest


class Orphans(State):
    """What this broker holds of topics that it takes no part in any more, or not yet again."""

    constant: ClassVar[tuple[str, ...]] = ("t",)

    def __init__(self, topics: Topics, saved: Saved | None) -> None:
        self.t = topics
        self.closing: dict[Topic, dict[int, Store]] = {}
        self.followers: dict[Topic, list[tuple[Connection, int]]] = {}
        self.waiting: dict[Topic, deque[Publication]] = {}
        self.closes = 0
        self.attempts = 0
        self.renamed: dict[Topic, int] = {}
        for topic, entries in sorted((saved.entries if saved else {}).items()):
            low = saved.base.get(topic, {}) if saved else {}
            self.take_over(topic, [entry for entry in entries if entry.number > low.get(entry.origin, 0)])

    # The close handshake

    def close(self, topic: Topic, kept: Store, *, flushed: bool) -> None:
        """S7.2: tell the parent. `flushed`: everything kept was sent to it before, on a channel that it kept open.

        Otherwise what the parent is not known to hold is an orphan at once.
        """
        close_id = 0
        if not flushed:
            self.take_over(topic, kept.leave_upstream())
        if kept.entries and self.waits_for_the_parent():
            self.closes += 1
            close_id = self.closes
            self.closing.setdefault(topic, {})[close_id] = kept
        self.t.send_up(TopicClose(topic, close_id))

    def waits_for_the_parent(self) -> bool:
        return True

    def closed(self, topic: Topic, close_id: int) -> None:
        stores = self.closing.get(topic, {})
        stores.pop(close_id, None)
        if not stores:
            self.closing.pop(topic, None)
        self.forget_if_over(topic)

    def forget_if_over(self, topic: Topic) -> None:
        if topic not in self.t.nodes and topic not in self.closing and topic not in self.waiting:
            self.t.ledger.forget(topic)

    def parent_forgot(self, topic: Topic) -> None:
        """It was reset itself: what was under way to it then is lost; for what it held it goes on to answer."""
        for _, kept in sorted(self.closing.get(topic, {}).items()):
            self.take_over(topic, kept.leave_upstream())

    def parent_lost(self) -> None:
        """Its word cannot come any more."""
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

    def _answer_followers(self) -> None:
        for topic in sorted(self.followers):
            if topic not in self.closing and topic not in self.waiting:
                for child, close_id in self.followers.pop(topic):
                    self.t.wires.send(child, TopicClosed(topic, close_id))

    # Orphans

    def take_over(self, topic: Topic, entries: Iterable[Publication]) -> None:
        queue = self.waiting.get(topic, deque())
        known = {(entry.origin, entry.number) for entry in queue}
        new = [entry for entry in entries if (entry.origin, entry.number) not in known]
        if new and self.adopts():
            queue.extend(new)
            self.waiting[topic] = queue
            self.t.wires.count("orphans", len(new))

    def adopts(self) -> bool:
        return True

    def adopter(self, topic: Topic) -> Origin:
        return adopter(self.t.overlay.node, self.t.overlay.life, self.renamed.get(topic, 0), topic)

    def turn_end(self) -> None:
        """Become a member for every topic with orphans, publish what can be published, leave."""
        for topic in sorted(self.waiting):
            node = self.t.node(topic)
            me = self.adopter(topic)
            member = node.members.get(me)
            if member is None and me not in node.waiting:
                self.attempts += 1
                self.t.members.ask_soon(node, me, self.attempts)
            elif member is not None and not member.leaving:
                self._publish(node, self.waiting[topic])
        self._answer_followers()

    def _publish(self, node: TopicNode, queue: deque[Publication]) -> None:
        """Strictly one after the other: a total is committed before the next one is looked at."""
        while queue:
            entry = queue[0]
            pair = (entry.origin, entry.number)
            if pair in node.have:
                queue.popleft()
            elif pair in node.pend or self.t.ordering.blocked(node, entry):
                return
            else:
                self.t.wires.count("orphans_published")
                out = Outflow(self.t.ordering, node)
                out.admit(entry)
                out.flush()
        del self.waiting[node.topic]
        self.t.members.leave(node, self.adopter(node.topic))

    def denied(self, topic: Topic) -> None:
        """The root has fenced this member, for example while the broker was cut off: a new name asks again."""
        if topic in self.waiting:
            self.renamed[topic] = self.renamed.get(topic, 0) + 1

    def former(self, member: Origin) -> bool:
        """Whether it is a member that an earlier life of this broker was."""
        broker = broker_of(member)
        return broker is not None and broker[0] == self.t.overlay.node and broker[1] != self.t.overlay.life
