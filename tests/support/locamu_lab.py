"""LoCaMu nodes driven by hand: trees of one-character names, and what each node has processed, delivered or not."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec

from ordercast.core.ids import NodeId, Topic
from ordercast.core.machine import Machine, Outbox, Place
from ordercast.core.messages import Message
from ordercast.core.registry import ProtocolInfo
from ordercast.overlay.extended import Routes, TreePlace, extended
from ordercast.overlay.graphs import Graph
from ordercast.protocols import lookup
from ordercast.protocols.locamu_machine import NEED, TICK, Locamu
from ordercast.protocols.locamu_packets import Ack, Data, Vector
from ordercast.protocols.locamu_store import Copy
from tests.support.group import Group


def line(count: int) -> str:
    """The edges of a line 0-1-2-..."""
    names = "0123456789abcdef"
    return " ".join(names[i] + names[i + 1] for i in range(count - 1))


class TreeGroup(Group):
    """Edges as pairs of characters; groups as strings of their members, which are also their names."""

    def __init__(self, edges: str, groups: str, *, protocol: str | ProtocolInfo = "locamu", **options: Any) -> None:
        names = sorted(set(edges.replace(" ", "")))
        base = Graph(map(NodeId, names), [(NodeId(edge[0]), NodeId(edge[1])) for edge in edges.split()])
        topics = {Topic(members): tuple(map(NodeId, members)) for members in groups.split()}
        self.routes = Routes(base, topics)
        info = lookup(protocol) if isinstance(protocol, str) else protocol
        chosen = info.parse_options({"need_ms": 1.0, **options})
        assert info.reach is not None
        linked = extended(self.routes, info.reach(chosen))
        self.order: dict[str, list[Message]] = {name: [] for name in names}
        """What each node has processed, also where it only passes things on."""
        self.numbered: dict[tuple[int, int, int], str] = {}
        """The message behind every number: forwarder, numbered node, number (N1)."""
        super().__init__(
            msgspec.structs.replace(info, build=_watched(info, self.order, self.numbered)),
            *names,
            edges=linked.edges,
            topics={str(topic): list(members) for topic, members in topics.items()},
            **{"need_ms": 1.0, **options},
        )

    def build(self, node: str) -> Machine:
        who = NodeId(node)
        place = TreePlace(who, self.neighbours[who], self.nodes, self.groups, self.lives[who], (), self.routes)
        return self.info.build(place, self.options)

    def publish(self, node: str, members: str) -> Message:
        return self.broadcast(node, topic=members)

    def machine(self, node: str) -> Locamu:
        machine = self.machines[NodeId(node)]
        assert isinstance(machine, Locamu)
        return machine

    def forward(self, message: Message, path: str) -> None:
        """Carry a message along a path of nodes."""
        for by, to in pairwise(path):
            self.carry(message, to=to, by=by)

    def travelling(self, message: Message, to: str, by: str | None = None) -> list[Data]:
        """The copies in flight."""
        return [
            packet
            for sender, receiver, packet in self.in_flight
            if receiver == to and by in {None, sender} and isinstance(packet, Data) and packet.message == message
        ]

    def processed(self, node: str, forwarder: str) -> tuple[int, set[int]]:
        """R of a node: how far the stream is processed, and what beyond."""
        table, rank = self.machine(node).processed, self.routes.rank[NodeId(forwarder)]
        return table.prefix[rank], set(table.sparse.get(rank, ()))

    def counter(self, node: str, first: str, second: str) -> int:
        """P of a node for one stream."""
        machine, rank = self.machine(node), self.routes.rank
        return machine.past.get(rank[NodeId(first)] * machine.size + rank[NodeId(second)], 0)

    def names(self, packet: Data) -> tuple[set[str], set[str]]:
        """Whose vectors a copy carries: on time, and late."""
        on_time = {str(self.nodes[flagged >> 1]) for flagged, _, _ in packet.vectors if not flagged & 1}
        late = {str(self.nodes[flagged >> 1]) for flagged, _, _ in packet.vectors if flagged & 1}
        return on_time, late

    def vector(self, node: str, packet: Data) -> dict[str, int]:
        """One node's vector in a copy."""
        rank = self.routes.rank[NodeId(node)]
        (found,) = [vector for vector in packet.vectors if vector[0] >> 1 == rank]
        return {str(self.nodes[k]): number for k, number in zip(found[1], found[2], strict=True)}

    def held(self, node: str) -> list[Message]:
        """What a node holds back."""
        return [copy.message for copy in self.machine(node).buffer.values()]

    def ask(self, node: str) -> None:
        """A node that lacks something says so to everybody it is linked to."""
        machine = self.machine(node)
        for peer in machine.linked:
            packet = Ack(machine.processed.columns(), need=True)
            self.hand(packet, to=self.nodes[peer], by=node)

    def round(self, node: str) -> None:
        """Acknowledge now."""
        self.timers[NodeId(node)].add(TICK)
        self.fire(node, TICK)

    def trust_all(self) -> None:
        for node in self.nodes:
            for peer in sorted(self.machine(node).suspected):
                self.trust(self.nodes[peer], by=node)

    def finish(self) -> None:
        """Everyone trusts everyone, and everything that can happen happens."""
        self.trust_all()
        self.settle()

    def assert_forgotten(self) -> None:
        """All stores and buffers are empty, and every table is one number per forwarder."""
        for node in self.nodes:
            machine = self.machine(node)
            assert not machine.store, f"{node} keeps {[entry.message.id for entry in machine.store.values()]}"
            assert not machine.buffer
            assert not machine.names
            assert not machine.processed.sparse, f"{node}: {machine.processed.sparse}"


def _watched(info: ProtocolInfo, order: dict[str, list[Message]], numbered: dict[tuple[int, int, int], str]) -> Any:
    """The protocol's machine, writing down what it processes."""
    made: dict[str, type[Locamu]] = {}

    def build(place: Place, options: Any) -> Locamu:
        plain = info.build(place, options)
        assert isinstance(plain, Locamu)
        base = type(plain)
        if "" not in made:

            class Watched(base):  # type: ignore[valid-type, misc]
                def _process(self, copy: Copy, unmerged: set[int] | None, out: Outbox, depth: int = 0) -> None:
                    order[self.routes.nodes[self.me]].append(copy.message)
                    super()._process(copy, unmerged, out, depth)

                def _number(self, came: int, message: Message, depth: int) -> Vector:
                    vector: Vector = super()._number(came, message, depth)
                    for node, number in zip(vector[1], vector[2], strict=True):
                        earlier = numbered.setdefault((self.me, node, number), message.id)
                        assert earlier == message.id, f"{earlier} and {message.id} got the same number"
                    return vector

            made[""] = Watched
        return made[""](place, options)

    return build


__all__ = ["NEED", "TICK", "TreeGroup", "line"]
