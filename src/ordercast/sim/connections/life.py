"""A process from its start to its end, the sequence of its lives, and the ends of their connections."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol
from zlib import crc32

from ordercast.core.chance import mix
from ordercast.core.errors import PeerError
from ordercast.core.messages import Message, Packet
from ordercast.core.process import Connection, Peer, ProcessMachine, Wires
from ordercast.core.wire import Codec
from ordercast.sim.clock import Scheduler

Build = Callable[[Wires, Peer], ProcessMachine]
"""Makes the machine of a life; the Peer is how others see this life."""
Frame = Any
"""A packet, or its bytes where the world makes every packet a round trip through the codec."""


class LifePort(Protocol):
    """The world of all processes, as one life uses it."""

    clock: Scheduler
    after_event: Callable[[Life], None] | None
    tap: Callable[[str, str, Packet], None] | None
    notes: Callable[[str, str, Mapping[str, str]], None] | None
    deliveries: Callable[[str, Message], None] | None
    completions: Callable[[str, str], None] | None
    snapshots: Callable[[str], bytes] | None
    installs: Callable[[str, bytes], None] | None
    renewals: Callable[[str, str], None] | None
    departures: Callable[[str], None] | None
    receipts: Callable[[str, str, Packet], None] | None
    peer_errors: list[tuple[str, str, str]]
    codec: Codec | None

    def dial(self, life: Life, address: str) -> Connection: ...

    def make_end(self, life: Life, number: int, peer_name: str) -> SimulatedEnd: ...

    def cast_all(self, life: Life, addresses: Iterable[str], packet: Packet) -> None: ...

    def encode(self, packet: Packet) -> bytes: ...

    def decode(self, batch: Sequence[Frame], peer_name: str) -> list[Packet]: ...


class Process:
    """A process across its lives: its name, its address, its counters."""

    __slots__ = ("address", "build", "counters", "kind", "life", "name", "received", "sent", "starts")

    def __init__(self, name: str, kind: str, address: str, build: Build) -> None:
        self.name = name
        self.kind = kind
        self.address = address
        self.build = build
        self.starts = 0
        self.life: Life | None = None
        """None: not started, or dead."""
        self.counters: Counter[str] = Counter()
        self.sent = 0
        """Packets that its machines sent."""
        self.received = 0
        """Packets that reached its machines."""


class Life:
    """One life of a process; implements `OverlayWires` for its machine. A dead one never sees another event."""

    __slots__ = (
        "_backlog", "_numbers", "_timers", "_tokens", "alive", "ends", "ends_turns", "machine", "name", "now_ns",
        "paused", "peer", "process", "world",
    )  # fmt: skip

    def __init__(self, world: LifePort, process: Process, peer: Peer) -> None:
        self.world = world
        self.process = process
        self.name = process.name
        self.peer = peer
        self.now_ns = world.clock.now
        self.alive = True
        self.paused = 0
        """Which pause it is in; 0: in none."""
        self.ends: dict[Connection, SimulatedEnd] = {}
        self._numbers = 0
        self._timers: dict[Hashable, int] = {}
        self._tokens = 0
        self._backlog: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self.machine = process.build(self, peer)
        self.ends_turns = type(self.machine).on_turn_end is not ProcessMachine.on_turn_end
        """Whether its machine has anything to do at the end of a turn."""

    # Effects of the machine

    def open(self, address: str) -> Connection:
        return self.world.dial(self, address)

    def send(self, connection: Connection, packet: Packet) -> None:
        end = self.ends.get(connection)
        if end is None:
            return
        self.process.sent += 1
        world = self.world
        if world.tap is not None:
            world.tap(self.name, end.peer_name, packet)
        end.send(packet if world.codec is None else world.encode(packet))

    def send_all(self, connections: Iterable[Connection], packet: Packet, but: Connection = 0) -> None:
        """The same as one `send` after the other; where nobody looks on and nothing is in the way, in one go."""
        world = self.world
        if world.tap is not None or world.codec is not None:
            for connection in connections:
                if connection != but:
                    self.send(connection, packet)
            return
        ends, clock = self.ends, world.clock
        now, instants, sent = clock.now, clock.instants, 0
        for connection in connections:
            if connection == but or (end := ends.get(connection)) is None:
                continue
            sent += 1
            arrival = now + end.constant_ns
            if not end.free or arrival < end.last_arrival:
                end.send(packet)
            elif arrival == end.batch_time and end.flying:
                end.flying[-1] += (packet,)
            else:
                end.last_arrival = end.batch_time = arrival
                end.flying.append((packet,))
                events = instants.get(arrival)
                if events is None:
                    clock.at(arrival, arrive, end)
                else:
                    events.append((arrive, end, None))
        self.process.sent += sent

    def close(self, connection: Connection, reason: str = "") -> None:
        end = self.ends.pop(connection, None)
        if end is not None:
            end.close(reason)

    def cast(self, address: str, packet: Packet) -> None:
        self.world.cast_all(self, (address,), packet)

    def cast_all(self, addresses: Iterable[str], packet: Packet) -> None:
        self.world.cast_all(self, addresses, packet)

    def set_timer(self, name: Hashable, delay_ns: int, *, background: bool = False) -> None:
        self._tokens = token = self._tokens + 1
        self._timers[name] = token
        clock = self.world.clock
        plan = clock.in_background if background else clock.at
        plan(clock.now + delay_ns, self._ring, name, token)

    def cancel_timer(self, name: Hashable) -> None:
        self._timers.pop(name, None)

    def note(self, kind: str, info: Mapping[str, str]) -> None:
        if self.world.notes is not None:
            self.world.notes(self.name, kind, info)

    def count(self, name: str, by: int = 1) -> None:
        self.process.counters[name] += by

    def deliver(self, message: Message) -> None:
        if self.world.deliveries is not None:
            self.world.deliveries(self.name, message)

    def complete(self, message_id: str) -> None:
        if self.world.completions is not None:
            self.world.completions(self.name, message_id)

    def snapshot(self) -> bytes:
        return b"" if self.world.snapshots is None else self.world.snapshots(self.name)

    def install(self, state: bytes) -> None:
        if self.world.installs is not None:
            self.world.installs(self.name, state)

    def begin_anew(self, reason: str, through: str) -> None:  # noqa: ARG002
        if self.world.renewals is not None:
            self.world.renewals(self.name, through)

    def depart(self) -> None:
        if self.world.departures is not None:
            self.world.departures(self.name)

    # Inputs of the machine

    def start(self, *, again: bool = False) -> None:
        """`again`: with what its machine has been given back of an earlier life."""
        self.turn(self.machine.on_recover if again else self.machine.on_start)

    def new_end(self, peer_name: str) -> SimulatedEnd:
        self._numbers += 1
        end = self.world.make_end(self, self._numbers, peer_name)
        self.ends[end.number] = end
        return end

    def turn(self, handler: Callable[..., None], *arguments: Any) -> None:
        """One event: the handler, then the end of the turn. A process that stands still gets it when it goes on."""
        if self.paused:
            self._backlog.append((handler, arguments))
            return
        if not self.alive:
            return
        self.now_ns = self.world.clock.now
        handler(*arguments)
        self.machine.on_turn_end()
        if self.world.after_event is not None:
            self.world.after_event(self)

    def receive(self, end: SimulatedEnd, batch: Sequence[Frame]) -> None:
        if self.paused:
            self._backlog.append((self._hand_over, (end, batch)))
            return
        world = self.world
        self.now_ns = world.clock.now
        if world.codec is None and world.receipts is None:
            self.process.received += len(batch)
            try:
                self.machine.on_packets(end.number, batch)
            except PeerError as error:
                self._blame(end, error)
        else:
            self._hand_over(end, batch)
        if self.ends_turns:
            self.machine.on_turn_end()
        if world.after_event is not None:
            world.after_event(self)

    def _hand_over(self, end: SimulatedEnd, batch: Sequence[Frame]) -> None:
        if self.ends.get(end.number) is not end:
            return  # Closed while it stood still.
        try:
            packets = batch if self.world.codec is None else self.world.decode(batch, end.peer_name)
            self.process.received += len(packets)
            if self.world.receipts is not None:
                for packet in packets:
                    self.world.receipts(self.name, end.peer_name, packet)
            self.machine.on_packets(end.number, packets)
        except PeerError as error:
            self._blame(end, error)

    def receive_casts(self, casts: list[Any]) -> None:
        """Datagrams that arrived at one instant: sender and packet, alternating."""
        self.process.received += len(casts) // 2
        world = self.world
        if self.paused or len(casts) > 2 or world.codec is not None or world.receipts is not None:
            self.turn(self._hand_over_casts, casts)
            return
        self.now_ns = world.clock.now
        peer, packet = casts
        try:
            self.machine.on_cast(peer, (packet,))
        except PeerError as error:
            self._refuse_cast(peer, error)
        if self.ends_turns:
            self.machine.on_turn_end()
        if world.after_event is not None:
            world.after_event(self)

    def _hand_over_casts(self, casts: list[Any]) -> None:
        world, on_cast = self.world, self.machine.on_cast
        for i in range(0, len(casts), 2):
            peer, frame = casts[i], casts[i + 1]
            try:
                packets = (frame,) if world.codec is None else world.decode((frame,), peer.name)
                if world.receipts is not None:
                    world.receipts(self.name, peer.name, packets[0])
                on_cast(peer, packets)
            except PeerError as error:
                self._refuse_cast(peer, error)

    def _refuse_cast(self, peer: Peer, error: PeerError) -> None:
        self.count("casts_refused")
        self.world.peer_errors.append((self.name, peer.name, error.reason))

    def opened(self, end: SimulatedEnd, peer: Peer) -> None:
        """The other end is up and has said who it is."""
        self.turn(self._tell_opened, end, peer)

    def _tell_opened(self, end: SimulatedEnd, peer: Peer) -> None:
        if self.ends.get(end.number) is not end:
            return
        try:
            self.machine.on_opened(end.number, peer)
        except PeerError as error:
            self._blame(end, error)

    def _blame(self, end: SimulatedEnd, error: PeerError) -> None:
        """A peer that sends what it must not is cut off."""
        self.world.peer_errors.append((self.name, end.peer_name, error.reason))
        if self.ends.pop(end.number, None) is not None:
            end.close(error.reason)
            self.machine.on_closed(end.number, gone=False, reason=error.reason)

    def connection_ended(self, end: SimulatedEnd, *, gone: bool, reason: str) -> None:
        self.turn(self._tell_closed, end, gone, reason)

    def _tell_closed(self, end: SimulatedEnd, gone: bool, reason: str) -> None:
        if self.ends.pop(end.number, None) is not None:
            self.machine.on_closed(end.number, gone=gone, reason=reason)

    def _ring(self, name: Hashable, token: int) -> None:
        if self._timers.get(name) == token:
            self.turn(self._tell_timer, name, token)

    def _tell_timer(self, name: Hashable, token: int) -> None:
        # It may have been cancelled or set anew while the process stood still.
        if self._timers.get(name) == token:
            del self._timers[name]
            self.machine.on_timer(name)

    # Faults

    def resume(self) -> None:
        """Go on: everything that came meanwhile is handled in the order in which it came."""
        self.paused = 0
        while self._backlog and not self.paused and self.alive:
            handler, arguments = self._backlog.popleft()
            self.turn(handler, *arguments)

    def die(self) -> None:
        """Nothing reaches the machine any more; its connections are for the world to break."""
        self.alive = False
        self.paused = 0
        self._timers.clear()
        self._backlog.clear()


class _Goodbye:
    """The last thing on a connection that is closed on purpose."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


