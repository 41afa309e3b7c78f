"""The filters that clients of this broker follow: they are told the names of topics, and subscribe to them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ordercast.broker.archive.kept import KeptTopics
from ordercast.broker.topics.state.clients import AttachedClient
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.core.errors import UsageError
from ordercast.core.ids import Topic
from ordercast.core.process import Connection
from ordercast.pubsub.client_packets import TopicsFound
from ordercast.pubsub.filters import FilterIndex, check_filter, following, is_following, matches

MOST_NAMES = 500
"""Topics in one packet: with the longest of names it is half of what a connection takes."""


MORE = ("topics", "watch")
LOOKS = 10_000
"""Topics that one turn looks at for filters that were confirmed; it answers at least one of these."""


class Watching(TopicsPart):
    """Tells local clients of matching topics, once their filter is confirmed and when the roster learns a new one."""

    constant = (*TopicsPart.constant, "kept")
    ordered: ClassVar[tuple[str, ...]] = ("unanswered",)

    def __init__(self, state: TopicsState, kept: KeptTopics) -> None:
        super().__init__(state)
        self.kept = kept
        self.filters: FilterIndex[Connection] = FilterIndex()
        self.unanswered: dict[tuple[Connection, str], None] = {}
        """Filters that are confirmed, whose clients have not been told of their topics yet."""
        self._by_user: dict[str, int] = {}
        """How many filters the clients of a user follow here."""

    def objection(self, client: AttachedClient, pattern: str) -> str:
        """Why the client may not follow the filter; empty: it may."""
        if client.unproven or self.book.fenced(client.origin):
            return self.book.why_over(client.origin)
        most = self.settings.filters_per_client
        asked = client.patterns | client.looks
        if len(asked) >= most and pattern not in asked:
            self.wires.count("filters_refused")
            return f"{client.name} follows {most} filters, and more are not allowed (filters_per_client)"
        most = self.settings.filters_per_user
        if pattern not in client.patterns and self._by_user.get(client.user, 0) >= most:
            self.wires.count("filters_refused")
            return f"the clients of {client.user} follow {most} filters, and more are not allowed (filters_per_user)"
        try:
            check_filter(pattern)
        except UsageError as error:
            return str(error)
        return ""

    def follow(self, client: AttachedClient, pattern: str, *, past: bool) -> None:
        """The client has asked for the filter, and nothing is against it; `past`: for the history too (ARC-S7)."""
        if pattern not in client.patterns:
            client.follow(pattern, past=past)
            self._count(client, 1)

    def _count(self, client: AttachedClient, change: int) -> None:
        if client.user:
            counted = self._by_user.pop(client.user, 0) + change
            if counted:
                self._by_user[client.user] = counted

    def answer(self, client: AttachedClient, pattern: str) -> None:
        """The filter is confirmed: the end of this turn, or of a later one, tells the client of its topics."""
        self.unanswered[client.connection, pattern] = None

    def turn_end(self) -> None:
        """Answer what was confirmed. Each filter is a look at all topics, so a client's many are not for one turn."""
        looks = 0
        while self.unanswered and looks < LOOKS:
            connection, pattern = next(iter(self.unanswered))
            del self.unanswered[connection, pattern]
            client = self.state.clients.get(connection)
            if client is not None and pattern in client.patterns:
                looks += len(self.book.joined)
                self._answer(client, pattern)
        if self.unanswered:
            self.wires.set_timer(MORE, 1)

    def _answer(self, client: AttachedClient, pattern: str) -> None:
        """All topics of it that are there, and from now on every one that begins."""
        client.confirm(pattern)
        self.filters.add(pattern, client.connection)
        topics = [topic for topic in self.book.topics() if not is_following(topic)]
        if pattern in client.past:
            topics = sorted({*topics, *(topic for topic in self.kept.named if self.kept.rule_of(topic) is not None)})
        found = [topic for topic in topics if matches(pattern, topic) and client.may_subscribe(topic)]
        narrowed = following(pattern) not in client.followings(pattern)
        for start in range(0, max(len(found), 1), MOST_NAMES):
            piece, more = tuple(found[start : start + MOST_NAMES]), start + MOST_NAMES < len(found)
            self.wires.send(client.connection, TopicsFound(pattern, piece, more, narrowed))

    def forget(self, client: AttachedClient, pattern: str) -> None:
        """The client follows the filter no more."""
        if pattern in client.patterns:
            client.unfollow(pattern)
            self._count(client, -1)
        self.filters.discard(pattern, client.connection)

    def lost(self, client: AttachedClient) -> None:
        """Forget the filters of a connection that has ended."""
        self._count(client, -len(client.patterns))
        for pattern in client.answered:
            self.filters.discard(pattern, client.connection)

    def learned(self, topics: Iterable[Topic]) -> None:
        """Topics that nobody was a member of before."""
        clients = self.state.clients
        for topic in topics:
            if not is_following(topic):
                for connection, pattern in sorted(self.filters.matching(topic)):
                    if clients[connection].may_subscribe(topic):
                        self.wires.send(connection, TopicsFound(pattern, (topic,)))
