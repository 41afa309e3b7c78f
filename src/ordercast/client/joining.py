"""Joining topics at the present edge, and leaving them (BRK-C5, BRK-C6, BRK-C8, BRK-M11)."""

from __future__ import annotations

from typing import ClassVar, Protocol

from ordercast.client.membership import ASKED, GRANTED, LEAVING, LIVE, OUT, RESUMED, Membership, split
from ordercast.client.session import Session
from ordercast.client.stability import StabilityReports
from ordercast.core.ids import Topic
from ordercast.core.state import State
from ordercast.pubsub.batches import pieces
from ordercast.pubsub.client_packets import (
    Denied,
    Goodbye,
    Granted,
    Left,
    Live,
    Resume,
    Subscribe,
    TopicState,
    Unsubscribe,
)
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector

INFO_FROM, FROM_EVERYTHING, FROM_MEMBERSHIP = "from", "everything", "membership"
"""In the row of a subscription: it has the whole past of its topic; it has not after all, a part is lost (ARC-S5)."""
FROM_FILTER, INFO_FILTER = "filter", "filter"
"""In the row of a subscription: it has everything since this filter was confirmed, the topic began later (BRK-W2)."""
_MOST_AT_ONCE = 256
"""Topics that an edge is asked to confirm at a time."""


class Past(Protocol):
    """Port to the subscriptions that begin in the past."""

    def granted(self, membership: Membership, base: Vector) -> None:
        """The membership counts from now on; `base` is stable."""

    def waits_to_join(self, topic: Topic) -> bool:
        """Whether it is to be no member yet."""

    def is_whole(self, topic: Topic) -> bool:
        """Whether it has, or will have, everything that was ever published."""


