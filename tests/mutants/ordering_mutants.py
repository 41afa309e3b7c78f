"""The ordering protocols with one thing broken at a time."""

from __future__ import annotations

from typing import Any

import msgspec

from ordercast.core.ids import NodeId, Origin
from ordercast.core.machine import Outbox, Place
from ordercast.core.messages import Message, Packet
from ordercast.protocols.flood.fifo import FIFO, Fifo
from ordercast.protocols.flood.flood import Flood, Stamp
from ordercast.protocols.flood.sequencer import SEQUENCER, Order, Sequencer
from ordercast.protocols.flood.vector import VECTOR, Blocker, Vector
from ordercast.protocols.shared.links import Welcome
from ordercast.protocols.shared.seen import Summary


class NoHoldBack(Fifo):
    def _flooded(self, message: Message, stamp: Stamp, out: Outbox) -> None:
        self._deliver(message, out)


NO_HOLD_BACK = msgspec.structs.replace(FIFO, name="no-hold-back", build=NoHoldBack)


class NewcomerWaitsForThePast(Fifo):
    def _welcomed(self, seen: Summary, out: Outbox) -> None:
        Flood._welcomed(self, seen, out)


NEWCOMER_WAITS_FOR_THE_PAST = msgspec.structs.replace(
    FIFO, name="newcomer-waits-for-the-past", build=NewcomerWaitsForThePast
)


class WelcomePromisesTooMuch(Fifo):
    """Counts as seen by the newcomer what it is about to send it."""

    def _on_hello(self, peer: NodeId, life: int, out: Outbox) -> None:
        if self.links.on_hello(peer, life):
            out.send(peer, Welcome(self.links.life, life, self.seen.summary()))
            self.links.resume(peer, out)


WELCOME_PROMISES_TOO_MUCH = msgspec.structs.replace(
    FIFO, name="welcome-promises-too-much", build=WelcomePromisesTooMuch
)


class IgnoresOneEntry(Vector):
    def _blocker(self, message: Message, stamp: Stamp) -> Blocker | None:
        blocker = super()._blocker(message, (0, *stamp[1:]))
        return None if blocker is not None and blocker[0] == 0 and message.origin != "n0" else blocker


IGNORES_ONE_ENTRY = msgspec.structs.replace(VECTOR, name="ignores-one-entry", build=IgnoresOneEntry)


class IgnoresItsOwnGap(Vector):
    def _blocker(self, message: Message, stamp: Stamp) -> Blocker | None:
        blocker = super()._blocker(message, stamp)
        return None if blocker is not None and blocker[0] == self.rank[message.origin] else blocker


IGNORES_ITS_OWN_GAP = msgspec.structs.replace(VECTOR, name="ignores-its-own-gap", build=IgnoresItsOwnGap)


class StampsLate(Vector):
    """Stamps a message with what had been delivered at the publication before."""

    def __init__(self, place: Place, options: Any) -> None:
        super().__init__(place, options)
        self.last = (0,) * len(place.nodes)

    def _stamp(self, message: Message) -> Stamp:
        last, self.last = self.last, super()._stamp(message)
        rank = self.rank[self.node]
        return (*last[:rank], message.number, *last[rank + 1 :])


STAMPS_LATE = msgspec.structs.replace(VECTOR, name="stamps-late", build=StampsLate)


class SettlesForAnyEntry(Vector):
    def _blocker(self, message: Message, stamp: Stamp) -> Blocker | None:
        publisher = self.rank[message.origin]
        others = [
            have >= need for i, (have, need) in enumerate(zip(self.delivered, stamp, strict=True)) if i != publisher
        ]
        if any(others) and self.delivered[publisher] == message.number - 1:
            return None
        return super()._blocker(message, stamp)


SETTLES_FOR_ANY_ENTRY = msgspec.structs.replace(VECTOR, name="settles-for-any-entry", build=SettlesForAnyEntry)


class TwoSequencers(Sequencer):
    """n0 numbers for one half of the nodes, n1 for the other."""

    def __init__(self, place: Place, options: Any) -> None:
        super().__init__(place, options)
        self.sequencer = NodeId("n0" if self.rank[self.node] % 2 == 0 else "n1")

    def _on_control(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        if isinstance(packet, Order) and packet.heading[0] != self.rank[self.sequencer]:
            author, batch, _ = packet.heading
            if self.links.accept(peer, packet, out) and self.orders.add(Origin(f"n{author}"), batch):
                self.links.spread(Order, packet.heading, packet.publications, peer, False, out)
            if self.links.confirmed:
                self._add_confirmed(out)
            return
        super()._on_control(peer, packet, out)


TWO_SEQUENCERS = msgspec.structs.replace(SEQUENCER, name="two-sequencers", build=TwoSequencers)


class DeliversInLocalOrder(Sequencer):
    def _flooded(self, message: Message, stamp: Stamp, out: Outbox) -> None:
        self._deliver(message, out)


DELIVERS_IN_LOCAL_ORDER = msgspec.structs.replace(SEQUENCER, name="delivers-in-local-order", build=DeliversInLocalOrder)


class NumbersOnArrival(Sequencer):
    def _collect(self, rank: int, out: Outbox) -> None:
        self.fresh.append(next(reversed(self.arrived)))
        self._give_order(out)


NUMBERS_ON_ARRIVAL = msgspec.structs.replace(SEQUENCER, name="numbers-on-arrival", build=NumbersOnArrival)


class IgnoresGaps(Sequencer):
    def _deliver_ready(self, out: Outbox) -> None:
        for position in sorted(self.positions):
            message = self.arrived.pop(self.positions[position], None)
            if message is not None:
                self._deliver(message, out)


IGNORES_GAPS = msgspec.structs.replace(SEQUENCER, name="ignores-gaps", build=IgnoresGaps)
