"""Reliable uniform broadcast: what anyone delivers, everyone who lives and wants it delivers, exactly once.

On any connected overlay. A protocol of its own and the ground floor of the ordering ones, which override `_stamp` and
`_flooded`. Spec: docs/protocols/flood.md (FLD-F1 to FLD-F7), over docs/protocols/links.md.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Annotated, ClassVar

import msgspec

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId, Origin, Topic, origin_of, publisher_of
from ordercast.core.machine import Machine, Outbox, Place
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.shared.interest import Interest
from ordercast.protocols.shared.links import Ack, Hello, Numbered, ReliableLinks, Welcome
from ordercast.protocols.shared.seen import Seen, Summary

Key = tuple[Origin, int]
Stamp = tuple[int, ...]


class Data(Numbered, frozen=True, tag=1):
    """A message on its way, with what the ordering layer above wants to travel with it."""

    carries: ClassVar[str | None] = "message"

    message: Message
    stamp: Stamp = ()


class FloodOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of flood, and of every protocol on top of it."""

    f: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 1
    """Crashes that a delivered message survives."""
    ack_ms: Annotated[float, msgspec.Meta(gt=0, le=60_000)] = 20.0
    """How long an acknowledgement may wait for company."""
    retransmit_ms: Annotated[float, msgspec.Meta(gt=0, le=600_000)] = 200.0
    """How often what is not acknowledged is sent again."""


