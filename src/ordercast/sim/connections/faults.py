"""Puts the faults of a scenario on the calendar of a run of processes with connections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Protocol, assert_never

from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.ids import NodeId
from ordercast.core.registry import ProtocolInfo
from ordercast.scenario.brokers import Cut, Join, Leave
from ordercast.scenario.checking import FaultCheck, directions
from ordercast.scenario.model import Crash, Delay, Fault, Link, Partition, Pause, Scenario, Slow, Suspicion
from ordercast.sim.clock import Scheduler, ns
from ordercast.sim.connections.world import Processes
from ordercast.sim.links.network import check_link


class Suffering(Protocol):
    """Port to the world that the faults happen to."""

    scenario: Scenario
    processes: Processes
    clock: Scheduler
    faults: Counter[str]


class ProcessFaults(ABC):
    """Checks every fault before the run begins and lets it happen when its time has come.

    What dying, returning, coming and going mean for a kind of process is for the subclass to say.
    """

    def __init__(self, world: Suffering, names: list[NodeId], protocol: ProtocolInfo) -> None:
        self._suffering = world
        self._names = names
        self._known_names = frozenset(names)
        self._protocol = protocol
        self._delays = FaultCheck(world.scenario.duration_ms, protocol)
        for i, fault in enumerate(world.scenario.fault):
            self._plan(fault, f"fault[{i}]")

    @abstractmethod
    def _crash(self, name: NodeId, survive: str) -> None: ...

    @abstractmethod
    def _recover(self, name: NodeId, state: str) -> None: ...

    @abstractmethod
    def _join(self, name: NodeId) -> None: ...

    @abstractmethod
    def _leave(self, name: NodeId) -> None: ...

    def _plan(self, fault: Fault, where: str) -> None:
        match fault:
            case Crash(node=node, at_ms=at, recover_ms=back):
                name = self._known(node, where)
                self._at(at, f"{where}.at_ms", lambda: self._crash(name, fault.survive))
                if back is not None:
                    self._after(at, back, f"{where}.recover_ms", lambda: self._recover(name, fault.state))
            case Pause(node=node, at_ms=at, until_ms=until):
                name = self._known(node, where)
                self._at(at, f"{where}.at_ms", lambda: self._pause(name))
                self._after(at, until, f"{where}.until_ms", lambda: self._suffering.processes.resume(name))
            case Partition():
                self._plan_partition(fault, where)
            case Cut(between=(one, other), at_ms=at):
                first, second = self._known(one, where), self._known(other, where)
                self._at(at, f"{where}.at_ms", lambda: self._cut(first, second))
            case Join(node=node, at_ms=at):
                name = self._known(node, where)
                self._at(at, f"{where}.at_ms", lambda: self._join(name))
            case Leave(node=node, at_ms=at):
                name = self._known(node, where)
                self._at(at, f"{where}.at_ms", lambda: self._leave(name))
            case Delay():
                self._plan_delay(fault, where)
            case Slow() | Suspicion():
                kind = fault.__struct_config__.tag
                raise UsageError(f"{where}.kind: {kind!r} is not for protocol {self._protocol.name!r}")
            case _:
                assert_never(fault)

    def _plan_partition(self, fault: Partition, where: str) -> None:
        if fault.one_way:
            raise UsageError(f"{where}.one_way: a connection works both ways or not at all")
        sides = [[self._known(name, where) for name in side] for side in fault.sides]
        both = set(sides[0]) & set(sides[1])
        if both:
            raise UsageError(f"{where}.sides: {min(both)} is on both sides")
        numbers: list[int] = []
        self._at(fault.at_ms, f"{where}.at_ms", lambda: self._part(sides, numbers))
        self._after(
            fault.at_ms, fault.until_ms, f"{where}.until_ms", lambda: self._suffering.processes.heal(numbers[0])
        )

    def _plan_delay(self, fault: Delay, where: str) -> None:
        check_link(Link(latency_ms=fault.latency_ms), where)
        ways = [(self._known(one, where), self._known(other, where)) for one, other in directions(fault)]
        self._delays.check(fault, where)
        self._at(fault.at_ms, f"{where}.at_ms", lambda: self._delay(ways, fault))
        if fault.until_ms is not None:
            self._after(fault.at_ms, fault.until_ms, f"{where}.until_ms", lambda: self._delay(ways, None))

    def _delay(self, ways: list[tuple[NodeId, NodeId]], fault: Delay | None) -> None:
        if fault is not None:
            self._suffering.faults["delay"] += 1
        for one, other in ways:
            self._suffering.processes.set_latency(one, other, None if fault is None else fault.latency_ms)

    def _known(self, name: str, where: str) -> NodeId:
        if name not in self._known_names:
            raise UsageError(f"{where}: {unknown_name('process', name, self._names)}")
        return NodeId(name)

    def _at(self, time_ms: float, where: str, action: Callable[[], object]) -> None:
        duration = self._suffering.scenario.duration_ms
        if not 0 <= time_ms <= duration:
            raise UsageError(f"{where}: {time_ms} is not within the run's duration of {duration} ms")
        self._suffering.clock.at(ns(time_ms), _call, action)

    def _after(self, start_ms: float, time_ms: float, where: str, action: Callable[[], object]) -> None:
        if time_ms <= start_ms:
            raise UsageError(f"{where}: {time_ms} is not after {start_ms}")
        self._at(time_ms, where, action)

    # --- what happens ---

    def _pause(self, name: NodeId) -> None:
        if self._suffering.processes.pause(name):
            self._suffering.faults["pause"] += 1

    def _part(self, sides: list[list[NodeId]], numbers: list[int]) -> None:
        self._suffering.faults["partition"] += 1
        numbers.append(self._suffering.processes.partition(*sides))

    def _cut(self, one: NodeId, other: NodeId) -> None:
        if self._suffering.processes.cut(one, other):
            self._suffering.faults["cut"] += 1


def _call(action: Callable[[], object], _: None) -> None:
    action()
