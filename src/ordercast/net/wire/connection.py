"""One TCP connection of a process: the handshake, then frames both ways, until one end closes and says why.

What is sent is collected and written once at the end of the process's turn, after everything that must be durable is.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, cast

from ordercast.core.errors import PeerError
from ordercast.core.messages import Packet
from ordercast.core.process import Peer
from ordercast.core.wire import Codec
from ordercast.net.wire import handshake
from ordercast.net.wire.credentials import ASKING, Credentials
from ordercast.net.wire.descriptors import takes_the_last
from ordercast.net.wire.ends import ConnectionEnd
from ordercast.net.wire.frames import HEARTBEAT_FRAME, LONG_BYTES, Frame, GreetingReader, goodbye_frame, greeting_frame
from ordercast.net.wire.link_delay import LinkDelay
from ordercast.net.wire.long_reads import LongReads
from ordercast.net.wire.packet_reader import Arrived, PacketReader
from ordercast.net.wire.settings import WireSettings, ns, seconds

_MUCH_BYTES = 1 << 17
"""A read that brings so much has not brought all that is there."""
_WRITE_BUFFER_BYTES = 1 << 18
"""So much waits in the socket's buffer at most; the rest waits here, where what is urgent can still overtake it."""
_MANY_PACKETS = 256
"""So many are handed over at a time: the turn ends before the next ones, so that others are heard, and hear of us."""
_FEW_FRAMES = 16
"""So many are written together without counting their bytes."""


class WireOwner(Protocol):
    """Port to the process that a connection belongs to."""

    me: Peer
    credentials: Credentials
    settings: WireSettings
    codec: Codec
    passes_on: bool
    """Whether it passes packets on, and so wants the frames that they came in."""
    read_buffer: memoryview
    """What is read into first, from any of its connections."""
    term: Callable[[], int]
    """The highest term that the process knows, for whoever asks before it begins."""

    def made(self, connection: WireConnection) -> bool:
        """A connection exists, and nothing is known of its other end; whether it may go on."""

    def greeted(self, connection: WireConnection, peer: Peer) -> None:
        """The other end has proved who it is."""

    def received(self, connection: WireConnection, packets: list[Packet], frames: list[Frame]) -> None:
        """Packets arrived, in order; and, if it passes them on, the frames that they came in."""

    def writable(self, connection: WireConnection) -> None:
        """The socket takes more; have `flush` called once it may be."""

    def hears(self, connection: WireConnection) -> bool:
        """Whether more is read from the other end, which has not read all that was sent to it."""

    def ended(self, connection: WireConnection, end: ConnectionEnd) -> None:
        """It is over. Called once."""


