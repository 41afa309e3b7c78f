"""Adoption: a broker publishes the orphans that it kept again, on behalf of clients that are gone.

For each topic with orphans it becomes a member of its own that only publishes, is confirmed by the root like any
client, and publishes those that are still unknown: one after the other, in their old order, under their old ids. If a
live member had delivered one, that member's history would have arrived before the confirmation and the entry would be
known; if none has, it is like something in an outbox.
"""

from __future__ import annotations

from collections import deque

from ordercast.broker.topics.channels import Channels
from ordercast.broker.topics.membership.leaving import Leaving
from ordercast.broker.topics.membership.members import Members
from ordercast.broker.topics.ordering import Ordering, Outflow
from ordercast.broker.topics.orphans import Orphans
from ordercast.broker.topics.state.topic import TopicNode
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.pubsub.publications import Publication

_MORE = ("topics", "adopt")


class Adoption(TopicsPart):
    """The broker's own membership of topics with orphans, through which it publishes them again."""

    constant = (*TopicsPart.constant, "orphans", "ordering", "channels", "members", "leaving")

    def __init__(
        self, state: TopicsState, orphans: Orphans, ordering: Ordering, channels: Channels, members: Members,
        leaving: Leaving,
    ) -> None:  # fmt: skip
        super().__init__(state)
        self.orphans = orphans
        self.ordering = ordering
        self.channels = channels
        self.members = members
        self.leaving = leaving
        self.attempts = 0
        self.adoptions_left = 0
        """So many topics more may begin in this turn."""

    def begin_turn(self) -> None:
        """BRK-L7: of very many topics with orphans a portion is taken up in each turn."""
        self.adoptions_left = self.state.portion

    def turn_end(self) -> None:
        """Become a member for every topic with orphans, publish what can be published, leave.

        Nothing becomes possible in a topic in which nothing has happened since.
        """
        orphans = self.orphans
        begun = orphans.begin(self.adoptions_left)
        self.adoptions_left -= len(begun)
        if orphans.unasked:
            self.wires.set_timer(_MORE, 1)
        for topic in sorted({*begun, *(orphans.waiting.keys() & self.state.dirty)} & orphans.waiting.keys()):
            node = self.channels.node(topic)
            me = orphans.adopter(topic)
            member = node.members.get(me)
            if member is None and me not in node.waiting:
                self.attempts += 2  # An even epoch, as of everybody who asks.
                self.members.ask_soon(node, me, self.attempts)
            elif member is not None and not member.leaving:
                self._publish(node, orphans.waiting[topic])
        orphans.answer_followers()

    def _publish(self, node: TopicNode, queue: deque[Publication]) -> None:
        """Strictly one after the other: a total is committed before the next one is looked at."""
        while queue:
            entry = queue[0]
            pair = (entry.origin, entry.number)
            if pair in node.have or entry.origin in self.book.closed:
                queue.popleft()
            elif pair in node.pending.entries or self.ordering.blocked(node, entry):
                return
            else:
                self.wires.count("orphans_published")
                out = Outflow(self.ordering, node)
                out.admit(entry)
                out.flush()
        self.orphans.published(node.topic)
        self.leaving.leave(node, self.orphans.adopter(node.topic))
