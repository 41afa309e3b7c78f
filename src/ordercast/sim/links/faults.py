"""Faults of a scenario, put on the calendar of a run, and the end of all faults before the drain."""

from __future__ import annotations

from typing import Any, assert_never

from ordercast.core.chance import salt
from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.scenario.brokers import Cut, Join, Leave
from ordercast.scenario.checking import FaultCheck, directions
from ordercast.scenario.model import Crash, Delay, Fault, Link, Partition, Pause, Slow, Suspicion
from ordercast.sim.clock import ns
from ordercast.sim.links.detector import FailureDetector
from ordercast.sim.links.host import Host
from ordercast.sim.links.network import LinkDirection, check_link, in_flight
from ordercast.sim.links.world import World


class FaultPlan:
    """Checks every fault before the run begins and fires it when its time has come."""

    def __init__(self, world: World, detector: FailureDetector) -> None:
        self._world = world
        self._detector = detector
        self._check = FaultCheck(world.scenario.duration_ms, world.protocol)
        for i, fault in enumerate(world.scenario.fault):
            self._plan(fault, f"fault[{i}]")

    def end_all(self) -> None:
        """The drain begins: links are clean. Faults with an end are over by now, and the crashed stay crashed."""
        for channel in self._world.channels():
            channel.heal()

    def _plan(self, fault: Fault, where: str) -> None:
        if isinstance(fault, Cut):
            raise UsageError(f"{where}.kind: 'cut' is for protocol 'broker'")
        self._check.check(fault, where)
        match fault:
            case Join() | Leave():
                host = self._world.host(fault.node, f"{where}.node")
                self._world.clock.at(ns(fault.at_ms), self._change, host, fault)
            case Crash():
                self._plan_crash(fault, where)
            case Pause(node=name):
                host = self._world.host(name, f"{where}.node")
                self._between(fault, self._pause, self._resume, host)
            case Slow(node=name, extra_ms=extra):
                if extra < 0:
                    raise UsageError(f"{where}.extra_ms: {extra} is negative")
                host = self._world.host(name, f"{where}.node")
                self._between(fault, self._slow, self._speed_up, host, ns(extra))
            case Partition():
                self._between(fault, self._cut, self._mend, self._crossing(fault, where))
            case Suspicion():
                self._between(fault, self._suspect, self._trust, self._suspicions(fault, where))
            case Delay():
                self._plan_delay(fault, where)
            case _:
                assert_never(fault)

    def _between(
        self, fault: Pause | Slow | Partition | Suspicion, begin: Any, end: Any, a: Any, b: Any = None
    ) -> None:
        self._world.clock.at(ns(fault.at_ms), begin, a, b)
        self._world.clock.at(ns(fault.until_ms), end, a, b)

    def _change(self, host: Host, fault: Join | Leave) -> None:
        self._world.count_fault(str(fault.__struct_config__.tag))
        if isinstance(fault, Join):
            host.join()
        else:
            host.leave()

    # --- crashes ---

    def _plan_crash(self, fault: Crash, where: str) -> None:
        host = self._world.host(fault.node, f"{where}.node")
        self._world.clock.at(ns(fault.at_ms), self._crash, host, fault)
        if fault.recover_ms is not None:
            self._world.clock.at(ns(fault.recover_ms), self._recover, host, fault)

    def _crash(self, host: Host, fault: Crash) -> None:
        world = self._world
        world.count_fault("crash")
        if world.recorder is not None:
            world.recorder.event("crash", host.node, world.clock.now)
        for channel, numbers in in_flight(world.clock).items():
            if channel.sender is host:
                bits = salt(world.seed, "survive", host.node, channel.host.node, world.clock.now)
                channel.sender_crashed(numbers, fault.survive, bits)
            elif channel.host is host:
                channel.receiver_crashed(numbers)
        host.crash()
        self._detector.something_changed(host)

    def _recover(self, host: Host, fault: Crash) -> None:
        self._world.count_fault("recover")
        self._detector.forget(host)
        host.recover(fault.state)
        self._detector.something_changed(host)

    # --- slow and paused nodes ---

    def _pause(self, host: Host, _: None) -> None:
        self._world.count_fault("pause")
        host.pause()

    def _resume(self, host: Host, _: None) -> None:
        host.resume()

    def _slow(self, host: Host, extra_ns: int) -> None:
        self._world.count_fault("slow")
        host.slow_down(extra_ns)

    def _speed_up(self, host: Host, _: int) -> None:
        host.slow_down(0)

    # --- partitions ---

    def _crossing(self, fault: Partition, where: str) -> list[LinkDirection]:
        first, second = ({self._world.host(name, f"{where}.sides").node for name in side} for side in fault.sides)
        both = first & second
        if both:
            raise UsageError(f"{where}.sides: {min(both)} is on both sides")
        channels = [c for c in self._world.channels() if c.sender.node in first and c.host.node in second]
        if not fault.one_way:
            channels += [c for c in self._world.channels() if c.sender.node in second and c.host.node in first]
        if not channels:
            raise UsageError(f"{where}.sides: no link of the overlay crosses this partition")
        return channels

    def _cut(self, channels: list[LinkDirection], _: None) -> None:
        self._world.count_fault("partition")
        self._change_cuts(channels, +1)

    def _mend(self, channels: list[LinkDirection], _: None) -> None:
        self._change_cuts([c for c in channels if c.cuts], -1)

    def _change_cuts(self, channels: list[LinkDirection], by: int) -> None:
        for channel in channels:
            channel.cuts += by
            channel.refresh()
        for node in sorted({channel.sender.node for channel in channels}):
            self._detector.something_changed(self._world.hosts[node])

    # --- latencies that change ---

    def _plan_delay(self, fault: Delay, where: str) -> None:
        check_link(Link(latency_ms=fault.latency_ms), where)
        channels = []
        for one, other in directions(fault):
            sender, receiver = (self._world.host(name, f"{where}.between") for name in (one, other))
            if receiver.node not in sender.channels:
                raise UsageError(f"{where}.between: {one} and {other} are not neighbours on the overlay")
            channels.append(sender.channels[receiver.node])
        for channel in channels:
            channel.expect_changes()
        self._world.clock.at(ns(fault.at_ms), self._delay, channels, fault)
        if fault.until_ms is not None:
            self._world.clock.at(ns(fault.until_ms), self._delay, channels, None)

    def _delay(self, channels: list[LinkDirection], fault: Delay | None) -> None:
        if fault is not None:
            self._world.count_fault("delay")
        for channel in channels:
            channel.set_latency(channel.link.latency_ms if fault is None else fault.latency_ms)

    # --- false suspicions ---

    def _suspicions(self, fault: Suspicion, where: str) -> list[tuple[NodeId, NodeId]]:
        target = self._world.host(fault.node, f"{where}.node")
        if fault.by is None:
            return [(peer, target.node) for peer in target.channels]
        observer = self._world.host(fault.by, f"{where}.by")
        if target.node not in observer.channels:
            raise UsageError(f"{where}.by: {observer.node} is not a neighbour of {target.node}")
        return [(observer.node, target.node)]

    def _suspect(self, pairs: list[tuple[NodeId, NodeId]], _: None) -> None:
        self._world.count_fault("suspicion")
        for observer, target in pairs:
            self._detector.lie(observer, target, suspected=True)

    def _trust(self, pairs: list[tuple[NodeId, NodeId]], _: None) -> None:
        for observer, target in pairs:
            self._detector.lie(observer, target, suspected=False)
