"""Protocols of a few lines for the explorer: one that keeps its promise, and several that break one each."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

from ordercast.core.errors import InvariantError
from ordercast.core.ids import NodeId
from ordercast.core.machine import Machine, Outbox, Place
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.registry import NoOptions, ProtocolInfo


class Parcel(Packet, frozen=True, tag=1):
    carries: ClassVar[str | None] = "message"

    message: Message


class Toy(Machine):
    """Clients send a copy to every destination."""

    constant: ClassVar[tuple[str, ...]] = ("node", "servers")

    def __init__(self, place: Place, _options: Any) -> None:
        self.node = place.node
        self.servers = place.servers

    def on_publish(self, message: Message, out: Outbox) -> None:
        for node in message.dst:
            out.send(node, Parcel(message))


class Careless(Toy):
    """Delivers whatever arrives."""

    def on_receive(self, _peer: NodeId, packet: Packet, out: Outbox) -> None:
        assert isinstance(packet, Parcel)
        out.deliver(packet.message)


class ThroughTheFirst(Toy):
    """The first server passes everything on, in one order: correct where channels keep theirs."""

    def on_publish(self, message: Message, out: Outbox) -> None:
        out.send(self.servers[0], Parcel(message))

    def on_receive(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        assert isinstance(packet, Parcel)
        if self.node in packet.message.dst:
            out.deliver(packet.message)
        if peer not in self.servers:
            for node in packet.message.dst:
                if node != self.node:
                    out.send(node, packet)


class Climbing(Toy):
    """Delivers at once and passes on to the next higher destination."""

    def on_publish(self, message: Message, out: Outbox) -> None:
        out.send(message.dst[0], Parcel(message))

    def on_receive(self, _peer: NodeId, packet: Packet, out: Outbox) -> None:
        assert isinstance(packet, Parcel)
        out.deliver(packet.message)
        for node in packet.message.dst[packet.message.dst.index(self.node) + 1 :][:1]:
            out.send(node, packet)


class Repeating(Toy):
    """Delivers twice what arrives second."""

    def __init__(self, place: Place, options: Any) -> None:
        super().__init__(place, options)
        self.arrived = 0

    def on_receive(self, _peer: NodeId, packet: Packet, out: Outbox) -> None:
        assert isinstance(packet, Parcel)
        self.arrived += 1
        for _ in range(self.arrived):
            out.deliver(packet.message)


class Selfish(Toy):
    """Only the lowest destination delivers."""

    def on_receive(self, _peer: NodeId, packet: Packet, out: Outbox) -> None:
        assert isinstance(packet, Parcel)
        if packet.message.dst[0] == self.node:
            out.deliver(packet.message)


class Anxious(Careless):
    """Cannot bear a second message."""

    def __init__(self, place: Place, options: Any) -> None:
        super().__init__(place, options)
        self.calm = True

    def on_receive(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        if not self.calm:
            raise InvariantError("two messages are too many")
        self.calm = False
        super().on_receive(peer, packet, out)


class Remembering(Toy):
    """Gets everything twice and delivers it once."""

    def __init__(self, place: Place, options: Any) -> None:
        super().__init__(place, options)
        self.seen: set[Message] = set()

    def on_publish(self, message: Message, out: Outbox) -> None:
        super().on_publish(message, out)
        super().on_publish(message, out)

    def on_receive(self, _peer: NodeId, packet: Packet, out: Outbox) -> None:
        assert isinstance(packet, Parcel)
        if packet.message not in self.seen:
            self.seen.add(packet.message)
            out.deliver(packet.message)


class Forgetful(Remembering):
    """Leaves out of its frozen form what it remembers, so that the search takes different states for the same."""

    def frozen(self) -> Hashable:
        return ()


class Ticking(Toy):
    """Delivers when its timer runs out; every timer is followed by another until three have passed."""

    def __init__(self, place: Place, options: Any) -> None:
        super().__init__(place, options)
        self.held: list[Message] = []
        self.ticks = 0

    def on_receive(self, _peer: NodeId, packet: Packet, out: Outbox) -> None:
        assert isinstance(packet, Parcel)
        self.held.append(packet.message)
        out.set_timer("tick", 1)

    def on_timer(self, _name: Hashable, out: Outbox) -> None:
        self.ticks += 1
        if self.ticks < 3:
            out.set_timer("tick", 1)
            return
        for message in sorted(self.held, key=lambda held: held.origin):
            out.deliver(message)


class Restless(Ticking):
    """Its timer never stops."""

    def on_timer(self, _name: Hashable, out: Outbox) -> None:
        out.set_timer("tick", 1)


def toy(build: Any, *, genuine: bool = False) -> ProtocolInfo:
    return ProtocolInfo(
        name="toy",
        summary="",
        source="",
        guarantee=Guarantee.ATOMIC,
        overlay="",
        faults="",
        metadata="",
        genuine=genuine,
        build=build,
        packets=(Parcel,),
        options=NoOptions,
    )