class SimulatedEnd:
    """Sends in order: nothing arrives before what was sent earlier. Times are in nanoseconds."""

    __slots__ = (
        "_clock", "_draw_ns", "_held", "_salt", "batch_time", "broken", "closed", "constant_ns", "flying", "free",
        "last_arrival", "life", "number", "opening", "other", "peer_name", "stalled",
    )  # fmt: skip

    def __init__(self, life: Life, number: int, peer_name: str, latency: Callable[[int], int], salted: int) -> None:
        self.life = life
        self.number = number
        self.peer_name = peer_name
        self.other: SimulatedEnd | None = None
        self.opening = False
        """Dialed, and not answered yet."""
        self.stalled = False
        """A partition lies between the two ends."""
        self.closed = False
        """This end hears nothing any more."""
        self.broken = False
        """Nothing that this end sends arrives any more."""
        self._clock = life.world.clock
        self._salt = salted
        self.last_arrival = 0
        self.batch_time = -1
        self.flying: list[tuple[Frame, ...]] = []
        """Under way, in order. Few at a time: a deque would take ten times the memory."""
        self._held: list[Frame | _Goodbye] = []
        self.set_latency(latency)

    def set_latency(self, latency: Callable[[int], int]) -> None:
        """Set the latency of what is sent from now on; it overtakes nothing."""
        self._draw_ns = latency
        self.constant_ns = latency(0) if latency(0) == latency(self._salt) else -1
        self.refresh()

    def refresh(self) -> None:
        """Work out anew whether what is sent leaves at once and takes a constant time."""
        self.free = self.constant_ns >= 0 and not (self.broken or self.opening or self.stalled)

    def send(self, frame: Frame) -> None:
        if self.broken:
            return
        if self.opening or self.stalled:
            self._held.append(frame)
        else:
            self._launch(frame)

    def _launch(self, frame: Frame) -> None:
        arrival = self._arrival(frame)
        flying = self.flying
        if flying and self.batch_time == arrival:
            flying[-1] += (frame,)  # What arrives at one instant is handed over at once.
            return
        self.batch_time = arrival
        flying.append((frame,))
        clock = self._clock
        events = clock.instants.get(arrival)
        if events is None:
            clock.at(arrival, arrive, self)
        else:
            events.append((arrive, self, None))

    def _arrival(self, frame: Frame = None) -> int:
        """The arrival time of something that leaves now: FIFO.

        The draw belongs to what is sent and when, not to a count: what others do not send changes nothing for it.
        """
        now = self._clock.now
        latency = self.constant_ns
        if latency < 0:
            latency = self._draw_ns(mix(self._salt, crc32(frame) if isinstance(frame, bytes) else 0, now))
        arrival = now + latency
        if arrival < self.last_arrival:
            return self.last_arrival
        self.last_arrival = arrival
        return arrival

    def first_arrival(self) -> int:
        """The arrival time of the answer to the dial: before anything that is sent on this end."""
        return self._arrival()

    def release(self) -> None:
        """Nothing is in the way any more: let go what was held back."""
        if self.opening or self.stalled:
            return
        held, self._held = self._held, []
        for item in held:
            if isinstance(item, _Goodbye):
                self._say_goodbye(item.reason)
            else:
                self._launch(item)

    def close(self, reason: str) -> None:
        """On purpose: what was sent before arrives, then the other end learns that this was the end."""
        self.closed = True
        if self.stalled or (self.opening and self._held):
            self._held.append(_Goodbye(reason))
        elif self.other is not None and not self.broken:
            self._say_goodbye(reason)

    @property
    def given_up(self) -> bool:
        """A dial that its process has lost interest in, with nothing left to say."""
        return self.closed and not self._held

    def _say_goodbye(self, reason: str) -> None:
        self._clock.at(self._arrival(), self._tell_other, False, reason)

    def break_off(self, why: str, detection_ns: int, share: float) -> None:
        """The process or the connection is dead: a prefix of what is in flight survives, then the other end knows."""
        self._held.clear()
        other = self.other
        if self.broken or other is None or other.closed:
            return
        self.broken = True
        self.free = False
        in_flight = sum(map(len, self.flying))
        survivors = min(int(share * (in_flight + 1)), in_flight)
        for i, batch in enumerate(self.flying):
            self.flying[i] = batch[:survivors]
            survivors -= len(self.flying[i])
        while self.flying and not self.flying[-1]:
            self.flying.pop()
        self.batch_time = -1
        if not self.stalled:  # Across a partition not even that can be seen.
            self.tell_broken(why, detection_ns)

    def tell_broken(self, why: str, detection_ns: int = 0) -> None:
        """The other end learns, without a word from this one, that the connection is dead."""
        self._clock.at(self._arrival() + detection_ns, self._tell_other, True, why)

    def _tell_other(self, gone: bool, reason: str) -> None:
        other = self.other
        if other is not None and not other.closed:
            other.end(gone=gone, reason=reason)

    def end(self, *, gone: bool, reason: str) -> None:
        """This end learns that the connection has ended."""
        self.closed = True
        self._held.clear()
        self.life.connection_ended(self, gone=gone, reason=reason)


def arrive(end: SimulatedEnd, _: None) -> None:
    """The first packet of an end arrives. A function, not a method: the calendar holds millions of these."""
    if not end.flying:
        return  # Lost with its sender.
    batch = end.flying.pop(0)
    other = end.other
    if other is not None and not other.closed:
        other.life.receive(other, batch)
