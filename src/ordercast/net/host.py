"""A process over TCP: one machine, its connections, its timers, and what it writes down.

A turn is everything that was at hand when the loop woke up. Its inputs are handled one after the other; the machine
then says what it had only noted, then what must be durable is made so, and only then the packets of the turn leave, in
one write a connection. So nobody ever hears of something that a crash could make undone.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Literal, ParamSpec, TypeVar

import msgspec

from ordercast.core.errors import InvariantError, PeerError, UsageError
from ordercast.core.messages import Packet
from ordercast.core.process import CAST_BYTES, Connection, Peer, ProcessMachine, Wires
from ordercast.core.wire import Codec
from ordercast.net.cast_links import CastLinks
from ordercast.net.connection_log import ConnectionLog
from ordercast.net.datagrams import Datagrams
from ordercast.net.dialing import Dialing, Housemate
from ordercast.net.door import FrontDoor
from ordercast.net.heartbeat import Heartbeat
from ordercast.net.journal_writer import JournalWriter, TurnJournal
from ordercast.net.timers import Timers
from ordercast.net.tls_door import SecuringGuest
from ordercast.net.turn_ports import TurnLedger, address_of
from ordercast.net.wire.connection import WireConnection
from ordercast.net.wire.credentials import CASTING, CLIENT, NODE, Credentials
from ordercast.net.wire.ends import ConnectionEnd
from ordercast.net.wire.frames import LONG_BYTES, OVERHEAD_BYTES, Frame, framed_in_place, packet_frames
from ordercast.net.wire.memory import keep_freed_memory
from ordercast.net.wire.settings import WireSettings, seconds
from ordercast.net.wire.strangers import Strangers

P = ParamSpec("P")
T = TypeVar("T")

_CROWD = 4
"""When so many times `slow_consumer_bytes` wait for all connections together, each may have a frame waiting."""
_READ_BYTES = 1 << 18
"""Read at a time, of what is not the rest of a long frame."""

Carrier = Literal["udp", "tcp", "none"]
"""What carries casts: datagrams, connections for nothing else, or nothing at all."""


class ProcessHost:
    """Runs one process machine over TCP: its connections, timers, ledger and journal. Implements `Wires`."""

    def __init__(
        self,
        me: Peer,
        build: Callable[[Wires], ProcessMachine],
        codec: Codec,
        settings: WireSettings,
        *,
        credentials: Credentials,
        journal: TurnJournal | None = None,
        ledger: TurnLedger | None = None,
        epoch_ns: int = 0,
        passes_on: bool = True,
        carrier: Carrier = "none",
        housemate: Housemate | None = None,
    ) -> None:
        """`epoch_ns`: the reading of the monotonic clock that the journal counts from.

        `passes_on`: whether the machine sends on packets as it received them; those are not encoded again. `carrier`:
        what carries the packets that it casts. `housemate`: a host of this very process, which is reached by a pair of
        sockets whatever its address is.
        """
        self.me = me
        self.codec = codec
        self.settings = settings
        self.credentials = credentials
        self.now_ns = time.monotonic_ns()
        self.counters: Counter[str] = Counter()
        self.connections: dict[Connection, WireConnection] = {}
        """All that the machine knows of, dialed ones from the start."""
        self.failure: BaseException | None = None
        """The bug, or the lost disk, that stopped this process."""
        self.ended_event = asyncio.Event()
        """Set when the process has stopped or failed."""
        self.machine: ProcessMachine
        self.term: Callable[[], int] = lambda: 0
        """The highest term that the machine knows, if it is one that knows terms."""
        self.on_failure: Callable[[BaseException], None] | None = None
        """Hears once why the process has stopped; without it, the log says so."""
        self.on_beat: Callable[[int, int], None] | None = None
        """An input with every heartbeat: the time, and for how long this process stood still before, if it did."""
        self.journal = JournalWriter(me.name, journal, epoch_ns)
        self.timers = Timers(self._time_out)
        self.passes_on = passes_on
        self.read_buffer = memoryview(bytearray(_READ_BYTES))
        self._most_in_frame = settings.max_frame_bytes
        self._most_bytes = settings.max_packet_bytes
        self._build = build
        self._ledger = ledger
        self._loop = asyncio.get_running_loop()
        self._all: set[WireConnection] = set()
        self._most_waiting = settings.slow_consumer_bytes
        self._strangers = Strangers(settings)
        self._log = ConnectionLog(me.name, self._strangers)
        self._door = FrontDoor(credentials, settings, self._strangers, self._turned_away)
        self._dialing = Dialing(settings, credentials, housemate)
        self._heartbeat = Heartbeat(settings, self._beat)
        self._numbers = 0
        self._frames: dict[int, tuple[Packet, Frame]] = {}
        """Packets of this turn, by identity, and how they look on the wire."""
        self._long_kinds: set[type[Packet]] = set()
        """Packets of which there were long ones."""
        self._dirty: dict[WireConnection, None] = {}
        self._busy = True
        """An input is being handled, or none may be before the process begins."""
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...], WireConnection | None]] = deque()
        """Inputs that came up while another one was handled."""
        self._closing = False
        self._turn: asyncio.Handle | None = None
        self._carrier: Carrier = carrier
        self._casts: Datagrams | CastLinks | None = None

    # Life

    async def start(self, listen: str | socket.socket | None = None) -> None:
        """Open the door if there is one to open, and begin. Port 0 takes a free one; see `me.address`."""
        keep_freed_memory()
        if listen is not None:
            await self._listen(listen)
        self.machine = self._build(self)
        self._heartbeat.start()
        self._busy = False
        self.input(self.beginning())

    def beginning(self) -> Callable[[], None]:
        """The machine's first input."""
        return self.machine.on_start

    async def _listen(self, listen: str | socket.socket) -> None:
        with_datagrams = self._carrier == "udp"
        door, datagrams = await self._door.open(listen, self.me.kind, self._accepted, with_datagrams=with_datagrams)
        if not self.me.address:
            self.me = msgspec.structs.replace(self.me, address=address_of(door))
        if datagrams is not None:
            self._casts = Datagrams(
                datagrams, self.me, self.credentials, self.settings, self.codec, self.counters, self._heard
            )
        elif self._carrier == "tcp":
            self._casts = CastLinks(self._dial_to_cast, self.has_frames, self.counters)

    async def stop(self, reason: str = "the process stops") -> None:
        """End this turn, say goodbye on every connection, and leave nothing behind."""
        if self._closing:
            await self.ended_event.wait()
            return
        if self._turn is not None:
            self._turn.cancel()
            self._end_turn()
        self._closing = True
        self._door.close()
        # A dial that is cancelled in the middle may never hear of the end of its connection: it is told first.
        for connection in {*self._all, *self.connections.values()}:
            if connection.peer is None:
                connection.abort(ConnectionEnd("local", reason))
            else:
                connection.say_goodbye(reason)
                connection.flush()
        await self._dialing.end()
        waiting = [connection.closed for connection in self._all]
        if waiting:
            await asyncio.wait(waiting, timeout=seconds(self.settings.farewell_ms))
        self._abandon()
        await self._door.wait_closed()
        self._close_books()
        self.ended_event.set()

    def _close_books(self) -> None:
        try:
            self.journal.end(time.monotonic_ns())
            if self._ledger is not None:
                self._ledger.close()
        except OSError as error:
            self.fail(error)

    def abandon(self) -> None:
        """Vanish without a word and without writing anything down, as a killed process does."""
        self._closing = True
        self._abandon()
        self.journal.abandon()
        if self._ledger is not None:
            self._ledger.abandon()
        self.ended_event.set()

    # Inputs

    @property
    def busy(self) -> bool:
        """An input that comes now has to wait: for another one, or for the process to begin."""
        return self._busy

    def turn(self, action: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `action` as one input of the machine; what it sends leaves at the end of the turn."""
        if self._busy:
            raise InvariantError("an input must not begin within another one")
        if self._closing:
            raise ConnectionError(f"{self.me.name} is stopped")
        self._busy = True
        self.now_ns = time.monotonic_ns()
        try:
            return action(*args, **kwargs)
        except (UsageError, ConnectionError):
            raise  # Refused before anything was done.
        except Exception as error:
            self.fail(error)
            raise
        finally:
            self._busy = False
            self._handle_inbox()
            self._plan_turn_end()

    def input(self, action: Callable[..., None], *args: Any, blame: WireConnection | None = None) -> None:
        """Run `action` as an input now, or right after the one that is being handled.

        A PeerError of it is `blame`'s fault. Any other error is a bug and stops the process.
        """
        if self._busy:
            self._inbox.append((action, args, blame))
        elif not self._closing:
            self._handle(action, args, blame)
            if self._inbox:
                self._handle_inbox()
            if self._turn is None:
                self._plan_turn_end()

    # Effects: what the machine asks for

    def open(self, address: str, to: str = "") -> Connection:
        """`to` is who must be there; empty: anybody who proves to be one of us."""
        self._numbers += 1
        connection = WireConnection(self, self._numbers, address, to)
        self.connections[connection.number] = connection
        self._dialing.begin(connection)
        return connection.number

    def send(self, connection: Connection, packet: Packet) -> None:
        wire = self.connections.get(connection)
        if wire is not None:
            frame = self.frame_of(packet)
            if len(frame) > self._most_bytes:
                self._give_up(wire, packet, len(frame))
                return
            wire.out.append(frame)
            self._dirty[wire] = None

    def send_all(self, connections: Iterable[Connection], packet: Packet, but: Connection = 0) -> None:
        for connection in connections:
            if connection != but:
                self.send(connection, packet)

    def _give_up(self, wire: WireConnection, packet: Packet, size: int) -> None:
        """End a connection on which something cannot be said; it begins anew without that. Never ends this process."""
        most = self._most_bytes
        reason = f"{type(packet).__name__} has {size} bytes; {most} are allowed (max_packet_bytes)"
        wire.refuse(ConnectionEnd("long", reason))

    def frame_of(self, packet: Packet) -> Frame:
        """The packet as it looks on the wire: made once a turn, and not at all for what was received in it."""
        known = self._frames.get(id(packet))
        if known is not None:
            return known[1]
        frame = self.new_frame(packet)
        self._frames[id(packet)] = packet, frame
        return frame

    def new_frame(self, packet: Packet) -> Frame:
        """The packet as it looks on the wire, for whoever keeps it."""
        kind = type(packet)
        if kind in self._long_kinds:
            return framed_in_place(self.codec.encode_into, packet, self._most_in_frame)
        body = self.codec.encode(packet)
        if len(body) >= LONG_BYTES:
            self._long_kinds.add(kind)
        return packet_frames(body, self._most_in_frame)

    def has_frames(self, wire: WireConnection) -> None:
        """Frames were put into its `out`, which was empty: have them written at the end of the turn."""
        self._dirty[wire] = None

    def close(self, connection: Connection, reason: str = "") -> None:
        wire = self.connections.pop(connection, None)
        if wire is not None:
            wire.say_goodbye(reason)
            self._dirty[wire] = None

    def cast(self, address: str, packet: Packet) -> None:
        if self._casts is None:
            self.counters["casts_lost"] += 1
            return
        frame = self.frame_of(packet)
        if len(frame) > CAST_BYTES + OVERHEAD_BYTES:
            self.counters["casts_too_long"] += 1
            self._log.bad_cast(address, f"{type(packet).__name__} has {len(frame)} bytes; {CAST_BYTES} can be cast")
            return
        self._casts.cast(address, bytes(frame))

    def cast_all(self, addresses: Iterable[str], packet: Packet) -> None:
        for address in addresses:
            self.cast(address, packet)

    def set_timer(self, name: Hashable, delay_ns: int, *, background: bool = False) -> None:
        self.timers.set(name, delay_ns, background=background)

    def cancel_timer(self, name: Hashable) -> None:
        self.timers.cancel(name)

    def note(self, kind: str, info: Mapping[str, str]) -> None:
        self.counters[f"noted_{kind}"] += 1
        self.journal.event(kind, self.now_ns, info)

    def count(self, name: str, by: int = 1) -> None:
        self.counters[name] += by

    def refuse(self, connection: Connection, reason: str) -> None:
        """End a connection because of what its other end did, and tell it so; `on_closed` follows."""
        wire = self.connections.get(connection)
        if wire is not None:
            wire.refuse(ConnectionEnd("protocol", reason))

    def cut(self, connection: Connection, why: str, reason: str) -> None:
        """End a connection without a word; `on_closed` follows."""
        wire = self.connections.get(connection)
        if wire is not None:
            wire.abort(ConnectionEnd(why, reason))

    # What connections report

    def made(self, connection: WireConnection) -> bool:
        self._all.add(connection)
        if connection.address:
            return True
        if len(self._all) > self.settings.connections:
            return False
        self._strangers.came(connection)
        return True

    def greeted(self, connection: WireConnection, peer: Peer) -> None:
        if not connection.address:
            self._strangers.went(connection)
            if peer.kind == CASTING:
                return  # It only casts, and the machine hears of that alone.
            self.connections[connection.number] = connection
        self.counters["connections_opened"] += 1
        self._log.opened(connection, peer)
        self._dirty[connection] = None
        if connection.leaving or connection.role == CASTING:
            self._plan_turn_end()  # Closed before it was open: it gets across what was sent, and ends.
        else:
            self.input(self.machine.on_opened, connection.number, peer, blame=connection)

    def received(self, connection: WireConnection, packets: list[Packet], frames: list[Frame]) -> None:
        peer = connection.peer
        if peer is not None and peer.kind == CASTING:
            self.counters["casts_received"] += len(packets)
            self._heard(msgspec.structs.replace(peer, kind=NODE), packets)
            return
        if connection.number not in self.connections:
            return
        if self.passes_on:
            known = self._frames
            for packet, frame in zip(packets, frames, strict=True):
                known[id(packet)] = packet, frame
        self.counters["packets_received"] += len(packets)
        self.input(self.machine.on_packets, connection.number, packets, blame=connection)

    def writable(self, connection: WireConnection) -> None:
        self._dirty[connection] = None
        self._plan_turn_end()

    def hears(self, connection: WireConnection) -> bool:
        """A client that asks and does not read makes answers pile up: it is not heard while too much waits for it."""
        peer = connection.peer
        if connection.address or peer is None or peer.kind != CLIENT or connection.queued_bytes <= self._most_waiting:
            return True
        self.counters["unheard_by_slow_consumer_bytes"] += 1
        return False

    def ended(self, connection: WireConnection, end: ConnectionEnd) -> None:
        self._all.discard(connection)
        connection.closed.add_done_callback(lambda _: self._strangers.went(connection))
        self.counters[f"closed_{end.why}"] += 1
        self._log.ended(connection, end)
        if isinstance(self._casts, CastLinks):
            self._casts.ended(connection)
        if self.connections.pop(connection.number, None) is not None and not self._closing:
            self.input(self._tell_closed, connection.number, end)

    def _tell_closed(self, connection: Connection, end: ConnectionEnd) -> None:
        self.machine.on_closed(connection, gone=end.gone, reason=end.reason)

    def _heard(self, peer: Peer, packets: list[Packet]) -> None:
        self.input(self._tell_cast, peer, packets)

    def _tell_cast(self, peer: Peer, packets: list[Packet]) -> None:
        try:
            self.machine.on_cast(peer, packets)
        except PeerError as error:
            self.counters["casts_refused"] += 1
            self._log.bad_cast(peer.name, error.reason)

    # Inside

    def _handle(self, action: Callable[..., None], args: tuple[Any, ...], blame: WireConnection | None) -> None:
        self._busy = True
        self.now_ns = time.monotonic_ns()
        try:
            action(*args)
        except PeerError as error:
            self._busy = False
            self._blame(error, blame)
        except Exception as error:  # noqa: BLE001 - Whatever it is, it is a bug, and the state is half changed.
            self.fail(error)
        finally:
            self._busy = False

    def _handle_inbox(self) -> None:
        while self._inbox and not self._closing:
            self._handle(*self._inbox.popleft())

    def _blame(self, error: PeerError, connection: WireConnection | None) -> None:
        if connection is None:
            self.fail(error)
        else:
            connection.refuse(ConnectionEnd("protocol", error.reason))

    def _plan_turn_end(self) -> None:
        if self._turn is None and not self._closing:
            self._turn = self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._turn = None
        if self._closing:
            return
        self._busy = True
        try:
            self.machine.on_turn_end()
        except Exception as error:  # noqa: BLE001 - A bug.
            self.fail(error)
        self._busy = False
        if not self.make_durable():
            return
        dirty, self._dirty = self._dirty, {}
        self._frames.clear()
        for connection in dirty:
            connection.flush()
        if self._casts is not None:
            self._casts.flush()
        if self._inbox:
            self._handle_inbox()
            self._plan_turn_end()

    def make_durable(self) -> bool:
        """Have the ledger and then the journal keep what has happened so far; False if the process stops for it."""
        if self._closing:
            return False
        try:
            if self._ledger is not None:
                self._ledger.flush()
            self.journal.flush()
        except Exception as error:  # noqa: BLE001 - A disk that does not keep what it is given, or a bug.
            self.fail(error)
            return False
        return True

    def _time_out(self, name: Hashable) -> None:
        self.input(self.machine.on_timer, name)

    def fail(self, error: BaseException) -> None:
        """Stop here and now: nothing of this turn leaves, nothing more is handled."""
        known, self.failure = self.failure, self.failure or error
        self.abandon()
        if known is not None:
            return
        if self.on_failure is not None:
            self.on_failure(error)
            return
        self._log.failed(error)

    def _abandon(self) -> None:
        if self._turn is not None:
            self._turn.cancel()
        self._heartbeat.stop()
        self.timers.stop()
        self._dialing.cancel()
        self._door.close()
        for connection in {*self._all, *self.connections.values()}:
            connection.abort(ConnectionEnd("local", "the process stops"))
        self.connections.clear()
        casts, self._casts = self._casts, None
        if casts is not None:
            casts.close()

    # Dialing and being dialed

    def _accepted(self) -> WireConnection:
        self._numbers += 1
        return WireConnection(self, self._numbers)

    def _turned_away(self, guest: SecuringGuest, end: ConnectionEnd) -> None:
        self.counters[f"closed_{end.why}"] += 1
        self._log.ended(guest, end)

    def _dial_to_cast(self, address: str) -> WireConnection:
        self._numbers += 1
        connection = WireConnection(self, self._numbers, address, role=CASTING)
        self._all.add(connection)
        self._dialing.begin(connection)
        return connection

    async def let_in(self, dialed: WireConnection) -> None:
        """Be connected to from within this process; the other end introduces itself as everybody does."""
        if self._closing:
            dialed.abort(ConnectionEnd("unreachable", f"{self.me.name} is stopped"))
            return
        near, far = socket.socketpair()
        await self._loop.create_connection(self._accepted, sock=near)
        await self._loop.create_connection(lambda: dialed, sock=far)

    def _beat(self, now: int, overslept: int) -> bool:
        """Be heard, and see who was not."""
        waiting = 0
        for connection in list(self._all):
            connection.beat()
            waiting += connection.check(now, overslept)
        most = self.settings.slow_consumer_bytes
        self._most_waiting = most if waiting <= _CROWD * most else min(most, self.settings.max_frame_bytes)
        if self.on_beat is not None:
            self.input(self.on_beat, now, overslept)
        return not self._closing
