"""In which order possible parents are asked (BRK-O4.1, BRK-O19)."""

from __future__ import annotations

from collections.abc import Mapping

from ordercast.broker.tree.tree_state import TreeState, natural
from ordercast.core.ids import NodeId
from ordercast.pubsub.client_packets import Neighbour

_RTT_WEIGHT, _TOPIC_WEIGHT, _HOP_WEIGHT, _ROOM_WEIGHT, _REGION_WEIGHT = 1.0, 1.0, 0.5, 0.5, 0.0
_UNKNOWN_RTT_MS = 100.0


def in_order(state: TreeState, rtt_ms: Mapping[NodeId, float]) -> list[NodeId]:
    """The view, in the order of the setting `view_order`."""
    order = state.settings.view_order

    def place(entry: Neighbour) -> tuple[float, int, int, tuple[str | int, ...]]:
        sibling = int(entry.kind == "sibling")
        node = NodeId(entry.node)
        if order == "score":
            return score(state, entry, rtt_ms.get(node, _UNKNOWN_RTT_MS)), sibling, entry.hops, natural(node)
        if order == "hop-order":
            return entry.hops, sibling, 0, natural(node)
        return sibling, entry.hops, 0, natural(node)

    return [NodeId(entry.node) for entry in sorted(state.view, key=place)]


def score(state: TreeState, entry: Neighbour, rtt_ms: float) -> float:
    """BRK-O19: the smaller, the better: near, with the same topics, few hops away, with room, in the same region."""
    missing = len(set(state.topics.names()) - set(entry.topics))
    return (
        _RTT_WEIGHT * rtt_ms / 100
        + _TOPIC_WEIGHT * missing
        + _HOP_WEIGHT * entry.hops
        + _ROOM_WEIGHT * max(0, -entry.residual)
        + _REGION_WEIGHT * (entry.region != state.settings.region)
    )
