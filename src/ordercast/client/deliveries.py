"""From what the edge sends to what the application is handed: each publication once and in order (BRK-C2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ordercast.client.joining import TopicJoining
from ordercast.client.membership import GRANTED, LIVE, Membership
from ordercast.client.replay import Replays
from ordercast.client.session import Session
from ordercast.client.stability import StabilityReports
from ordercast.core.errors import PeerError
from ordercast.core.ids import Topic
from ordercast.core.state import State
from ordercast.pubsub.client_packets import Entries, Sealed
from ordercast.pubsub.publications import Publication


class Deliveries(State):
    """Hands over what is live; what waits for the past of its topic is handed over behind it."""

    constant: ClassVar[tuple[str, ...]] = (
        "session", "topics", "app", "settings", "ledger", "stability", "joining", "replays",
    )  # fmt: skip

    def __init__(self, session: Session, stability: StabilityReports, joining: TopicJoining) -> None:
        self.session = session
        self.topics = session.topics
        self.app = session.app
        self.settings = session.settings
        self.ledger = session.ledger
        self.stability = stability
        self.joining = joining
        self.replays: Replays

    def entries(self, packet: Entries) -> None:
        """BRK-C2: each once, in this order; own ones leave the outbox."""
        membership = self.topics.get(packet.topic)
        if membership is None or not membership.asked_to_receive or membership.phase not in (GRANTED, LIVE):
            return
        if [entry.topic for entry in packet.entries].count(packet.topic) < len(packet.entries):
            broker = self.session.edge.broker
            raise PeerError(broker, f"sent a publication on another topic among those on {packet.topic}")
        fresh = membership.take(packet.entries, self.session.closed)
        if not fresh:
            return
        self.session.write_down(membership)
        if () in [entry.keys for entry in fresh]:
            fresh = self._without_voids(membership, fresh)
        seals = membership.seal(packet.entries, fresh)
        if not fresh:
            self.joining.leave_if_possible(membership)
            return
        self.ledger.delivered(packet.topic, fresh, seals)
        self._hand_over(membership, fresh)

    def _hand_over(self, membership: Membership, fresh: Sequence[Publication]) -> None:
        waits = self.replays.holds(membership.topic)
        taken = (self.settings.consumes_at_once and not waits) or not membership.receiving
        membership.remember(fresh, taken=taken)
        if taken:
            self.ledger.consumed(membership.topic, len(fresh))
            self.stability.report_soon(membership)
        if membership.receiving and not waits:
            self.app.deliver(fresh)
        elif not membership.receiving:
            self.joining.leave_if_possible(membership)

    def _without_voids(self, membership: Membership, fresh: Sequence[Publication]) -> Sequence[Publication]:
        """BRK-V1: voids are passed on like history, but not to the application."""
        membership.remember([entry for entry in fresh if entry.is_void], taken=True)
        self.stability.report_soon(membership)
        return [entry for entry in fresh if not entry.is_void]

    def consumed(self, topic: Topic, count: int) -> None:
        """The application has taken the next `count` deliveries of the topic: only those are reported as stable."""
        count = self.replays.consumed(topic, count)
        membership = self.topics.get(topic)
        if count and membership is not None:
            membership.consumed(count)
            self.ledger.consumed(topic, count)
            self.stability.report_soon(membership)

    def release(self, membership: Membership, former: int) -> None:
        """ARC-S4: the past is delivered; what came live meanwhile follows.

        The first deliveries that are not taken are of a former session, and were handed over before the past.
        """
        for batch in membership.untaken_behind(former):
            self.app.deliver(batch)
            if self.settings.consumes_at_once:
                self.consumed(membership.topic, len(batch))

    def hand_over_again(self) -> None:
        """Hand over again what the application of an earlier life was handed and had not taken."""
        for membership in self.session.memberships():
            former = self.replays.former(membership.topic)
            batches = membership.untaken_behind(0) if former is None else [membership.first_untaken(former)]
            for batch in filter(None, batches):
                self.app.deliver(batch)

    def sealed(self, packet: Sealed) -> None:
        membership = self.topics.get(packet.topic)
        if membership is not None:
            membership.expect(packet)
