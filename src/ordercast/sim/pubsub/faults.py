"""Applies the faults of a scenario to brokers and clients."""

from __future__ import annotations

from ordercast.core.ids import NodeId
from ordercast.sim.catalogue import BROKER
from ordercast.sim.clock import ns
from ordercast.sim.connections.faults import ProcessFaults
from ordercast.sim.pubsub.world import PubsubWorld

_LOOK_AGAIN = ns(50)
"""How often a broker that leaves is asked whether it is done."""


class PubsubFaults(ProcessFaults):
    """Crashes, returns, joins and leaves of brokers and clients."""

    def __init__(self, world: PubsubWorld) -> None:
        self._world = world
        super().__init__(world, [*world.layout.parents, *world.layout.clients], BROKER)

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
