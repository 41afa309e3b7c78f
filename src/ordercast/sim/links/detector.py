"""An eventually perfect failure detector: it tells the truth after a delay, and lies only when the scenario says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ordercast.core.ids import NodeId
from ordercast.sim.clock import ns

if TYPE_CHECKING:
    from ordercast.sim.links.host import Host
    from ordercast.sim.links.world import World


class FailureDetector:
    """Suspects nodes: each watches its neighbours on the overlay."""

    def __init__(self, world: World) -> None:
        self._world = world
        settings = world.scenario.detector
        others = {world.host(name, "detector.by").node: ns(delay) for name, delay in settings.by.items()}
        self._delay = dict.fromkeys(world.hosts, ns(settings.delay_ms)) | others
        self._suspected: dict[NodeId, set[NodeId]] = {node: set() for node in world.hosts}
        self._lies: set[tuple[NodeId, NodeId]] = set()

    def something_changed(self, target: Host) -> None:
        """A crash, a recovery, a cut or its end: the neighbours notice after the delay."""
        clock = self._world.clock
        for peer in target.channels:
            clock.at(clock.now + self._delay[peer], self._look, peer, target.node)

    def forget(self, host: Host) -> None:
        """A node that recovers has suspicions neither of its former life nor yet of its own."""
        self._suspected[host.node].clear()
        clock = self._world.clock
        for peer in host.channels:
            clock.at(clock.now + self._delay[host.node], self._look, host.node, peer)

    def lie(self, observer: NodeId, target: NodeId, *, suspected: bool) -> None:
        if suspected:
            self._lies.add((observer, target))
        else:
            self._lies.discard((observer, target))
        self._look(observer, target)

    def _look(self, observer: NodeId, target: NodeId) -> None:
        world = self._world
        host, other = world.hosts[observer], world.hosts[target]
        if not host.alive:
            return
        unheard = not other.alive or other.channels[observer].cuts > 0
        suspect = unheard or (observer, target) in self._lies
        known = self._suspected[observer]
        if suspect and target not in known:
            known.add(target)
            host.suspect(target)
        elif not suspect and target in known:
            known.discard(target)
            host.trust(target)
