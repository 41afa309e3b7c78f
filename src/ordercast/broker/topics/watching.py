"""Clients that follow filters: they are told the names of topics, and subscribe to them like to any other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from ordercast.broker.topics.clients import Client
from ordercast.core.errors import UsageError
from ordercast.core.ids import Origin, Topic
from ordercast.core.process import Connection
from ordercast.core.state import State
from ordercast.pubsub.client_packets import Denied, TopicsFound, Unwatch, Watch
from ordercast.pubsub.filters import check_filter, matches

if TYPE_CHECKING:
    from ordercast.broker.topics.topics import Topics


class Watching(State):
    """Tells local clients of matching topics, now and when the roster learns a new one."""

    constant: ClassVar[tuple[str, ...]] = ("t",)

    def __init__(self, topics: Topics) -> None:
        self.t = topics

    def watch(self, client: Client, packet: Watch) -> None:
        try:
            check_filter(packet.pattern)
        except UsageError as error:
            self.t.wires.send(client.connection, Denied(Topic(packet.pattern), str(error)))
            return
        client.patterns.add(packet.pattern)
        found = [topic for topic in self.t.book.topics() if _wanted(client, packet.pattern, topic)]
        self.t.wires.send(client.connection, TopicsFound(packet.pattern, tuple(found)))

    def unwatch(self, client: Client, packet: Unwatch) -> None:
        client.patterns.discard(packet.pattern)
        self.t.waves.watcher_done(client.connection)

    def learned(self, topics: Iterable[Topic]) -> None:
        """Topics that nobody was a member of before."""
        for topic in topics:
            for client in self.t.clients_in_order():
                for pattern in sorted(client.patterns):
                    if _wanted(client, pattern, topic):
                        self.t.wires.send(client.connection, TopicsFound(pattern, (topic,)))

    def told_of(self, topic: Topic) -> set[Connection]:
        """The watchers of the topic that have not asked to receive it; to publish on it is not enough."""
        node = self.t.nodes.get(topic)
        here: set[Origin] = set()
        if node is not None:
            here = {origin for origin, member in node.members.items() if member.receives}
            here |= {origin for origin, waiting in node.waiting.items() if waiting.receives}
        return {
            client.connection
            for client in self.t.clients_in_order()
            if client.origin not in here and any(_wanted(client, pattern, topic) for pattern in client.patterns)
        }

    def joined(self, client: Client, topic: Topic) -> None:
        if client.patterns:
            self.t.waves.watcher_done(client.connection, topic)


def _wanted(client: Client, pattern: str, topic: Topic) -> bool:
    return matches(pattern, topic) and client.may_subscribe(topic)
