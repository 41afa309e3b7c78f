"""Any protocol for trees driven by hand: nodes are characters, edges pairs of them, groups strings of members."""

from __future__ import annotations

from typing import Any

from ordercast.core.ids import NodeId, Topic
from ordercast.core.machine import Machine
from ordercast.core.messages import Message, Packet
from ordercast.core.registry import ProtocolInfo
from ordercast.overlay.extended import Routes, TreePlace, extended
from ordercast.overlay.graphs import Graph
from ordercast.protocols import lookup
from tests.support.group import Group


def graph_of(edges: str) -> Graph:
    """Edges as pairs of characters, which are the nodes."""
    names = sorted(set(edges.replace(" ", "")))
    return Graph(map(NodeId, names), [(NodeId(edge[0]), NodeId(edge[1])) for edge in edges.split()])


class AnyTreeGroup(Group):
    """A group's name is the string of its members."""

    def __init__(self, protocol: str | ProtocolInfo, edges: str, groups: str, **options: Any) -> None:
        topics = {Topic(members): tuple(map(NodeId, members)) for members in groups.split()}
        self.routes = Routes(graph_of(edges), topics)
        info = lookup(protocol) if isinstance(protocol, str) else protocol
        assert info.reach is not None
        linked = extended(self.routes, info.reach(info.parse_options(options)))
        members = {str(topic): list(nodes) for topic, nodes in topics.items()}
        super().__init__(info, *self.routes.nodes, edges=linked.edges, topics=members, **options)

    def build(self, node: str) -> Machine:
        who = NodeId(node)
        place = TreePlace(who, self.neighbours[who], self.nodes, self.groups, self.lives[who], (), self.routes)
        return self.info.build(place, self.options)

    def publish(self, node: str, members: str, **more: Any) -> Message:
        return self.broadcast(node, topic=members, **more)

    def flying(self, message: Message, to: str, by: str | None = None) -> list[Packet]:
        """The copies of a message in flight."""
        return [
            packet
            for sender, receiver, packet in self.in_flight
            if receiver == to and by in {None, sender} and getattr(packet, "message", None) == message
        ]

    def crash_and_recover_all(self) -> None:
        """Everybody at once, with nothing in flight surviving."""
        for node in self.nodes:
            self.crash(node)
        self.in_flight.clear()
        for node in self.nodes:
            self.recover(node)


def stumble(group: AnyTreeGroup) -> dict[str, int]:
    """Nodes 0 to 3 publish, a few packets arrive, everybody crashes and recovers, five times; then all of it settles.

    How many messages each of them has delivered, none of them twice.
    """
    for round_ in range(5):
        for node, members in zip("0123", ("0123", "23", "02", "0123"), strict=True):
            group.publish(node, members)
        group.reorder(round_)
        for _ in range(min(6, len(group.in_flight))):
            sender, receiver, packet = group.in_flight.pop(0)
            group.hand(packet, to=receiver, by=sender)
        group.crash_and_recover_all()
    group.settle()
    assert all(len(seen) == len(set(seen)) for seen in group.delivered.values())
    return {str(node): len(seen) for node, seen in group.delivered.items()}
