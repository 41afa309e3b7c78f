"""Protocols of a few lines that send to groups on a line: some survive losses and suspicions, some do not."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

from ordercast.core.ids import NodeId
from ordercast.core.machine import Machine, Outbox, Place
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.registry import NoOptions, ProtocolInfo


class Letter(Packet, frozen=True, tag=1):
    carries: ClassVar[str | None] = "message"

    message: Message


class Receipt(Packet, frozen=True, tag=2):
    number: int


class Once(Machine):
    """Publishers send every member that is their neighbour one copy."""

    constant: ClassVar[tuple[str, ...]] = ("node", "groups", "neighbours")

    def __init__(self, place: Place, _options: Any) -> None:
        self.node = place.node
        self.neighbours = place.neighbours
        self.groups = place.groups or {}

    def on_publish(self, message: Message, out: Outbox) -> None:
        members = self.groups[message.topic]
        if self.node in members:
            out.deliver(message)
        for peer in self.neighbours:
            if peer in members:
                out.send(peer, Letter(message))

    def on_receive(self, _peer: NodeId, packet: Packet, out: Outbox) -> None:
        if isinstance(packet, Letter):
            out.deliver(packet.message)


class Again(Once):
    """Sends again until there is a receipt. For one message at a time."""

    def __init__(self, place: Place, options: Any) -> None:
        super().__init__(place, options)
        self.open: list[tuple[NodeId, Message]] = []
        self.seen: set[Message] = set()

    def on_publish(self, message: Message, out: Outbox) -> None:
        super().on_publish(message, out)
        self.open += [(peer, message) for peer in self.neighbours if peer in self.groups[message.topic]]
        out.set_timer("again", 5)

    def on_receive(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        if isinstance(packet, Receipt):
            self.open = [entry for entry in self.open if entry[0] != peer]
        elif isinstance(packet, Letter):
            out.send(peer, Receipt(packet.message.number))
            if packet.message not in self.seen:
                self.seen.add(packet.message)
                out.deliver(packet.message)

    def on_timer(self, _name: Hashable, out: Outbox) -> None:
        for peer, message in self.open:
            out.send(peer, Letter(message))
        if self.open:
            out.set_timer("again", 5)


class Endless(Again):
    """Never gives up, receipt or not."""

    def on_timer(self, _name: Hashable, out: Outbox) -> None:
        out.set_timer("again", 5)


class Sulking(Once):
    """Says nothing more to anybody once it has suspected somebody."""

    def __init__(self, place: Place, options: Any) -> None:
        super().__init__(place, options)
        self.sulks = False

    def on_suspect(self, _peer: NodeId, _out: Outbox) -> None:
        self.sulks = True

    def on_publish(self, message: Message, out: Outbox) -> None:
        if not self.sulks:
            super().on_publish(message, out)


def toy(build: Any, guarantee: Guarantee = Guarantee.CAUSAL) -> ProtocolInfo:
    return ProtocolInfo(
        name="toy",
        summary="",
        source="",
        guarantee=guarantee,
        overlay="",
        faults="",
        metadata="",
        genuine=False,
        build=build,
        packets=(Letter, Receipt),
        options=NoOptions,
    )
