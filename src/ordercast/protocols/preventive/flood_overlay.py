"""Flooding on an overlay that changes: the baseline for protocols that keep an order there.

The same connections, joins and peer sampling as the preventive broadcast, but every link is used as soon as it is there
and everything new is delivered at once: a link that appears while messages are under way lets a later one overtake an
earlier one. Spec: docs/protocols/flood-overlay.md (FLD-O1 to FLD-O4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from ordercast.core.errors import PeerError, unknown_name
from ordercast.core.ids import Origin
from ordercast.core.messages import Guarantee, Packet
from ordercast.core.process import Connection, OverlayPlace, OverlayWires
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.preventive.broadcast import Broadcast
from ordercast.protocols.preventive.lines import OutLink
from ordercast.protocols.preventive.links import Links
from ordercast.protocols.preventive.node import Preventive
from ordercast.protocols.preventive.packets import Data
from ordercast.protocols.preventive.samplers import SAMPLERS
from ordercast.protocols.preventive.settings import PreventiveOptions
from ordercast.protocols.preventive.variants import PREVENTIVE
from ordercast.protocols.shared.seen import GAP_LIMIT


class LinksAtOnce(Links):
    """FLD-O1: a link is used as soon as it is there."""

    def _attempt(self, pid: Origin, link: OutLink, via: tuple[Origin, ...]) -> None:  # noqa: ARG002
        self._begin_use(pid, link)


class FloodBroadcast(Broadcast):
    """FLD-O2: what is new is passed on and delivered in the order in which it comes."""

    durable: ClassVar[tuple[str, ...]] = (*Broadcast.durable, "missing")

    def __init__(self, wires: OverlayWires, options: PreventiveOptions) -> None:
        super().__init__(wires, options)
        self.missing: dict[Origin, set[int]] = {}
        """Per origin the numbers below the highest that have not come."""

    def receive(self, source: Connection, peer: Origin, packet: Data) -> None:
        origin, number = packet.message.origin, packet.message.number
        last = self.log.received.get(origin, 0)
        missing = self.missing.get(origin, set())
        if number <= last and number not in missing:
            self.duplicates += 1
            return
        if number - last > GAP_LIMIT:
            raise PeerError(peer, f"jumps from message {last} of {origin} to message {number}")
        missing |= set(range(last + 1, number))
        missing.discard(number)
        self.missing[origin] = missing
        self.accept(packet, source)
        self.log.received[origin] = max(last, number)


class FloodOverlay(Preventive):
    """One process of the flood."""

    links_type: ClassVar[type[Links]] = LinksAtOnce
    broadcast_type: ClassVar[type[Broadcast]] = FloodBroadcast

    def on_packets(self, connection: Connection, packets: Sequence[Packet]) -> None:
        """FLD-O3: a number below the highest may be new here, so each copy is looked at."""
        line = self.links.lines.get(connection)
        if line is None:
            return
        for packet in packets:
            if type(packet) is Data and line.incoming_safe:
                self.broadcast.receive(connection, line.pid, packet)
            else:
                self._take(connection, line, packet)


def build(wires: OverlayWires, place: OverlayPlace, options: Any) -> FloodOverlay:
    if options.sampling not in SAMPLERS:
        raise unknown_name("sampling", options.sampling, SAMPLERS)
    return FloodOverlay(wires, place, options)


FLOOD_OVERLAY: ProtocolInfo = msgspec.structs.replace(
    PREVENTIVE,
    name="flood-overlay",
    summary="flooding on an overlay whose links change: the baseline that keeps no order there",
    guarantee=Guarantee.EVENTUAL,
    faults="crashes, joins and leaves while the overlay of the living stays connected; what is lost with a link, or "
    "missed while a node is down, is not made up for",
    build_overlay=build,
)
