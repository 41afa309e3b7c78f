"""Handles the edge's answers to publications: how far they have come, refusals, and whether more may come."""

from __future__ import annotations

from typing import ClassVar

from ordercast.client.joining import TopicJoining
from ordercast.client.ports import EDGE, SAFE
from ordercast.client.session import Session
from ordercast.client.stability import StabilityReports
from ordercast.core.state import State
from ordercast.pubsub.client_packets import Acks, Flow, Refused, StableUpdate


class Answers(State):
    """Takes publications out of their outbox, and tells the application."""

    constant: ClassVar[tuple[str, ...]] = ("session", "topics", "app", "stability", "joining")

    def __init__(self, session: Session, stability: StabilityReports, joining: TopicJoining) -> None:
        self.session = session
        self.topics = session.topics
        self.app = session.app
        self.stability = stability
        self.joining = joining

    def acks(self, packet: Acks) -> None:
        membership = self.topics.get(packet.topic)
        if membership is None:
            return
        if membership.arrived(packet.edge[0]):
            self.session.send_soon(packet.topic)
        for level, (low, extras) in ((EDGE, packet.edge), (SAFE, packet.safe)):
            if membership.reached(level, low, extras):
                if level == SAFE:
                    session = self.session
                    session.write_down(membership)
                    session.ledger.safe(packet.topic, low, extras)
                self.app.acknowledged(packet.topic, level, low, extras)
        self.joining.leave_if_possible(membership)

    def refused(self, packet: Refused) -> None:
        membership = self.topics.get(packet.topic)
        if membership is None or packet.number not in membership.outbox:
            return
        self.session.write_down(membership)
        self.session.ledger.refused(packet.topic, packet.number)
        if membership.give_up(packet.number):
            self.session.send_soon(packet.topic)
        self.app.refused(packet.topic, packet.number, packet.reason)
        self.joining.leave_if_possible(membership)

    def flow(self, packet: Flow) -> None:
        """BRK-ST4: what is published meanwhile stays in the outbox."""
        membership = self.topics.get(packet.topic)
        if membership is None or membership.open == packet.open:
            return
        membership.set_flow(open_=packet.open)
        if packet.open:
            self.session.send_soon(packet.topic)
        self.app.flow(packet.topic, open_=packet.open)

    def stable(self, packet: StableUpdate) -> None:
        membership = self.topics.get(packet.topic)
        if membership is not None:
            self.stability.raise_base(membership, packet.base)
            self.joining.leave_if_possible(membership)