class WireConnection(asyncio.Protocol):
    """One TCP connection, from handshake to end. Dialed if it has an address, accepted otherwise."""

    def __init__(self, owner: WireOwner, number: int, address: str = "", to: str = "", role: str = "") -> None:
        """`to` is whom the dialer means to reach; empty: whoever is there. `role`: as what it dials, or as it is."""
        self.number = number
        self.address = address
        self.to = to
        self.role = role
        self.name = address or "unknown peer"
        """The peer's name once it is known, its address before."""
        self.host = ""
        """Where an accepted one comes from."""
        self.has_spoken = False
        self.peer: Peer | None = None
        self.out: list[Frame] = []
        """Frames of this turn, all until the other end is known, and what the socket does not take yet."""
        self.writable = True
        """Whether the socket takes more."""
        self.leaving = False
        """The process has closed it: what is in `out` is the last."""
        self.heard_ns = time.monotonic_ns()
        self._idle = True
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._greetings = GreetingReader(self.name)
        self._packets: PacketReader | None = None
        """Once the other end is known."""
        self._long_reads: LongReads | None = None
        """What the transport reads with while long frames come."""
        self._backlog: Arrived | None = None
        """Packets that have arrived and wait for the next turn, and how the connection ends behind them."""
        self._unread: list[bytes] = []
        """What came in spite of the backlog."""
        self._unheard = False
        """Nothing is read from the other end before it has read more of what waits for it."""
        self._asked = handshake.challenge()
        self._said: handshake.Present | None = None
        self._deaf = False
        self._end: ConnectionEnd | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._slow_since_ns = 0
        self._slow_bytes = 0
        self._delay: LinkDelay | None = None

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        raw: socket.socket | None = transport.get_extra_info("socket")
        if raw is not None and raw.family != socket.AF_UNIX:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self.address:
            remote = transport.get_extra_info("peername")
            self.host = str(remote[0]) if remote else ""
            self.name = f"{remote[0]}:{remote[1]}" if remote else "a peer without an address"
        if self._end is not None:
            self._transport.abort()
            return
        late = ConnectionEnd("late", "did not introduce itself in time (handshake_ms)")
        self._set_deadline(self._owner.settings.handshake_ms, late)
        if not self.address and takes_the_last(raw):
            self.abort(ConnectionEnd("strangers", "too many connections (open files)"))
        elif not self._owner.made(self):
            self.refuse(ConnectionEnd("strangers", "too many connections (connections)"))
        elif not self.address:
            self._greet(self._asked)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self.heard_ns = time.monotonic_ns()
        if self._backlog is not None:
            self._unread.append(data)
            return
        packets = self._packets
        if packets is not None:
            self._hand_over(*packets.feed(data))
            if len(data) >= _MUCH_BYTES or self._backlog is not None or not self._hears():
                self.rest()
            if packets.frames.begun is not None and self._long_reads is None:
                self._long_reads = LongReads(self, packets.frames, self._owner.read_buffer)
                self._read_with(self._long_reads)
            return
        self.has_spoken = True
        try:
            self._take_greetings(data)
        except handshake.RefusedError as error:
            self.abort(ConnectionEnd("handshake", error.reason, gone=False))
        except PeerError as error:
            self.refuse(ConnectionEnd("handshake", error.reason))

    # What reads long frames calls

    @property
    def takes(self) -> bool:
        """Whether what arrives is looked at now, and does not wait behind something else."""
        return not self._deaf and self._backlog is None

    def filled(self, nbytes: int) -> None:
        """So many bytes have been read into the place of a long frame."""
        assert self._packets is not None
        self.heard_ns = time.monotonic_ns()
        self._hand_over(*self._packets.filled(nbytes))

    def read_plainly(self) -> None:
        """No long frame is on its way any more."""
        self._long_reads = None
        self._read_with(self)

    def _read_with(self, protocol: asyncio.BaseProtocol) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        reading = transport.is_reading()
        if reading:
            transport.pause_reading()  # A transport looks at how its protocol reads when it begins to.
        transport.set_protocol(protocol)
        if reading:
            transport.resume_reading()

    def rest(self) -> None:
        """Let the turn end before more is read: there is more, and others wait to hear of what is here."""
        transport = self._transport
        if transport is not None and not self._deaf and not transport.is_closing():
            transport.pause_reading()
            self._loop.call_soon(self._read_on)

    def _hears(self) -> bool:
        return self.writable or self._owner.hears(self)

    def _read_on(self) -> None:
        transport = self._transport
        if not self._hears():
            self._unheard = True
        elif self._go_on():
            self._loop.call_soon(self._read_on)
        elif transport is not None and not transport.is_closing():
            transport.resume_reading()

    def _hear_again(self) -> None:
        if self._unheard and self._hears():
            self._unheard = False
            self._loop.call_soon(self._read_on)

    def _go_on(self) -> bool:
        """Hand over more of what has arrived; whether that was not all."""
        backlog, self._backlog = self._backlog, None
        if backlog is None or self._deaf:
            return False
        self.heard_ns = time.monotonic_ns()
        self._hand_over(*backlog)
        if self._backlog is None and self._unread:
            unread, self._unread = b"".join(self._unread), []
            self._take_frames(unread)
        return self._backlog is not None

    def eof_received(self) -> bool:
        # Left to itself the transport would first try to write what is pending, to a peer that may never read again.
        self.abort(ConnectionEnd("lost", "closed by the other end"))
        return False

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        if self.out:
            self._owner.writable(self)
        self._hear_again()

    def connection_lost(self, error: Exception | None) -> None:
        self._drop_deadline()
        while self._go_on():
            pass  # It came before the end.
        self._finish(ConnectionEnd("lost", f"lost: {error}" if error is not None else "closed by the other end"))
        if not self.closed.done():
            self.closed.set_result(None)

    # What the process calls

    @property
    def lingers(self) -> bool:
        """It is over, and there only until the other end has read why, or has had its time for that."""
        return self._end is not None

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait for the other end to read."""
        waiting = sum(map(len, self.out))
        return waiting + (self._transport.get_write_buffer_size() if self._transport is not None else 0)

    def flush(self) -> None:
        """Write what this turn has put together, as far as the socket takes it; all of it if it is the last."""
        if self.peer is None or not self.out:
            return
        while self.out and (self.writable or self.leaving):
            chunk = self._next_chunk()
            if len(chunk[0]) >= LONG_BYTES:  # To put them together takes longer than to write them one by one.
                for frame in chunk:
                    self._write(frame)
            else:
                self._write(chunk[0] if len(chunk) == 1 else b"".join(chunk))
        if self.leaving:
            self._leave()
        elif self._unheard:
            self._hear_again()

    def _next_chunk(self) -> list[Frame]:
        chunk = self.out
        if len(chunk) <= _FEW_FRAMES:
            self.out = []
            return chunk
        size = count = 0
        for frame in chunk:
            size += len(frame)
            count += 1
            if size >= _WRITE_BUFFER_BYTES:
                break
        self.out = chunk[count:]
        return chunk[:count]

    def say_goodbye(self, reason: str) -> None:
        """Close on purpose: what was sent before still arrives."""
        if self.leaving or self._end is not None:
            return
        self.leaving = True
        self.out.append(goodbye_frame(reason))

    def refuse(self, end: ConnectionEnd) -> None:
        """Close because of what the other end did, and tell it so."""
        if self._transport is not None and self._end is None:
            if self.peer is not None:
                self._write(goodbye_frame(end.reason))
            elif not self.address:
                self._greet(handshake.refusal(end.reason))
            self._finish(end)
            self._leave()

    def abort(self, end: ConnectionEnd) -> None:
        """End it at once."""
        self._finish(end)
        if self._transport is not None:
            self._transport.abort()
        elif not self.closed.done():
            self.closed.set_result(None)

    def beat(self) -> None:
        """Be heard, unless something else was written since the last time."""
        if self._idle and self.peer is not None and not self._deaf:
            self._write(HEARTBEAT_FRAME)
        self._idle = True

    def check(self, now_ns: int, overslept_ns: int) -> int:
        """Give the connection up if its other end is silent, or does not read; gives what waits for it, in bytes."""
        self.heard_ns += overslept_ns
        if self.peer is None or self._deaf:
            return 0
        settings = self._owner.settings
        if self._unheard:
            self.heard_ns = now_ns  # It may have said much; whether it reads is looked at below.
        if now_ns - self.heard_ns > ns(settings.silence_ms):
            self.abort(ConnectionEnd("silent", f"silent for {settings.silence_ms:g} ms (silence_ms)"))
            return 0
        waiting = self.queued_bytes
        much = self._unheard or waiting > settings.slow_consumer_bytes
        if not much or (self._slow_since_ns and waiting < self._slow_bytes):
            self._slow_since_ns = 0
        if much and not self._slow_since_ns:
            self._slow_since_ns, self._slow_bytes = now_ns, waiting
        elif self._slow_since_ns and now_ns - self._slow_since_ns > ns(settings.slow_consumer_ms):
            reason = f"{waiting} bytes wait for it, no fewer than {settings.slow_consumer_ms:g} ms ago"
            self.abort(ConnectionEnd("slow", f"{reason} (slow_consumer_bytes, slow_consumer_ms)"))
        return waiting

    # Handshake

    def _take_greetings(self, data: bytes) -> None:
        body = self._greetings.feed(data)
        while body is not None:
            self._greeted(handshake.decode(body, self.name))
            if self._deaf:
                return
            if self.peer is not None:
                rest = self._greetings.rest()
                if rest:
                    self._take_frames(rest)
                return
            body = self._greetings.feed(b"")

    def _greeted(self, greeting: handshake.Greeting) -> None:
        owner = self._owner
        if not self.address:
            peer, answer = handshake.accept(owner.me, owner.credentials, greeting, self._asked, self.name, owner.term())
            self._greet(answer)
            if peer.kind == ASKING:
                self._finish(ConnectionEnd("local", f"{peer.name} only asks"))
                self._leave()
            else:
                self._establish(peer)
        elif self._said is None:
            self._said = handshake.present(owner.me, owner.credentials, greeting, self.name, self.to, self.role)
            self._greet(self._said)
        else:
            self._establish(handshake.accepted(owner.me, owner.credentials, greeting, self._said, self.name))

    def _establish(self, peer: Peer) -> None:
        self._drop_deadline()
        self.peer = peer
        self.name = peer.name
        settings = self._owner.settings
        most, longest = settings.max_frame_bytes, settings.longest_from(peer.kind)
        self._packets = PacketReader(peer.name, self._owner.codec, most, longest, whole=self._owner.passes_on)
        delay_ms = settings.delay_between(self._owner.me.name, peer.name)
        if delay_ms:
            self._delay = LinkDelay(self._loop, seconds(delay_ms))
        self._owner.greeted(self, peer)

    def _greet(self, greeting: handshake.Greeting) -> None:
        self._write(greeting_frame(handshake.encode(greeting)))

    # Frames

    def _take_frames(self, data: bytes) -> None:
        assert self._packets is not None
        self._hand_over(*self._packets.feed(data))

    def _hand_over(self, packets: list[Packet], frames: list[Frame], end: ConnectionEnd | None) -> None:
        if len(packets) > _MANY_PACKETS:
            self._backlog = packets[_MANY_PACKETS:], frames[_MANY_PACKETS:], end
            packets, frames, end = packets[:_MANY_PACKETS], frames[:_MANY_PACKETS], None
        if packets:  # What came before a broken frame was good.
            self._owner.received(self, packets, frames)
        if end is None or self._deaf:
            return
        if end.why == "goodbye":
            self.abort(end)
        else:
            self.refuse(end)

    def _write(self, data: Frame) -> None:
        self._idle = False
        if self._delay is None:
            self._write_now(data)
        else:
            self._delay.do(self._write_now, data)

    def _write_now(self, data: Frame) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.write(data)

    # Ends

    def _leave(self) -> None:
        """Hear nothing more; go when the other end has taken what was sent, or when that takes too long."""
        self._deaf = True
        self._set_deadline(self._owner.settings.farewell_ms, None)
        if self._delay is None:
            self._write_end()
        else:
            self._delay.do(self._write_end)

    def _write_end(self) -> None:
        transport = self._transport
        assert transport is not None
        # Closing with unread bytes resets the connection and destroys what is on its way; half-closing does not.
        if transport.can_write_eof():
            if not transport.is_closing():
                with suppress(RuntimeError, OSError):  # It is dead, and `connection_lost` has not come yet.
                    transport.write_eof()
        else:
            transport.close()

    def _finish(self, end: ConnectionEnd) -> None:
        self._deaf = True
        if self._end is None:
            self._end = ConnectionEnd("local", "closed by this process") if self.leaving else end
            self.out = []
            self._owner.ended(self, self._end)

    def _set_deadline(self, milliseconds: float, end: ConnectionEnd | None) -> None:
        self._drop_deadline()
        self._deadline = self._loop.call_later(seconds(milliseconds), self._too_late, end)

    def _too_late(self, end: ConnectionEnd | None) -> None:
        if end is not None:
            self.refuse(end)
        elif self._transport is not None:
            with suppress(RuntimeError):  # It is closed already, and the word about that is on its way.
                self._transport.abort()

    def _drop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
