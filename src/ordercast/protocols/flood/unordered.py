"""Deliberately weak: claims causal order, resends nothing and orders nothing. It exists for the judge to catch.

Spec: docs/protocols/unordered.md (FLD-U1, FLD-U2).
"""

from __future__ import annotations

from typing import Any, ClassVar

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId, Topic
from ordercast.core.machine import Machine, Outbox, Place
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.shared.interest import Interest
from ordercast.protocols.shared.seen import Seen


class Bare(Packet, frozen=True, tag=1):
    """A message and nothing else."""

    carries: ClassVar[str | None] = "message"

    message: Message


class Unordered(Machine):
    """Relays and delivers whatever arrives, once."""

    constant: ClassVar[tuple[str, ...]] = ("neighbours",)
    durable: ClassVar[tuple[str, ...]] = ("seen", "interest")

    def __init__(self, place: Place) -> None:
        self.neighbours = place.neighbours
        self.seen = Seen()
        self.interest = Interest(place)

    def on_publish(self, message: Message, out: Outbox) -> None:
        out.complete(message.id)  # FLD-U1: there is nothing it would wait for.
        self._pass_on(message, None, out)

    def on_receive(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        if peer not in self.neighbours:
            raise PeerError(peer, "is not a neighbour")
        if not isinstance(packet, Bare):
            raise PeerError(peer, f"sent a {type(packet).__name__}, which is not part of this protocol")
        self._pass_on(packet.message, peer, out)

    def _pass_on(self, message: Message, source: NodeId | None, out: Outbox) -> None:
        """FLD-U1, FLD-U2: relay a new message and deliver it in the same breath."""
        if not self.seen.add(message.origin, message.number, source):
            return
        packet = Bare(message)
        for neighbour in self.neighbours:
            if neighbour != source:
                out.send(neighbour, packet)
        if self.interest.includes(message):
            out.deliver(message)

    def on_subscribe(self, topic: Topic, _out: Outbox) -> None:
        self.interest.subscribe(topic)

    def on_unsubscribe(self, topic: Topic, _out: Outbox) -> None:
        self.interest.unsubscribe(topic)


def build(place: Place, _options: Any) -> Unordered:
    return Unordered(place)


UNORDERED = ProtocolInfo(
    name="unordered",
    summary="deliberately weak: claims causal order and keeps only exactly-once, to show what the judge catches",
    source="none",
    guarantee=Guarantee.CAUSAL,
    overlay="any connected graph",
    faults="none: a lost packet is a lost message, and any two paths of different length break the order",
    metadata="15 + o + t",
    genuine=False,
    build=build,
    packets=(Bare,),
)
