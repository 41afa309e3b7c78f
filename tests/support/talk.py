"""A protocol that adds nothing to its links: what a link loses, doubles or reorders, the application sees."""

from __future__ import annotations

from typing import Any, ClassVar

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.core.machine import Machine, Outbox, Place
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.registry import ProtocolInfo


class Said(Packet, frozen=True, tag=1):
    carries: ClassVar[str | None] = "message"

    message: Message


class Talk(Machine):
    """Sends every publication to its neighbours and delivers every packet it receives."""

    def __init__(self, place: Place) -> None:
        self.neighbours = place.neighbours
        self.opinions: list[tuple[str, NodeId]] = []

    def on_publish(self, message: Message, out: Outbox) -> None:
        if message.payload == b"unspeakable":
            raise UsageError("talk: that cannot be said")
        for peer in self.neighbours:
            out.send(peer, Said(message))
        if message.payload == b"answer me":
            out.complete(message.id)

    def on_receive(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        assert isinstance(packet, Said)
        if packet.message.payload == b"break down":
            raise ZeroDivisionError("a bug in a handler")
        out.deliver(packet.message)

    def on_suspect(self, peer: NodeId, out: Outbox) -> None:
        self.opinions.append(("suspect", peer))

    def on_trust(self, peer: NodeId, out: Outbox) -> None:
        self.opinions.append(("trust", peer))


def build(place: Place, _options: Any) -> Talk:
    return Talk(place)


TALK = ProtocolInfo(
    name="talk",
    summary="adds nothing to its links",
    source="none",
    guarantee=Guarantee.ATOMIC,
    overlay="any",
    faults="none",
    metadata="0",
    genuine=True,
    build=build,
    packets=(Said,),
    readmits=True,
)

PROTOCOL = "tests.support.talk:TALK"
