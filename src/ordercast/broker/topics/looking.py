"""Clients that look for the kept topics of a filter (ARC-K1): they are told names, and become members of nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ordercast.broker.archive.kept import KeptTopics
from ordercast.broker.topics.state.clients import AttachedClient
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.broker.topics.watching import LOOKS, MORE, MOST_NAMES, Watching
from ordercast.core.ids import Topic
from ordercast.core.process import Connection
from ordercast.pubsub.client_packets import SESSION_OVER, Denied, KeptFound, LookFor, LookNoMore
from ordercast.pubsub.filters import FilterIndex, is_following, matches


class Looking(TopicsPart):
    """Tells local clients of kept topics, and of each that begins, that another broker names, or that a rule adds."""

    constant = (*TopicsPart.constant, "kept", "watching")
    ordered: ClassVar[tuple[str, ...]] = ("unanswered",)

    def __init__(self, state: TopicsState, kept: KeptTopics, watching: Watching) -> None:
        super().__init__(state)
        self.kept = kept
        self.watching = watching
        self.filters: FilterIndex[Connection] = FilterIndex()
        self.unanswered: dict[tuple[Connection, str], None] = {}

    def look(self, client: AttachedClient, packet: LookFor) -> None:
        objection = self.watching.objection(client, packet.pattern)
        if objection in SESSION_OVER:
            self.wires.send(client.connection, Denied(Topic(packet.pattern), objection))
        elif objection:
            self.wires.send(client.connection, KeptFound(packet.pattern, (), why_not=objection))
        else:
            client.look(packet.pattern)
            self.filters.add(packet.pattern, client.connection)
            self.unanswered[client.connection, packet.pattern] = None

    def unlook(self, client: AttachedClient, packet: LookNoMore) -> None:
        client.look_no_more(packet.pattern)
        self.filters.discard(packet.pattern, client.connection)

    def lost(self, client: AttachedClient) -> None:
        """Forget the filters of a connection that has ended."""
        for pattern in client.looks:
            self.filters.discard(pattern, client.connection)

    def rules_changed(self) -> None:
        """Topics that were not kept may be now: everybody is answered once more."""
        for client in self.state.clients.values():
            for pattern in sorted(client.looks):
                self.unanswered[client.connection, pattern] = None

    def learned(self, topics: Iterable[Topic]) -> None:
        """These topics have begun, or another broker has a history of them."""
        for topic in topics:
            if not is_following(topic) and self.kept.rule_of(topic) is not None:
                for connection, pattern in sorted(self.filters.matching(topic)):
                    if self.state.clients[connection].may_subscribe(topic):
                        self.wires.send(connection, KeptFound(pattern, (topic,)))

    def turn_end(self) -> None:
        """Answer who asked. Each filter is a look at all topics, so many of them are not for one turn."""
        looks = 0
        while self.unanswered and looks < LOOKS:
            connection, pattern = next(iter(self.unanswered))
            del self.unanswered[connection, pattern]
            client = self.state.clients.get(connection)
            if client is not None and pattern in client.looks:
                looks += len(self.book.joined)
                self._answer(client, pattern)
        if self.unanswered:
            self.wires.set_timer(MORE, 1)

    def _answer(self, client: AttachedClient, pattern: str) -> None:
        known = sorted({*(topic for topic in self.book.topics() if not is_following(topic)), *self.kept.named})
        found = [
            topic
            for topic in known
            if matches(pattern, topic) and client.may_subscribe(topic) and self.kept.rule_of(topic) is not None
        ]
        why_not = "" if self.kept.rules.may_keep(pattern) else "no topic that it takes in is kept"
        for start in range(0, max(len(found), 1), MOST_NAMES):
            piece, more = tuple(found[start : start + MOST_NAMES]), start + MOST_NAMES < len(found)
            self.wires.send(client.connection, KeptFound(pattern, piece, more, why_not))
