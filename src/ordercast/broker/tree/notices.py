"""Hints about who is up and who is down, flooded over the tree (BRK-O2.3, BRK-O18). Only its own end ends a link."""

from __future__ import annotations

from ordercast.broker.tree.events import TreeEvents
from ordercast.broker.tree.neighbours import Neighbours
from ordercast.broker.tree.tree_state import TreePart, TreeState
from ordercast.core.ids import NodeId
from ordercast.core.messages import Packet
from ordercast.core.process import Connection
from ordercast.pubsub.tree_packets import BrokerDown, BrokerUp


class Notices(TreePart):
    """Sends hints about other brokers, and decides which of those it gets to believe."""

    constant = (*TreePart.constant, "neighbours", "events")

    def __init__(self, state: TreeState, neighbours: Neighbours, events: TreeEvents) -> None:
        super().__init__(state)
        self.neighbours = neighbours
        self.events = events

    def flood(self, packet: Packet, *, but: list[Connection]) -> None:
        for link in self.state.links():
            if link not in but:
                self.wires.send(link, packet)

    def found_dead(self, node: NodeId, life: int, *, neighbour: bool, lines: list[Connection]) -> None:
        """BRK-O2.3: an own connection has ended without a word."""
        if neighbour:
            self.wires.note("suspect", {"peer": node, "life": str(life)})
        if self._record_death(node, life) or self.state.primary:
            self.flood(BrokerDown(node, life), but=lines)

    def _record_death(self, node: NodeId, life: int) -> bool:
        """Note that a life of a broker is over; whether that was news."""
        if self.state.dead.get(node, -1) >= life:
            return False
        if self.state.primary:
            self.state.lose_reach_of(node)
        else:
            self.state.dead[node] = life
        return True

    def down(self, line: Connection, packet: BrokerDown) -> None:
        """BRK-O18. Where partitions are possible this means only that somebody cannot reach it."""
        if packet.node == self.state.node:
            self._contradict(packet)
            return
        if packet.life < self.state.lives.get(packet.node, 0):
            return
        if self.state.believed_dead(packet.node):
            return
        if not self._is_neighbour(packet.node):
            self._record_death(packet.node, packet.life)
            self.events.somebody_died()
        self.flood(packet, but=[line])

    def up(self, line: Connection, packet: BrokerUp) -> None:
        """BRK-O18. A neighbour in an older life is lost first."""
        if packet.node == self.state.node:
            return
        news = packet.life > self.state.lives.get(packet.node, 0) or packet.node in self.state.unreachable
        self.state.found(packet.node)
        self.neighbours.learn_life(packet.node, packet.life)
        if news:
            self.flood(packet, but=[line])
            self.events.broker_is_up(packet.node)

    def accepted(self, child: Connection, node: NodeId, life: int) -> None:
        """BRK-O9: everybody is told of a broker that has come back."""
        if life > 0 or self.state.primary:
            self.flood(BrokerUp(node, life), but=[child])

    def tell_parent(self, parent: Connection) -> None:
        """BRK-O10.3: what this fragment has found out meanwhile."""
        for node, life in sorted(self.state.dead.items()):
            if self.state.believed_dead(node):
                self.wires.send(parent, BrokerDown(node, life))
        for node, life in sorted(self.state.lives.items()):
            if life > 0 and not self.state.believed_dead(node):
                self.wires.send(parent, BrokerUp(node, life))

    def _contradict(self, packet: BrokerDown) -> None:
        """With partitions: somebody lost a connection to this broker and the news came late."""
        if self.state.primary and packet.life == self.state.life:
            self.flood(BrokerUp(self.state.node, self.state.life), but=[])

    def _is_neighbour(self, node: NodeId) -> bool:
        return node == self.state.parent_name or self.state.child_link(node) is not None
