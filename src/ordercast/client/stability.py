"""Stability at the client (BRK-ST1, BRK-C7): what was taken is reported, what everybody has is forgotten."""

from __future__ import annotations

from typing import ClassVar

from ordercast.client.membership import GRANTED, LIVE, Membership
from ordercast.client.ports import STABLE
from ordercast.client.session import Session
from ordercast.client.settings import ns
from ordercast.core.ids import Topic
from ordercast.core.state import State
from ordercast.pubsub.client_packets import StableReport
from ordercast.pubsub.received import Vector

STABILITY = "stability"


class StabilityReports(State):
    """Reports what was delivered, for all topics on one timer, which runs only while there is something to report."""

    constant: ClassVar[tuple[str, ...]] = ("session",)

    def __init__(self, session: Session) -> None:
        self.session = session
        self.armed = False
        self.unreported: set[Topic] = set()
        """Topics of which something may be to report: of 100,000 often none."""

    def report_soon(self, membership: Membership) -> None:
        """BRK-ST1: at the next period, or at once when much has been taken since the last report."""
        settings = self.session.settings
        if membership.unreported >= settings.report_every or membership.unreported_bytes >= settings.report_bytes:
            self._report(membership)
            return
        self.unreported.add(membership.topic)
        if not self.armed:
            self.armed = True
            self.session.wires.set_timer(STABILITY, ns(settings.stability_ms), background=True)

    def due(self) -> None:
        self.armed = False
        topics, self.unreported = sorted(self.unreported), set()
        for topic in topics:
            if topic in self.session.topics:
                self._report(self.session.topics[topic])

    def _report(self, membership: Membership) -> None:
        membership.unreported = membership.unreported_bytes = 0
        if membership.phase != LIVE or not membership.asked_to_receive:
            return
        vector = membership.report()
        if vector is not None:
            self.session.send(StableReport(membership.topic, vector))

    def raise_base(self, membership: Membership, base: Vector) -> None:
        """BRK-C7, BRK-C8: every member has everything up to here."""
        session = self.session
        session.write_down(membership)
        if membership.phase not in (GRANTED, LIVE):
            return
        grown = membership.stable(base, session.closed)
        if not grown:
            return
        session.ledger.base(membership.topic, grown, membership.base_seals)
        mine = membership.base.get(session.origin, 0)
        if membership.reached(STABLE, mine, ()):
            session.app.acknowledged(membership.topic, STABLE, mine, ())

    def stop(self) -> None:
        self.armed = False
        self.unreported = set()
        self.session.wires.cancel_timer(STABILITY)
