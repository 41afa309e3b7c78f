"""Delivery and forwarding with a memory of each link in place of a vector (PRV-9.2, PRV-9.3)."""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.ids import Origin
from ordercast.core.messages import Message
from ordercast.core.process import Connection, OverlayWires
from ordercast.protocols.preventive.broadcast import Broadcast
from ordercast.protocols.preventive.delivery_log import DeliveryLog
from ordercast.protocols.preventive.memory import LinkMemory, ShortLog
from ordercast.protocols.preventive.packets import Data
from ordercast.protocols.preventive.settings import PreventiveOptions


class RememberingBroadcast(Broadcast):
    """The broadcast of a process that counts what comes over each link."""

    log_type: ClassVar[type[DeliveryLog]] = ShortLog

    def __init__(self, wires: OverlayWires, options: PreventiveOptions) -> None:
        super().__init__(wires, options)
        self.memory = LinkMemory()

    def receive(self, source: Connection, peer: Origin, packet: Data) -> None:  # noqa: ARG002
        """Take a copy if it is expected over the link; everything else is new, with its past before it (PRV-P6)."""
        if self.memory.is_copy(source, packet.message):
            self.duplicates += 1
        else:
            self.accept(packet, source)

    def accept(self, packet: Data, source: Connection = 0) -> None:
        self.memory.delivered(packet.message, source)
        super().accept(packet, source)

    def hear(self, connection: Connection, delivered: list[Message], settled: int = 0, count: int = 0) -> None:
        """A link to this process is in use: see `LinkMemory.open`; the first `settled` of `delivered` are."""
        self.memory.open(connection, delivered, delivered[:settled], count)

    def hear_no_more(self, connection: Connection) -> None:
        self.memory.close(connection)
