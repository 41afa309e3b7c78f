"""Hints about who is up and who is down, flooded over the tree (O2.3, O18). Links are judged only by their own end."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ordercast.core.ids import NodeId
from ordercast.core.messages import Packet
from ordercast.core.process import Connection
from ordercast.core.state import State
from ordercast.pubsub.overlay_packets import BrokerDown, BrokerUp

if TYPE_CHECKING:
    from ordercast.broker.tree.tree import Overlay


class Notices(State):
    """What this broker tells others about third ones, and believes of what they tell."""

    constant: ClassVar[tuple[str, ...]] = ("overlay",)

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay

    def flood(self, packet: Packet, *, but: list[Connection]) -> None:
        for link in self.overlay.links():
            if link not in but:
                self.overlay.wires.send(link, packet)

    def found_dead(self, node: NodeId, life: int, *, neighbour: bool, lines: list[Connection]) -> None:
        """O2.3: an own connection has ended without a word."""
        if neighbour:
            self.overlay.wires.note("suspect", {"peer": node, "life": str(life)})
        if self._record_death(node, life) or self.overlay.primary:
            self.flood(BrokerDown(node, life), but=lines)

    def _record_death(self, node: NodeId, life: int) -> bool:
        """Whether it was news."""
        if self.overlay.dead.get(node, -1) >= life:
            return False
        if self.overlay.primary:
            self.overlay.unreachable.add(node)
        else:
            self.overlay.dead[node] = life
        return True

    def down(self, line: Connection, packet: BrokerDown) -> None:
        """O18. Where partitions are possible this means only that somebody cannot reach it."""
        overlay = self.overlay
        if packet.node == overlay.node:
            self._contradict(packet)
            return
        if packet.life < overlay.lives.get(packet.node, 0):
            return
        if overlay.believed_dead(packet.node):
            return
        if not self._is_neighbour(packet.node):
            self._record_death(packet.node, packet.life)
            overlay.joining.somebody_died()
        self.flood(packet, but=[line])

    def up(self, line: Connection, packet: BrokerUp) -> None:
        """O18. A neighbour in an older life is lost first."""
        overlay = self.overlay
        if packet.node == overlay.node:
            return
        news = packet.life > overlay.lives.get(packet.node, 0) or packet.node in overlay.unreachable
        overlay.unreachable.discard(packet.node)
        overlay.neighbours.learn_life(packet.node, packet.life)
        if news:
            self.flood(packet, but=[line])
            overlay.seeker.broker_is_up(packet.node)

    def accepted(self, child: Connection, node: NodeId, life: int) -> None:
        """O9: everybody is told of a broker that has come back."""
        if life > 0 or self.overlay.primary:
            self.flood(BrokerUp(node, life), but=[child])

    def tell_parent(self, parent: Connection) -> None:
        """O10.3: what this fragment has found out meanwhile."""
        for node, life in sorted(self.overlay.dead.items()):
            if self.overlay.believed_dead(node):
                self.overlay.wires.send(parent, BrokerDown(node, life))
        for node, life in sorted(self.overlay.lives.items()):
            if life > 0 and not self.overlay.believed_dead(node):
                self.overlay.wires.send(parent, BrokerUp(node, life))

    def _contradict(self, packet: BrokerDown) -> None:
        """With partitions: somebody lost a connection to this broker and the news came late."""
        if self.overlay.primary and packet.life == self.overlay.life:
            self.flood(BrokerUp(self.overlay.node, self.overlay.life), but=[])

    def _is_neighbour(self, node: NodeId) -> bool:
        return node == self.overlay.parent_name or self.overlay.child_link(node) is not None
