"""A process from its start to its end, and the sequence of its lives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any

from ordercast.core.errors import PeerError
from ordercast.core.messages import Message, Packet
from ordercast.core.process import Connection, Peer, ProcessMachine, Wires
from ordercast.sim.connections.ends import End, Frame

if TYPE_CHECKING:
    from ordercast.sim.connections.world import Processes

Build = Callable[[Wires, Peer], ProcessMachine]
"""Makes the machine of a life; the Peer is how others see this life."""


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

    def __init__(self, world: Processes, process: Process, peer: Peer) -> None:
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
