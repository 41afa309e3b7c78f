"""A scenario, checked to be possible with real processes, and how its nodes are spread over them."""

from __future__ import annotations

from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.ids import NodeId
from ordercast.core.registry import ProtocolInfo
from ordercast.net.nodes.settings import NodeSettings
from ordercast.net.supervise.overlay_party import OverlayLayout
from ordercast.net.supervise.process import ProcessLayout
from ordercast.net.supervise.workload import check_workload
from ordercast.overlay.graphs import Graph
from ordercast.scenario.brokers import Join, Leave
from ordercast.scenario.checking import FaultCheck, check_possible, check_times
from ordercast.scenario.choosing import Population, joining
from ordercast.scenario.model import Crash, Fault, Pause, Scenario

_BEATS = 4
"""Heartbeats that a peer may miss before it is suspected."""

_STILL = 25

_MOST_PATIENCE_MS = 3_600_000
"""Beyond any use in wall time, and where timers of the operating system are still far from their limits."""


class RunPlan:
    """A scenario that was checked to be possible with real processes."""

    def __init__(self, scenario: Scenario, info: ProtocolInfo, name: str, seed: int, *, durable: bool = False) -> None:
        """`durable`: every node keeps its state, not only those that the scenario brings back with it."""
        self.durable = durable
        self.scenario = scenario
        self.info = info
        self.name = name
        self.seed = seed
        self.chooses = info.build_overlay is not None
        """Whether nodes choose their neighbours themselves."""
        if self.chooses:
            check_possible(scenario, info)
            self._check_carrier()
        layout = (OverlayLayout if self.chooses else ProcessLayout)(scenario, info, seed)
        self.graph: Graph = layout.graph
        self._knows = layout.contacts if isinstance(layout, OverlayLayout) else {}
        self.people: Population = layout.people
        if isinstance(layout, OverlayLayout):
            self._check_addressed(layout)
        self.run_id = f"{scenario.name}-{info.name}-{seed}"
        self._faults = FaultCheck(scenario.duration_ms, info)
        self._check_names()
        check_times(scenario)
        self._check_patience()
        check_workload(scenario, self.people, seed, info.guarantee)
        for i, fault in enumerate(scenario.fault):
            self._check_fault(fault, f"fault[{i}]")
        if isinstance(layout, ProcessLayout):
            for node in self.graph.nodes:
                info.build(layout.place(node, 0), layout.options)

    def settings(self) -> NodeSettings:
        delay = self.scenario.detector.delay_ms
        lost = self.scenario.link.loss if self.info.casts else 0.0
        return NodeSettings(suspect_ms=max(delay, 1.0), heartbeat_ms=max(delay, 1.0) / _BEATS, datagram_loss=lost)

    def _check_carrier(self) -> None:
        if self.scenario.carrier == "tcp" and self.scenario.link.loss:
            raise UsageError("link.loss: connections lose nothing; use carrier = 'udp', or simulate this scenario")

    def _check_addressed(self, layout: OverlayLayout) -> None:
        for option in self.info.addressed:
            for name in getattr(layout.options, option):
                if name not in self.graph.nodes:
                    raise UsageError(f"options.{option}: {unknown_name('node', name, self.graph.nodes)}")
                strangers = [node for node in self.graph.nodes if node != name and name not in layout.contacts[node]]
                if strangers:
                    raise UsageError(f"options.{option}: {strangers[0]} does not know {name} at first (overlay)")

    def faulty(self) -> list[NodeId]:
        return sorted({NodeId(fault.node) for fault in self.scenario.fault if isinstance(fault, Crash | Pause)})

    def keeps_state(self, node: NodeId) -> bool:
        """Whether the node may come back with its state."""
        return self.durable or any(
            isinstance(fault, Crash) and fault.node == node and fault.recover_ms is not None and fault.state == "kept"
            for fault in self.scenario.fault
        )

    def _check_names(self) -> None:
        """Files and directories are called what the nodes are called."""
        for node in self.graph.nodes:
            if "/" in node or node in (".", ".."):
                raise UsageError(f"overlay: a process cannot be called {node!r}, because no file can")

    def _check_patience(self) -> None:
        delay = self.scenario.detector.delay_ms
        if delay > _MOST_PATIENCE_MS:
            raise UsageError(f"detector.delay_ms: {delay} is more than an hour ({_MOST_PATIENCE_MS} ms) of silence")

    def _check_fault(self, fault: Fault, where: str) -> None:
        if not isinstance(fault, Crash | Pause | Join | Leave):
            raise UsageError(f"{where}.kind: real processes can crash and pause; simulate this scenario instead")
        if fault.node not in self.graph.nodes:
            raise UsageError(f"{where}.node: {unknown_name('node', fault.node, self.graph.nodes)}")
        self._faults.check(fault, where)
        if self.chooses and isinstance(fault, Crash) and fault.recover_ms is not None and fault.state == "kept":
            raise UsageError(
                f"{where}.state: over TCP, nodes that choose their neighbours come back without their state; "
                "use state = 'lost', or simulate this scenario"
            )

    @property
    def groups(self) -> dict[str, list[str]] | None:
        """For the manifest; of nodes that come and go, the rows say when each is a member."""
        return None if self.chooses else {topic: list(members) for topic, members in self.people.groups.items()}

    @property
    def readings(self) -> int:
        """So many equal readings in a row mean rest. Nodes that choose their neighbours confirm nothing, so: more."""
        return _STILL if self.chooses else 1

    def meets(self, node: NodeId) -> int:
        """How many others it must have met before the run begins."""
        if not self.chooses:
            return len(self.graph.neighbours[node])
        if self.info.casts:
            return 0
        late = joining(self.scenario.fault)
        return 0 if node in late else len(self._knows[node])

    def dialed_by(self, node: NodeId) -> list[NodeId]:
        """The neighbours that `node` dials: those behind it in the order of nodes, or all that it knows."""
        if self.chooses:
            return list(self._knows[node])
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
