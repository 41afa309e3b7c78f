"""The application's interests: topics and filters that it wants to read, and from where on."""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace

from ordercast.client.history import PastStart, Start
from ordercast.client.joining import INFO_FILTER, TopicJoining
from ordercast.client.ports import MissedFilters
from ordercast.client.replay import Replays
from ordercast.client.session import Session
from ordercast.core.ids import Topic
from ordercast.core.state import State
from ordercast.pubsub.client_packets import TopicsFound, Unwatch, Watch
from ordercast.pubsub.filters import allows, matches


class Interests(State):
    """The subscriptions of a client, to topics and to filters. Every topic of a filter becomes one of its own."""

    constant: ClassVar[tuple[str, ...]] = ("session", "topics", "edge", "ledger", "joining", "replays")
    derived: ClassVar[tuple[str, ...]] = ("followed",)

    def __init__(
        self, session: Session, joining: TopicJoining, replays: Replays, watched: tuple[str, ...],
        followed: tuple[str, ...], missed: MissedFilters,
    ) -> None:  # fmt: skip
        self.session = session
        self.topics = session.topics
        self.edge = session.edge
        self.ledger = session.ledger
        self.joining = joining
        self.replays = replays
        self.watched: set[str] = set(watched)
        self.followed: set[str] = set(followed)
        """Filters that are confirmed, whichever edge it was: each counts for all topics that have begun since.

        Not one that asks for the past, or is wider than the client's rights: topics that were there may come later.
        """
        self.pasts: dict[str, PastStart] = {}
        """Filters whose topics begin in the past."""
        self.missed = missed
        """Filters of the session before: what began since is read from its beginning, once they are confirmed."""
        self.unconfirmed: set[str] = set()
        """Filters that the present edge has not answered for."""
        self.finding: dict[str, tuple[Topic, ...]] = {}
        """Topics of filters whose answer has not come to its end yet."""

    # Topics

    def subscribe(self, topic: Topic) -> None:
        if not self._receives(topic):
            self.joining.want(topic, receives=True)
        elif topic in self.topics:
            self.topics[topic].is_asked_for()

    def subscribe_from(self, topic: Topic, start: Start, *, latest_only: bool = False, optional: bool = False) -> None:
        """ARC-S1: the past of a kept topic first, then what is live."""
        if not self._receives(topic):
            self.replays.begin(topic, start, latest_only=latest_only, optional=optional)

    def _receives(self, topic: Topic) -> bool:
        membership = self.topics.get(topic)
        return topic in self.replays.topics or (membership is not None and membership.wants is True)

    def unsubscribe(self, topic: Topic) -> None:
        """BRK-M11: deliveries end here."""
        membership = self.topics.get(topic)
        reading = self.replays.waits_to_join(topic)
        self.replays.forget(topic)
        if membership is not None and membership.wants is not None:
            self.joining.unwanted(membership)
        elif reading:
            self.session.app.left(topic)

    # Filters

    def watch(self, pattern: str, past: PastStart | None = None) -> None:
        if pattern not in self.watched:
            if past is not None:
                self.pasts[pattern] = past
            self.watched.add(pattern)
            self.ledger.watched(tuple(sorted(self.watched)))
            self._ask_for(pattern)

    def _ask_for(self, pattern: str) -> None:
        if self.edge.attached:
            self.unconfirmed.add(pattern)
            self.session.send(Watch(pattern, past=pattern in self.pasts or pattern in self.missed.patterns))
            self.edge.expect_grants()

    def unwatch(self, pattern: str) -> None:
        if pattern in self.watched:
            self.give_up(pattern)
            self.session.send(Unwatch(pattern))

    def give_up(self, pattern: str) -> None:
        """The filter is looked for no more: nobody wants it, or the tree denies it."""
        self.watched.remove(pattern)
        self.pasts.pop(pattern, None)
        self._missed_no_more(pattern)
        self.ledger.watched(tuple(sorted(self.watched)))
        self._counts_no_more(pattern)
        self._answered(pattern)

    def _answered(self, pattern: str) -> None:
        if pattern in self.unconfirmed:
            self.unconfirmed.remove(pattern)
            self.edge.granted()

    def found(self, packet: TopicsFound) -> None:
        """The edge knows topics that the filter takes in: each is subscribed to."""
        if packet.pattern not in self.watched:
            return
        self.session.note_membership()
        for topic in packet.topics:
            if packet.pattern in self.missed.patterns:
                self._go_on_in(topic)
            else:
                self._subscribe_for(packet.pattern, topic)
        found = self.finding.pop(packet.pattern, ()) + packet.topics
        if packet.more:
            self.finding[packet.pattern] = found
        else:
            self._missed_no_more(packet.pattern)
            if packet.pattern in self.unconfirmed:
                self._confirmed(packet)
            self._answered(packet.pattern)
            self.session.app.watching(packet.pattern, found)

    def _confirmed(self, answer: TopicsFound) -> None:
        """BRK-W2: from here on it counts for every topic that begins, unless some of them are hidden or read first."""
        pattern = answer.pattern
        if answer.narrowed or pattern in self.pasts:
            self._counts_no_more(pattern)
        elif pattern not in self.followed:
            self.followed.add(pattern)
            self.ledger.followed(tuple(sorted(self.followed)))
            self.session.wires.note("subscribe", {"topic": pattern, INFO_FILTER: pattern, "broker": self.edge.broker})

    def _counts_no_more(self, pattern: str) -> None:
        if pattern in self.followed:
            self.followed.remove(pattern)
            self.ledger.followed(tuple(sorted(self.followed)))
            self.session.wires.note("unsubscribe", {"topic": pattern})

    def denied(self, topic: Topic) -> None:
        """No filter brings this topic, which others may publish on."""
        for pattern in sorted(self.followed):
            if matches(pattern, topic):
                self._counts_no_more(pattern)

    def _subscribe_for(self, pattern: str, topic: Topic) -> None:
        past = self.pasts.get(pattern)
        if past is None:
            begun = pattern in self.followed and topic not in self.topics
            self.subscribe(topic)
            if begun and topic in self.topics:
                self.topics[topic].follows(pattern, unasked=False)
        else:
            self.subscribe_from(topic, past.of(topic), latest_only=past.latest_only, optional=True)

    def _go_on_in(self, topic: Topic) -> None:
        """ARC-S8: the session before knew all topics of its filter, so that this one began since, or began anew."""
        if not self._receives(topic):
            start = Start("time", {}, self.missed.since_ms)
            self.replays.begin_behind(topic, start, tells=self.missed.tells)

    def _missed_no_more(self, pattern: str) -> None:
        if pattern in self.missed.patterns:
            rest = tuple(one for one in self.missed.patterns if one != pattern)
            self.missed = replace(self.missed, patterns=rest)
            self.ledger.missed(self.missed)

    def receive_what_is_published(self, topic: Topic) -> bool:
        """Whether a filter takes in a topic that is published on first, which then must receive what others say.

        ARC-S7: where the filter asks for the past, the topic's comes all the same.
        """
        for pattern in self.pasts:
            if matches(pattern, topic):
                self._subscribe_for(pattern, topic)
        return allows(self.watched, topic) and not self.replays.waits_to_join(topic)

    def begun_since(self, topic: Topic) -> str:
        """A confirmed filter that a topic has begun after which it takes in and nobody has told of; empty: none is."""
        if topic in self.topics or topic in self.replays.topics:
            return ""
        return next((pattern for pattern in sorted(self.followed) if matches(pattern, topic)), "")

    def confirmed(self) -> set[str]:
        """Filters that the present edge has answered for."""
        return self.watched - self.waiting()

    def waiting(self) -> set[str]:
        """Filters that no edge answers for at present."""
        return self.unconfirmed if self.edge.attached else self.watched

    # The edge

    def edge_found(self) -> None:
        self.finding.clear()
        for pattern in sorted(self.watched):
            self._ask_for(pattern)

    def edge_lost(self) -> None:
        self.unconfirmed.clear()

    def leave(self) -> None:
        """Take leave of every filter; what ends with the client is for the row that says so."""
        for pattern in sorted(self.watched):
            self.session.send(Unwatch(pattern))
        self.watched.clear()
        self.followed.clear()
        self.ledger.watched(())
        self.ledger.followed(())
        self.ledger.missed(MissedFilters())
