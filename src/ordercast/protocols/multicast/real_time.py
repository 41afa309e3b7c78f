"""Real-time order on top of any atomic multicast: what is asked for after another message was complete comes after it.

An atomic multicast orders messages without a cycle, but may put a later request before an earlier one that is already
answered. Here a server hands a message to the application, and answers, only when all its destinations have come to it
and are done with everything before it. Spec: docs/protocols/real-time.md (AMC-T1 to AMC-T4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from ordercast.core.effects import Complete, Deliver, Effect, EffectLog, Note, Send
from ordercast.core.errors import InvariantError, PeerError
from ordercast.core.ids import NodeId, Origin
from ordercast.core.machine import Machine, Outbox, Place
from ordercast.core.messages import Packet
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.multicast.multicast import Done, Key, key_of


class Reached(Packet, frozen=True, tag=30):
    """The sender is done with everything before this message and waits for the receiver to be."""

    origin: Origin
    number: int


class RealTime(Machine):
    """One server or client: the machine of the multicast, and the line in which its deliveries wait."""

    constant: ClassVar[tuple[str, ...]] = ("node", "servers")
    durable: ClassVar[tuple[str, ...]] = ("multicast", "line", "announced", "reached")

    def __init__(self, place: Place, multicast: Machine) -> None:
        self.node = place.node
        self.servers = frozenset(place.servers)
        self.multicast = multicast
        self.line: deque[Effect] = deque()
        """Deliveries and the answers after them, in the order of the multicast."""
        self.announced = False
        """Whether the others know that the first in line is at its turn here."""
        self.reached: dict[Key, int] = {}
        """How many other destinations are at a message that is not delivered here."""

    def on_publish(self, message: Any, out: Outbox) -> None:
        effects = EffectLog()
        self.multicast.on_publish(message, effects)
        self._absorb(effects, out)

    def on_receive(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        effects = EffectLog()
        if isinstance(packet, Reached):
            self._note_reached(peer, (packet.origin, packet.number))
        else:
            self.multicast.on_receive(peer, packet, effects)
        self._absorb(effects, out)

    def on_receive_many(self, peer: NodeId, packets: Sequence[Packet], out: Outbox) -> None:
        for packet in packets:
            self.on_receive(peer, packet, out)

    def _note_reached(self, peer: NodeId, key: Key) -> None:
        if peer not in self.servers:
            raise PeerError(peer, f"says that it has come to message {key[0]}#{key[1]}, but is no server")
        self.reached[key] = self.reached.get(key, 0) + 1

    def _absorb(self, effects: EffectLog, out: Outbox) -> None:
        """AMC-T1: packets of the multicast leave at once; deliveries and answers queue up."""
        for effect in effects.effects:
            match effect:
                case Deliver() | Complete() | Send(_, Done()):
                    self.line.append(effect)
                case Send(peer, packet):
                    out.send(peer, packet)
                case Note(kind, info):
                    out.note(kind, info)
                case _:
                    raise InvariantError(f"real-time order: a multicast must not depend on time: {effect}")
        self._advance(out)

    def _advance(self, out: Outbox) -> None:
        """AMC-T2 to AMC-T4: whatever the first in line is, until it is a message that others have not come to."""
        while self.line:
            match self.line[0]:
                case Deliver(message):
                    others = [name for name in message.dst if name != self.node]
                    self._announce(key_of(message), others, out)
                    if self.reached.get(key_of(message), 0) < len(others):
                        return
                    self.reached.pop(key_of(message), None)
                    self.announced = False
                    out.deliver(message)
                case Send(peer, packet):
                    out.send(peer, packet)
                case Complete(message_id):
                    out.complete(message_id)
            self.line.popleft()

    def _announce(self, key: Key, others: list[NodeId], out: Outbox) -> None:
        """AMC-T2: once, and only at its turn: to be ordered here is not enough, for what is before it may wait."""
        if not self.announced:
            self.announced = True
            for other in others:
                out.send(other, Reached(*key))


def with_real_time(multicast: ProtocolInfo) -> ProtocolInfo:
    """The same multicast with real-time order."""

    def build(place: Place, options: Any) -> Machine:
        return RealTime(place, multicast.build(place, options))

    return msgspec.structs.replace(
        multicast,
        name=f"{multicast.name}-real-time",
        summary=f"{multicast.name} with real-time order: a delivery waits until all destinations have come to it",
        source=f"{multicast.source}; real-time order by a handshake at delivery",
        build=build,
        packets=(*multicast.packets, Reached),
    )
