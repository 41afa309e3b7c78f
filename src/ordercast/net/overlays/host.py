"""Runs a protocol whose neighbours change at run time over TCP, with an application on top.

The machine opens and closes connections by address and is dialed by whoever knows the token. Nothing is numbered or
sent again: what is lost with a connection is for the protocol to repair, as in the simulator.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Topic, origin_of
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.process import BuildOverlay, Connection, OverlayMachine, OverlayPlace, Peer
from ordercast.core.wire import Codec
from ordercast.net.confirmations import Completed, Confirmations, disappoint
from ordercast.net.host import ProcessHost
from ordercast.net.journal_writer import TurnJournal
from ordercast.net.overlays.state_log import OverlayLog
from ordercast.net.turn_ports import TurnLedger
from ordercast.net.wire.connection import WireConnection
from ordercast.net.wire.credentials import NODE, Credentials
from ordercast.net.wire.frames import Frame
from ordercast.net.wire.settings import WireSettings
from ordercast.trace.schema import INFO_LOST, INFO_STATE, STATE_KEPT, STATE_LOST


class OverlayHost(ProcessHost):
    """Runs one overlay machine over TCP; implements `OverlayWires`. `start`, `publish`, `stop`."""

    machine: OverlayMachine

    def __init__(
        self, name: NodeId, build: BuildOverlay, contacts: tuple[str, ...], codec: Codec, guarantee: Guarantee,
        settings: WireSettings, *, credentials: Credentials, life: int = 0, journal: TurnJournal | None = None,
        genesis: bool = False, salt: int = 0, topics: tuple[Topic, ...] = (), log: OverlayLog | None = None,
        ledger: TurnLedger | None = None, **books: Any,
    ) -> None:  # fmt: skip
        """`contacts` are addresses that the machine may dial first; see `OverlayPlace`.

        `topics`: what the journal says it is a member of, from its start or from the moment it has joined.
        `log`: where what it has delivered is kept; with a past, this life goes on from there. `ledger`: where its
        application keeps what must outlive it, instead.
        """
        super().__init__(
            Peer(NODE, name, life), lambda _: self._made(build, contacts, salt), codec,
            settings, credentials=credentials, journal=journal, ledger=log or ledger, **books,
        )  # fmt: skip
        self._state = log
        self._goes_on = log is not None and log.has_past
        """Whether it is back with its state."""
        self.delivery_watchers: list[Callable[[Message], None]] = []
        self.delivered = 0
        self.sent = 0
        self.take_snapshot: Callable[[], bytes] | None = None
        """Gives the application's state, for a process that joins through this one."""
        self.install_snapshot: Callable[[bytes], None] | None = None
        """Gives the application the state that this process inherits when it joins."""
        self._guarantee = guarantee
        self._genesis = genesis
        self._topics = topics
        self._origin = origin_of(name, life)
        self._published = 0
        self._confirmations = Confirmations()
        self._leaving = False
        self.departed = asyncio.Event()
        """Set when the machine was told to leave and nothing keeps it any longer, or the process has ended."""

    async def start(self, listen: str | socket.socket | None = None) -> None:
        self.now_ns = time.monotonic_ns()
        if self._goes_on:
            self.journal.event("recover", self.now_ns, {INFO_STATE: STATE_KEPT})
        elif self.me.life:
            self.journal.event("recover", self.now_ns, {INFO_STATE: STATE_LOST})
        if self._genesis and not self._goes_on:
            self._become_member()
        await super().start(listen)

    def _made(self, build: BuildOverlay, contacts: tuple[str, ...], salt: int) -> OverlayMachine:
        place = OverlayPlace(self.me, contacts, self._genesis, salt)
        if self._state is None:
            return build(self, place)
        machine = self._state.machine(lambda: build(self, place))
        self._published = machine.published_before()
        return machine

    def beginning(self) -> Callable[[], None]:
        return self.machine.on_recover if self._goes_on else self.machine.on_start

    def leave(self) -> None:
        """The machine says goodbye, and takes nothing more to publish; what is to follow `departed` is `stop`."""
        self._leaving = True
        self.input(self._leave)

    def _leave(self) -> None:
        if not self.machine.lingers:
            self.depart()
        self.machine.on_leave()

    def depart(self) -> None:
        unheard = self.machine.unheard()
        self.journal.event("leave", self.now_ns, {INFO_LOST: unheard} if unheard else None)
        self.departed.set()

    def publish(
        self, topic: str, payload: bytes, *, guarantee: Guarantee | None = None, keys: tuple[str, ...] = (),
        dst: tuple[NodeId, ...] = (), told: Callable[[Message], None] | None = None,
    ) -> Completed:  # fmt: skip
        """Publish now. The future is done when the machine says so, or when this node has delivered the message."""
        if len(payload) > self.settings.max_payload_bytes:
            raise UsageError(f"payload: {len(payload)} bytes are over the limit of {self.settings.max_payload_bytes}")
        future: Completed = asyncio.get_running_loop().create_future()
        if self.ended_event.is_set():
            disappoint(future, f"{self.me.name} is stopped")
        elif self._leaving:
            disappoint(future, f"{self.me.name} leaves")
        else:
            chosen = self._guarantee if guarantee is None else guarantee
            self.input(self._publish, (Topic(topic), payload, chosen, keys, dst), told, future)
        return future

    def publish_within(self, topic: str, payload: bytes, future: Completed) -> None:
        """Publish as a part of the input that is being handled: nothing comes between."""
        self._publish((Topic(topic), payload, self._guarantee, (), ()), None, future)

    def _publish(
        self, content: tuple[Any, ...], told: Callable[[Message], None] | None, future: Completed
    ) -> None:  # fmt: skip
        self._published += 1
        message = Message(self._origin, self._published, *content)
        self.journal.publish(self.now_ns, message)
        if told is not None:
            told(message)
        self._confirmations.expect(message, future)
        self.machine.on_publish(message)

    # Effects: what the machine asks for

    def deliver(self, message: Message) -> None:
        if self._state is not None:
            self._state.delivered(message)
        self.delivered += 1
        self.journal.deliver(self.now_ns, message)
        for watch in self.delivery_watchers:
            watch(message)
        if message.origin == self._origin:
            self.complete(message.id)

    def complete(self, message_id: str) -> None:
        self._confirmations.confirm(message_id)

    def refuse_publication(self, message_id: str, error: Exception) -> None:
        """Tell whoever waits for a publication that it never will be confirmed."""
        self._confirmations.refuse(message_id, error)

    def note(self, kind: str, info: Mapping[str, str]) -> None:
        super().note(kind, info)
        if kind == "join" and self._state is not None:
            self._state.renew()  # It has inherited what no delivery tells.
        if kind == "join":
            self._become_member()

    def _become_member(self) -> None:
        for topic in self._topics:
            self.journal.event("subscribe", self.now_ns, {"topic": topic})

    def snapshot(self) -> bytes:
        return self.take_snapshot() if self.take_snapshot is not None else b""

    def install(self, state: bytes) -> None:
        if self.install_snapshot is not None:
            self.install_snapshot(state)

    def begin_anew(self, reason: str, through: str) -> None:
        """Nothing here can give a process another life: it ends, and says why."""
        advice = f"start {self.me.name} again without its state, with {through} as its contact"
        self.fail(ConnectionError(f"{reason}; {advice}"))

    def send(self, connection: Connection, packet: Packet) -> None:
        super().send(connection, packet)
        self.sent += 1
        wire = self.connections.get(connection)
        if self.journal.packets and wire is not None:
            self.journal.packet("send", self.now_ns, wire.name, packet, len(self.frame_of(packet)))

    def received(self, connection: WireConnection, packets: list[Packet], frames: list[Frame]) -> None:
        if self.journal.packets:
            now = time.monotonic_ns()
            for packet, frame in zip(packets, frames, strict=True):
                self.journal.packet("receive", now, connection.name, packet, len(frame))
        super().received(connection, packets, frames)

    def abandon(self) -> None:
        super().abandon()
        self.departed.set()
        self._confirmations.give_up(f"{self.me.name} was stopped before the message was confirmed")

    async def stop(self, reason: str = "the node stops") -> None:
        await super().stop(reason)
        self._confirmations.give_up(f"{self.me.name} was stopped before the message was confirmed")
