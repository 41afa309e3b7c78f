"""A peer sampling for tests that never stands still: it keeps its first neighbours and always tries new ones besides.

Neighbours name neighbours to each other and promise to let locks pass; some are given up at once, as an exchange of
views does. Lost ones are looked for again.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

from ordercast.core.chance import mix
from ordercast.core.errors import PeerError
from ordercast.core.ids import Origin
from ordercast.core.messages import Packet
from ordercast.core.process import OverlayPlace
from ordercast.overlay.sampling import FIRST_SAMPLER_TAG, Contact, FixedSampler, Sampler, SamplerWires
from ordercast.protocols.preventive.settings import PreventiveOptions

ROUNDS = 40
"""So often each process tries a new neighbour."""
_EXTRA = 3
"""So many neighbours besides the first it keeps."""
_FIRST = 3
"""So many of those that it knows at first it keeps for ever."""


class Name(Packet, frozen=True, tag=FIRST_SAMPLER_TAG + 40):
    """Asks for a neighbour."""


class Named(Packet, frozen=True, tag=FIRST_SAMPLER_TAG + 41):
    peer: Contact


class RestlessSampler(FixedSampler):
    """Draws by identity, like everything."""

    packets: ClassVar[tuple[type[Packet], ...]] = (Name, Named)
    constant: ClassVar[tuple[str, ...]] = (*FixedSampler.constant, "salt", "every_ns", "breaks")

    def __init__(self, wires: SamplerWires, me: Contact, place: OverlayPlace, options: PreventiveOptions) -> None:
        super().__init__(wires, me, int(options.retry_ms * 1_000_000), 10**12)
        self.salt = place.salt
        self.every_ns = int(options.retry_ms * 1_000_000)
        self.breaks = bool(place.salt & 1)
        """Whether who names a neighbour gives it up at the same time."""
        self.rounds = 0
        self.extra: list[Contact] = []
        self.met: dict[Origin, Contact] = {}

    def on_start(self, addresses: tuple[str, ...]) -> None:
        super().on_start(addresses[:_FIRST])
        self.wires.set_timer("round", self.every_ns)

    def on_joined(self, contact: Contact, addresses: tuple[str, ...]) -> None:
        super().on_joined(contact, addresses[:_FIRST])
        self.wires.set_timer("round", self.every_ns)

    def on_subscribed(self, joiner: Contact) -> None:
        self.met[joiner.pid] = joiner
        others = self._safe(joiner.pid)
        if others:
            self._name(joiner, self._drawn(others, 7))

    def on_met(self, peer: Contact, *, dialed: bool) -> None:
        self.met[peer.pid] = peer
        super().on_met(peer, dialed=dialed)

    def on_timer(self, name: Hashable) -> None:
        if name != "round":
            super().on_timer(name)
            return
        self.rounds += 1
        others = self._safe()
        if others:
            self.wires.send(self._drawn(others, 1), Name())
        if self.rounds < ROUNDS:
            self.wires.set_timer("round", self.every_ns)

    def on_packet(self, peer: Origin, packet: Packet) -> None:
        match packet:
            case Name():
                others = self._safe(peer)
                if others and peer in self.met:
                    self._name(self.met[self._drawn(others, 2)], peer)
            case Named(contact):
                if contact.pid != self.me.pid:
                    self._try(contact, peer)
            case _:
                raise PeerError(peer, f"sent a {type(packet).__name__}")

    def _name(self, peer: Contact, to: Origin) -> None:
        self.wires.hold(to, peer.pid)
        self.wires.hold(peer.pid, to)
        self.wires.send(to, Named(peer))
        if self.breaks and peer in self.extra:
            self.extra.remove(peer)
            self.wires.unwant(peer.pid)

    def _try(self, peer: Contact, via: Origin) -> None:
        if peer in self.extra or peer.address in self.neighbours:
            return
        self.extra.append(peer)
        self.wires.want(peer, (via,))
        if len(self.extra) > _EXTRA:
            self.wires.unwant(self.extra.pop(0).pid)

    def on_lost(self, peer: Origin) -> None:
        self.met.pop(peer, None)
        self.extra = [contact for contact in self.extra if contact.pid != peer]
        super().on_lost(peer)

    def _look_again(self, address: str) -> None:
        self.failures[address] = failures = self.failures.get(address, 0) + 1
        self.wires.set_timer(address, self.retry_ns, background=failures > ROUNDS)

    def rescue(self, addresses: tuple[str, ...]) -> None:
        """Somebody has repaired the overlay by hand: these are neighbours from now on, too."""
        for address in addresses:
            if self.neighbours.get(address) is None:
                self.neighbours[address] = None
                self.failures.pop(address, None)
                self.wires.meet(address)

    def on_leave(self) -> None:
        self.wires.cancel_timer("round")
        super().on_leave()

    def _safe(self, but: Origin | None = None) -> list[Origin]:
        return [pid for pid in sorted(self.met) if pid != but and self.wires.is_safe(pid)]

    def _drawn(self, options: list[Origin], what: int) -> Origin:
        return options[mix(self.salt, self.rounds, what) % len(options)]


def restless(wires: SamplerWires, me: Contact, place: OverlayPlace, options: Any) -> Sampler:
    return RestlessSampler(wires, me, place, options)
