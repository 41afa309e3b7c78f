"""Causal broadcast with vector clocks on an overlay that changes: the baseline that waits where others prevent.

Every link is used as soon as it is there. A message carries how much its publisher had delivered of everybody who ever
published, and waits at each process until that is delivered there. Spec: docs/protocols/vector-overlay.md (VEC-O1 to
VEC-O4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from ordercast.core.errors import unknown_name
from ordercast.core.ids import Origin
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.process import Connection, OverlayPlace, OverlayWires
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.preventive.broadcast import Broadcast
from ordercast.protocols.preventive.flood_overlay import FloodOverlay
from ordercast.protocols.preventive.lines import Line
from ordercast.protocols.preventive.packets import Counts, Data, JoinAsk
from ordercast.protocols.preventive.samplers import SAMPLERS
from ordercast.protocols.preventive.settings import PreventiveOptions
from ordercast.protocols.preventive.variants import PREVENTIVE


class Stamped(Packet, frozen=True, tag=26):
    """A message with its vector clock."""

    carries: ClassVar[str | None] = "message"

    message: Message
    clock: Counts
    """What its publisher had delivered, and the message itself."""

    @property
    def key(self) -> tuple[Origin, int]:
        return self.message.origin, self.message.number


class VectorBroadcast(Broadcast):
    """VEC-O1 to VEC-O3: stamp, pass on at once, deliver when the past is there."""

    derived: ClassVar[tuple[str, ...]] = (*Broadcast.derived, "comparisons")

    def __init__(self, wires: OverlayWires, options: PreventiveOptions) -> None:
        super().__init__(wires, options)
        self.held: dict[tuple[Origin, int], Stamped] = {}
        """Passed on, and waiting for their past, in the order in which they came."""
        self.comparisons = 0
        """Entries of clocks that were looked at."""

    def accept(self, packet: Data, source: Connection = 0) -> None:  # noqa: ARG002
        """VEC-O1: a publication; its clock is what was delivered here, and the message itself."""
        message = packet.message
        clock = {**self.log.received, message.origin: message.number}
        self.wires.send_all(self.safe, Stamped(message, tuple(sorted(clock.items()))))
        self._deliver(message)

    def hear(self, source: Connection, packet: Stamped) -> None:
        """VEC-O2: what is new goes on at once, and is delivered here when it may be."""
        origin, number = packet.key
        if number <= self.log.received.get(origin, 0) or packet.key in self.held:
            self.duplicates += 1
            return
        self.wires.send_all(self.safe, packet, source if self.skip_sender else 0)
        self.held[packet.key] = packet
        self._drain()

    def _drain(self) -> None:
        """VEC-O3: the first that is ready, until none is: the plain list that the cost of O(W N) is said of."""
        while (ready := next(filter(self._is_ready, self.held.values()), None)) is not None:
            del self.held[ready.key]
            self._deliver(ready.message)

    def _is_ready(self, packet: Stamped) -> bool:
        received, own = self.log.received, packet.message.origin
        for origin, number in packet.clock:
            self.comparisons += 1
            if received.get(origin, 0) < number - (origin == own):
                return False
        return True

    def _deliver(self, message: Message) -> None:
        self.log.append(message)
        if len(self.log.kept) > self.keep:
            self.log.evict(self.keep, self.log.end)
        self.wires.deliver(message)


class VectorOverlay(FloodOverlay):
    """One process with a vector clock."""

    broadcast_type: ClassVar[type[Broadcast]] = VectorBroadcast
    broadcast: VectorBroadcast

    def on_packets(self, connection: Connection, packets: Sequence[Packet]) -> None:
        line = self.links.lines.get(connection)
        if line is None:
            return
        for packet in packets:
            if type(packet) is Stamped and line.incoming_safe:
                self.broadcast.hear(connection, packet)
            else:
                self._take(connection, line, packet)

    def _on_join_ask(self, connection: Connection, line: Line, ask: JoinAsk) -> None:
        """VEC-O4: a joiner inherits what its contact has delivered, and gets what waits there."""
        super()._on_join_ask(connection, line, ask)
        for packet in self.broadcast.held.values():
            self.wires.send(connection, packet)


VectorOverlay.handlers = {**FloodOverlay.handlers, JoinAsk: VectorOverlay._on_join_ask}


def build(wires: OverlayWires, place: OverlayPlace, options: Any) -> VectorOverlay:
    if options.sampling not in SAMPLERS:
        raise unknown_name("sampling", options.sampling, SAMPLERS)
    return VectorOverlay(wires, place, options)


VECTOR_OVERLAY: ProtocolInfo = msgspec.structs.replace(
    PREVENTIVE,
    name="vector-overlay",
    summary="causal broadcast with vector clocks on an overlay whose links change: the baseline that waits",
    source="C. Fidge 1988 and F. Mattern 1989, vector clocks, over the overlay of `preventive`",
    guarantee=Guarantee.CAUSAL,
    faults="joins and leaves while the overlay of the living stays connected; what is lost with a link, or missed "
    "while a node is down, is not made up for, and everything after it waits",
    metadata="18 + o + t + N * (o + 2)",
    build_overlay=build,
    packets=(*PREVENTIVE.packets, Stamped),
)
