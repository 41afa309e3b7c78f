"""All channels of one node: it listens, dials, keeps connections alive, and notices when a peer is silent.

Everything that a turn of the event loop produced goes out at its end: first the owner's journal, then one write per
connection. So nothing leaves the process before the record of it is safe from the death of the process.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Hashable, Iterable
from typing import Protocol

from ordercast.core.chance import mix, salt, unit
from ordercast.core.errors import InvariantError, PeerError
from ordercast.core.ids import NodeId
from ordercast.core.messages import Packet
from ordercast.core.wire import Codec
from ordercast.net.nodes.channel import Channel
from ordercast.net.nodes.connection import LAST_WORD_S, Connection
from ordercast.net.nodes.handshake import Hello, Identity, Welcome
from ordercast.net.settings import NetSettings, ns, seconds

Address = tuple[str, int]

LOG = logging.getLogger("ordercast.net")

_MOST_DOUBLINGS = 16


class Owner(Protocol):
    """The node on top of a transport."""

    def before_write(self) -> bool:
        """Make safe what must be known before anything leaves the process. False: nothing may leave any more."""

    def on_packets(self, peer: NodeId, packets: list[Packet]) -> None:
        """A batch from one peer, in order."""

    def on_silence(self, peer: NodeId) -> None:
        """The peer was not heard for too long, or has come back without its memory."""

    def on_voice(self, peer: NodeId) -> None:
        """A suspected peer is heard again."""

    def on_pressure(self, peer: NodeId, *, full: bool) -> None:
        """The buffer towards the peer has passed its high-water mark, or has room again."""


class Transport:
    """Channels to a fixed set of peers. Of two peers one dials; whoever is given an address does."""

    def __init__(
        self, identity: Identity, peers: Iterable[NodeId], codec: Codec, settings: NetSettings, owner: Owner
    ) -> None:
        self.identity = identity
        self.settings = settings
        self.codec = codec
        self.channels = {peer: Channel(peer, settings, self) for peer in peers}
        self._owner = owner
        self._max_body = settings.max_frame_bytes
        self._addresses: dict[NodeId, Address] = {}
        self._dialers: dict[NodeId, asyncio.Task[None]] = {}
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._dirty: list[Channel] = []
        self._planned_flush: asyncio.Handle | None = None
        self._ack_timer: asyncio.TimerHandle | None = None
        self._pulse: asyncio.TimerHandle | None = None
        self._pulse_due_ns = 0
        self._closing = False

    # Life

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> Address:
        """Listen; the address that others can dial."""
        self._loop = asyncio.get_running_loop()
        self._server = await self._loop.create_server(lambda: Connection(self), host, port)
        now = time.monotonic_ns()
        for channel in self.channels.values():
            channel.heard_ns = channel.progress_ns = now
        self._plan_pulse()
        bound = self._server.sockets[0].getsockname()
        return str(bound[0]), int(bound[1])

    def dial(self, peer: NodeId, address: Address) -> None:
        """Connect to the peer, and again whenever the connection is lost. A new address replaces the old one."""
        self._addresses[peer] = address
        if peer not in self._dialers and not self._closing:
            task = asyncio.get_running_loop().create_task(self._keep_connected(self._channel(peer)))
            task.add_done_callback(_surface)
            self._dialers[peer] = task

    async def close(self, reason: str = "the node stops") -> None:
        """Say goodbye and leave nothing behind: no task, no timer, no socket."""
        self._wind_down()
        await asyncio.gather(*self._dialers.values(), return_exceptions=True)
        self._flush()
        connections = list(self._connections)
        for connection in connections:
            connection.close(reason)
        if connections:
            # A dial cancelled in the middle may never hear of its end. All others have been told or aborted by then.
            await asyncio.wait([connection.closed for connection in connections], timeout=2 * LAST_WORD_S)
        if self._server is not None:
            await self._server.wait_closed()

    def abandon(self, reason: str) -> None:
        """Fall silent at once: what waits to be written must never leave. `close` is still to come."""
        self._wind_down()
        self._dirty.clear()
        for connection in list(self._connections):
            connection.abort(reason)

    def _wind_down(self) -> None:
        self._closing = True
        for timer in (self._ack_timer, self._pulse, self._planned_flush):
            if timer is not None:
                timer.cancel()
        if self._server is not None:
            self._server.close()
        for task in self._dialers.values():
            task.cancel()

    # Sending

    def send(self, peer: NodeId, body: bytes, key: Hashable = None) -> bool:
        """Put a packet on the channel to the peer; False if one with this key is still on its way there."""
        channel = self.channels.get(peer) or self._channel(peer)
        if len(body) > self._max_body:
            raise InvariantError(f"a packet of {len(body)} bytes to {peer} is over the limit of its connection")
        return channel.push(body, key)

    def suspected(self) -> list[NodeId]:
        return [peer for peer, channel in self.channels.items() if channel.suspected]

    def plan_flush(self) -> None:
        """Have everything written at the end of this turn of the loop."""
        if self._planned_flush is None and self._loop is not None and not self._closing:
            self._planned_flush = self._loop.call_soon(self._flush)

    def has_writes(self, channel: Channel) -> None:
        self._dirty.append(channel)
        self.plan_flush()

    def pressure_changed(self, channel: Channel) -> None:
        self._owner.on_pressure(channel.peer, full=channel.full)

    def _flush(self) -> None:
        if self._planned_flush is not None:
            self._planned_flush.cancel()
            self._planned_flush = None
        if not self._owner.before_write():
            return
        dirty, self._dirty = self._dirty, []
        for channel in dirty:
            channel.flush()

    # What connections report

    def opened(self, connection: Connection) -> None:
        self._connections.add(connection)
        if self._closing:
            connection.abort("the node stops")
        strangers = sum(not other.established for other in self._connections)
        if strangers > self.settings.strangers + len(self.channels):
            connection.close("too many connections are in their handshake")

    def greeted(self, connection: Connection, greeting: Hello) -> Channel:
        channel = self.channels.get(greeting.node)
        if channel is None:
            raise PeerError(greeting.node, "is not a neighbour of this node")
        self._flush()  # The answer says what was received.
        received = greeting.received if greeting.peer_life == self.identity.life else 0
        self._attach(connection, channel, greeting.life, greeting.since, received)
        return channel

    def welcomed(self, connection: Connection, channel: Channel, greeting: Welcome) -> None:
        self._attach(connection, channel, greeting.life, greeting.since, greeting.received)

    def _attach(self, connection: Connection, channel: Channel, life: int, since: int, received: int) -> None:
        forgot = channel.meet(life, since)
        if channel.banned:
            raise PeerError(channel.peer, f"broke the protocol: {channel.banned}")
        channel.resume(connection, received)
        now = time.monotonic_ns()
        channel.heard_ns = channel.progress_ns = now
        _log(logging.INFO, "connected", self, channel.peer, life=life, resent=channel.outstanding)
        if forgot and not channel.suspected:
            self._suspect(channel, "restarted")
        if channel.suspected:
            channel.set_suspected(suspected=False)
            _log(logging.INFO, "trusted", self, channel.peer)
            self._owner.on_voice(channel.peer)

    def established(self) -> None:
        # At once and not at the end of the turn: what waits for the peer gets its chance however short the connection.
        self._flush()

    def receive(self, channel: Channel, packets: list[Packet]) -> None:
        self._owner.on_packets(channel.peer, packets)
        if channel.acknowledge_soon() and self._ack_timer is None and self._loop is not None and not self._closing:
            self._ack_timer = self._loop.call_later(seconds(self.settings.ack_ms), self._acknowledge_all)

    def heard(self, channel: Channel) -> None:
        channel.heard_ns = time.monotonic_ns()

    def progressed(self, channel: Channel) -> None:
        channel.progress_ns = time.monotonic_ns()

    def ended(self, connection: Connection, reason: str, *, complaint: bool) -> None:
        self._connections.discard(connection)
        _log(logging.WARNING if complaint else logging.INFO, "closed", self, connection.name, reason=reason)

    def ban(self, peer: NodeId, reason: str) -> None:
        """Take nothing more from this life of the peer: it sent what no correct process sends."""
        channel = self._channel(peer)
        channel.banned = reason
        if channel.connection is not None:
            channel.connection.complain(reason)

    # Timers

    def _acknowledge_all(self) -> None:
        self._ack_timer = None
        for channel in self.channels.values():
            channel.acknowledge_now()

    def _plan_pulse(self) -> None:
        if self._loop is not None and not self._closing:
            self._pulse_due_ns = time.monotonic_ns() + ns(self.settings.heartbeat_ms)
            self._pulse = self._loop.call_later(seconds(self.settings.heartbeat_ms), self._beat)

    def _beat(self) -> None:
        """Be heard, and see who was not."""
        now = time.monotonic_ns()
        overslept = now - self._pulse_due_ns
        if overslept > ns(self.settings.heartbeat_ms):
            # This process stood still; that nobody was heard meanwhile says nothing about the others.
            for channel in self.channels.values():
                channel.heard_ns += overslept
                channel.progress_ns += overslept
        self._flush()  # A ping says what was received.
        if self._closing:
            return
        for connection in list(self._connections):
            connection.ping()
        for channel in self.channels.values():
            self._check(channel, now)
        self._plan_pulse()

    def _check(self, channel: Channel, now: int) -> None:
        patience = ns(self.settings.suspect_ms)
        if not channel.outstanding:
            channel.progress_ns = now
        if now - channel.heard_ns > patience:
            self._give_up(channel, f"silent for {self.settings.suspect_ms:g} ms")
        elif channel.connection is not None and now - channel.progress_ns > patience:
            self._give_up(channel, f"took over nothing for {self.settings.suspect_ms:g} ms")

    def _give_up(self, channel: Channel, reason: str) -> None:
        if channel.connection is not None:
            channel.connection.abort(reason)
        if not channel.suspected:
            self._suspect(channel, reason)

    def _suspect(self, channel: Channel, reason: str) -> None:
        channel.set_suspected(suspected=True)
        _log(logging.WARNING, "suspected", self, channel.peer, reason=reason)
        self._owner.on_silence(channel.peer)

    # Dialing

    async def _keep_connected(self, channel: Channel) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            connection: Connection | None = None
            try:
                host, port = self._addresses[channel.peer]
                async with asyncio.timeout(seconds(self.settings.handshake_ms)):
                    _, connection = await loop.create_connection(lambda: Connection(self, channel), host, port)
            except OSError as error:  # TimeoutError is one.
                _log(logging.DEBUG, "unreachable", self, channel.peer, reason=str(error) or "no answer")
            if connection is not None:
                await asyncio.shield(connection.closed)
                failures = 0 if connection.established else failures
            failures += 1
            await asyncio.sleep(self._backoff(channel.peer, failures))

    def _backoff(self, peer: NodeId, failures: int) -> float:
        """Doubling up to a cap; half of it random, so that a restarted node is not met by all at one instant."""
        longest = self.settings.reconnect_ms * 2 ** min(failures - 1, _MOST_DOUBLINGS)
        drawn = unit(mix(salt(self.identity.life, self.identity.node, peer), failures))
        return seconds(min(longest, self.settings.reconnect_max_ms)) * (0.5 + 0.5 * drawn)

    def _channel(self, peer: NodeId) -> Channel:
        channel = self.channels.get(peer)
        if channel is None:
            raise InvariantError(f"{self.identity.node} sends to {peer}, which is not its neighbour")
        return channel


def _surface(task: asyncio.Task[None]) -> None:
    """An error in a background task is raised where the loop's exception handler sees it."""
    if not task.cancelled():
        task.result()


def _log(level: int, event: str, transport: Transport, peer: str, **facts: object) -> None:
    if LOG.isEnabledFor(level):
        LOG.log(level, event, extra={"facts": {"node": transport.identity.node, "peer": peer, **facts}})
