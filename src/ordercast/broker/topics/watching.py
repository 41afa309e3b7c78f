"""Clients that follow filters: they are told the names of topics, and subscribe to them like to any other."""

from __future__ import annotations

from collections.abc import Iterable

from ordercast.broker.topics.clients import AttachedClient
from ordercast.broker.topics.topics_state import TopicsPart, TopicsState
from ordercast.core.errors import UsageError
from ordercast.core.ids import Origin, Topic
from ordercast.core.process import Connection
from ordercast.pubsub.client_packets import FENCED, Denied, TopicsFound, Watch
from ordercast.pubsub.filters import FilterIndex, check_filter, matches

_MOST_NAMES = 500
"""Topics in one packet: with the longest of names it is half of what a connection takes."""


class Watching(TopicsPart):
    """Tells local clients of matching topics, now and when the roster learns a new one."""

    def __init__(self, state: TopicsState) -> None:
        super().__init__(state)
        self.filters: FilterIndex[Connection] = FilterIndex()

    def watch(self, client: AttachedClient, packet: Watch) -> None:
        objection = self._objection(client, packet.pattern)
        if objection:
            self.wires.send(client.connection, Denied(Topic(packet.pattern), objection))
            return
        client.patterns.add(packet.pattern)
        self.filters.add(packet.pattern, client.connection)
        found = [t for t in self.book.topics() if matches(packet.pattern, t) and client.may_subscribe(t)]
        for start in range(0, max(len(found), 1), _MOST_NAMES):
            piece, more = tuple(found[start : start + _MOST_NAMES]), start + _MOST_NAMES < len(found)
            self.wires.send(client.connection, TopicsFound(packet.pattern, piece, more))

    def _objection(self, client: AttachedClient, pattern: str) -> str:
        if self.book.fenced(client.origin):
            return FENCED
        most = self.settings.filters_per_client
        if len(client.patterns) >= most and pattern not in client.patterns:
            self.wires.count("filters_refused")
            return f"{client.name} follows {most} filters, and more are not allowed (filters_per_client)"
        try:
            check_filter(pattern)
        except UsageError as error:
            return str(error)
        return ""

    def unwatch(self, client: AttachedClient, pattern: str) -> None:
        client.patterns.discard(pattern)
        self.filters.discard(pattern, client.connection)

    def lost(self, client: AttachedClient) -> None:
        """Forget the filters of a connection that has ended."""
        for pattern in client.patterns:
            self.filters.discard(pattern, client.connection)

    def learned(self, topics: Iterable[Topic]) -> None:
        """Topics that nobody was a member of before."""
        for topic in topics:
            for connection, pattern in sorted(self._followers(topic)):
                self.wires.send(connection, TopicsFound(pattern, (topic,)))

    def told_of(self, topic: Topic) -> set[Connection]:
        """The watchers of the topic that have not asked to receive it; to publish on it is not enough."""
        node = self.nodes.get(topic)
        here: set[Origin] = set()
        if node is not None:
            here = {origin for origin, member in node.members.items() if member.receives}
            here |= {origin for origin, waiting in node.waiting.items() if waiting.receives}
        clients = self.state.clients
        return {connection for connection, _ in self._followers(topic) if clients[connection].origin not in here}

    def _followers(self, topic: Topic) -> list[tuple[Connection, str]]:
        clients = self.state.clients
        return [pair for pair in self.filters.matching(topic) if clients[pair[0]].may_subscribe(topic)]
