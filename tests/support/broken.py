"""A protocol with a bug: it divides by zero when the first packet arrives."""

from __future__ import annotations

from typing import Any

import msgspec

from ordercast.core.ids import NodeId
from ordercast.core.machine import Outbox, Place
from ordercast.core.messages import Packet
from ordercast.protocols.flood.flood import FLOOD, Flood


class Broken(Flood):
    def on_receive(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        raise ZeroDivisionError(f"{packet} from {peer}")


def build(place: Place, options: Any) -> Broken:
    return Broken(place, options)


BROKEN = msgspec.structs.replace(FLOOD, name="broken", build=build)
