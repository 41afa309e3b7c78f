"""Protocols whose neighbours change, under virtual time: an application on every process, and rows for the trace."""

from __future__ import annotations

from collections.abc import Callable

from ordercast.core.errors import InvariantError
from ordercast.core.ids import NodeId, Topic, origin_of
from ordercast.core.messages import Guarantee, Message
from ordercast.core.process import BuildOverlay, OverlayMachine
from ordercast.sim.connections.world import Processes
from ordercast.trace.recorder import Recorder


class OverlayApplications:
    """The applications on a world's overlay machines. An address is the name of the process."""

    def __init__(self, world: Processes, guarantee: Guarantee, recorder: Recorder | None = None) -> None:
        self.world = world
        self.delivery_watchers: list[Callable[[NodeId, Message], None]] = []
        self._guarantee = guarantee
        self._recorder = recorder
        self._published: dict[NodeId, int] = {}
        world.deliveries = self._deliver

    def add(self, name: NodeId, build: BuildOverlay, contacts: tuple[str, ...]) -> None:
        """A process that can be started; `contacts` are processes that it may dial first."""
        # A life of the simulator is also where an overlay machine delivers, which brokers and clients never do.
        self.world.add(name, "node", lambda wires, peer: build(wires, peer, contacts), address=name)  # type: ignore[arg-type]

    def publish(self, name: NodeId, topic: str, payload: bytes) -> Message:
        """Let the application of a living process publish."""
        life = self.world.life(name)
        if life is None or not isinstance(life.machine, OverlayMachine):
            raise InvariantError(f"{name} cannot publish: it is not a living node of an overlay")
        self._published[name] = number = self._published.get(name, 0) + 1
        message = Message(origin_of(name, life.peer.life), number, Topic(topic), payload, self._guarantee)
        if self._recorder is not None:
            self._recorder.publish(name, self.world.clock.now, message)
        self.world.act(name, life.machine.on_publish, message)
        return message

    def _deliver(self, name: str, message: Message) -> None:
        if self._recorder is not None:
            self._recorder.deliver(name, self.world.clock.now, message)
        for watch in self.delivery_watchers:
            watch(NodeId(name), message)
