"""Budgets (BRK-ST4): what a topic, and all of them together, may hold before publishers pause.

First the clients of a topic that holds too much are told to wait. One that publishes on regardless is cut off when the
topic holds a multiple of it. A member that takes nothing for long while others wait for it is fenced, if so configured.
"""

from __future__ import annotations

from typing import Protocol

from ordercast.broker.topics.state.clients import AttachedClient
from ordercast.broker.topics.state.member import Member
from ordercast.broker.topics.state.topic import TopicNode
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.core.errors import PeerError
from ordercast.core.ids import Origin, Topic
from ordercast.pubsub.client_packets import Flow
from ordercast.pubsub.received import Vector

_SLOW = ("topics", "slow")
_LOOKS = 4
"""So often within `slow_member_ms` is looked at slow members."""
HARD = 4
"""A client that was told to wait is cut off above so many times the soft limit."""


class Departures(Protocol):
    """The part that ends sessions."""

    def depart(self, topic: Topic, member: Origin, epoch: int) -> None:
        """The membership (without a topic: the session) is to end."""


class Budgets(TopicsPart):
    """Links are never delayed and nothing is evicted: only local clients are told, and let go."""

    constant = (*TopicsPart.constant, "members")

    def __init__(self, state: TopicsState, members: Departures) -> None:
        super().__init__(state)
        self.members = members
        self.paused: set[Topic] = set()
        self.short = False
        """All topics together hold more than they may."""
        self.crowded: set[Topic] = set()
        """Topics that hold more than half of what they may."""
        self.stalled: dict[tuple[Topic, Origin], tuple[Vector | None, int]] = {}
        """What slow members of crowded topics had reported, and since when they have reported nothing more."""
        self.watching = False

    def look(self, node: TopicNode) -> None:
        """At the end of a turn: ask the topic's local clients to pause, or to go on."""
        self.state.weigh(node.topic, node.weight)
        cause = self._exceeded(node, 1 if node.flow_open else 2)
        if bool(cause) == node.flow_open:
            self._tell(node, cause)
        if self.settings.slow_member == "fence" and node.receivers and self._exceeded(node, 2):
            self.crowded.add(node.topic)
            self._watch()

    def turn_end(self) -> None:
        """Topics that only paused because all together held too much go on when they do not."""
        short = self.state.weight > self.settings.memory_soft_bytes
        if self.short and not short:
            for topic in sorted(self.paused):
                node = self.nodes.get(topic)
                if node is not None:
                    self.look(node)
        self.short = short

    def _exceeded(self, node: TopicNode, part: int) -> str:
        """The setting of which the topic holds more than one `part`-th; none: it does not."""
        settings, weight = self.settings, node.weight
        if len(node.log) + len(node.pending.entries) + len(node.hold) > settings.buffer_soft_limit // part:
            return "buffer_soft_limit"
        if weight > settings.buffer_soft_bytes // part:
            return "buffer_soft_bytes"
        memory = settings.memory_soft_bytes
        if self.state.weight > memory and weight > memory // len(self.state.weights) // part:
            return "memory_soft_bytes"
        return ""

    def _tell(self, node: TopicNode, cause: str) -> None:
        node.flow_open = not cause
        self.wires.count("flow_changes")
        if cause:
            self.paused.add(node.topic)
            self.wires.count(f"paused_by_{cause}")
        else:
            self.paused.discard(node.topic)
        for member in node.members.values():
            if member.connection is not None:
                self.wires.send(member.connection, Flow(node.topic, node.flow_open))

    def check(self, node: TopicNode, client: AttachedClient) -> None:
        """It publishes although it was told to wait: for a while that was on its way."""
        for name, weight, soft in (
            ("buffer_soft_bytes", node.weight, self.settings.buffer_soft_bytes),
            ("memory_soft_bytes", self.state.weight, self.settings.memory_soft_bytes),
        ):
            if weight > HARD * soft:
                self.wires.count("publishers_cut_off")
                raise PeerError(
                    client.name,
                    f"publishes on {node.topic} although it was told to wait: {weight} bytes are held, {HARD} times"
                    f" {soft} may be ({name})",
                )

    # Members that take nothing

    def _watch(self) -> None:
        if not self.watching:
            self.watching = True
            self.wires.set_timer(_SLOW, int(self.settings.slow_member_ms * 1e6 / _LOOKS))

    def look_at_members(self) -> None:
        """Several times within `slow_member_ms`, while topics are crowded."""
        self.watching = False
        before, self.stalled = self.stalled, {}
        for topic in sorted(self.crowded):
            node = self.nodes.get(topic)
            if node is None or not self._exceeded(node, 2):
                self.crowded.discard(topic)
                continue
            for origin in sorted(node.members):
                self._look_at(node, origin, before.get((topic, origin)))
        if self.crowded:
            self._watch()

    def _look_at(self, node: TopicNode, origin: Origin, known: tuple[Vector | None, int] | None) -> None:
        member, now = node.members[origin], self.wires.now_ns
        if member.connection is None or not self.state.waits_for(node, member) or _has_all(node, member):
            return
        if known is None or _more(member.vector, known[0]):
            known = member.vector, now
        self.stalled[node.topic, origin] = known
        if now - known[1] >= self.settings.slow_member_ms * 1e6:
            self.wires.count("slow_members_fenced")
            epochs = [other.members[origin].epoch for other in self.nodes.values() if origin in other.members]
            self.members.depart(Topic(""), origin, max(epochs))


def _has_all(node: TopicNode, member: Member) -> bool:
    reported, stable = member.vector or {}, node.base.get
    return all(max(reported.get(origin, 0), stable(origin, 0)) >= low for origin, low in node.have.low.items())


def _more(reported: Vector | None, before: Vector | None) -> bool:
    """Whether it has taken anything since. One that comes back and says less than before has not."""
    if reported is None:
        return False
    return before is None or any(number > before.get(origin, 0) for origin, number in reported.items())
