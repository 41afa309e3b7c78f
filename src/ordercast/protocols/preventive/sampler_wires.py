"""The sampler's view of the links: implements `SamplerWires`."""

from __future__ import annotations

from collections.abc import Hashable

from ordercast.core.ids import Origin
from ordercast.core.messages import Packet
from ordercast.core.process import OverlayWires
from ordercast.overlay.sampling import Contact
from ordercast.protocols.preventive.links import Links


class SamplingPort:
    """Hands wishes to the links, and gives the sampler's timers names of their own."""

    def __init__(self, wires: OverlayWires, links: Links) -> None:
        self._wires = wires
        self._links = links

    def meet(self, address: str) -> None:
        self._links.meet(address)

    def want(self, peer: Contact, via: tuple[Origin, ...] = ()) -> None:
        self._links.want(peer, via)

    def unwant(self, peer: Origin) -> None:
        self._links.unwant(peer)

    def hold(self, one: Origin, other: Origin) -> None:
        self._links.hold(one, other)

    def is_safe(self, peer: Origin) -> bool:
        return self._links.is_safe(peer)

    def is_met(self, peer: Origin) -> bool:
        return self._links.is_met(peer)

    def send(self, peer: Origin, packet: Packet) -> None:
        self._links.say(peer, packet)

    def set_timer(self, name: Hashable, delay_ns: int, *, background: bool = False) -> None:
        self._wires.set_timer(("sampling", name), delay_ns, background=background)

    def cancel_timer(self, name: Hashable) -> None:
        self._wires.cancel_timer(("sampling", name))

    def count(self, name: str, by: int = 1) -> None:
        self._wires.count(name, by)
