"""A group of machines driven by hand: the test decides which packet travels, gets lost or comes twice, and when."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from ordercast.core.chance import mix, salt
from ordercast.core.effects import CancelTimer, Complete, Deliver, Effect, EffectLog, Note, Send, SetTimer
from ordercast.core.ids import NodeId, Topic, origin_of
from ordercast.core.machine import Machine, Place
from ordercast.core.messages import Message, Packet
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols import lookup

What = Message | type[Packet]
"""Names a packet in flight: by the message it carries, or by its type."""

_MOST_ROUNDS = 200


class Group:
    """Nodes with an edge between every two, unless `edges` says otherwise."""

    def __init__(
        self,
        protocol: str | ProtocolInfo,
        *nodes: str,
        edges: Sequence[tuple[str, str]] | None = None,
        topics: Mapping[str, Sequence[str]] | None = None,
        **options: Any,
    ) -> None:
        self.info = lookup(protocol) if isinstance(protocol, str) else protocol
        self.options = self.info.parse_options(options)
        self.nodes = tuple(map(NodeId, nodes))
        pairs = edges if edges is not None else [(a, b) for a in nodes for b in nodes if a < b]
        self.neighbours = {
            node: tuple(other for other in self.nodes if (node, other) in pairs or (other, node) in pairs)
            for node in self.nodes
        }
        self.groups = None if topics is None else {Topic(t): tuple(map(NodeId, m)) for t, m in topics.items()}
        self.in_flight: list[tuple[NodeId, NodeId, Packet]] = []
        self.timers: dict[NodeId, set[Hashable]] = {node: set() for node in self.nodes}
        self.delivered: dict[NodeId, list[Message]] = {node: [] for node in self.nodes}
        self.completed: dict[NodeId, list[str]] = {node: [] for node in self.nodes}
        self.notes: dict[NodeId, list[Note]] = {node: [] for node in self.nodes}
        self.lives = dict.fromkeys(self.nodes, 0)
        self.published = dict.fromkeys(self.nodes, 0)
        self.machines: dict[NodeId, Machine] = {node: self.build(node) for node in self.nodes}
        self._saved: dict[NodeId, dict[str, Any]] = {}
        for node in self.nodes:
            self._do(node, "on_start")

    def build(self, node: str) -> Machine:
        """A machine for the node as it would be at its start."""
        place = Place(NodeId(node), self.neighbours[NodeId(node)], self.nodes, self.groups, self.lives[NodeId(node)])
        return self.info.build(place, self.options)

    # What applications and detectors do

    def broadcast(self, node: str, payload: bytes = b"", *, topic: str = "t", dst: Sequence[str] = ()) -> Message:
        who = NodeId(node)
        self.published[who] += 1
        message = Message(
            origin_of(who, self.lives[who]),
            self.published[who],
            Topic(topic),
            payload,
            self.info.guarantee,
            (),
            tuple(map(NodeId, dst)),
        )
        self._do(who, "on_publish", message)
        return message

    def subscribe(self, node: str, topic: str) -> None:
        self._do(NodeId(node), "on_subscribe", Topic(topic))

    def unsubscribe(self, node: str, topic: str) -> None:
        self._do(NodeId(node), "on_unsubscribe", Topic(topic))

    def suspect(self, node: str, by: str) -> list[Effect]:
        return self._do(NodeId(by), "on_suspect", NodeId(node))

    def trust(self, node: str, by: str) -> list[Effect]:
        return self._do(NodeId(by), "on_trust", NodeId(node))

    # What the network does

    def carry(self, what: What, to: str, by: str | None = None) -> list[Effect]:
        """Hand over the oldest such packet in flight; what the receiver delivers because of it."""
        sender, packet = self._take(what, to, by)
        return self.hand(packet, to, sender)

    def hand(self, packet: Packet, to: str, by: str) -> list[Effect]:
        """Hand over a packet that need not be in flight."""
        effects = self._do(NodeId(to), "on_receive", NodeId(by), packet)
        return [effect for effect in effects if isinstance(effect, Deliver)]

    def lose(self, what: What, to: str, by: str | None = None) -> None:
        self._take(what, to, by)

    def duplicate(self, what: What, to: str, by: str | None = None) -> None:
        index = self._find(what, to, by)
        self.in_flight.append(self.in_flight[index])

    def reorder(self, seed: int) -> None:
        """Shuffle what is in flight."""
        salted = salt(seed, "reorder")
        self.in_flight = [p for _, p in sorted(enumerate(self.in_flight), key=lambda item: mix(salted, item[0]))]

    def packets(self, kind: type[Packet], to: str | None = None) -> list[Packet]:
        """The packets of a type in flight, oldest first."""
        return [p for _, receiver, p in self.in_flight if isinstance(p, kind) and to in {None, receiver}]

    def carry_all(self) -> None:
        """Hand over everything in flight, and what comes of it."""
        while self.in_flight:
            sender, receiver, packet = self.in_flight.pop(0)
            if receiver in self.machines:
                self._do(receiver, "on_receive", sender, packet)

    # Time

    def fire(self, node: str, timer: Hashable) -> list[Effect]:
        self.timers[NodeId(node)].remove(timer)
        return self._do(NodeId(node), "on_timer", timer)

    def settle(self) -> None:
        """Let packets and timers go on until nothing is left to happen."""
        for _ in range(_MOST_ROUNDS):
            self.carry_all()
            armed = [(node, timer) for node in self.nodes for timer in sorted(self.timers[node], key=str)]
            if not armed:
                return
            for node, timer in armed:
                self.fire(node, timer)
        raise AssertionError(f"not at rest after {_MOST_ROUNDS} rounds: {self.timers}")

    # Crashes

    def crash(self, node: str) -> None:
        """The node is gone; so is what was on its way to it."""
        who = NodeId(node)
        self._saved[who] = self.machines.pop(who).save()
        self.timers[who].clear()
        self.in_flight = [flying for flying in self.in_flight if flying[1] != who]

    def recover(self, node: str, *, state: str = "kept") -> None:
        who = NodeId(node)
        if state == "lost":
            self.lives[who] += 1
            self.published[who] = 0
            self.delivered[who] = []
        machine = self.machines[who] = self.build(who)
        if state == "kept":
            machine.restore(self._saved[who])
        self._do(who, "on_recover" if state == "kept" else "on_start")

    # Inside

    def _find(self, what: What, to: str, by: str | None) -> int:
        for i, (sender, receiver, packet) in enumerate(self.in_flight):
            if receiver == to and by in {None, sender} and _is(packet, what):
                return i
        raise AssertionError(f"no {what} in flight to {to}")

    def _take(self, what: What, to: str, by: str | None) -> tuple[NodeId, Packet]:
        sender, _, packet = self.in_flight.pop(self._find(what, to, by))
        return sender, packet

    def _do(self, node: NodeId, event: str, *args: object) -> list[Effect]:
        log = EffectLog()
        getattr(self.machines[node], event)(*args, log)
        for effect in log.effects:
            match effect:
                case Send(peer, packet):
                    assert peer in self.neighbours[node], f"{node} sends to {peer}, which is not its neighbour"
                    self.in_flight.append((node, peer, packet))
                case Deliver(message):
                    self.delivered[node].append(message)
                case SetTimer(name, _, _):
                    self.timers[node].add(name)
                case CancelTimer(name):
                    self.timers[node].discard(name)
                case Complete(message_id):
                    self.completed[node].append(message_id)
                case Note():
                    self.notes[node].append(effect)
        return log.effects


def _is(packet: Packet, what: What) -> bool:
    if isinstance(what, Message):
        return packet.carries is not None and getattr(packet, packet.carries) == what
    return isinstance(packet, what)


def assert_copy_is_independent(group: Group, node: str, **publication: Any) -> None:
    """A copy of a node's machine equals it, until the copy publishes that; the machine stays as it was."""
    original = group.machines[NodeId(node)]
    clone, frozen = original.copy(), original.frozen()
    assert clone == original
    assert hash(clone) == hash(original)
    group.machines[NodeId(node)] = clone
    group.broadcast(node, **publication)
    assert clone != original
    assert original.frozen() == frozen
