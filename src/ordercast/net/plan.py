"""A scenario, checked to be possible with real processes, and how its nodes are spread over them."""

from __future__ import annotations

from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.ids import NodeId
from ordercast.core.registry import ProtocolInfo
from ordercast.net.process import build_place, population
from ordercast.net.settings import NetSettings
from ordercast.net.workload import check_workload
from ordercast.overlay.graphs import Graph, build_graph
from ordercast.scenario.choosing import Population
from ordercast.scenario.model import Crash, Fault, Pause, Scenario

_BEATS = 4
"""Heartbeats that a peer may miss before it is suspected."""


class Plan:
    """A scenario that was checked to be possible with real processes."""

    def __init__(self, scenario: Scenario, info: ProtocolInfo, name: str, seed: int) -> None:
        self.scenario = scenario
        self.info = info
        self.name = name
        self.seed = seed
        self.graph: Graph = build_graph(scenario.overlay, seed)
        self.people: Population = population(scenario, self.graph, seed)
        self.run_id = f"{scenario.name}-{info.name}-{seed}"
        if scenario.duration_ms <= 0:
            raise UsageError(f"duration_ms: {scenario.duration_ms} is not positive")
        check_workload(scenario, self.people)
        for i, fault in enumerate(scenario.fault):
            self._check_fault(fault, f"fault[{i}]")
        options = info.parse_options(scenario.options)
        for node in self.graph.nodes:
            info.build(build_place(self.graph, self.people, node, 0), options)

    def settings(self) -> NetSettings:
        delay = self.scenario.detector.delay_ms
        return NetSettings(suspect_ms=max(delay, 1.0), heartbeat_ms=max(delay, 1.0) / _BEATS)

    def faulty(self) -> list[NodeId]:
        return sorted({NodeId(fault.node) for fault in self.scenario.fault if isinstance(fault, Crash | Pause)})

    def _check_fault(self, fault: Fault, where: str) -> None:
        if not isinstance(fault, Crash | Pause):
            raise UsageError(f"{where}.kind: real processes can crash and pause; simulate this scenario instead")
        if fault.node not in self.graph.nodes:
            raise UsageError(f"{where}.node: {unknown_name('node', fault.node, self.graph.nodes)}")
        end = fault.recover_ms if isinstance(fault, Crash) else fault.until_ms
        if not 0 <= fault.at_ms <= (end if end is not None else fault.at_ms) <= self.scenario.duration_ms:
            raise UsageError(f"{where}.at_ms: begin and end must be within the duration, in this order")
        if isinstance(fault, Crash) and fault.recover_ms is not None:
            if fault.state == "kept":
                raise UsageError(f"{where}.state: a killed process loses its state; use state = 'lost'")
            if not self.info.readmits:
                raise UsageError(f"{where}: protocol {self.info.name!r} cannot take back a node that lost its state")

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
