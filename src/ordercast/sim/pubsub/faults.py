"""Puts the faults of a scenario on the calendar of a run of brokers and clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.ids import NodeId
from ordercast.scenario.brokers import Cut, Join, Leave
from ordercast.scenario.checking import FaultCheck, directions
from ordercast.scenario.model import Crash, Delay, Fault, Link, Partition, Pause, Slow, Suspicion
from ordercast.sim.catalogue import BROKER
from ordercast.sim.clock import ns
from ordercast.sim.links.network import check_link
from ordercast.sim.pubsub.world import PubsubWorld

_LOOK_AGAIN = ns(50)
"""How often a broker that leaves is asked whether it is done."""


class PubsubFaults:
    """Checks every fault before the run begins and lets it happen when its time has come."""

    def __init__(self, world: PubsubWorld) -> None:
        self._world = world
        self._names = [*world.layout.parents, *world.layout.clients]
        self._delays = FaultCheck(world.scenario.duration_ms, BROKER)
        for i, fault in enumerate(world.scenario.fault):
            self._plan(fault, f"fault[{i}]")

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
                self._after(at, until, f"{where}.until_ms", lambda: self._world.processes.resume(name))
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
                raise UsageError(f"{where}.kind: {kind!r} is not for protocol 'broker'")
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
        self._after(fault.at_ms, fault.until_ms, f"{where}.until_ms", lambda: self._world.processes.heal(numbers[0]))

    def _plan_delay(self, fault: Delay, where: str) -> None:
        check_link(Link(latency_ms=fault.latency_ms), where)
        ways = [(self._known(one, where), self._known(other, where)) for one, other in directions(fault)]
        self._delays.check(fault, where)
        self._at(fault.at_ms, f"{where}.at_ms", lambda: self._delay(ways, fault))
        if fault.until_ms is not None:
            self._after(fault.at_ms, fault.until_ms, f"{where}.until_ms", lambda: self._delay(ways, None))

    def _delay(self, ways: list[tuple[NodeId, NodeId]], fault: Delay | None) -> None:
        if fault is not None:
            self._world.faults["delay"] += 1
        for one, other in ways:
            self._world.processes.set_latency(one, other, None if fault is None else fault.latency_ms)

    def _known(self, name: str, where: str) -> NodeId:
        if name not in self._names:
            raise UsageError(f"{where}: {unknown_name('process', name, self._names)}")
        return NodeId(name)

    def _at(self, time_ms: float, where: str, action: Callable[[], object]) -> None:
        duration = self._world.scenario.duration_ms
        if not 0 <= time_ms <= duration:
            raise UsageError(f"{where}: {time_ms} is not within the run's duration of {duration} ms")
        self._world.clock.at(ns(time_ms), _call, action)

    def _after(self, start_ms: float, time_ms: float, where: str, action: Callable[[], object]) -> None:
        if time_ms <= start_ms:
            raise UsageError(f"{where}: {time_ms} is not after {start_ms}")
        self._at(time_ms, where, action)

    # --- what happens ---

    def _crash(self, name: NodeId, survive: str) -> None:
        world = self._world
        if not world.processes.crash(name, survive):
            return
        world.faults["crash"] += 1
        world.record("crash", name)
        if name in world.clients:
            world.gone(world.clients[name])

    def _recover(self, name: NodeId, state: str) -> None:
        world = self._world
        process = world.processes.processes[name]
        if process.life is not None or not process.starts:
            return  # It was not there to crash.
        world.faults["recover"] += 1
        world.record("recover", name, {"state": state})
        if name in world.clients:
            client = world.clients[name]
            client.start(state_kept=state == "kept")
            for watch in world.return_watchers:
                watch(client)
        else:
            world.start_broker(name, state_kept=state == "kept")

    def _pause(self, name: NodeId) -> None:
        if self._world.processes.pause(name):
            self._world.faults["pause"] += 1

    def _part(self, sides: list[list[NodeId]], numbers: list[int]) -> None:
        self._world.faults["partition"] += 1
        numbers.append(self._world.processes.partition(*sides))

    def _cut(self, one: NodeId, other: NodeId) -> None:
        if self._world.processes.cut(one, other):
            self._world.faults["cut"] += 1

    def _join(self, name: NodeId) -> None:
        if self._world.processes.life(name) is not None:
            return
        if name in self._world.clients:
            self._world.clients[name].start()
        else:
            self._world.start_broker(name)

    def _leave(self, name: NodeId) -> None:
        world = self._world
        if name in world.clients:
            world.clients[name].leave()
            return
        broker = world.brokers().get(name)
        if broker is not None:
            world.processes.act(name, broker.tree.leave)
            world.clock.at(world.clock.now + _LOOK_AGAIN, self._stop_if_done, name)

    def _stop_if_done(self, name: NodeId, _: None) -> None:
        broker = self._world.brokers().get(name)
        if broker is None:
            return
        if broker.tree.left:
            self._world.processes.stop(name, "left")
        else:
            self._world.clock.at(self._world.clock.now + _LOOK_AGAIN, self._stop_if_done, name)


def _call(action: Callable[[], object], _: None) -> None:
    action()
