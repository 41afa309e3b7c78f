"""All processes of a run, what connects them, and what goes wrong between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count

import msgspec

from ordercast.core.chance import mix, salt, unit
from ordercast.core.errors import InvariantError
from ordercast.core.messages import Message, Packet
from ordercast.core.process import Connection, Peer, ProcessMachine, Rights
from ordercast.core.wire import Codec
from ordercast.scenario.tables import Latency
from ordercast.sim.clock import Scheduler, ns
from ordercast.sim.connections.casts import CastModel, Casts
from ordercast.sim.connections.latencies import LatencyOf
from ordercast.sim.connections.life import Build, Frame, Life, Process, SimulatedEnd
from ordercast.sim.links.network import latency_draw

_NOBODY_MS = 1.0
"""How long it takes to learn that there is no such address."""


class Timing(msgspec.Struct, frozen=True):
    """The delays after which processes notice that something is wrong."""

    detection_ms: Latency = 0.0
    """From the end of what a dead process had sent to the news of its death, at each connection."""
    silence_ms: Latency = 2000.0
    """Silence (a partition, a process that stands still) after which an end gives its connection up."""
    dial_timeout_ms: float = 2000.0
    """How long a dial waits for an answer."""
    detection: Mapping[str, Latency] = {}
    """Processes that notice the death of others after another time than `detection_ms`."""


class Processes:
    """Virtual time for process machines. Same seed and calls, same run, whatever PYTHONHASHSEED."""

    def __init__(
        self, seed: int, latency: LatencyOf, timing: Timing | None = None, *, codec: Codec | None = None,
        casts: CastModel | None = None,
    ) -> None:  # fmt: skip
        self.seed = seed
        self.clock = Scheduler()
        self.codec = codec
        """With a codec every packet is encoded when sent and decoded when received."""
        self.processes: dict[str, Process] = {}
        self.after_event: Callable[[Life], None] | None = None
        """Called when a process has handled an event: the place for invariants."""
        self.tap: Callable[[str, str, Packet], None] | None = None
        """Sees every packet when it is sent: source, target, packet."""
        self.notes: Callable[[str, str, Mapping[str, str]], None] | None = None
        """Sees what machines note: process, kind, info."""
        self.deliveries: Callable[[str, Message], None] | None = None
        """Sees what overlay machines deliver: process, message."""
        self.completions: Callable[[str, str], None] | None = None
        """Sees what overlay machines answer: process, message id."""
        self.snapshots: Callable[[str], bytes] | None = None
        """Gives the state of the application of an overlay machine, for one that joins."""
        self.installs: Callable[[str, bytes], None] | None = None
        """Gives the application of a joiner the state that it inherits."""
        self.renewals: Callable[[str, str], None] | None = None
        """Sees which process asks for a life without its memory, and through whom it is to join."""
        self.departures: Callable[[str], None] | None = None
        """Sees which process was told to leave and is ready to."""
        self.receipts: Callable[[str, str, Packet], None] | None = None
        """Sees every packet when a machine is given it: target, source, packet."""
        self.peer_errors: list[tuple[str, str, str]] = []
        """Who blamed whom for what; empty in a run of correct machines."""
        timing = timing or Timing()
        self._latency = latency
        self._detection = latency_draw(timing.detection_ms)
        self._detection_of = {name: latency_draw(latency) for name, latency in timing.detection.items()}
        self._silence = latency_draw(timing.silence_ms)
        self._dial_timeout_ns = ns(timing.dial_timeout_ms)
        self.listeners: dict[str, Process] = {}
        """By address."""
        self._draws: dict[tuple[str, str], tuple[Callable[[int], int], int]] = {}
        self._connections = count(1)
        self._pauses = count(1)
        self._partitions: dict[int, tuple[frozenset[str], ...]] = {}
        self._partition_ids = count(1)
        self._encoded: tuple[Packet | None, bytes] = (None, b"")
        self.casts = Casts(self, casts or CastModel())
        """What is between processes that cast datagrams."""
        self.cast_all = self.casts.cast_all

    # Processes

    def add(self, name: str, kind: str, build: Build, *, address: str = "") -> Process:
        """A process that can be started. Brokers have an address, clients none."""
        process = self.processes[name] = Process(name, kind, address, build)
        if address:
            self.listeners[address] = process
        return process

    def start(
        self, name: str, *, life: int | None = None, rights: Rights | None = None, again: bool = False
    ) -> Life:  # fmt: skip
        """Begin a life; without a number the one after the last. Packets and timers of earlier lives never reach it.

        `again`: its machine has what was durable of an earlier one.
        """
        process = self.processes[name]
        if process.life is not None:
            raise InvariantError(f"{name} is already running")
        number = process.starts if life is None else life
        process.starts += 1
        peer = Peer(process.kind, name, number, process.address, rights or Rights())
        process.life = Life(self, process, peer)
        process.life.start(again=again)
        return process.life

    def life(self, name: str) -> Life | None:
        return self.processes[name].life

    def machine(self, name: str) -> ProcessMachine | None:
        life = self.processes[name].life
        return None if life is None else life.machine

    def living(self) -> list[Life]:
        return [process.life for process in self.processes.values() if process.life is not None]

    def act(self, name: str, handler: Callable[..., None], *arguments: object) -> bool:
        """Let the application of a process do something now, as an event of its own; false if it is dead."""
        life = self.processes[name].life
        if life is None:
            return False
        life.turn(handler, *arguments)
        return True

    # Connections and datagrams

    def latencies(self) -> Callable[[str, str], Latency | Callable[[int], int]]:
        """From two names to the one-way latency, or to how it is drawn where it was set or used before."""
        return self._latency_between if self._draws else self._latency

    def _latency_between(self, source: str, target: str) -> Latency | Callable[[int], int]:
        found = self._draws.get((source, target))
        return self._latency(source, target) if found is None else found[0]

    def dial(self, life: Life, address: str) -> Connection:
        target = self.listeners.get(address)
        end = life.new_end(target.name if target is not None else address)
        end.opening = True
        end.refresh()
        if target is None:
            self.clock.at(self.clock.now + ns(_NOBODY_MS), self._unanswered, end)
        elif self.separated(life.name, target.name):
            end.stalled = True
            end.refresh()
            self.clock.at(self.clock.now + self._dial_timeout_ns, self._dial_timed_out, end)
        else:
            self._knock(end, target)
        return end.number

    def _knock(self, end: SimulatedEnd, target: Process) -> None:
        self.clock.at(self.clock.now + self._one_way(end, end.life.name, target.name), self._accept, end, target)

    def _one_way(self, end: SimulatedEnd, source: str, target: str) -> int:
        draw, salted = self._draw(source, target)
        return draw(mix(salted, end.number, end.life.process.starts))

    def _accept(self, end: SimulatedEnd, target: Process) -> None:
        if end.given_up or not end.life.alive:
            return
        answer = self.clock.now + self._one_way(end, target.name, end.life.name)
        life = target.life
        if life is None:
            self.clock.at(answer, self._unanswered, end)
            return
        if life.paused:
            self.clock.at(self.clock.now + self._dial_timeout_ns, self._dial_timed_out, end)
            life.turn(self._answer, end, life)
        else:
            self._answer(end, life)

    def _answer(self, end: SimulatedEnd, life: Life) -> None:
        if end.given_up or not end.life.alive or end.other is not None:
            return
        accepted = life.new_end(end.life.name)
        accepted.other, end.other = end, accepted
        if self.separated(end.life.name, life.name):
            self._stall(end)
            self._stall(accepted)
        # Planned first, so that nothing that is sent in answer can be there before.
        self.clock.at(accepted.first_arrival(), self._opened, end, life.peer)
        life.opened(accepted, end.life.peer)

    def _opened(self, end: SimulatedEnd, peer: Peer) -> None:
        end.opening = False
        end.refresh()
        if not end.life.alive:
            self._break_off(end, f"{end.life.name} is gone")
            return
        end.release()
        if not end.closed:
            end.life.opened(end, peer)

    def _unanswered(self, end: SimulatedEnd, _: None) -> None:
        if not end.closed and end.life.alive:
            end.end(gone=True, reason="nobody answers")

    def _dial_timed_out(self, end: SimulatedEnd, _: None) -> None:
        if end.opening and end.other is None:
            self._unanswered(end, None)

    def make_end(self, life: Life, number: int, peer_name: str) -> SimulatedEnd:
        draw, salted = self._draw(life.name, peer_name)
        return SimulatedEnd(life, number, peer_name, draw, mix(salted, number, life.process.starts))

    def _draw(self, source: str, target: str) -> tuple[Callable[[int], int], int]:
        found = self._draws.get((source, target))
        if found is None:
            draw = latency_draw(self._latency(source, target))
            found = self._draws[source, target] = draw, salt(self.seed, "wire", source, target)
        return found

    def set_latency(self, source: str, target: str, latency: Latency | None) -> None:
        """Set the latency from one process to the other from now on; None: the one of the beginning."""
        draw = latency_draw(self._latency(source, target) if latency is None else latency)
        self._draws[source, target] = draw, salt(self.seed, "wire", source, target)
        for life in self.living():
            for end in life.ends.values():
                if (life.name, end.peer_name) == (source, target):
                    end.set_latency(draw)

    def encode(self, packet: Packet) -> bytes:
        assert self.codec is not None
        last, frame = self._encoded
        if last is not packet:
            frame = self.codec.encode(packet)
            self._encoded = packet, frame
        return frame

    def decode(self, batch: Sequence[Frame], peer_name: str) -> list[Packet]:
        assert self.codec is not None
        return [self.codec.decode(frame, peer_name) for frame in batch]

    # Faults

    def crash(self, name: str, survive: str = "random") -> bool:
        """Kill it: it loses everything; of what it had sent on each connection some prefix still arrives.

        `survive`: `all` of what is in flight, `none`, or a `random` number.
        """
        process = self.processes[name]
        life, process.life = process.life, None
        if life is None:
            return False
        life.die()
        for end in list(life.ends.values()):
            end.closed = True
            self._break_off(end, f"{name} is gone", survive)
        life.ends.clear()
        return True

    def stop(self, name: str, reason: str = "") -> bool:
        """It leaves on purpose: every connection is closed properly."""
        process = self.processes[name]
        life, process.life = process.life, None
        if life is None:
            return False
        for connection in list(life.ends):
            life.close(connection, reason)
        life.die()
        return True

    def cut(self, one: str, other: str) -> int:
        """Break every connection between two processes that both go on; returns how many there were."""
        life = self.processes[one].life
        if life is None:
            return 0
        ends = [end for end in life.ends.values() if end.peer_name == other and end.other is not None]
        for end in ends:
            assert end.other is not None
            self._break_off(end, "connection reset")
            self._break_off(end.other, "connection reset")
        return len(ends)

    def _break_off(self, end: SimulatedEnd, why: str, survive: str = "random") -> None:
        bits = self._fault_bits(end)
        share = {"all": 1.0, "none": 0.0, "random": unit(mix(bits, 2))}[survive]
        detection = self._detection_of.get(end.peer_name, self._detection)
        end.break_off(why, detection(mix(bits, 1)), share)

    def _fault_bits(self, end: SimulatedEnd) -> int:
        """Random bits for a fault; they belong to the connection and the moment."""
        return salt(self.seed, "faults", end.life.name, end.peer_name, end.number, self.clock.now)

    def pause(self, name: str) -> bool:
        """It stands still (SIGSTOP). Others give their connections to it up after a time of silence."""
        life = self.processes[name].life
        if life is None or life.paused:
            return False
        life.paused = pause = next(self._pauses)
        for end in life.ends.values():
            if end.other is not None:
                self.clock.at(self._silent_from_now(end.other), self._given_up, (life, pause), end.other)
        return True

    def _given_up(self, paused: tuple[Life, int], end: SimulatedEnd) -> None:
        life, pause = paused
        if life.paused == pause and not end.closed and end.life.alive:
            assert end.other is not None
            end.end(gone=True, reason="silent")
            if not end.other.closed:
                end.other.end(gone=True, reason="connection reset")  # It learns that when it goes on.

    def resume(self, name: str) -> bool:
        life = self.processes[name].life
        if life is None or not life.paused:
            return False
        life.resume()
        return True

    def _silent_from_now(self, end: SimulatedEnd) -> int:
        return self.clock.now + self._silence(self._fault_bits(end))

    def partition(self, *sides: Iterable[str]) -> int:
        """Nothing gets from one side to another until `heal` of the number returned. Others reach every side."""
        number = next(self._partition_ids)
        self._partitions[number] = tuple(map(frozenset, sides))
        for end in self._all_ends():
            if not end.stalled and self.separated(end.life.name, end.peer_name):
                self._stall(end)
        return number

    def heal(self, number: int) -> None:
        """The partition is over; what was held back at its border moves on, or its connection is found dead."""
        self._partitions.pop(number, None)
        for end in self._all_ends():
            if end.stalled and not self.separated(end.life.name, end.peer_name):
                self._unstall(end)

    def heal_all(self) -> None:
        for number in list(self._partitions):
            self.heal(number)

    @property
    def parted(self) -> bool:
        """Whether there is any partition."""
        return bool(self._partitions)

    def separated(self, one: str, other: str) -> bool:
        for sides in self._partitions.values():
            home = [i for i, side in enumerate(sides) if one in side]
            away = [i for i, side in enumerate(sides) if other in side]
            if home and away and home != away:
                return True
        return False

    def _all_ends(self) -> list[SimulatedEnd]:
        return [end for life in self.living() for end in life.ends.values()]

    def _stall(self, end: SimulatedEnd) -> None:
        end.stalled = True
        end.refresh()
        self.clock.at(self._silent_from_now(end), self._gave_up, end)

    def _gave_up(self, end: SimulatedEnd, _: None) -> None:
        if end.stalled and not end.closed and end.life.alive:
            end.end(gone=True, reason="silent")

    def _unstall(self, end: SimulatedEnd) -> None:
        end.stalled = False
        end.refresh()
        if end.other is None:
            self._knock(end, self.processes[end.peer_name])
        elif end.other.closed:
            end.other.tell_broken("connection reset")
        else:
            end.release()
