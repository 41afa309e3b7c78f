"""Applies the faults of a scenario to nodes of an overlay that changes."""

from __future__ import annotations

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.scenario.checking import FaultCheck
from ordercast.scenario.model import Crash
from ordercast.sim.connections.faults import ProcessFaults
from ordercast.sim.overlays.world import OverlayWorld


class OverlayFaults(ProcessFaults):
    """Crashes, returns, joins and leaves of nodes. All faults but crashes are over when the run's time is."""

    def __init__(self, world: OverlayWorld) -> None:
        self._world = world
        check = FaultCheck(world.scenario.duration_ms, world.protocol)
        for i, fault in enumerate(world.scenario.fault):
            if isinstance(fault, Crash):
                check.check(fault, f"fault[{i}]")
        super().__init__(world, list(world.names), world.protocol)

    def _crash(self, name: NodeId, survive: str) -> None:
        node = self._world.nodes[name]
        if node.crash(survive):
            self._world.faults["crash"] += 1
            self._world.record("crash", name)
            self._world.gone(node)

    def _recover(self, name: NodeId, state: str) -> None:
        node = self._world.nodes[name]
        if node.alive or node.leaving or not node.process.starts:
            return  # It was not there to crash.
        self._world.faults["recover"] += 1
        self._world.record("recover", name, {"state": state})
        if state == "kept":
            self._world.back(node)
        node.recover(state)
        for watch in self._world.return_watchers:
            watch(node)

    def _join(self, name: NodeId) -> None:
        node = self._world.nodes[name]
        if node.process.starts:
            raise UsageError(f"fault: {name} joins twice")
        self._world.faults["join"] += 1
        node.start()

    def _leave(self, name: NodeId) -> None:
        node = self._world.nodes[name]
        if node.alive:
            self._world.leave(node)
