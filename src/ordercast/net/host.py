"""A node over TCP: a machine, its channels, its timers, its journal, and the application's end of it all."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import msgspec

from ordercast.core.errors import PeerError, UsageError
from ordercast.core.ids import NodeId, Topic, origin_of
from ordercast.core.machine import Machine, Place
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.registry import ProtocolInfo
from ordercast.net.frames import OVERHEAD_BYTES
from ordercast.net.handshake import Identity
from ordercast.net.settings import NetSettings
from ordercast.net.transport import Address, Transport
from ordercast.protocols.links import Numbered
from ordercast.trace.journal import Journal
from ordercast.trace.schema import INFO_STATE, STATE_LOST

Delivered = Callable[["Host", Message], None]
Completed = asyncio.Future[Message]

_NS_PER_S = 1_000_000_000


class NetPlace(msgspec.Struct, frozen=True):
    """Where a node stands among processes, beside its place on the overlay."""

    cluster: str
    token: bytes
    life: int = 0
    """How often this node's process was started before."""
    epoch_ns: int = 0
    """The reading of the monotonic clock that the journal counts from."""


class Host:
    """Runs one machine over TCP and is its outbox.

    A handler runs to its end before the next begins: what a delivery callback publishes waits for the machine.
    """

    def __init__(
        self,
        place: Place,
        protocol: ProtocolInfo,
        options: Any,
        net: NetPlace,
        *,
        settings: NetSettings | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.node = place.node
        self.place = place
        self.protocol = protocol
        self.machine: Machine = protocol.build(place, options)
        self.settings = settings or NetSettings()
        self.published = 0
        self.delivered = 0
        self.steps = 0
        """Inputs handled so far: two equal readings with nothing outstanding in between mean rest."""
        self.delivery_watchers: list[Delivered] = []
        self._codec = protocol.codec()
        self._net = net
        self._origin = origin_of(place.node, place.incarnation)
        self._journal = journal
        self._records_packets = journal is not None and journal.packets
        identity = Identity(net.cluster, place.node, net.life, net.token)
        self.transport = Transport(identity, place.neighbours, self._codec, self.settings, self)
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._busy = False
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}
        self._background: set[Hashable] = set()
        self._awaited: dict[str, tuple[Message, Completed]] = {}
        self._full: set[NodeId] = set()
        self._room = asyncio.Event()
        self._room.set()
        self._encoded: tuple[Packet, bytes] = (Packet(), b"")
        self._stopped = False

    # Life

    async def listen(self, host: str = "127.0.0.1", port: int = 0) -> Address:
        """Open the door; the address that neighbours can dial. Nothing reaches the machine before `start`."""
        self._busy = True
        return await self.transport.start(host, port)

    def start(self, addresses: Mapping[NodeId, Address]) -> None:
        """Begin this life, and dial the neighbours whose addresses are given; the others dial this node."""
        if self.place.incarnation:
            self._record_event("recover", {INFO_STATE: STATE_LOST})
        # Whoever dialed early may have sent something already; the machine hears of its own start first.
        self._inbox.appendleft((self.machine.on_start, (self,)))
        self._busy = False
        self._handle_inputs()
        for peer, address in addresses.items():
            self.transport.dial(peer, address)

    async def close(self) -> None:
        """Stop: tell the peers, answer who still waits, leave nothing behind."""
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        await self.transport.close()
        for _, future in self._awaited.values():
            if not future.done():
                future.set_exception(ConnectionError(f"{self.node} was stopped before the message was confirmed"))
                future.exception()  # Nobody has to ask for it.
        self._awaited.clear()
        self._room.set()
        if self._journal is not None:
            self._journal.close()

    @property
    def armed_timers(self) -> int:
        """Timers that keep this node from being at rest."""
        return len(self._timers) - len(self._background)

    # The application's end

    async def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        guarantee: Guarantee | None = None,
        keys: tuple[str, ...] = (),
        dst: tuple[NodeId, ...] = (),
    ) -> Message:
        """Publish when there is room, and return the message once it is confirmed (see `submit`)."""
        await self.room()
        return await self.submit(topic, payload, guarantee=guarantee, keys=keys, dst=dst)

    async def room(self) -> None:
        """Wait until no neighbour's buffer is full: a full overlay slows its publishers down, it never drops."""
        await self._room.wait()
        if self._stopped:
            raise ConnectionError(f"{self.node} is stopped")

    def submit(
        self,
        topic: str,
        payload: bytes,
        *,
        guarantee: Guarantee | None = None,
        keys: tuple[str, ...] = (),
        dst: tuple[NodeId, ...] = (),
        told: Callable[[Message], None] | None = None,
    ) -> Completed:
        """Publish now, room or not. `told` hears the numbered message before the machine, which may still refuse it.

        The future is done when the machine says that the request is answered or, for protocols that never say so, when
        this node itself has delivered the message or is not among its receivers.
        """
        future: Completed = asyncio.get_running_loop().create_future()
        if len(payload) > self.settings.max_payload_bytes:
            raise UsageError(
                f"a payload of {len(payload)} bytes is over the limit of {self.settings.max_payload_bytes}"
            )
        content = (Topic(topic), payload, self.protocol.guarantee if guarantee is None else guarantee, keys, dst)
        self._input(self._publish, content, told, future)
        return future

    def subscribe(self, topic: str) -> None:
        self._input(self._subscribe, Topic(topic))

    def unsubscribe(self, topic: str) -> None:
        self._input(self._unsubscribe, Topic(topic))

    # Effects: what the machine asks for

    def send(self, peer: NodeId, packet: Packet) -> None:
        last, body = self._encoded
        if packet is not last:
            body = self._codec.encode(packet)
            self._encoded = packet, body  # A machine relays one packet to many neighbours.
        # What the protocol resends while the channel still has it would only add to the queue.
        key = (packet.session, packet.number) if isinstance(packet, Numbered) else None
        if self.transport.send(peer, body, key) and self._records_packets and self._journal is not None:
            self._journal.packet("send", self._now(), peer, packet, len(body) + OVERHEAD_BYTES)

    def deliver(self, message: Message) -> None:
        self.delivered += 1
        if self._journal is not None:
            self._journal.deliver(self._now(), message)
        for watch in self.delivery_watchers:
            watch(self, message)
        if message.origin == self._origin and message.guarantee is not Guarantee.ATOMIC:
            self.complete(message.id)

    def complete(self, message_id: str) -> None:
        message, future = self._awaited.pop(message_id, (None, None))
        if message is not None and future is not None and not future.done():
            future.set_result(message)

    def set_timer(self, name: Hashable, delay_ns: int, *, background: bool = False) -> None:
        self.cancel_timer(name)
        loop = asyncio.get_running_loop()
        self._timers[name] = loop.call_later(delay_ns / _NS_PER_S, self._fire, name)
        if background:
            self._background.add(name)

    def cancel_timer(self, name: Hashable) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
            self._background.discard(name)

    def note(self, kind: str, info: Mapping[str, str]) -> None:
        self._record_event(kind, info)

    # What the transport reports

    def before_write(self) -> None:
        if self._journal is not None:
            self._journal.flush()

    def on_packets(self, peer: NodeId, packets: list[Packet]) -> None:
        self._input(self._receive, peer, packets)

    def on_silence(self, peer: NodeId) -> None:
        self._record_event("suspect", {"peer": peer})
        self._input(self.machine.on_suspect, peer, self)

    def on_voice(self, peer: NodeId) -> None:
        self._input(self.machine.on_trust, peer, self)

    def on_pressure(self, peer: NodeId, *, full: bool) -> None:
        if full:
            self._full.add(peer)
            self._room.clear()
        else:
            self._full.discard(peer)
            if not self._full:
                self._room.set()

    # Inside

    def _input(self, action: Callable[..., None], *args: Any) -> None:
        self._inbox.append((action, args))
        if not self._busy and not self._stopped:
            self._handle_inputs()

    def _handle_inputs(self) -> None:
        self._busy = True
        try:
            while self._inbox:
                self.steps += 1
                action, args = self._inbox.popleft()
                action(*args)
        finally:
            self._busy = False
            self.transport.plan_flush()

    def _receive(self, peer: NodeId, packets: list[Packet]) -> None:
        if self._records_packets and self._journal is not None:
            now = self._now()
            for packet in packets:
                size = len(self._codec.encode(packet)) + OVERHEAD_BYTES
                self._journal.packet("receive", now, peer, packet, size)
        try:
            self.machine.on_receive_many(peer, packets, self)
        except PeerError as error:
            # Some of the batch may have taken effect, so it can neither be repeated nor continued.
            self.transport.ban(peer, error.reason)

    def _fire(self, name: Hashable) -> None:
        # Taken out of the table only by whoever runs or cancels it, so a timer that was set anew is not this one.
        self._timers.pop(name, None)
        self._background.discard(name)
        self._input(self.machine.on_timer, name, self)

    def _publish(self, content: tuple[Any, ...], told: Callable[[Message], None] | None, future: Completed) -> None:
        message = Message(self._origin, self.published + 1, *content)
        mark = self._journal.mark() if self._journal is not None else 0
        if self._journal is not None:
            self._journal.publish(self._now(), message)
        if told is not None:
            told(message)
        self._awaited[message.id] = message, future
        try:
            self.machine.on_publish(message, self)
        except UsageError as error:
            # Refused before anything was done, so it never happened: neither in the journal nor in the numbers.
            if self._journal is not None:
                self._journal.rewind(mark)
            del self._awaited[message.id]
            future.set_exception(error)
            return
        self.published += 1
        if message.guarantee is not Guarantee.ATOMIC and not self._receives(message):
            self.complete(message.id)

    def _receives(self, message: Message) -> bool:
        if message.dst:
            return self.node in message.dst
        topics = self.place.initial_topics()
        return topics is None or message.topic in topics

    def _subscribe(self, topic: Topic) -> None:
        self._record_event("subscribe", {"topic": topic})
        self.machine.on_subscribe(topic, self)

    def _unsubscribe(self, topic: Topic) -> None:
        self.machine.on_unsubscribe(topic, self)
        self._record_event("unsubscribe", {"topic": topic})

    def _record_event(self, kind: str, info: Mapping[str, str]) -> None:
        if self._journal is not None:
            self._journal.event(kind, self._now(), info)
            self.transport.plan_flush()

    def _now(self) -> int:
        return time.monotonic_ns() - self._net.epoch_ns
