"""Spreads membership changes over the whole tree, and acts on those that concern this broker (BRK-M8, BRK-M9)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ordercast.broker.ports import Fenced, Roster
from ordercast.broker.roster_book import parsed, touched
from ordercast.broker.topics.orphans import Orphans
from ordercast.broker.topics.state.grants import Grants
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.broker.topics.watching import Watching
from ordercast.core.ids import Origin, Topic, ticket_of
from ordercast.core.process import Connection
from ordercast.pubsub.closed import Closed
from ordercast.pubsub.topic_packets import RosterSync


class LocalMembers(Protocol):
    """Port to the members at this broker, which news about the roster may concern."""

    def ended(self, who: Origin, epoch: int) -> None:
        """A fence or a departure has become known."""

    def superseded(self, topic: Topic, member: Origin, epoch: int) -> None:
        """The member has attached again, here or elsewhere."""

    def depart(self, topic: Topic, member: Origin, epoch: int) -> None:
        """The membership (without a topic: the session) is to end."""


class TopicsWatcher(Protocol):
    """Port to the archive, which may have to keep a topic, and to clients that look for kept ones."""

    def learned(self, topics: Iterable[Topic]) -> None:
        """These topics have members now."""


class RosterNews(TopicsPart):
    """Takes in and passes on changes of the roster; the only writer of the book of members."""

    constant = (*TopicsPart.constant, "grants", "watching", "orphans", "ledger", "members", "kept_topics", "lookers")
    members: LocalMembers
    kept_topics: TopicsWatcher
    lookers: TopicsWatcher

    def __init__(self, state: TopicsState, grants: Grants, watching: Watching, orphans: Orphans) -> None:
        super().__init__(state)
        self.grants = grants
        self.watching = watching
        self.orphans = orphans
        self.ledger = state.ledger
        self.unwritten = False
        self._keep_ns = int(self.settings.member_timeout_ms * 1e7)

    def record(self, topic: Topic, entries: tuple[Origin, ...]) -> None:
        """BRK-M9.2: one more member, and those in advance, by a wave that passes through all brokers by itself."""
        known = bool(self.book.live(topic))
        news = tuple(entry for entry in entries if self.book.join(topic, *parsed(entry)))
        if news:
            self._grew({topic: news}, {} if known else {topic: None})

    def learn(self, roster: Roster, fenced: Fenced, source: Connection | None = None) -> None:
        """BRK-M8, BRK-M9.4: knowledge of members; what is new goes on to all other neighbours."""
        before = {topic for topic in roster if self.book.live(topic)}
        new_roster, new_fenced = self.book.merge(roster, fenced)
        if not new_roster and not new_fenced:
            return
        news = RosterSync(new_roster, new_fenced)
        for link in self.state.neighbours():
            if link != source:
                self.wires.send(link, news)
        if any(ticket_of(touched(who)[0]) is not None for who in new_fenced):
            self.state.sessions_have_ended()
        for who in sorted(new_fenced):
            self.members.ended(who, new_fenced[who])
            self.grants.forget(who, new_fenced[who])
        found = {topic: None for topic in sorted(new_roster) if topic not in before and self.book.live(topic)}
        self._grew(new_roster, found)

    def close(self, closed: Closed, source: Connection | None) -> Closed:
        """BRK-F7: fold sessions; what is news of it goes on to all other neighbours, and is given back."""
        news = self.book.close(closed)
        if news:
            for link in self.state.neighbours():
                if link != source:
                    self.wires.send(link, RosterSync({}, {}, news))
            self.ledger.closed(news)
            self.unwritten = True
        return news

    def _grew(self, news: Roster, found: dict[Topic, None]) -> None:
        self.unwritten = True
        self.kept_topics.learned(found)
        self.watching.learned(found)
        self.lookers.learned(found)
        for topic, entries in news.items():
            for member, epoch in map(parsed, entries):
                self.members.superseded(topic, member, epoch)
                if self.orphans.former(member) and member in self.book.live(topic):
                    self.members.depart(Topic(""), member, epoch)
            node = self.nodes.get(topic)
            if node is not None:
                self.state.look_again(node)

    def everything(self) -> RosterSync:
        """The whole roster, as a new neighbour is told it."""
        return RosterSync(self.book.roster(), self.book.fences(), self.book.closed.summary())

    def write_down(self) -> None:
        """At the end of a turn that brought news, or made some of it old."""
        if self.unwritten or self.book.oldest_ns < self.wires.now_ns - self._keep_ns:
            self.unwritten = False
            self.book.prune(self.wires.now_ns, self._keep_ns)
            members, ends = self.book.changes(), self.book.changed_ends()
            if members or any(ends):
                self.ledger.roster(members, *ends)
