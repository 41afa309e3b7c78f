"""In which order possible parents are asked (O4.1, O19)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ordercast.broker.tree.tree_state import natural
from ordercast.core.ids import NodeId
from ordercast.pubsub.client_packets import Neighbour

if TYPE_CHECKING:
    from ordercast.broker.tree.tree import Overlay

_RTT_WEIGHT, _TOPIC_WEIGHT, _HOP_WEIGHT, _ROOM_WEIGHT, _REGION_WEIGHT = 1.0, 1.0, 0.5, 0.5, 0.0
_UNKNOWN_RTT_MS = 100.0


def in_order(overlay: Overlay) -> list[NodeId]:
    """The view, in the order of the setting `view_order`."""
    order = overlay.settings.view_order

    def place(entry: Neighbour) -> tuple[float, int, int, tuple[str | int, ...]]:
        sibling = int(entry.kind == "sibling")
        name = natural(NodeId(entry.node))
        if order == "score":
            return score(overlay, entry), sibling, entry.hops, name
        if order == "hop-order":
            return entry.hops, sibling, 0, name
        return sibling, entry.hops, 0, name

    return [NodeId(entry.node) for entry in sorted(overlay.view, key=place)]


def score(overlay: Overlay, entry: Neighbour) -> float:
    """O19: the smaller, the better: near, with the same topics, few hops away, with room, in the same region."""
    rtt_ms = overlay.pulse.rtt_ms.get(NodeId(entry.node), _UNKNOWN_RTT_MS)
    missing = len(set(overlay.topics.names()) - set(entry.topics))
    return (
        _RTT_WEIGHT * rtt_ms / 100
        + _TOPIC_WEIGHT * missing
        + _HOP_WEIGHT * entry.hops
        + _ROOM_WEIGHT * max(0, -entry.residual)
        + _REGION_WEIGHT * (entry.region != overlay.settings.region)
    )