class TopicJoining(State):
    """Brings each membership from OUT to LIVE at every new edge, and back to OUT when the application leaves."""

    constant: ClassVar[tuple[str, ...]] = ("session", "stability", "past")
    past: Past
    ordered: ClassVar[tuple[str, ...]] = ("queue",)

    def __init__(self, session: Session, stability: StabilityReports) -> None:
        self.session = session
        self.stability = stability
        self.asking: set[Topic] = set()
        """Topics that the edge has not confirmed."""
        self.queue: dict[Topic, None] = {}
        """Topics that it is asked for once it has confirmed others: thousands at once would keep all brokers busy."""

    def want(self, topic: Topic, *, receives: bool) -> Membership:
        """Be a member of the topic from now on, at this edge and all later ones."""
        session = self.session
        membership = session.topics.get(topic)
        if membership is None:
            membership = session.topics[topic] = Membership(topic, session.origin)
        membership.wants = receives
        session.ledger.member(topic, receives, granted=membership.receiving)
        if session.edge.attached and membership.phase == OUT:
            # Others may wait for whoever receives (BRK-W2), so that it never stands in a queue behind them.
            self._ask(membership) if receives else self._ask_in_turn(membership)
        elif receives and not membership.asked_to_receive:
            self._ask_for_more(membership)
        return membership

    def _ask_for_more(self, membership: Membership) -> None:
        """Ask for deliveries too, after only publishing; at once: others may speak before it is confirmed."""
        if membership.phase == ASKED:
            membership.asked_to_receive = True  # Its Resume says so.
        elif membership.phase in (RESUMED, GRANTED, LIVE):
            self._ask(membership)

    def resume_all(self) -> None:
        """A new edge knows nothing of this client yet."""
        for membership in self.session.memberships():
            if self._needed(membership):
                self._ask_in_turn(membership)

    def _needed(self, membership: Membership) -> bool:
        if membership.wants and self.past.waits_to_join(membership.topic):
            return False
        return membership.wants is not None or membership.counted or bool(membership.outbox)

    def _ask_in_turn(self, membership: Membership) -> None:
        if len(self.asking) < _MOST_AT_ONCE:
            self._ask(membership)
        else:
            self.queue[membership.topic] = None

    def _answered(self, topic: Topic) -> None:
        """The edge has confirmed the topic, or never will: it is the next one's turn."""
        session = self.session
        self.asking.discard(topic)
        while self.queue and len(self.asking) < _MOST_AT_ONCE:
            following = next(iter(self.queue))
            del self.queue[following]
            membership = session.topics[following]
            if membership.phase == OUT and self._needed(membership) and session.edge.attached:
                self._ask(membership)

    def all_lost(self) -> None:
        """BRK-C5: nothing is live until another edge says so."""
        self.asking.clear()
        self.queue.clear()
        for membership in self.session.memberships():
            membership.phase = OUT
            membership.open = True
            membership.send_nothing_yet()
            membership.reported = None

    def _ask(self, membership: Membership) -> None:
        membership.phase = ASKED
        self.asking.add(membership.topic)
        membership.asked_to_receive = membership.wants is True
        membership.counted = True
        membership.send_nothing_yet()
        self.session.send(Subscribe(membership.topic, membership.asked_to_receive))
        self.session.edge.expect_grants()

    def topic_state(self, packet: TopicState) -> None:
        """BRK-C5: tell the edge what this client has, and give it the history that it may lack.

        An edge that has to start over with the topic asks again in the same way.
        """
        membership = self.session.topics.get(packet.topic)
        if membership is None or membership.phase not in (ASKED, RESUMED):
            return
        membership.phase = RESUMED
        settings = self.session.settings
        have, base = membership.have.summary(), membership.base.copy()
        history = self.history_for(membership, packet)
        proof = membership.proof(history)
        for piece in tuple(pieces(history, settings.batch_entries, settings.batch_bytes)) or ((),):
            attach_no = self.session.edge.attach_no
            if proof is not None:
                part, proof = split(proof, len(piece))
                self.session.send(part)
            receives = membership.asked_to_receive
            self.session.send(Resume(packet.topic, attach_no, have, base, piece, receives, packet.life))

    def history_for(self, membership: Membership, state: TopicState) -> list[Publication]:
        """All that is not stable at the edge, even if it has it now: it may have to forget it before the grant."""
        low = state.base.get
        return [entry for entry in membership.kept() if entry.number > low(entry.origin, 0)]

    def granted(self, packet: Granted) -> None:
        """BRK-M6, BRK-C8: confirmed. What is below the base was forgotten before, and counts as received."""
        session = self.session
        membership = session.topics.get(packet.topic)
        if membership is None or membership.phase != RESUMED:
            return
        if membership.asked_to_receive and not packet.receives:
            return  # Of what was asked before.
        membership.phase = GRANTED
        session.note_membership()
        if membership.wants is True and membership.asked_to_receive and not membership.receiving:
            since = membership.begin_deliveries()
            session.ledger.member(packet.topic, receives=True, granted=True)
            info = {"topic": packet.topic, "broker": session.edge.broker}
            session.wires.note("subscribe", {**info, **self._beginning(packet.topic, since)})
        membership.granted(packet.base, aged=packet.aged)
        self.stability.raise_base(membership, packet.base)
        self.past.granted(membership, membership.with_closed(packet.base, session.closed))

    def _beginning(self, topic: Topic, since: str) -> dict[str, str]:
        """From when on it is owed what is published, if not from now on."""
        if self.past.is_whole(topic):
            return {INFO_FROM: FROM_EVERYTHING}
        return {INFO_FROM: FROM_FILTER, INFO_FILTER: since} if since else {}

    def live(self, packet: Live) -> None:
        """BRK-C6: the outbox again, in order, then what is new."""
        session = self.session
        membership = session.topics.get(packet.topic)
        if membership is None or membership.phase != GRANTED:
            return
        membership.phase = LIVE
        self._answered(packet.topic)
        session.edge.granted()
        membership.republish()
        session.send_soon(packet.topic)
        self.stability.report_soon(membership)
        if membership.wants is None:
            self.leave_if_possible(membership)
        elif membership.receiving:  # That it may publish says nothing about a subscription that is still asked for.
            session.app.live(packet.topic)

    def denied(self, packet: Denied) -> None:
        """This topic is not for this client."""
        session = self.session
        membership = session.topics.get(packet.topic)
        if membership is None or membership.phase == OUT:
            return
        if membership.unasked and not membership.receiving:
            self._only_publish(membership)
            return
        session.write_down(membership)
        for number in sorted(membership.outbox):
            session.ledger.refused(packet.topic, number)
            session.app.refused(packet.topic, number, packet.reason)
        membership.drop_outbox()
        membership.wants = None
        self.end_deliveries(membership)
        self._gone_from(membership)
        session.edge.granted()
        session.app.denied(packet.topic, packet.reason)

    def _only_publish(self, membership: Membership) -> None:
        """A filter may be wider than the right to receive: that is no reason to publish nothing."""
        membership.only_publish()
        session = self.session
        session.ledger.member(membership.topic, receives=False, granted=False)
        session.edge.granted()
        self._ask(membership)

    def unwanted(self, membership: Membership) -> None:
        """BRK-M11: deliveries end here; the membership ends once nothing published depends on it.

        A next life before that is a member that only publishes: it takes nothing, and is not missed.
        """
        membership.wants = None
        self.session.ledger.consumed(membership.topic, membership.untaken_count())
        self.session.ledger.member(membership.topic, receives=False, granted=False)
        self.end_deliveries(membership)
        self.leave_if_possible(membership)

    def end_deliveries(self, membership: Membership) -> None:
        if membership.receiving:
            self.session.wires.note("unsubscribe", {"topic": membership.topic})
        membership.end_deliveries()

    def leave_if_possible(self, membership: Membership) -> None:
        """Tell the edge, unless a publication of this client still needs the membership: what is left is not kept."""
        if membership.wants is not None or membership.unsafe():
            return
        if membership.phase == LIVE:
            membership.phase = LEAVING
            self.session.send(Unsubscribe(membership.topic))
        elif not membership.counted:
            self._gone_from(membership)
            self.session.app.left(membership.topic)

    def left(self, packet: Left) -> None:
        membership = self.session.topics.get(packet.topic)
        if membership is None or membership.phase != LEAVING:
            return
        self._gone_from(membership)
        if membership.wants is None:
            self.session.app.left(membership.topic)
        else:  # The application has changed its mind meanwhile.
            self.want(membership.topic, receives=membership.wants)

    def _gone_from(self, membership: Membership) -> None:
        """Numbers and received-set stay: a later membership of this session goes on from them."""
        membership.phase = OUT
        membership.counted = False
        membership.history = []
        membership.reported = None
        self.session.ledger.member(membership.topic, None, granted=False)
        self._answered(membership.topic)

    def leave_all(self) -> None:
        """The client ends for good; what ends with it is for the row that says so."""
        for membership in self.session.memberships():
            membership.wants = None
            membership.end_deliveries()
            if membership.phase not in (OUT, LEAVING):
                self.session.send(Unsubscribe(membership.topic))
            if membership.counted:
                self._gone_from(membership)
        if self.session.ticket:
            self.session.send(Goodbye())
