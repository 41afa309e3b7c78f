"""Runs a protocol whose neighbours change at run time over TCP, with an application on top.

The machine opens and closes connections by address and is dialed by whoever knows the token. Nothing is numbered or
sent again: what is lost with a connection is for the protocol to repair, as in the simulator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Topic, origin_of
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.process import BuildOverlay, Connection, OverlayMachine, Peer
from ordercast.core.wire import Codec
from ordercast.net.confirmations import Completed, Confirmations, disappoint
from ordercast.net.host import ProcessHost
from ordercast.net.journal_writer import TurnJournal
from ordercast.net.wire.credentials import NODE, Credentials
from ordercast.net.wire.settings import WireSettings


class OverlayHost(ProcessHost):
    """Runs one overlay machine over TCP; implements `OverlayWires`. `start`, `publish`, `stop`."""

    machine: OverlayMachine

    def __init__(
        self, name: NodeId, build: BuildOverlay, contacts: tuple[str, ...], codec: Codec, guarantee: Guarantee,
        settings: WireSettings, *, credentials: Credentials, life: int = 0, journal: TurnJournal | None = None,
        **books: Any,
    ) -> None:  # fmt: skip
        """`contacts` are addresses that the machine may dial first."""
        super().__init__(
            Peer(NODE, name, life), lambda _: build(self, self.me, contacts), codec, settings,
            credentials=credentials, journal=journal, **books,
        )  # fmt: skip
        self.delivery_watchers: list[Callable[[Message], None]] = []
        self._guarantee = guarantee
        self._origin = origin_of(name, life)
        self._published = 0
        self._confirmations = Confirmations()

    def publish(self, topic: str, payload: bytes) -> Completed:
        """Publish now. The future is done when the machine says so, or when this node has delivered the message."""
        if len(payload) > self.settings.max_payload_bytes:
            raise UsageError(f"payload: {len(payload)} bytes are over the limit of {self.settings.max_payload_bytes}")
        future: Completed = asyncio.get_running_loop().create_future()
        if self.ended_event.is_set():
            disappoint(future, f"{self.me.name} is stopped")
        else:
            self.input(self._publish, Topic(topic), payload, future)
        return future

    def _publish(self, topic: Topic, payload: bytes, future: Completed) -> None:
        self._published += 1
        message = Message(self._origin, self._published, topic, payload, self._guarantee)
        self.journal.publish(self.now_ns, message)
        self._confirmations.expect(message, future)
        self.machine.on_publish(message)

    # Effects: what the machine asks for

    def deliver(self, message: Message) -> None:
        self.journal.deliver(self.now_ns, message)
        for watch in self.delivery_watchers:
            watch(message)
        if message.origin == self._origin:
            self.complete(message.id)

    def complete(self, message_id: str) -> None:
        self._confirmations.confirm(message_id)

    def send(self, connection: Connection, packet: Packet) -> None:
        super().send(connection, packet)
        wire = self.connections.get(connection)
        if self.journal.packets and wire is not None:
            self.journal.packet("send", self.now_ns, wire.name, packet, len(self.frame_of(packet)))

    def abandon(self) -> None:
        super().abandon()
        self._confirmations.give_up(f"{self.me.name} was stopped before the message was confirmed")

    async def stop(self, reason: str = "the node stops") -> None:
        await super().stop(reason)
        self._confirmations.give_up(f"{self.me.name} was stopped before the message was confirmed")
