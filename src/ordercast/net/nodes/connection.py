"""One TCP connection: the handshake, then frames both ways, until one end closes and says why."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId
from ordercast.core.messages import Packet
from ordercast.net.nodes import handshake
from ordercast.net.nodes.channel import Channel
from ordercast.net.nodes.frames import ACK, BYE, DATA, PING, FrameReader, GreetingReader, frame, greeting_frame
from ordercast.net.nodes.handshake import Hello, Identity, Welcome
from ordercast.net.settings import NetSettings, seconds
from ordercast.net.wire import greetings
from ordercast.net.wire.greetings import Challenge

if TYPE_CHECKING:
    from ordercast.core.wire import Codec

_WRITE_BUFFER_BYTES = 1 << 18
LAST_WORD_S = 0.5
"""How long a closing connection may take to get its reason across."""


class ConnectionOwner(Protocol):
    """The transport, as a connection sees it."""

    identity: Identity
    settings: NetSettings
    codec: Codec

    def opened(self, connection: Connection) -> None:
        """A connection exists; nothing is known of its other end."""

    def greeted(self, connection: Connection, greeting: Hello) -> Channel:
        """The other end has proved who it is; the channel it belongs to, or a PeerError."""

    def welcomed(self, connection: Connection, channel: Channel, greeting: Welcome) -> None:
        """The peer that this node dialed has taken it in."""

    def established(self) -> None:
        """Frames can be written from now on."""

    def receive(self, channel: Channel, packets: list[Packet]) -> None:
        """Packets have arrived, in order."""

    def heard(self, channel: Channel) -> None:
        """The peer lives."""

    def progressed(self, channel: Channel) -> None:
        """The peer has acknowledged something."""

    def ended(self, connection: Connection, reason: str, *, complaint: bool) -> None:
        """The connection is gone; a complaint is about what the other end did."""


class Connection(asyncio.Protocol):
    """Dialed if it is given the channel it is for, accepted otherwise."""

    def __init__(self, owner: ConnectionOwner, dialed: Channel | None = None) -> None:
        self.writable = True
        self.idle = True
        """Nothing was written since somebody last looked."""
        self.established = False
        self._owner = owner
        self._dialed = dialed
        self._channel: Channel | None = None
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._name = dialed.peer if dialed is not None else "unknown peer"
        self._greetings = GreetingReader(self._name)
        self._frames = FrameReader(self._name, owner.settings.max_frame_bytes)
        self._asked: Challenge = handshake.challenge()
        self._said: Hello | None = None
        self._reason = ""
        self._complaint = False
        self._deadline: asyncio.TimerHandle | None = None

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        raw: socket.socket | None = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._dialed is None:
            host, port = transport.get_extra_info("peername")[:2]
            self._name = f"{host}:{port}"
            self._greetings = GreetingReader(self._name)
        patience = seconds(self._owner.settings.handshake_ms)
        self._deadline = self._loop.call_later(patience, self._too_late)
        self._owner.opened(self)
        if self._dialed is None:
            self._greet(self._asked)

    def data_received(self, data: bytes) -> None:
        if self._reason:
            return  # Deaf once it has decided to close: what comes now comes again on the next connection.
        try:
            if self.established:
                self._take_frames(data)
            else:
                self._take_greetings(data)
        except PeerError as error:
            self.complain(error.reason)

    def eof_received(self) -> bool:
        # Left to itself the transport would first try to write what is pending, to a peer that may never read again.
        self.abort("closed by the other end")
        return False

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        if self._channel is not None:
            self._channel.wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._drop_deadline()
        self._part()
        lost = f"lost: {error}" if error is not None else "closed by the other end"
        self._owner.ended(self, self._reason or lost, complaint=self._complaint)
        if not self.closed.done():
            self.closed.set_result(None)

    # What channel and transport call

    @property
    def name(self) -> str:
        """The peer's id once it is known, its address before."""
        return self._name

    def write(self, data: bytes) -> None:
        transport = self._transport
        if transport is not None and not self._reason and not transport.is_closing():
            self.idle = False
            transport.write(data)

    def ping(self) -> None:
        """Be heard, unless something else was written since the last time."""
        if self.idle and self._channel is not None:
            self.write(frame(PING, self._channel.received))
        self.idle = True

    def close(self, reason: str) -> None:
        """Tell the peer why, then go. The reason is all that is still said."""
        if self._reason or self._transport is None:
            return
        if self.established:
            self.write(frame(BYE, 0, reason.encode()[:1000]))
        elif self._dialed is None:
            self._greet(greetings.refusal(reason))  # A dialer may be taken in already, where this would be nonsense.
        self._reason = reason
        self._part()
        self._transport.close()
        self._drop_deadline()
        self._deadline = self._loop.call_later(LAST_WORD_S, self._transport.abort)

    def complain(self, reason: str) -> None:
        """Close because of what the other end did."""
        self._complaint = True
        self.close(reason)

    def abort(self, reason: str) -> None:
        if self._transport is not None and not self.closed.done():
            self._reason = self._reason or reason
            self._part()
            self._transport.abort()

    # Handshake

    def _take_greetings(self, data: bytes) -> None:
        body = self._greetings.feed(data)
        while body is not None:
            greeting = handshake.decode(body, self._name)
            if self._dialed is None:
                self._on_hello(handshake.check_hello(greeting, self._owner.identity, self._asked, self._name))
            elif self._said is None:
                self._on_challenge(self._dialed, handshake.check_challenge(greeting, self._name))
            else:
                self._on_welcome(self._dialed, greeting, self._said)
            if self.established:
                rest = self._greetings.rest()
                if rest:
                    self._take_frames(rest)
                return
            body = self._greetings.feed(b"")

    def _on_challenge(self, channel: Channel, asked: Challenge) -> None:
        me = self._owner.identity
        self._said = handshake.hello(me, channel.peer, channel.peer_life, channel.received, asked)
        self._greet(self._said)

    def _on_hello(self, hello: Hello) -> None:
        self._rename(hello.node)
        channel = self._owner.greeted(self, hello)
        self._greet(handshake.welcome(self._owner.identity, channel.received, hello))
        self._establish(channel)

    def _on_welcome(self, channel: Channel, greeting: handshake.Greeting, said: Hello) -> None:
        answer = handshake.check_welcome(greeting, self._owner.identity, said, self._name)
        self._owner.welcomed(self, channel, answer)
        self._establish(channel)

    def _establish(self, channel: Channel) -> None:
        self._drop_deadline()
        self._channel = channel
        self.established = True
        self._owner.established()

    def _rename(self, node: NodeId) -> None:
        self._name = node
        self._frames = FrameReader(node, self._owner.settings.max_frame_bytes)

    def _greet(self, greeting: handshake.Greeting) -> None:
        self.write(greeting_frame(greetings.encode(greeting)))

    def _too_late(self) -> None:
        self.complain("did not introduce itself in time")

    # Frames

    def _take_frames(self, data: bytes) -> None:
        channel = self._channel
        assert channel is not None
        frames = self._frames.feed(data)
        self._owner.heard(channel)
        packets: list[Packet] = []
        decode: Callable[[bytes, str], Packet] = self._owner.codec.decode
        due = channel.received + 1
        try:
            for kind, number, body in frames:
                if kind != DATA:
                    self._control(channel, kind, number, body)
                    continue
                if number != due:
                    raise PeerError(self._name, f"sends packet {number} instead of {due}")
                packets.append(decode(body, self._name))
                due += 1
        finally:
            # What came before a broken frame was good, and is counted as received.
            if packets:
                channel.took_over(len(packets))
                self._owner.receive(channel, packets)

    def _control(self, channel: Channel, kind: int, number: int, body: bytes) -> None:
        if kind in (ACK, PING):
            if number != channel.acked:
                channel.settle(number)
                self._owner.progressed(channel)
        else:
            self.abort(f"the peer said goodbye: {body.decode(errors='replace')}")

    # Ends

    def _part(self) -> None:
        """From now on the channel does without this connection."""
        if self._channel is not None:
            self._channel.lost(self)

    def _drop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
