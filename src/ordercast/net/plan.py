"""A scenario, checked to be possible with real processes, and how its nodes are spread over them."""

from __future__ import annotations

import math
from collections import defaultdict

from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.ids import NodeId
from ordercast.core.registry import ProtocolInfo
from ordercast.net.process import Layout
from ordercast.net.settings import NetSettings
from ordercast.net.workload import check_workload
from ordercast.overlay.graphs import Graph
from ordercast.scenario.brokers import Join, Leave
from ordercast.scenario.choosing import Population
from ordercast.scenario.model import Crash, Fault, Pause, Scenario

_BEATS = 4
"""Heartbeats that a peer may miss before it is suspected."""


class Plan:
    """A scenario that was checked to be possible with real processes."""

    def __init__(self, scenario: Scenario, info: ProtocolInfo, name: str, seed: int, *, durable: bool = False) -> None:
        """`durable`: every node keeps its state, not only those that the scenario brings back with it."""
        self.durable = durable
        self.scenario = scenario
        self.info = info
        self.name = name
        self.seed = seed
        layout = Layout(scenario, info, seed)
        self.graph: Graph = layout.graph
        self.people: Population = layout.people
        self.run_id = f"{scenario.name}-{info.name}-{seed}"
        self._busy: defaultdict[tuple[type[Fault], str], list[tuple[float, float]]] = defaultdict(list)
        self._check_times()
        check_workload(scenario, self.people, seed, info.guarantee)
        for i, fault in enumerate(scenario.fault):
            self._check_fault(fault, f"fault[{i}]")
        for node in self.graph.nodes:
            info.build(layout.place(node, 0), layout.options)

    def settings(self) -> NetSettings:
        delay = self.scenario.detector.delay_ms
        return NetSettings(suspect_ms=max(delay, 1.0), heartbeat_ms=max(delay, 1.0) / _BEATS)

    def faulty(self) -> list[NodeId]:
        return sorted({NodeId(fault.node) for fault in self.scenario.fault if isinstance(fault, Crash | Pause)})

    def keeps_state(self, node: NodeId) -> bool:
        """Whether the node may come back with its state."""
        return self.durable or any(
            isinstance(fault, Crash) and fault.node == node and fault.recover_ms is not None and fault.state == "kept"
            for fault in self.scenario.fault
        )

    def _check_times(self) -> None:
        scenario = self.scenario
        if scenario.duration_ms <= 0:
            raise UsageError(f"duration_ms: {scenario.duration_ms} is not positive")
        for name, value in (("drain_ms", scenario.drain_ms), ("detector.delay_ms", scenario.detector.delay_ms)):
            if value < 0:
                raise UsageError(f"{name}: {value} is negative")

    def _check_fault(self, fault: Fault, where: str) -> None:
        if not isinstance(fault, Crash | Pause | Join | Leave):
            raise UsageError(f"{where}.kind: real processes can crash and pause; simulate this scenario instead")
        if isinstance(fault, Join | Leave) and not self.info.admits:
            raise UsageError(f"{where}.kind: nodes cannot join or leave with protocol {self.info.name!r}")
        if fault.node not in self.graph.nodes:
            raise UsageError(f"{where}.node: {unknown_name('node', fault.node, self.graph.nodes)}")
        if isinstance(fault, Join | Leave):
            if not 0 <= fault.at_ms <= self.scenario.duration_ms:
                raise UsageError(f"{where}.at_ms: {fault.at_ms} is not within the run's duration")
            return
        end = fault.recover_ms if isinstance(fault, Crash) else fault.until_ms
        if not 0 <= fault.at_ms <= (end if end is not None else fault.at_ms) <= self.scenario.duration_ms:
            raise UsageError(f"{where}.at_ms: begin and end must be within the duration, in this order")
        self._check_overlap(fault, math.inf if end is None else end, where)
        if isinstance(fault, Crash) and end is not None and fault.state == "lost" and not self.info.readmits:
            raise UsageError(
                f"{where}.state: protocol {self.info.name!r} cannot take back a node that lost its state; "
                "use state = 'kept'"
            )

    def _check_overlap(self, fault: Crash | Pause, end: float, where: str) -> None:
        """One node cannot crash while it is down, nor pause while it stands still."""
        taken = self._busy[type(fault), fault.node]
        if any(began <= end and fault.at_ms <= ended for began, ended in taken):
            raise UsageError(f"{where}.at_ms: an earlier fault of the same kind at {fault.node} lasts into this one")
        taken.append((fault.at_ms, end))

    def dialed_by(self, node: NodeId) -> list[NodeId]:
        """The neighbours that `node` dials: those behind it in the order of nodes."""
        behind = self.graph.nodes[self.graph.nodes.index(node) + 1 :]
        return [peer for peer in self.graph.neighbours[node] if peer in behind]

    def divide(self, processes: int | None) -> list[list[NodeId]]:
        """Nodes to processes: those with faults alone, the others evenly; one each if no number is given."""
        if processes is not None and processes < 1:
            raise UsageError(f"processes: {processes} is not at least 1")
        faulty = self.faulty()
        calm = [node for node in self.graph.nodes if node not in faulty]
        count = min(len(calm), processes or len(calm))
        return [*([node] for node in faulty), *(calm[i::count] for i in range(count))]
