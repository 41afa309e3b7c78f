"""A process from its start to its end, the sequence of its lives, and the ends of their connections."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
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


class Surroundings(Protocol):
    """The world of all processes, as one life uses it."""

    clock: Scheduler
    after_event: Callable[[Life], None] | None
    tap: Callable[[str, str, Packet], None] | None
    notes: Callable[[str, str, Mapping[str, str]], None] | None
    deliveries: Callable[[str, Message], None] | None
    completions: Callable[[str, str], None] | None
    peer_errors: list[tuple[str, str, str]]
    codec: Codec | None

    def dial(self, life: Life, address: str) -> Connection: ...

    def make_end(self, life: Life, number: int, peer_name: str) -> End: ...

    def encode(self, packet: Packet) -> bytes: ...

    def decode(self, batch: Sequence[Frame], peer_name: str) -> list[Packet]: ...


class Process:
    """What stays when a process dies and is started again: its name, its address, its counters."""

    def __init__(self, name: str, kind: str, address: str, build: Build) -> None:
        self.name = name
        self.kind = kind
        self.address = address
        self.build = build
        self.starts = 0
        self.life: Life | None = None
        """None: not started, or dead."""
        self.counters: Counter[str] = Counter()


class Life:
    """One life of a process; implements `OverlayWires` for its machine. A dead one never sees another event."""

    def __init__(self, world: Surroundings, process: Process, peer: Peer) -> None:
        self.world = world
        self.process = process
        self.name = process.name
        self.peer = peer
        self.now_ns = world.clock.now
        self.alive = True
        self.paused = 0
        """Which pause it is in; 0: in none."""
        self.ends: dict[Connection, End] = {}
        self._numbers = 0
        self._timers: dict[Hashable, int] = {}
        self._tokens = 0
        self._backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.machine = process.build(self, peer)

    # Effects of the machine

    def open(self, address: str) -> Connection:
        return self.world.dial(self, address)

    def send(self, connection: Connection, packet: Packet) -> None:
        end = self.ends.get(connection)
        if end is None:
            return
        world = self.world
        if world.tap is not None:
            world.tap(self.name, end.peer_name, packet)
        end.send(packet if world.codec is None else world.encode(packet))

    def close(self, connection: Connection, reason: str = "") -> None:
        end = self.ends.pop(connection, None)
        if end is not None:
            end.close(reason)

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

    # Inputs of the machine

    def start(self) -> None:
        self.turn(self.machine.on_start)

    def new_end(self, peer_name: str) -> End:
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

    def receive(self, end: End, batch: list[Frame]) -> None:
        if self.paused:
            self._backlog.append((self._hand_over, (end, batch)))
            return
        self.now_ns = self.world.clock.now
        self._hand_over(end, batch)
        self.machine.on_turn_end()
        if self.world.after_event is not None:
            self.world.after_event(self)

    def _hand_over(self, end: End, batch: list[Frame]) -> None:
        if self.ends.get(end.number) is not end:
            return  # Closed while it stood still.
        try:
            packets = batch if self.world.codec is None else self.world.decode(batch, end.peer_name)
            self.machine.on_packets(end.number, packets)
        except PeerError as error:
            self._blame(end, error)

    def opened(self, end: End, peer: Peer) -> None:
        """The other end is up and has said who it is."""
        self.turn(self._tell_opened, end, peer)

    def _tell_opened(self, end: End, peer: Peer) -> None:
        if self.ends.get(end.number) is not end:
            return
        try:
            self.machine.on_opened(end.number, peer)
        except PeerError as error:
            self._blame(end, error)

    def _blame(self, end: End, error: PeerError) -> None:
        """A peer that sends what it must not is cut off."""
        self.world.peer_errors.append((self.name, end.peer_name, error.reason))
        if self.ends.pop(end.number, None) is not None:
            end.close(error.reason)
            self.machine.on_closed(end.number, gone=False, reason=error.reason)

    def connection_ended(self, end: End, *, gone: bool, reason: str) -> None:
        self.turn(self._tell_closed, end, gone, reason)

    def _tell_closed(self, end: End, gone: bool, reason: str) -> None:
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
        backlog, self._backlog = self._backlog, []
        for i, (handler, arguments) in enumerate(backlog):
            if self.paused or not self.alive:
                self._backlog[:0] = backlog[i:]
                return
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


class End:
    """Sends in order: nothing arrives before what was sent earlier. Times are in nanoseconds."""

    __slots__ = (
        "_batch_time", "_clock", "_constant_ns", "_draw_ns", "_flying", "_held", "_last_arrival", "_salt",
        "broken", "closed", "life", "number", "opening", "other", "peer_name", "stalled",
    )  # fmt: skip

    def __init__(self, life: Life, number: int, peer_name: str, latency: Callable[[int], int], salted: int) -> None:
        self.life = life
        self.number = number
        self.peer_name = peer_name
        self.other: End | None = None
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
        self.set_latency(latency)
        self._last_arrival = 0
        self._batch_time = -1
        self._flying: deque[list[Frame]] = deque()
        self._held: list[Frame | _Goodbye] = []

    def set_latency(self, latency: Callable[[int], int]) -> None:
        """What is sent from now on takes so long, and overtakes nothing."""
        self._draw_ns = latency
        self._constant_ns = latency(0) if latency(0) == latency(self._salt) else -1

    def send(self, frame: Frame) -> None:
        if self.broken:
            return
        if self.opening or self.stalled:
            self._held.append(frame)
        else:
            self._launch(frame)

    def _launch(self, frame: Frame) -> None:
        arrival = self._arrival(frame)
        flying = self._flying
        if flying and self._batch_time == arrival:
            flying[-1].append(frame)  # What arrives at one instant is handed over at once.
            return
        self._batch_time = arrival
        batch = [frame]
        flying.append(batch)
        clock = self._clock
        events = clock.instants.get(arrival)
        if events is None:
            clock.at(arrival, self._arrive, batch)
        else:
            events.append((self._arrive, batch, None))

    def _arrival(self, frame: Frame = None) -> int:
        """When something that leaves now is there: FIFO.

        The draw belongs to what is sent and when, not to a count: what others do not send changes nothing for it.
        """
        now = self._clock.now
        latency = self._constant_ns
        if latency < 0:
            latency = self._draw_ns(mix(self._salt, crc32(frame) if isinstance(frame, bytes) else 0, now))
        arrival = now + latency
        if arrival < self._last_arrival:
            return self._last_arrival
        self._last_arrival = arrival
        return arrival

    def first_arrival(self) -> int:
        """When the answer to the dial is there: before anything that is sent on this end."""
        return self._arrival()

    def _arrive(self, batch: list[Frame], _: None) -> None:
        if not batch:
            return  # Lost with its sender.
        self._flying.popleft()
        other = self.other
        if other is not None and not other.closed:
            other.life.receive(other, batch)

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
        in_flight = sum(map(len, self._flying))
        survivors = min(int(share * (in_flight + 1)), in_flight)
        for batch in self._flying:
            del batch[survivors:]
            survivors -= len(batch)
        while self._flying and not self._flying[-1]:
            self._flying.pop()
        self._batch_time = -1
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
