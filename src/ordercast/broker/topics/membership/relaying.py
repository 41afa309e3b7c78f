"""Brokers between edge and root pass on requests, answers and reports of members (BRK-M4, BRK-M5, BRK-M7)."""

from __future__ import annotations

from ordercast.broker.topics.authority import Authority
from ordercast.broker.topics.membership.members import Members
from ordercast.broker.topics.state.member import Roll
from ordercast.broker.topics.state.topic import TopicNode
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.core.ids import NodeId
from ordercast.core.process import Connection
from ordercast.pubsub.topic_packets import AttachDenied, AttachGranted, AttachRequest, MemberReport


class Relaying(TopicsPart):
    """The way up to the root, and back down along the path by which a request came."""

    constant = (*TopicsPart.constant, "authority", "members")

    def __init__(self, state: TopicsState, authority: Authority, members: Members) -> None:
        super().__init__(state)
        self.authority = authority
        self.members = members

    def request(self, packet: AttachRequest) -> None:
        """BRK-M4: not ROOT: pass it on. A broker that seeks drops it; it will be asked again."""
        if self.tree.is_root:
            self.authority.request(packet)
        else:
            self.state.send_up(AttachRequest(packet.topic, packet.member, packet.epoch, (*packet.path, self.tree.node)))

    def answer(self, path: tuple[NodeId, ...], packet: AttachGranted | AttachDenied) -> None:
        """BRK-M5: one step back along the path; at its end the edge acts on it."""
        if not path:
            if isinstance(packet, AttachGranted):
                self.members.granted(packet)
            else:
                self.members.denied(packet)
            return
        for child, name in self.tree.children.items():
            if name == path[-1]:
                self.wires.send(child, packet)
                return

    def relay_answer(self, sender: Connection, packet: AttachGranted | AttachDenied) -> None:
        if sender != self.tree.parent or packet.path[-1:] != (self.tree.node,):
            return
        shorter = packet.path[:-1]
        if isinstance(packet, AttachGranted):
            if tuple(packet.term) < tuple(self.tree.term):
                return  # BRK-PC5: of a root that has been succeeded.
            node = self.nodes.get(packet.topic)
            if shorter and (node is None or not self.relays_grants(node)):
                return
            self.answer(shorter, AttachGranted(
                packet.topic, packet.term, packet.member, packet.epoch, shorter, packet.new
            ))  # fmt: skip
        else:
            self.answer(shorter, AttachDenied(packet.topic, packet.member, packet.epoch, shorter))

    def relays_grants(self, node: TopicNode) -> bool:
        """BRK-M5: what the root had sent before the grant has arrived here, and so went down before it.

        Otherwise this broker has begun the topic anew meanwhile, and the edge would not know what it missed.
        """
        return node.up_live

    def report(self, node: TopicNode) -> None:
        """BRK-M7, not root: when the channel is live and every child has reported in this term."""
        if not node.up_live or any(child not in node.member_reports for child in node.down):
            return
        roll = node.roll()
        if roll != node.member_sent:
            node.member_sent = roll
            here, away = tuple(sorted(roll.here)), tuple(sorted(roll.away))
            self.state.send_up(MemberReport(node.topic, self.tree.term, here, away))

    def reported(self, node: TopicNode, child: Connection, packet: MemberReport) -> None:
        if self.state.counts(packet.term):
            node.member_reports[child] = Roll(frozenset(packet.members), frozenset(packet.away))
            self.state.look_again(node)
