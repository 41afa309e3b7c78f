"""Spreads membership changes over the whole tree, and acts on those that concern this broker (BRK-M8, BRK-M9)."""

from __future__ import annotations

from typing import Protocol

from ordercast.broker.ports import Fenced, Roster
from ordercast.broker.roster_book import parsed, written
from ordercast.broker.topics.grants import Grants
from ordercast.broker.topics.orphans import Orphans
from ordercast.broker.topics.topics_state import TopicsPart, TopicsState
from ordercast.broker.topics.watching import Watching
from ordercast.core.ids import Origin, Topic
from ordercast.core.process import Connection
from ordercast.pubsub.topic_packets import RosterSync


class LocalMembers(Protocol):
    """Port to the members at this broker, which news about the roster may concern."""

    def ended(self, who: Origin, epoch: int) -> None:
        """A fence or a departure has become known."""

    def superseded(self, topic: Topic, member: Origin, epoch: int) -> None:
        """The member has attached again, here or elsewhere."""

    def depart(self, topic: Topic, member: Origin, epoch: int) -> None:
        """The membership (without a topic: the session) is to end."""


class RosterNews(TopicsPart):
    """Takes in and passes on changes of the roster; the only writer of the book of members."""

    constant = (*TopicsPart.constant, "grants", "watching", "orphans", "ledger", "members")
    members: LocalMembers

    def __init__(self, state: TopicsState, grants: Grants, watching: Watching, orphans: Orphans) -> None:
        super().__init__(state)
        self.grants = grants
        self.watching = watching
        self.orphans = orphans
        self.ledger = state.ledger
        self.unwritten = False

    def record(self, topic: Topic, member: Origin, epoch: int) -> None:
        """BRK-M9.2: one more member, by a wave that passes through all brokers by itself."""
        known = bool(self.book.live(topic))
        if self.book.join(topic, member, epoch):
            self._grew({topic: (written(member, epoch),)}, {} if known else {topic: None})

    def learn(self, roster: Roster, fenced: Fenced, source: Connection | None = None) -> None:
        """BRK-M8, BRK-M9.4: knowledge of members; what is new goes on to all other neighbours."""
        before = set(self.book.topics()) if roster else set()
        new_roster, new_fenced = self.book.merge(roster, fenced)
        if not new_roster and not new_fenced:
            return
        news = RosterSync(new_roster, new_fenced)
        for link in self.state.neighbours():
            if link != source:
                self.wires.send(link, news)
        for who in sorted(new_fenced):
            self.members.ended(who, new_fenced[who])
            self.grants.forget(who, new_fenced[who])
        found = {topic: None for topic in sorted(new_roster) if topic not in before and self.book.live(topic)}
        self._grew(new_roster, found)

    def _grew(self, news: Roster, found: dict[Topic, None]) -> None:
        self.unwritten = True
        self.watching.learned(found)
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
        return RosterSync(self.book.roster(), self.book.fences())

    def write_down(self) -> None:
        """At the end of a turn that brought news."""
        if self.unwritten:
            self.unwritten = False
            self.book.prune(self.wires.now_ns, int(self.settings.member_timeout_ms * 1e7))
            self.ledger.roster(self.book.roster(), self.book.ended)
