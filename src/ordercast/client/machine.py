"""The client: publishes, receives each publication once and in order, and outlives its edge brokers (BRK-C1 to BRK-C9).

Brokers are soft state, clients the durable end points: a publication that nobody has delivered yet is in its
publisher's outbox, one that somebody has delivered is in that client's history until every member has it. Both are
offered to the next edge when one is lost, so what a dead broker knew is never needed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, ClassVar, Self

from ordercast.client.answers import Answers
from ordercast.client.cuts import CUT, CutAsks
from ordercast.client.deliveries import Deliveries
from ordercast.client.history import Histories, HistoryRead, PastStart, Start
from ordercast.client.interests import Interests
from ordercast.client.joining import TopicJoining
from ordercast.client.looks import Looks
from ordercast.client.membership import LIVE, NO_KEY, Membership
from ordercast.client.ports import ClientApp, ClientLedger, NoClientLedger, SavedClient
from ordercast.client.replay import Replays
from ordercast.client.session import Session
from ordercast.client.settings import ClientSettings
from ordercast.client.stability import STABILITY, StabilityReports
from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId, Topic, origin_of
from ordercast.core.messages import Guarantee, Packet
from ordercast.core.process import Connection, Peer, ProcessMachine, Wires
from ordercast.core.wire import Codec
from ordercast.pubsub import client_packets as wire
from ordercast.pubsub.closed import is_ticket, senseless
from ordercast.pubsub.extras import Extras
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector

CLIENT_CODEC = Codec(wire.CLIENT_PACKETS)
_WHY_OVER = {
    wire.FENCED: "it was absent (member_timeout_ms), or took nothing (slow_member_ms), for too long",
    wire.REPLACED_BY_NEWER: "a newer session of its name has taken its place",
}


class ClientMachine(ProcessMachine):
    """One session of one client."""

    constant: ClassVar[tuple[str, ...]] = (
        "name", "number", "addresses", "origin", "wires", "app", "settings", "ledger", "topics", "edge", "_handlers"
    )  # fmt: skip

    def __init__(
        self, name: str, session: int, addresses: tuple[str, ...], wires: Wires, app: ClientApp,
        settings: ClientSettings, saved: SavedClient | None = None, ledger: ClientLedger | None = None,
    ) -> None:  # fmt: skip
        self.name = NodeId(name)
        self.number = session
        self.addresses = addresses
        self.origin = origin_of(self.name, session)
        self.wires = wires
        self.app = app
        self.settings = settings
        self.ledger: ClientLedger = ledger if ledger is not None else NoClientLedger()
        kept = saved if saved is not None else SavedClient()
        self.session = Session(self.origin, addresses, wires, app, settings, self.ledger, kept, self)
        self.topics = self.session.topics
        self.edge = self.session.edge
        self.stability = StabilityReports(self.session)
        self.joining = self.make_joining()
        self.histories = self.make_histories()
        self.cuts = CutAsks(self.session)
        self.looks = Looks(self.session)
        self.deliveries = Deliveries(self.session, self.stability, self.joining)
        self.replays = self.joining.past = self.deliveries.replays = self.make_replays()
        self.interests = Interests(self.session, self.joining, self.replays, kept.watched, kept.followed, kept.missed)
        self.answers = Answers(self.session, self.stability, self.joining)
        self._unfinished = {topic: saved.replay for topic, saved in kept.topics.items() if saved.replay is not None}
        self.ended = False
        """Left on purpose, or fenced: nothing is sent or taken any more."""
        self._handlers: dict[type[Packet], Callable[[Any], None]] = {
            wire.Entries: self.deliveries.entries, wire.Sealed: self.deliveries.sealed,
            wire.Acks: self.answers.acks, wire.Refused: self.answers.refused,
            wire.Flow: self.answers.flow, wire.StableUpdate: self.answers.stable,
            wire.View: self.edge.viewed, wire.TopicState: self.joining.topic_state,
            wire.Granted: self.joining.granted, wire.Live: self.joining.live, wire.Left: self.joining.left,
            wire.Denied: self._denied, wire.TopicsFound: self.interests.found,
            wire.Ping: self._ping, wire.Pong: self._pong,
            wire.Ticket: self._ticket, wire.SessionsClosed: self._sessions_closed,
            wire.KeptAt: self.histories.copies, wire.CutTold: self.cuts.told,
            wire.KeptFound: self.looks.told,
        }  # fmt: skip

    def copy(
        self, wires: Wires | None = None, app: ClientApp | None = None, ledger: ClientLedger | None = None
    ) -> Self:
        """An independent copy, in the same surroundings unless it is given others.

        Connections and timers are the surroundings' business: whoever gives other wires sees to it that the same
        connections are open there and the same timers run.
        """
        clone = type(self)(
            self.name, self.number, self.addresses, wires or self.wires, app or self.app, self.settings,
            ledger=ledger or self.ledger,
        )  # fmt: skip
        clone.become(self)
        return clone

    def make_joining(self) -> TopicJoining:
        return TopicJoining(self.session, self.stability)

    def make_histories(self) -> Histories:
        return Histories(self.session)

    def make_replays(self) -> Replays:
        return Replays(self.session, self.histories, self.joining, self.deliveries.release)

    # What the application asks for

    def publish(
        self, topic: Topic, payload: bytes, keys: tuple[str, ...] = NO_KEY, guarantee: Guarantee = Guarantee.CAUSAL,
        published_ns: int = 0, extras: Extras | None = None,
    ) -> int:  # fmt: skip
        """BRK-C1: the number of the publication. It leaves with the others of this turn.

        `published_ns`: by the clock on the wall; the machine knows only its runtime's.
        """
        membership = self.topics.get(topic)
        if membership is None or membership.wants is None:
            membership = self._join_to_publish(topic)
        number = membership.counter + 1
        membership.counter = number
        publication = Publication(
            self.session.origin, number, topic, payload, guarantee, keys or NO_KEY,
            published_ns or self.wires.now_ns, extras,
        )  # fmt: skip
        membership.outbox[number] = publication
        if membership.phase == LIVE:
            membership.unsent.append(publication)
        self.session.unsent.add(topic)
        return number

    def publish_run(
        self, topic: Topic, payloads: Sequence[bytes], keys: tuple[str, ...], guarantee: Guarantee, published_ns: int
    ) -> int:
        """BRK-C1 for several publications that differ in their payloads alone; the number of the first."""
        membership = self.topics.get(topic)
        if membership is None or membership.wants is None:
            membership = self._join_to_publish(topic)
        origin, first = self.session.origin, membership.counter + 1
        run = [
            Publication(origin, number, topic, payload, guarantee, keys, published_ns)
            for number, payload in enumerate(payloads, first)
        ]
        membership.counter += len(run)
        membership.outbox.update(zip(range(first, first + len(run)), run, strict=True))
        if membership.phase == LIVE:
            membership.unsent.extend(run)
        self.session.unsent.add(topic)
        return first

    def _join_to_publish(self, topic: Topic) -> Membership:
        since = self.interests.begun_since(topic)
        receives = self.interests.receive_what_is_published(topic)
        membership = self.joining.want(topic, receives=receives)
        membership.follows(since, unasked=receives)
        return membership

    def subscribe(self, topic: Topic) -> None:
        """Become a receiving member; `app.live` follows."""
        self.interests.subscribe(topic)

    def subscribe_from(self, topic: Topic, start: Start, *, latest_only: bool = False, optional: bool = False) -> None:
        """ARC-S1: the past of a kept topic first, then what is live. `app.replaying` or `app.no_history` follows.

        With `latest_only` only the last publication of each key of the past; `optional`: if the topic is kept.
        """
        self.interests.subscribe_from(topic, start, latest_only=latest_only, optional=optional)

    def read(self, topic: Topic, start: Start, until: Vector | None, *, over: bool = False) -> int:
        """ARC-7: read everything between two cuts of a kept topic, without a subscription; the number of the read."""
        return self.histories.begin(topic, start, until, self, over=over).number

    def read_taken(self, read: int, count: int) -> None:
        """The application has taken so many publications of the read."""
        found = self.histories.reads.get(read)
        if found is not None:
            self.histories.taken(found, count)

    def end_read(self, read: int) -> None:
        found = self.histories.reads.get(read)
        if found is not None:
            self.histories.end(found)

    def ask_cut(self, topics: Iterable[str]) -> int:
        """ARC-C1: how far the topics are, all at one moment; `app.cut_told` follows, perhaps several times.

        A filter stands for all kept topics that it takes in.
        """
        return self.cuts.ask(tuple(sorted(set(topics))))

    def unsubscribe(self, topic: Topic) -> None:
        """BRK-M11: deliveries end here. `app.left` follows once what was published on the topic needs no member."""
        self.interests.unsubscribe(topic)

    def taken_up_to(self, topic: Topic) -> Vector:
        """Up to where, per publisher, the application has taken the topic."""
        membership = self.topics.get(topic)
        past = self.replays.position(topic)
        if past is not None or membership is None:
            return past or {}
        taken = membership.consumed_vector()
        return membership.with_closed(taken, self.session.closed) if membership.receiving else taken

    def watch(self, pattern: str, past: PastStart | None = None) -> None:
        """Subscribe to every topic that the filter takes in, now and later; ARC-S7: with the past of those kept."""
        self.interests.watch(pattern, past)

    def unwatch(self, pattern: str) -> None:
        """Look for no more topics of the filter; the memberships that it led to stay."""
        self.interests.unwatch(pattern)

    def look(self, pattern: str) -> None:
        """ARC-K1: `app.kept_found` tells the kept topics of the filter, and each that begins; it subscribes to none."""
        self.looks.look(pattern)

    def unlook(self, pattern: str) -> None:
        self.looks.unlook(pattern)

    def consumed(self, topic: Topic, count: int) -> None:
        """The application has taken the next `count` deliveries of the topic: only those are reported as stable."""
        self.deliveries.consumed(topic, count)

    def heard_of_gap(self, topic: Topic) -> None:
        """ARC-S8: the application has been told that something of the topic is gone."""
        self.ledger.gap(topic, told=True)

    def leave(self, *, stays: bool = False) -> None:
        """Take leave of every topic and filter, and end: a next life with the same data is a new session.

        What is still in an outbox may be lost: wait for acknowledgements first.
        With `stays` the trace says that the run ended for this client, and not that it gave its topics up.
        """
        if not self.ended:
            unanswered = self._unanswered()
            lost = {"lost": f"{len(unanswered)} publications"} if unanswered else {}
            self.wires.note("leave", {"end": "true", **lost} if stays else lost)
            self.interests.leave()
            self.joining.leave_all()
            self.ledger.lost(unanswered)
            self.stop("the client leaves")

    def _unanswered(self) -> list[Publication]:
        return [entry for membership in self.session.memberships() for entry in membership.unanswered()]

    def stop(self, reason: str = "the client stops") -> None:
        """End without taking leave: a client with a data directory goes on where it was when it comes back."""
        self.ended = True
        self.edge.close(reason)
        self.stability.stop()
        self.histories.end_all()

    # What happens to the process

    def on_start(self) -> None:
        for topic in sorted(self._unfinished):
            self.replays.resume(topic, self._unfinished.pop(topic))
        self.deliveries.hand_over_again()
        self.edge.seek()

    def on_opened(self, connection: Connection, peer: Peer) -> None:
        read = self.histories.owner(connection)
        if read is not None:
            self.histories.opened(read)
        else:
            self.edge.opened(connection, peer)

    def on_closed(self, connection: Connection, *, gone: bool, reason: str = "") -> None:
        read = self.histories.owner(connection)
        if read is not None:
            self.histories.closed(read)
        else:
            self.edge.closed(connection, gone=gone, reason=reason)

    def on_packets(self, connection: Connection, packets: Sequence[Packet]) -> None:
        if connection != self.edge.connection:
            self._from_a_copy(connection, packets)  # BRK-C2: else only the current edge counts.
            return
        self.edge.heard()
        for packet in packets:
            handler = self._handlers.get(type(packet))
            if handler is None:
                raise PeerError(self.edge.broker, f"sent a {type(packet).__name__} to a client")
            handler(packet)
            if self.ended or connection != self.edge.connection:
                return  # BRK-C2: a packet may end the session, or send it to another edge.

    def _from_a_copy(self, connection: Connection, packets: Sequence[Packet]) -> None:
        for packet in packets:
            read = self.histories.owner(connection)
            if read is None:
                return
            self.histories.receive(read, packet)

    def on_timer(self, name: Hashable) -> None:
        if self.ended:
            return
        if isinstance(name, tuple):
            (self.cuts if name[0] == CUT else self.histories).timer(name[1])
            return
        if name == STABILITY:
            self.stability.due()
        else:
            self.edge.timer(name)

    def on_turn_end(self) -> None:
        """BRK-C1: as few packets per topic as hold all that was published in this turn."""
        session = self.session
        if not session.unsent:
            return
        limits = self.settings.batch_entries, self.settings.batch_bytes, self.settings.window_bytes
        for topic in sorted(session.unsent):
            membership = self.topics[topic]
            session.write_down(membership)
            if membership.phase == LIVE and membership.open and membership.unsent:
                for batch in membership.batches(*limits):
                    session.send(wire.Entries(topic, batch))
        session.unsent.clear()

    # The edge

    def edge_found(self) -> None:
        """Resume everything at the new edge."""
        self.app.connected(self.edge.broker)
        self.histories.edge_found()
        self.cuts.edge_found()
        self.looks.edge_found()
        self.interests.edge_found()
        self.joining.resume_all()

    def edge_lost(self, reason: str) -> None:
        self.interests.edge_lost()
        self.joining.all_lost()
        self.app.disconnected(reason)

    def nobody_answers(self, failures: tuple[tuple[str, str, bool], ...]) -> None:
        self.app.nobody_answers(failures)

    def awaits_grants(self) -> bool:
        return bool(self.joining.asking or self.interests.unconfirmed)

    def _ping(self, packet: wire.Ping) -> None:
        self.session.send(wire.Pong(packet.at))

    def _pong(self, packet: wire.Pong) -> None:
        """Nothing to do: that the edge was heard is noted already."""

    def _denied(self, packet: wire.Denied) -> None:
        """BRK-C9 if the session is over; else only this topic, or filter."""
        if packet.reason == wire.FENCED and self.session.ticket and not self.session.granted:
            self.session.take_ticket("", b"")  # BRK-F2: it was never anybody, so it has lost nothing.
            self.edge.begin_anew("its ticket is not valid any more")
        elif packet.reason in wire.SESSION_OVER:
            self.stop("the session is over")
            unanswered = self._unanswered()
            self.ledger.lost(unanswered)
            self.wires.note("leave", {"lost": self.origin})
            reason = f"the overlay has given up {self.origin}: {_WHY_OVER[packet.reason]}"
            self.app.session_lost(reason, unanswered)
        elif packet.topic in self.interests.unconfirmed:
            self.interests.give_up(packet.topic)
            self.app.denied(packet.topic, packet.reason)
        else:
            self.interests.denied(packet.topic)
            self.joining.denied(packet)

    def _ticket(self, packet: wire.Ticket) -> None:
        """BRK-F1: only a session without one takes it."""
        if not is_ticket(packet.ticket):
            raise PeerError(self.edge.broker, f"gave {packet.ticket[:40]!r} as a ticket")
        if not self.session.ticket:
            self.session.take_ticket(packet.ticket, packet.seal)

    def _sessions_closed(self, packet: wire.SessionsClosed) -> None:
        objection = senseless(packet.closed)
        if objection:
            raise PeerError(self.edge.broker, f"sent {objection}")
        self.session.close(packet.closed)

    # Reads without a subscription

    def history_opened(self, read: HistoryRead) -> None:
        self.app.history_bounds(read.number, dict(read.progress or {}), dict(read.until or {}))

    def history(self, read: HistoryRead, entries: Sequence[Publication], covered: Vector) -> None:  # noqa: ARG002
        if entries:
            self.app.history(read.number, entries)

    def history_over(self, read: HistoryRead) -> None:
        self.app.history_ended(read.number, "gaps" if read.gaps else "", {})

    def history_failed(self, read: HistoryRead, code: str, cut: Vector) -> None:
        self.app.history_ended(read.number, code, cut)