class Flood(Machine):
    """One node of the broadcast."""

    constant: ClassVar[tuple[str, ...]] = ("node", "origin", "nodes", "f", "may_be_last")
    durable: ClassVar[tuple[str, ...]] = ("links", "seen", "waiting", "holders", "interest", "admitted")

    def __init__(self, place: Place, options: FloodOptions) -> None:
        self.node = place.node
        self.origin = origin_of(place.node, place.incarnation)
        self.nodes = frozenset(place.nodes)
        self.f = options.f
        self.links = ReliableLinks(place, options.ack_ms, options.retransmit_ms)
        self.seen = Seen()
        self.interest = Interest(place)
        self.waiting: dict[Key, tuple[Message, Stamp]] = {}
        """Messages that too few other nodes are known to hold (FLD-F4)."""
        self.holders: dict[Key, set[NodeId]] = {}
        self.admitted = place.incarnation == 0
        """Whether this life has been welcomed by anyone (FLD-F7)."""
        self.trusted = self.links.unsuspected()
        self.may_be_last = not place.neighbours or len(place.nodes) - 1 <= self.f

    # The layer above

    def _stamp(self, _message: Message) -> Stamp:
        """The header of a message of this node."""
        return ()

    def _flooded(self, message: Message, _stamp: Stamp, out: Outbox) -> None:
        """The message will reach everyone; an ordering layer decides when it is this node's turn."""
        self._deliver(message, out)

    def _deliver(self, message: Message, out: Outbox) -> None:
        """FLD-F6: hand the message to the application if that wants it."""
        if self.interest.includes(message):
            out.deliver(message)

    # Messages

    def on_publish(self, message: Message, out: Outbox) -> None:
        """FLD-F1: a publication is a message that nobody else holds yet."""
        self.seen.add(message.origin, message.number)
        self._take_over(message, self._stamp(message), None, out)

    def on_receive(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        if type(packet) is not Data:
            self._on_control(peer, packet, out)
            return
        links = self.links
        new = links.accept(peer, packet, out)
        if new:
            message = packet.message
            if message.origin not in self.seen.highest:
                self._meet(message.origin, peer)
            if self.seen.add(message.origin, message.number, peer):
                self._take_over(message, packet.stamp, peer, out)
            elif self.waiting:
                self._add_holder(peer, (message.origin, message.number), out)
        if links.confirmed:
            self._add_confirmed(out)

    def _take_over(self, message: Message, stamp: Stamp, source: NodeId | None, out: Outbox) -> None:
        """FLD-F2, FLD-F3: relay a message met for the first time, and deliver it unless too few nodes hold it."""
        waits = self.f > (0 if source is None else 1) and not self._enough(() if source is None else (source,))
        self.links.spread(Data, message, stamp, source, waits, out)
        if waits:
            key = (message.origin, message.number)
            self.waiting[key] = (message, stamp)
            self.holders[key] = set() if source is None else {source}
            return
        if source is None:
            out.complete(message.id)
        self._flooded(message, stamp, out)

    def _on_control(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        match packet:
            case Ack():
                self.links.on_ack(peer, packet)
                if self.links.confirmed:
                    self._add_confirmed(out)
            case Hello(life=life):
                self._on_hello(peer, life, out)
            case Welcome():
                if self.links.on_welcome(peer, packet, out):
                    self._welcomed(packet.seen, out)
            case _:
                raise PeerError(peer, f"sent a {type(packet).__name__}, which is not part of this protocol")

    def _meet(self, origin: Origin, peer: NodeId) -> None:
        if publisher_of(origin) not in self.nodes:
            raise PeerError(peer, f"relays a message of {origin}, whom nobody knows")

    # Uniformity: who else holds a message

    def _enough(self, holders: Collection[NodeId]) -> bool:
        """FLD-F4: whether a message that these others hold may be delivered here."""
        if len(holders) >= self.f:
            return True
        # Even if all neighbours are suspected one of them must have it, because suspicions can be wrong. Only where
        # everybody else may really have crashed does a node go on alone.
        return self.trusted.issubset(holders) and (bool(holders) or self.may_be_last)

    def _add_confirmed(self, out: Outbox) -> None:
        """FLD-F4: whoever acknowledges a message holds it."""
        for peer, packet in self.links.take_confirmed():
            if isinstance(packet, Data):
                self._add_holder(peer, (packet.message.origin, packet.message.number), out)

    def _add_holder(self, peer: NodeId, key: Key, out: Outbox) -> None:
        holders = self.holders.get(key)
        if holders is not None:
            holders.add(peer)
            if self._enough(holders):
                self._release(key, out)

    def _release(self, key: Key, out: Outbox) -> None:
        """FLD-F3: the message survives f crashes. That is what its publisher waits for, and now it may be delivered."""
        del self.holders[key]
        message, stamp = self.waiting.pop(key)
        if message.origin == self.origin:
            out.complete(message.id)
        self._flooded(message, stamp, out)

    def _review(self, out: Outbox) -> None:
        """FLD-F5: suspicions changed, so fewer holders may do."""
        self.trusted = self.links.unsuspected()
        for key in [key for key, holders in self.holders.items() if self._enough(holders)]:
            self._release(key, out)

    # Life

    def on_start(self, out: Outbox) -> None:
        if not self.links.links and not self.admitted:
            self._welcomed((), out)
        self.links.on_start(out)

    def on_recover(self, out: Outbox) -> None:
        self.links.on_recover(out)
        self._review(out)

    def on_timer(self, name: Hashable, out: Outbox) -> None:
        self.links.on_timer(name, out)

    def on_suspect(self, peer: NodeId, out: Outbox) -> None:
        self.links.on_suspect(peer)
        self._review(out)

    def on_trust(self, peer: NodeId, out: Outbox) -> None:
        self.links.on_trust(peer, out)
        self._review(out)

    def on_subscribe(self, topic: Topic, _out: Outbox) -> None:
        self.interest.subscribe(topic)

    def on_unsubscribe(self, topic: Topic, _out: Outbox) -> None:
        self.interest.unsubscribe(topic)

    def _on_hello(self, peer: NodeId, life: int, out: Outbox) -> None:
        """FLD-F7: tell a newcomer which messages this node will not send it."""
        if not self.links.on_hello(peer, life):
            return
        coming = [
            (packet.message.origin, packet.message.number)
            for packet in self.links.pending(peer)
            if isinstance(packet, Data)
        ]
        out.send(peer, Welcome(self.links.life, life, self.seen.summary(but=coming)))
        self.links.resume(peer, out)

    def _welcomed(self, seen: Summary, out: Outbox) -> None:
        """FLD-F7: what was before this life is over; the first Welcome confirms the subscriptions."""
        self.seen.merge(seen)
        if not self.admitted:
            self.admitted = True
            for topic in self.interest.topics():
                out.note("subscribe", {"topic": topic})


FLOOD = ProtocolInfo(
    name="flood",
    summary="reliable uniform broadcast: every node relays what it meets for the first time to all its neighbours",
    source="Hadzilacos and Toueg, A Modular Approach to Fault-Tolerant Broadcasts, Cornell TR 94-1425, 1994",
    guarantee=Guarantee.EVENTUAL,
    overlay="any connected graph, with at least f neighbours a node; links may lose, duplicate and reorder",
    faults=(
        "crashes and recoveries with state without limit; up to f nodes may crash for good or lose their state, as "
        "long as the overlay without them stays connected; partitions that heal; wrong suspicions (f >= 2 then counts "
        "as 1)"
    ),
    metadata="20 + o + t",
    genuine=False,
    build=Flood,
    packets=(Data, Ack, Hello, Welcome),
    options=FloodOptions,
    readmits=True,
)
