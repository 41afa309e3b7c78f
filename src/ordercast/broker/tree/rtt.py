"""Round trips to the brokers in view, smoothed, for `view_order = "score"` (O19)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ordercast.broker.tree.tree_state import MS
from ordercast.core.ids import NodeId
from ordercast.core.state import State
from ordercast.pubsub.client_packets import Ping, Pong

if TYPE_CHECKING:
    from ordercast.broker.tree.tree import Overlay

_PERIOD_NS = 5000 * MS
_SMOOTHING = 0.125
"""The weight of the newest round trip."""


class Pulse(State):
    """Measures only when the order of candidates depends on it."""

    constant: ClassVar[tuple[str, ...]] = ("overlay",)

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        self.rtt_ms: dict[NodeId, float] = {}

    def start(self) -> None:
        if self.overlay.settings.view_order == "score":
            self.overlay.wires.set_timer(("pulse",), _PERIOD_NS, background=True)

    def timer(self) -> None:
        """Ping everybody in view."""
        overlay = self.overlay
        for entry in overlay.view:
            overlay.neighbours.say(NodeId(entry.node), Ping(overlay.wires.now_ns))
        self.start()

    def pong(self, node: NodeId, packet: Pong) -> None:
        rtt_ms = (self.overlay.wires.now_ns - packet.at) / MS
        smooth = self.rtt_ms.get(node, rtt_ms)
        self.rtt_ms[node] = smooth + _SMOOTHING * (rtt_ms - smooth)
