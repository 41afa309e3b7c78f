"""Following a filter is a membership like any other (BRK-W1): asked for, confirmed by the root, known to all brokers.

So it outlives the edge and the root, is given up when its client is absent for too long, and whoever decides that a
topic begins knows for whom it must count from the start (BRK-W2).
"""

from __future__ import annotations

from ordercast.broker.topics.channels import Channels
from ordercast.broker.topics.membership.leaving import Leaving
from ordercast.broker.topics.membership.members import Members
from ordercast.broker.topics.sessions.tickets import Tickets
from ordercast.broker.topics.state.clients import AttachedClient
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.broker.topics.watching import Watching
from ordercast.core.ids import Topic
from ordercast.core.process import Connection
from ordercast.pubsub.client_packets import Denied, Unsubscribe, Unwatch, Watch


class Following(TopicsPart):
    """The memberships of filters of this broker's clients."""

    constant = (*TopicsPart.constant, "watching", "channels", "members", "leaving", "tickets")

    def __init__(
        self, state: TopicsState, watching: Watching, channels: Channels, members: Members, leaving: Leaving,
        tickets: Tickets,
    ) -> None:  # fmt: skip
        super().__init__(state)
        self.watching = watching
        self.channels = channels
        self.members = members
        self.leaving = leaving
        self.tickets = tickets

    def watch(self, client: AttachedClient, packet: Watch) -> None:
        """BRK-W1: answered when the root has confirmed it."""
        objection = self.watching.objection(client, packet.pattern)
        if objection:
            self.wires.send(client.connection, Denied(Topic(packet.pattern), objection))
            return
        self.tickets.before_topic(client, receives=True)
        self.watching.follow(client, packet.pattern, past=packet.past)
        for name in client.followings(packet.pattern):
            if not self._is_member(client, name):
                self.members.ask_soon(self.channels.node(name), client.origin, client.next_epoch(), client.connection)
        self._answer(client, packet.pattern)

    def unwatch(self, client: AttachedClient, packet: Unwatch) -> None:
        """The client leaves the filter; the memberships of topics that it led to stay."""
        self.watching.forget(client, packet.pattern)
        needed = {name for pattern in client.patterns for name in client.followings(pattern)}
        for name in client.followings(packet.pattern):
            if name not in needed:
                self.leaving.unsubscribe(client, Unsubscribe(name))

    def confirmed(self, connection: Connection, name: Topic) -> None:
        client = self.state.clients[connection]
        for pattern in sorted(client.patterns - client.answered):
            if name in client.followings(pattern):
                self._answer(client, pattern)

    def _answer(self, client: AttachedClient, pattern: str) -> None:
        if all(self._is_member(client, name) for name in client.followings(pattern)):
            self.watching.answer(client, pattern)

    def _is_member(self, client: AttachedClient, name: Topic) -> bool:
        node = self.nodes.get(name)
        member = node.members.get(client.origin) if node is not None else None
        return member is not None and member.connection == client.connection and not member.leaving
