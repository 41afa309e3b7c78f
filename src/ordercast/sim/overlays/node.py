"""A node of an overlay that changes: its application, its lives, and its rows in the trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ordercast.core.chance import salt
from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Topic, origin_of
from ordercast.core.messages import Guarantee, Message
from ordercast.core.process import OverlayMachine, OverlayPlace, OverlayWires, Peer
from ordercast.sim.connections import Processes
from ordercast.sim.links.packets import payload_asked_at
from ordercast.trace.recorder import Recorder


class NodePort(Protocol):
    """Port to the world of a run, for one node."""

    processes: Processes
    recorder: Recorder | None
    seed: int
    published: int

    def build(self, wires: OverlayWires, place: OverlayPlace) -> OverlayMachine: ...

    def joined(self, node: OverlayNode) -> None: ...

    def gone(self, node: OverlayNode) -> None: ...


class OverlayNode:
    """Publishes what the workload says; implements Publisher. Its address is its name."""

    def __init__(self, world: NodePort, name: NodeId, contacts: tuple[str, ...], *, late: bool) -> None:
        self.world = world
        self.node = name
        self.late = late
        """Whether it is not there from the beginning."""
        self.leaving = False
        self.published = 0
        self.delivered = 0
        self.incarnation = 0
        """How often it has lost its memory."""
        self._contacts = contacts
        self._asked = (-1, 0)
        self._saved: dict[str, Any] | None = None
        self.process = world.processes.add(name, "node", self._build, address=name)  # type: ignore[arg-type]

    def _build(self, wires: OverlayWires, peer: Peer) -> OverlayMachine:
        genesis = not self.late and self.process.starts == 1
        salted = salt(self.world.seed, "overlay", self.node, self.process.starts)
        machine = self.world.build(wires, OverlayPlace(peer, self._contacts, genesis, salted))
        if self._saved is not None:
            machine.restore(self._saved)
        return machine

    @property
    def alive(self) -> bool:
        return self.process.life is not None

    @property
    def machine(self) -> OverlayMachine | None:
        return None if self.process.life is None else self.process.life.machine  # type: ignore[return-value]

    # Its lives

    def start(self) -> None:
        """Begin; those that begin with the network are members from the start, others when they say so."""
        self.world.processes.start(self.node, life=self.incarnation)
        if not self.late and self.process.starts == 1:
            self.world.joined(self)

    def crash(self, survive: str) -> bool:
        """The process is gone with everything that was not durable."""
        machine = self.machine
        if machine is None:
            return False
        self._saved = machine.save()
        return self.world.processes.crash(self.node, survive)

    def recover(self, state: str) -> None:
        """Back, with what was durable or as a stranger."""
        kept = state == "kept"
        if not kept:
            self.incarnation += 1
            self.published = 0
            self._saved = None
        self.world.processes.start(self.node, life=self.incarnation, again=kept)
        self._saved = None

    def join_through(self, address: str) -> None:
        """Ask this one first, if it ever joins again."""
        self._contacts = (address, *(contact for contact in self._contacts if contact != address))

    def leave(self) -> None:
        """Go for good: the machine says goodbye, then the process ends; one that lingers says when."""
        machine = self.machine
        self.leaving = True
        if machine is not None:
            self.world.processes.act(self.node, machine.on_leave)
            if not machine.lingers:
                self.go()

    def go(self) -> None:
        """The machine has said goodbye."""
        self.world.gone(self)
        self.world.processes.stop(self.node, "leaves")

    # What its application does

    def publish(
        self, topic: Topic, payload_bytes: int, guarantee: Guarantee, keys: tuple[str, ...] = (),
        dst: tuple[NodeId, ...] = (), told: Callable[[Message], None] | None = None,
    ) -> None:  # fmt: skip
        """One message, if it is up and stays; `told` learns its id."""
        if self.leaving:
            return
        now = self.world.processes.clock.now
        self._asked = (now, self._asked[1] + 1) if self._asked[0] == now else (now, 0)
        payload = payload_asked_at(*self._asked, payload_bytes)
        self.world.processes.act(self.node, self._publish, (topic, payload, guarantee, keys, dst), told)

    def _publish(self, content: tuple[Any, ...], told: Callable[[Message], None] | None) -> None:
        world, machine = self.world, self.machine
        assert machine is not None
        self.published += 1
        world.published += 1
        message = Message(origin_of(self.node, self.incarnation), self.published, *content)
        if world.recorder is not None:
            world.recorder.publish(self.node, world.processes.clock.now, message)
        if told is not None:
            told(message)
        machine.on_publish(message)

    def subscribe(self, topic: Topic) -> None:
        raise UsageError(f"do: {self.node} cannot subscribe to {topic}: everybody on this overlay gets everything")

    def unsubscribe(self, topic: Topic) -> None:
        raise UsageError(f"do: {self.node} cannot unsubscribe from {topic}: everybody on this overlay gets everything")
