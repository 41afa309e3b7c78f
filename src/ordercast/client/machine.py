"""The client: publishes, receives each publication once and in order, and outlives its edge brokers (BRK-C1 to BRK-C9).

Brokers are soft state, clients the durable end points: a publication that nobody has delivered yet is in its
publisher's outbox, one that somebody has delivered is in that client's history until every member has it. Both are
offered to the next edge when one is lost, so what a dead broker knew is never needed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import attrgetter
from typing import Any, ClassVar, Self

from ordercast.client.joining import TopicJoining
from ordercast.client.membership import GRANTED, LIVE, NO_KEY, Membership
from ordercast.client.ports import EDGE, SAFE, ClientApp, ClientLedger, NoClientLedger, SavedClient
from ordercast.client.session import Session
from ordercast.client.settings import ClientSettings
from ordercast.client.stability import STABILITY, StabilityReports
from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId, Topic, origin_of
from ordercast.core.messages import Guarantee, Packet
from ordercast.core.process import Connection, Peer, ProcessMachine, Wires
from ordercast.core.wire import Codec
from ordercast.pubsub import client_packets as wire
from ordercast.pubsub.filters import allows
from ordercast.pubsub.publications import Publication

CLIENT_CODEC = Codec(wire.CLIENT_PACKETS)
_keys_of, _topic_of = attrgetter("keys"), attrgetter("topic")


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
        self.watched: set[str] = set(kept.watched)
        self.finding: dict[str, tuple[Topic, ...]] = {}
        """Topics of filters whose answer has not come to its end yet."""
        self.ended = False
        """Left on purpose, or fenced: nothing is sent or taken any more."""
        self._handlers: dict[type[Packet], Callable[[Any], None]] = {
            wire.Entries: self._entries, wire.Acks: self._acks, wire.StableUpdate: self._stable_update,
            wire.Flow: self._flow, wire.View: self.edge.viewed, wire.TopicState: self.joining.topic_state,
            wire.Granted: self.joining.granted, wire.Live: self.joining.live, wire.Left: self.joining.left,
            wire.Denied: self._denied, wire.Refused: self._refused, wire.TopicsFound: self._topics_found,
            wire.Ping: self._ping, wire.Pong: self._pong, wire.Sealed: self._sealed,
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

    # What the application asks for

    def publish(
        self, topic: Topic, payload: bytes, keys: tuple[str, ...] = NO_KEY, guarantee: Guarantee = Guarantee.CAUSAL
    ) -> int:
        """BRK-C1: the number of the publication. It leaves with the others of this turn."""
        membership = self.topics.get(topic)
        if membership is None or membership.wants is None:
            membership = self.joining.want(topic, receives=self._follows(topic))
        number = membership.counter + 1
        membership.counter = number
        publication = Publication(self.origin, number, topic, payload, guarantee, keys or NO_KEY, self.wires.now_ns)
        membership.outbox[number] = publication
        if membership.phase == LIVE:
            membership.unsent.append(publication)
        self.session.unsent.add(topic)
        return number

    def publish_many(
        self, topic: Topic, payloads: Iterable[bytes], keys: tuple[str, ...] = NO_KEY,
        guarantee: Guarantee = Guarantee.CAUSAL,
    ) -> range:  # fmt: skip
        """As many publications with the same keys; their numbers."""
        numbers = [self.publish(topic, payload, keys, guarantee) for payload in payloads]
        return range(numbers[0], numbers[-1] + 1) if numbers else range(0)

    def subscribe(self, topic: Topic) -> None:
        """Become a receiving member; `app.live` follows."""
        membership = self.topics.get(topic)
        if membership is None or membership.wants is not True:
            self.joining.want(topic, receives=True)

    def unsubscribe(self, topic: Topic) -> None:
        """BRK-M11: deliveries end here. `app.left` follows once what was published on the topic needs no member."""
        membership = self.topics.get(topic)
        if membership is not None and membership.wants is not None:
            self.joining.unwanted(membership)

    def _follows(self, topic: Topic) -> bool:
        """Whether a filter takes the topic in: then the first membership receives, or it would miss what others say."""
        return allows(self.watched, topic)

    def watch(self, pattern: str) -> None:
        """Subscribe to every topic that the filter takes in, now and later."""
        if pattern not in self.watched:
            self.watched.add(pattern)
            self.ledger.watched(tuple(sorted(self.watched)))
            self.session.send(wire.Watch(pattern))

    def unwatch(self, pattern: str) -> None:
        """Look for no more topics of the filter; the memberships that it led to stay."""
        if pattern in self.watched:
            self.watched.remove(pattern)
            self.ledger.watched(tuple(sorted(self.watched)))
            self.session.send(wire.Unwatch(pattern))

    def consumed(self, topic: Topic, count: int) -> None:
        """The application has taken the next `count` deliveries of the topic: only those are reported as stable."""
        membership = self.topics[topic]
        membership.consumed(count)
        self.ledger.consumed(topic, count)
        self.stability.report_soon(membership)

    def leave(self, *, stays: bool = False) -> None:
        """Take leave of every topic and end. What is still in an outbox is lost: wait for acknowledgements first.

        With `stays` the trace says that the run ended for this client, and not that it gave its topics up.
        """
        if not self.ended:
            unanswered = sum(len(membership.unanswered()) for membership in self.topics.values())
            lost = {"lost": f"{unanswered} publications"} if unanswered else {}
            self.wires.note("leave", {"end": "true", **lost} if stays else lost)
            self.joining.leave_all()
            self.stop("the client leaves")

    def stop(self, reason: str = "the client stops") -> None:
        """End without taking leave: a client with a data directory goes on where it was when it comes back."""
        self.ended = True
        self.edge.close(reason)
        self.stability.stop()

    # What happens to the process

    def on_start(self) -> None:
        for membership in self.session.memberships():
            for batch in tuple(membership.untaken):  # The application had not taken them when it stopped.
                self.app.deliver(batch)
        self.edge.seek()

    def on_opened(self, connection: Connection, peer: Peer) -> None:
        self.edge.opened(connection, peer)

    def on_closed(self, connection: Connection, *, gone: bool, reason: str = "") -> None:
        self.edge.closed(connection, gone=gone, reason=reason)

    def on_packets(self, connection: Connection, packets: Sequence[Packet]) -> None:
        if connection != self.edge.connection:
            return  # BRK-C2: only the current edge counts.
        self.edge.heard()
        for packet in packets:
            handler = self._handlers.get(type(packet))
            if handler is None:
                raise PeerError(self.edge.broker, f"sent a {type(packet).__name__} to a client")
            handler(packet)
            if self.ended:
                return

    def on_timer(self, name: Hashable) -> None:
        if self.ended:
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
        self.finding.clear()
        for pattern in sorted(self.watched):
            self.session.send(wire.Watch(pattern))
        self.joining.resume_all()

    def edge_lost(self, reason: str) -> None:
        self.joining.all_lost()
        self.app.disconnected(reason)

    def nobody_answers(self, failures: tuple[tuple[str, str, bool], ...]) -> None:
        self.app.nobody_answers(failures)

    def awaits_grants(self) -> bool:
        return bool(self.joining.asking)

    def _ping(self, packet: wire.Ping) -> None:
        self.session.send(wire.Pong(packet.at))

    def _pong(self, packet: wire.Pong) -> None:
        """Nothing to do: that the edge was heard is noted already."""

    def _denied(self, packet: wire.Denied) -> None:
        """BRK-C9 if the session is over; else only this topic."""
        if packet.reason == wire.FENCED:
            self.stop("the session is over")
            unanswered = [entry for membership in self.session.memberships() for entry in membership.unanswered()]
            self.ledger.lost(unanswered)
            self.wires.note("leave", {"lost": self.origin})
            reason = f"the overlay has given up {self.origin}: it was absent, or took nothing, for too long"
            self.app.session_lost(reason, unanswered)
        else:
            self.joining.denied(packet)

    def _topics_found(self, packet: wire.TopicsFound) -> None:
        if packet.pattern in self.watched:
            for topic in packet.topics:
                self.subscribe(topic)
            found = self.finding.pop(packet.pattern, ()) + packet.topics
            if packet.more:
                self.finding[packet.pattern] = found
            else:
                self.app.watching(packet.pattern, found)

    # Publications

    def _entries(self, packet: wire.Entries) -> None:
        """BRK-C2: each once, in this order; own ones leave the outbox."""
        membership = self.topics.get(packet.topic)
        if membership is None or not membership.asked_to_receive or membership.phase not in (GRANTED, LIVE):
            return
        if not {packet.topic}.issuperset(map(_topic_of, packet.entries)):
            raise PeerError(self.edge.broker, f"sent a publication on another topic among those on {packet.topic}")
        fresh = membership.take(packet.entries)
        if not fresh:
            return
        self.session.write_down(membership)
        if not all(map(_keys_of, fresh)):
            fresh = self._without_voids(membership, fresh)
        seals = membership.seal(packet.entries, fresh)
        if not fresh:
            self.joining.leave_if_possible(membership)
            return
        self.ledger.delivered(packet.topic, fresh, seals)
        taken = self.settings.consumes_at_once or not membership.receiving
        membership.remember(fresh, taken=taken)
        if taken:
            self.ledger.consumed(packet.topic, len(fresh))
            self.stability.report_soon(membership)
        if membership.receiving:
            self.app.deliver(fresh)
        else:
            self.joining.leave_if_possible(membership)

    def _without_voids(self, membership: Membership, fresh: Sequence[Publication]) -> Sequence[Publication]:
        """BRK-V1: voids are passed on like history, but not to the application."""
        membership.remember([entry for entry in fresh if entry.is_void], taken=True)
        self.stability.report_soon(membership)
        return [entry for entry in fresh if not entry.is_void]

    def _sealed(self, packet: wire.Sealed) -> None:
        membership = self.topics.get(packet.topic)
        if membership is not None:
            membership.coming = packet

    def _acks(self, packet: wire.Acks) -> None:
        membership = self.topics.get(packet.topic)
        if membership is None:
            return
        if membership.arrived(packet.edge[0]):
            self.session.unsent.add(packet.topic)
        for level, (low, extras) in ((EDGE, packet.edge), (SAFE, packet.safe)):
            if membership.reached(level, low, extras):
                self.app.acknowledged(packet.topic, level, low, extras)

    def _refused(self, packet: wire.Refused) -> None:
        membership = self.topics.get(packet.topic)
        if membership is None or packet.number not in membership.outbox:
            return
        self.session.write_down(membership)
        self.ledger.refused(packet.topic, packet.number)
        del membership.outbox[packet.number]
        if membership.arrived(packet.number):
            self.session.unsent.add(packet.topic)
        self.app.refused(packet.topic, packet.number, packet.reason)
        self.joining.leave_if_possible(membership)

    def _flow(self, packet: wire.Flow) -> None:
        """BRK-ST4: what is published meanwhile stays in the outbox."""
        membership = self.topics.get(packet.topic)
        if membership is None or membership.open == packet.open:
            return
        membership.open = packet.open
        if packet.open:
            self.session.unsent.add(packet.topic)
        self.app.flow(packet.topic, open_=packet.open)

    def _stable_update(self, packet: wire.StableUpdate) -> None:
        membership = self.topics.get(packet.topic)
        if membership is not None:
            self.stability.raise_base(membership, packet.base)
            self.joining.leave_if_possible(membership)
