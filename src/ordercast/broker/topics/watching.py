"""Clients that follow filters: they are told the names of topics, and subscribe to them like to any other."""

from __future__ import annotations

from collections.abc import Iterable

from ordercast.broker.topics.clients import Client
from ordercast.broker.topics.topics_state import TopicsPart, TopicsState
from ordercast.core.errors import UsageError
from ordercast.core.ids import Origin, Topic
from ordercast.core.process import Connection
from ordercast.pubsub.client_packets import Denied, TopicsFound, Watch
from ordercast.pubsub.filters import check_filter, matches


class Watching(TopicsPart):
    """Tells local clients of matching topics, now and when the roster learns a new one."""

    def __init__(self, state: TopicsState) -> None:
        super().__init__(state)

    def watch(self, client: Client, packet: Watch) -> None:
        try:
            check_filter(packet.pattern)
        except UsageError as error:
            self.wires.send(client.connection, Denied(Topic(packet.pattern), str(error)))
            return
        client.patterns.add(packet.pattern)
        found = [topic for topic in self.book.topics() if _wanted(client, packet.pattern, topic)]
        self.wires.send(client.connection, TopicsFound(packet.pattern, tuple(found)))

    def learned(self, topics: Iterable[Topic]) -> None:
        """Topics that nobody was a member of before."""
        for topic in topics:
            for client in self.state.clients_in_order():
                for pattern in sorted(client.patterns):
                    if _wanted(client, pattern, topic):
                        self.wires.send(client.connection, TopicsFound(pattern, (topic,)))

    def told_of(self, topic: Topic) -> set[Connection]:
        """The watchers of the topic that have not asked to receive it; to publish on it is not enough."""
        node = self.nodes.get(topic)
        here: set[Origin] = set()
        if node is not None:
            here = {origin for origin, member in node.members.items() if member.receives}
            here |= {origin for origin, waiting in node.waiting.items() if waiting.receives}
        return {
            client.connection
            for client in self.state.clients_in_order()
            if client.origin not in here and any(_wanted(client, pattern, topic) for pattern in client.patterns)
        }


def _wanted(client: Client, pattern: str, topic: Topic) -> bool:
    return matches(pattern, topic) and client.may_subscribe(topic)
