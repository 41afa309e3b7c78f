"""The smallest protocol there is, for tests of the simulator itself: relay what is new, deliver it at once."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from ordercast.core.ids import NodeId
from ordercast.core.machine import Machine, Outbox, Place
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.registry import NoOptions, ProtocolInfo


class Data(Packet, frozen=True, array_like=True, gc=False, tag=1):
    message: Message
    carries: ClassVar[str | None] = "message"


class Ping(Packet, frozen=True, array_like=True, gc=False, tag=2):
    """A control packet: carries no message."""

    number: int


class PlainFlood(Machine):
    """Remembers every message it saw; delivers at first sight, wherever its topic is wanted."""

    durable = ("seen",)

    def __init__(self, place: Place, options: object) -> None:
        self.node = place.node
        self.neighbours = place.neighbours
        self.topics = place.initial_topics()
        self.seen: set[tuple[str, int]] = set()

    def on_publish(self, message: Message, out: Outbox) -> None:
        self._take(message, None, out)

    def on_receive(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        assert isinstance(packet, Data)
        self._take(packet.message, peer, out)

    def on_subscribe(self, topic: str, out: Outbox) -> None:
        if self.topics is not None:
            self.topics = self.topics | {topic}  # type: ignore[assignment]

    def on_unsubscribe(self, topic: str, out: Outbox) -> None:
        if self.topics is not None:
            self.topics = self.topics - {topic}  # type: ignore[assignment]

    def _take(self, message: Message, source: NodeId | None, out: Outbox) -> None:
        identity = (message.origin, message.number)
        if identity in self.seen:
            return
        self.seen.add(identity)
        packet = Data(message)
        for neighbour in self.neighbours:
            if neighbour != source:
                out.send(neighbour, packet)
        wanted = self.node in message.dst if message.dst else self.topics is None or message.topic in self.topics
        if wanted:
            out.deliver(message)


class Silent(Machine):
    """Does nothing unless a subclass says so."""

    def __init__(self, place: Place, options: object) -> None:
        self.place = place


def protocol_of(machine: type[Machine], name: str = "test", *, readmits: bool = True) -> ProtocolInfo:
    """A protocol around a machine class whose constructor takes (place, options)."""
    return ProtocolInfo(
        name=name,
        summary="for tests",
        source="",
        guarantee=Guarantee.EVENTUAL,
        overlay="any",
        faults="",
        metadata="",
        genuine=False,
        build=machine,
        packets=(Data, Ping),
        options=NoOptions,
        readmits=readmits,
    )


PLAIN_FLOOD = protocol_of(PlainFlood, "plain-flood")


def with_guarantee(protocol: ProtocolInfo, guarantee: Guarantee) -> ProtocolInfo:
    return msgspec.structs.replace(protocol, guarantee=guarantee)
