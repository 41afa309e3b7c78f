"""own-protocol: everyone gets every message once, those of one publisher in the order in which it published them.

It asks for links that lose nothing; they may reorder. Change it, and let the explorer say whether it still holds.
"""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId, Origin
from ordercast.core.machine import Machine, Outbox, Place
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.registry import NoOptions, ProtocolInfo


class OwnPacket(Packet, frozen=True, tag=1):
    """The packet between nodes. Frozen, and every field hashable: numbers, strings, tuples, frozen structs."""

    carries: ClassVar[str | None] = "message"

    message: Message


class OwnProtocol(Machine):
    """One node. Events come in as method calls, effects go out through `out`; no clock, socket or chance in here."""

    constant: ClassVar[tuple[str, ...]] = ("neighbours",)
    """Never changes: shared by copies, left out of comparisons."""
    durable: ClassVar[tuple[str, ...]] = ("due", "held")
    """What a node that crashes has again when it comes back."""

    def __init__(self, place: Place, _options: NoOptions) -> None:
        self.neighbours = place.neighbours
        # State is plain data: numbers, strings, and dicts, lists, sets and tuples of them. Objects are refused.
        self.due: dict[Origin, int] = {}
        """By publisher: the number of the next message to deliver, where it is not 1."""
        self.held: dict[Origin, dict[int, Message]] = {}
        """By publisher: messages that came too early."""

    def on_publish(self, message: Message, out: Outbox) -> None:
        """The application publishes. The message is numbered already: 1, 2, ... for each publisher."""
        self._take(message, None, out)
        out.complete(message.id)

    def on_receive(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        """A packet arrived from a neighbour."""
        if not isinstance(packet, OwnPacket):
            raise PeerError(peer, f"sent a {type(packet).__name__}, which is not part of this protocol")
        self._take(packet.message, peer, out)

    def _take(self, message: Message, source: NodeId | None, out: Outbox) -> None:
        """Pass a new message on, then deliver all that have become due."""
        origin = message.origin
        due = self.due.get(origin, 1)
        held = self.held.setdefault(origin, {})
        if message.number < due or message.number in held:
            return
        for neighbour in self.neighbours:
            if neighbour != source:
                out.send(neighbour, OwnPacket(message))
        held[message.number] = message
        while (ready := held.pop(due, None)) is not None:
            out.deliver(ready)
            due += 1
        self.due[origin] = due


PROTOCOL = ProtocolInfo(
    name="own-protocol",
    summary="everyone gets everything once, each publisher's messages in order",
    source="own",
    guarantee=Guarantee.FIFO,
    overlay="any connected graph; links lose nothing",
    faults="none",
    metadata="15 + o + t",
    genuine=False,
    build=OwnProtocol,
    packets=(OwnPacket,),
)
