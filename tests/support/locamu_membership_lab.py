"""LoCaMu nodes driven by hand, with groups and a tree that change."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ordercast.core.ids import NodeId, Topic
from ordercast.core.machine import Machine
from ordercast.core.messages import Packet
from ordercast.core.registry import ProtocolInfo
from ordercast.overlay.extended import Overlay
from ordercast.protocols.locamu.membership.entrance import GONE
from ordercast.protocols.locamu.membership.notices import Content, decode
from ordercast.protocols.locamu.node import Locamu
from ordercast.protocols.locamu.packets import Notice
from ordercast.protocols.locamu.variants import LOCAMU
from tests.support.group import Group
from tests.support.tree_group import graph_of


class ChangingTree(Group):
    """Edges as pairs of characters; groups by name as strings of members; `later` are the nodes that join."""

    def __init__(
        self, edges: str, groups: dict[str, str], later: str = "", protocol: ProtocolInfo = LOCAMU, **options: Any
    ) -> None:
        base = graph_of(edges)
        topics = {Topic(topic): tuple(map(NodeId, members)) for topic, members in groups.items()}
        chosen = {"need_ms": 1.0, "push_ms": 0.0, "check": True, **options}
        self.overlay = Overlay(base, topics, protocol, protocol.parse_options(chosen), [NodeId(node) for node in later])
        super().__init__(
            protocol,
            *base.nodes,
            edges=self.overlay.graph.edges,
            topics={str(topic): list(members) for topic, members in topics.items()},
            **chosen,
        )

    def build(self, node: str) -> Machine:
        return self.info.build(self.overlay.place(NodeId(node), self.lives[NodeId(node)]), self.options)

    def machine(self, node: str) -> Locamu:
        machine = self.machines[NodeId(node)]
        assert isinstance(machine, Locamu)
        return machine

    def join(self, node: str) -> None:
        self._do(NodeId(node), "on_join")

    def leave(self, node: str) -> None:
        self._do(NodeId(node), "on_leave")

    def notices(self, kind: type[Content]) -> list[tuple[NodeId, NodeId, Packet]]:
        """Messages of the protocol in flight, by what they say."""
        return [flying for flying in self.in_flight if isinstance(content_of(flying[2]), kind)]

    def pass_on(self, kind: type[Content], path: str) -> None:
        """Carry what says that along a path of nodes."""
        for by, to in pairwise(path):
            flying = next(f for f in self.notices(kind) if f[0] == by and f[1] == to)
            session = getattr(flying[2], "session", 0)
            for other in list(self.in_flight):  # Those before it in its burst, too: it cannot be read without them.
                of_burst = session < 0 and other[:2] == flying[:2] and getattr(other[2], "session", 0) == session
                if other is flying or (of_burst and other[2].number < flying[2].number):  # type: ignore[attr-defined]
                    self.in_flight.remove(other)
                    self.hand(other[2], to=to, by=by)

    def members(self, node: str, topic: str) -> str:
        """The newest list of a group that a node has."""
        tables = self.machine(node).tables
        names = self.machine(node).here.routes.nodes
        return "".join(sorted(names[rank] for rank in tables.newest_members(Topic(topic))))

    def noted(self, node: str) -> list[tuple[str, str, bool]]:
        """Locamu as a node has noted it: what, which group, whether it was still pending."""
        return [(note.kind, note.info.get("topic", ""), "pending" in note.info) for note in self.notes[NodeId(node)]]

    def ids(self, node: str) -> list[str]:
        return [message.id for message in self.delivered[NodeId(node)]]

    def assert_forgotten(self) -> None:
        """Nothing is stored, held back or out of date anywhere."""
        for node in self.nodes:
            machine = self.machine(node)
            if machine.entrance.status == GONE:
                continue
            assert not machine.store.entries
            assert not machine.held.copies
            assert all(len(known) == 1 for known in machine.tables.lists.values())
            assert machine.tables.settled == machine.tables.view


def content_of(packet: Packet) -> Content | None:
    return decode(packet.message.payload) if isinstance(packet, Notice) else None
