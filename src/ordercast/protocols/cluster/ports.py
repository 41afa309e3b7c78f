"""Surroundings and settings that the parts of a cluster member share; none of them is its state."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from ordercast.core.messages import Packet
from ordercast.core.process import OverlayPlace, OverlayWires
from ordercast.protocols.cluster.application import ClusterApplication
from ordercast.protocols.cluster.options import ClusterOptions


class Ports:
    """One for each cluster that a process is a member of."""

    __slots__ = ("address", "app", "cast", "cluster", "me", "options", "place", "wires")

    def __init__(
        self, cluster: str, wires: OverlayWires, place: OverlayPlace, options: ClusterOptions, app: ClusterApplication,
        cast: Callable[[str, Packet], None],
    ) -> None:  # fmt: skip
        self.cluster = cluster
        self.wires = wires
        self.place = place
        self.me = place.me
        self.address = place.me.address
        self.options = options
        self.app = app
        self.cast = cast
        """To any address, the own one included."""

    def set_timer(self, kind: str, of: Hashable, delay_ns: int, *, background: bool = False) -> None:
        self.wires.set_timer((self.cluster, kind, of), delay_ns, background=background)

    def cancel_timer(self, kind: str, of: Hashable) -> None:
        self.wires.cancel_timer((self.cluster, kind, of))
