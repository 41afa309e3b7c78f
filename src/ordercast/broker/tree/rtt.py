"""Round trips to the brokers in view, smoothed, for `view_order = "score"` (BRK-O19)."""

from __future__ import annotations

from collections.abc import Set

from ordercast.broker.tree.neighbours import Neighbours
from ordercast.broker.tree.tree_state import MS, TreePart, TreeState
from ordercast.core.ids import NodeId
from ordercast.pubsub.client_packets import Ping, Pong

_PERIOD_NS = 5000 * MS
_SMOOTHING = 0.125
"""The weight of the newest round trip."""


class RoundTrips(TreePart):
    """Measures round trips to brokers in view, only where the order of candidates depends on them."""

    constant = (*TreePart.constant, "neighbours")

    def __init__(self, state: TreeState, neighbours: Neighbours) -> None:
        super().__init__(state)
        self.neighbours = neighbours
        self.rtt_ms: dict[NodeId, float] = {}

    def forget_all_but(self, nodes: Set[NodeId]) -> None:
        self.rtt_ms = {node: rtt_ms for node, rtt_ms in self.rtt_ms.items() if node in nodes}

    def start(self) -> None:
        if self.settings.view_order == "score":
            self.wires.set_timer(("rtt",), _PERIOD_NS, background=True)

    def timer(self) -> None:
        """Ping everybody in view."""
        for entry in self.state.view:
            self.neighbours.say(NodeId(entry.node), Ping(self.wires.now_ns))
        self.start()

    def pong(self, node: NodeId, packet: Pong) -> None:
        rtt_ms = (self.wires.now_ns - packet.at) / MS
        smooth = self.rtt_ms.get(node, rtt_ms)
        self.rtt_ms[node] = smooth + _SMOOTHING * (rtt_ms - smooth)
