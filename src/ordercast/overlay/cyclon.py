"""Cyclon: partial views of a fixed size whose oldest entries are exchanged.

S. Voulgaris, D. Gavidia, M. van Steen, *CYCLON: Inexpensive membership management for unstructured P2P overlays*, JNSM
13(2), 2005. Spec: docs/protocols/peer-sampling.md (SMP-C1 to SMP-C5).
"""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.errors import PeerError
from ordercast.core.ids import Origin
from ordercast.core.messages import Packet
from ordercast.overlay.sampling import FIRST_SAMPLER_TAG, Contact, SamplerWires
from ordercast.overlay.views import (
    FIRST_DRAW,
    Arc,
    ExchangeHalf,
    ExchangeRefusal,
    SamplingTimes,
    ViewSampler,
    check_contact,
    identity_of,
)

_ANSWER, _WALK, _PLACE = range(FIRST_DRAW, FIRST_DRAW + 3)
"""What a draw is for."""
_MOST_STEPS = 16


class CyclonAsk(ExchangeHalf, frozen=True, tag=FIRST_SAMPLER_TAG + 8):
    """The first half of an exchange."""


class CyclonAnswer(ExchangeHalf, frozen=True, tag=FIRST_SAMPLER_TAG + 9):
    """The second half."""


class CyclonBusy(ExchangeRefusal, frozen=True, tag=FIRST_SAMPLER_TAG + 10):
    """The process asked is in another exchange."""


class CyclonWalk(Packet, frozen=True, tag=FIRST_SAMPLER_TAG + 11):
    """A random walk on behalf of somebody who has joined: where it ends, an arc changes hands."""

    joiner: Contact
    number: int
    path: tuple[Origin, ...]


class CyclonGift(Packet, frozen=True, tag=FIRST_SAMPLER_TAG + 12):
    """An arc for somebody who has joined."""

    contact: Contact


class Cyclon(ViewSampler):
    """One process's view: at most `size` entries, no two of the same process."""

    packets: ClassVar[tuple[type[Packet], ...]] = (CyclonAsk, CyclonAnswer, CyclonBusy, CyclonWalk, CyclonGift)
    ask, answer, busy = CyclonAsk, CyclonAnswer, CyclonBusy
    constant: ClassVar[tuple[str, ...]] = (*ViewSampler.constant, "size", "length", "steps")

    def __init__(
        self, wires: SamplerWires, me: Contact, times: SamplingTimes, salt: int, *, genesis: bool, size: int,
        length: int, steps: int = 4,
    ) -> None:  # fmt: skip
        """`length`: entries in an exchange; `steps`: of a random walk."""
        super().__init__(wires, me, times, salt, genesis=genesis)
        self.size = size
        self.length = length
        self.steps = min(steps, _MOST_STEPS)
        self.gifts: dict[Origin, Contact] = {}
        """Arcs for processes that have joined, until there is a link to them."""

    # Joining

    def on_subscribed(self, joiner: Contact) -> None:
        """SMP-C4: as many random walks as a view has entries."""
        for number in range(self.size):
            self._walk(CyclonWalk(joiner, number, ()))

    def _walk(self, walk: CyclonWalk) -> None:
        bits = (identity_of(walk.joiner.pid), walk.number, _WALK)
        arcs = [arc for arc in self.safe_arcs() if arc[0].pid not in (walk.joiner.pid, *walk.path)]
        if len(walk.path) < self.steps and arcs:
            ((contact, _),) = self._draw(arcs, 1, *bits, len(walk.path))
            before = walk.path[-1] if walk.path else walk.joiner.pid
            self._promise(contact.pid, [(Contact(before, ""), 0)])
            self.wires.send(contact.pid, CyclonWalk(walk.joiner, walk.number, (*walk.path, self.me.pid)))
        elif walk.joiner.pid not in {contact.pid for contact, _ in self.view}:
            self._take_in(walk, bits)

    def _take_in(self, walk: CyclonWalk, bits: tuple[int, ...]) -> None:
        """SMP-C4: the walk ends here: an entry is given to the joiner, which takes its place."""
        spare = self._draw(self.safe_arcs(), 1, *bits, _PLACE) if len(self.view) >= self.size else []
        if len(self.view) >= self.size and not spare:
            return
        for arc in spare:
            self._promise(walk.joiner.pid, [arc])
            self.gifts[walk.joiner.pid] = arc[0]
        self._add([(walk.joiner, self.round)], walk.path[::-1])
        self._remove(spare)
        self._give(walk.joiner.pid)

    def on_safe(self, peer: Origin) -> None:
        self._give(peer)

    def _give(self, peer: Origin) -> None:
        if peer in self.gifts and self.wires.is_safe(peer):
            self.wires.send(peer, CyclonGift(self.gifts.pop(peer)))

    # Exchanges

    def _offered_count(self, others: int) -> int:  # noqa: ARG002
        """SMP-C1: `length` entries in all, or as many as there are."""
        return self.length - 1

    def on_packet(self, peer: Origin, packet: Packet) -> None:
        match packet:
            case CyclonWalk():
                if len(packet.path) > _MOST_STEPS or not packet.path or packet.path[-1] != peer:
                    raise PeerError(peer, "sent a walk that has lost its way")
                check_contact(peer, packet.joiner)
                if packet.joiner.pid != self.me.pid:
                    self._walk(packet)
            case CyclonGift(contact=contact):
                check_contact(peer, contact)
                self._settle([], [(contact, self.round)], peer)
            case _:
                super().on_packet(peer, packet)

    def _given(self, peer: Origin, round_: int) -> list[Arc]:
        """SMP-C2: up to `length` entries."""
        arcs = [arc for arc in self.safe_arcs() if arc[0].pid != peer]
        return self._draw(arcs, self.length, identity_of(peer), round_, _ANSWER)

    def _answered(self, offered: list[Arc], taken: list[Arc], via: Origin) -> None:
        """SMP-C1: the place of the partner's own entry is free."""
        self._remove(offered[:1])
        self._settle(offered[1:], taken, via)

    def _settle(self, given: list[Arc], taken: list[Arc], via: Origin) -> None:
        """SMP-C3: what is new takes free places first, then those of what was given."""
        there = {contact.pid for contact, _ in self.view}
        new = [arc for arc in {arc[0].pid: arc for arc in taken}.values() if arc[0].pid not in there]
        replaceable = [arc for arc in given if arc in self.view]
        room = self.size - len(self.view)
        added = new[: max(0, room) + len(replaceable)]
        self._add(added, (via,))
        self._remove(replaceable[: max(0, len(added) - max(0, room))])

    # Losses

    def _gone(self, peer: Origin) -> None:
        """SMP-C5: the place of who is gone is free."""
        self.view = [arc for arc in self.view if arc[0].pid != peer]
        self.gifts.pop(peer, None)

    def on_failed(self, peer: Origin) -> None:
        self._gone(peer)
        self._look_for_somebody()
