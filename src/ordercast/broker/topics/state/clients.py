"""The clients that are connected to this broker."""

from __future__ import annotations

from typing import ClassVar

from ordercast.broker.roster_book import SERIALS
from ordercast.core.ids import NodeId, Origin, Topic, origin_of, ticketed
from ordercast.core.process import Connection, Peer
from ordercast.core.state import State
from ordercast.pubsub.client_packets import WANTED, Sealed
from ordercast.pubsub.filters import allows, common, following, is_following

_MOST_KNOWN = 10_000
"""Answers that are remembered for a client; it may ask for any number of names."""


class AttachedClient(State):
    """One connection of a client's session."""

    derived: ClassVar[tuple[str, ...]] = ("_may_publish", "_followings")

    def __init__(self, connection: Connection, peer: Peer, attach_no: int, ticket: str = "") -> None:
        self.connection = connection
        self.name = peer.name
        self.user = peer.user
        self.wants_ticket = ticket == WANTED
        plain = origin_of(NodeId(peer.name), peer.life)
        self.origin: Origin = plain if self.wants_ticket else ticketed(plain, ticket)
        self.unproven = False
        """It shows a ticket that no broker has given it."""
        self.ungranted = False
        """It was given its ticket here, and no membership yet."""
        self.knows_closed = False
        """It was told which sessions are closed (BRK-F8)."""
        self.rights = peer.rights
        self.attach_no = attach_no
        self.asked = 0
        self.sealed: Sealed | None = None
        """Proofs of what its next Resume says."""
        self.patterns: set[str] = set()
        """The filters that it follows, or has asked to."""
        self.answered: set[str] = set()
        """Those that the root has confirmed."""
        self.past: set[str] = set()
        """Those that take in kept topics without members too."""
        self.looks: set[str] = set()
        """The filters of which it wants to know the kept topics (ARC-K1)."""
        self._may_publish: dict[Topic, bool] = {}
        self._followings: dict[str, tuple[Topic, ...]] = {}

    def take_ticket(self, ticket: str) -> None:
        """BRK-F1: this is its origin from now on; nothing was recorded under the one before."""
        self.origin = ticketed(self.origin, ticket)
        self.wants_ticket, self.ungranted = False, True

    def settle(self) -> None:
        """It has a membership, or has said goodbye: its session does not end unnoticed any more (BRK-F2)."""
        self.ungranted = False

    def follow(self, pattern: str, *, past: bool) -> None:
        self.patterns.add(pattern)
        if past:
            self.past.add(pattern)

    def confirm(self, pattern: str) -> None:
        self.answered.add(pattern)

    def unfollow(self, pattern: str) -> None:
        self.patterns.discard(pattern)
        self.answered.discard(pattern)
        self.past.discard(pattern)

    def look(self, pattern: str) -> None:
        self.looks.add(pattern)

    def look_no_more(self, pattern: str) -> None:
        self.looks.discard(pattern)

    def next_epoch(self) -> int:
        """Grows with every attach of the session, and with every membership that it asks for on this connection."""
        self.asked += 2
        return self.attach_no * SERIALS + self.asked

    def may_publish(self, topic: Topic) -> bool:
        known = self._may_publish.get(topic)
        if known is None:
            if len(self._may_publish) >= _MOST_KNOWN:
                self._may_publish.clear()
            known = self._may_publish[topic] = allows(self.rights.publish, topic) and not is_following(topic)
        return known

    def may_subscribe(self, topic: Topic) -> bool:
        return allows(self.rights.subscribe, topic)

    def follows(self, topic: Topic) -> bool:
        """Whether a filter of it takes the topic in, and it may receive it."""
        return allows(self.patterns, topic) and self.may_subscribe(topic)

    def followings(self, pattern: str) -> tuple[Topic, ...]:
        """BRK-W1: the names that it is a member of for the filter: no more than it has a right to."""
        known = self._followings.get(pattern)
        if known is None:
            if len(self._followings) >= _MOST_KNOWN:
                self._followings.clear()
            parts = {common(pattern, right) for right in self.rights.subscribe}
            known = tuple(sorted(following(part) for part in parts if part is not None))
            self._followings[pattern] = known
        return known
