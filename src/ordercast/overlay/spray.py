"""Spray: partial views whose size follows the logarithm of the network's, without anybody knowing that size.

B. Nédelec, J. Tanke, D. Frey, P. Molli, A. Mostéfaoui, *An adaptive peer-sampling protocol for building networks of
browsers*, World Wide Web 21, 2018, with its slips mended. Spec: docs/protocols/peer-sampling.md (SMP-S1 to SMP-S7).
"""

from __future__ import annotations

from math import ceil
from typing import ClassVar

from ordercast.core.chance import mix, unit
from ordercast.core.ids import Origin
from ordercast.core.messages import Packet
from ordercast.overlay.sampling import FIRST_SAMPLER_TAG, Contact
from ordercast.overlay.views import (
    FIRST_DRAW,
    Arc,
    ExchangeHalf,
    ExchangeRefusal,
    ViewSampler,
    check_contact,
    identity_of,
)

_ANSWER, _AGAIN = FIRST_DRAW, FIRST_DRAW + 1
"""What a draw is for."""


class SprayAsk(ExchangeHalf, frozen=True, tag=FIRST_SAMPLER_TAG):
    """The first half of an exchange."""


class SprayAnswer(ExchangeHalf, frozen=True, tag=FIRST_SAMPLER_TAG + 1):
    """The second half."""


class SprayBusy(ExchangeRefusal, frozen=True, tag=FIRST_SAMPLER_TAG + 2):
    """The process asked is in another exchange."""


class SpraySubscription(Packet, frozen=True, tag=FIRST_SAMPLER_TAG + 3):
    """Somebody has joined through the sender: have an arc to it."""

    joiner: Contact


class Spray(ViewSampler):
    """One process's view."""

    packets: ClassVar[tuple[type[Packet], ...]] = (SprayAsk, SprayAnswer, SprayBusy, SpraySubscription)
    ask, answer, busy = SprayAsk, SprayAnswer, SprayBusy

    # Joining

    def on_subscribed(self, joiner: Contact) -> None:
        """SMP-S2: every arc of the contact leads to somebody who will have an arc to the joiner."""
        told = [contact for contact, _ in self.view if self.wires.is_safe(contact.pid) and contact.pid != joiner.pid]
        if not told:
            self._add([(joiner, self.round)], ())
        for contact in told:
            self._promise(contact.pid, [(joiner, 0)])
            self.wires.send(contact.pid, SpraySubscription(joiner))

    # Exchanges

    def _offered_count(self, others: int) -> int:
        """SMP-S3: half of the view goes to the partner."""
        return ceil((others + 1) / 2) - 1

    def on_packet(self, peer: Origin, packet: Packet) -> None:
        if isinstance(packet, SpraySubscription):
            check_contact(peer, packet.joiner)
            if packet.joiner.pid != self.me.pid:
                self._add([(packet.joiner, self.round)], (peer,))
        else:
            super().on_packet(peer, packet)

    def _given(self, peer: Origin, round_: int) -> list[Arc]:
        """SMP-S4: half of what is safe; the total number of arcs stays the same."""
        arcs = self.safe_arcs()
        count = ceil(len(arcs) / 2) if len(arcs) > 1 else 0
        return self._draw(arcs, count, identity_of(peer), round_, _ANSWER)

    def _settle(self, given: list[Arc], taken: list[Arc], via: Origin) -> None:
        """SMP-S5: exactly what was given goes, exactly what was sent comes."""
        self._add(taken, (via,))
        self._remove(given)

    # Losses

    def _gone(self, peer: Origin) -> None:
        """SMP-S6: arcs to the dead go; each is made up for, unless chance keeps the view in step with the network."""
        size = len(self.view)
        dead = [arc for arc in self.view if arc[0].pid == peer]
        self.view = [arc for arc in self.view if arc[0].pid != peer]
        for i in range(len(dead)):
            bits = mix(mix(self.salt, identity_of(peer), _AGAIN), self.round, i)
            if unit(bits) < 1 - 1 / size:
                self._double(bits)

    def on_failed(self, peer: Origin) -> None:
        """SMP-S7: a link that could not be made is always made up for."""
        dead = [arc for arc in self.view if arc[0].pid == peer]
        self.view = [arc for arc in self.view if arc[0].pid != peer]
        for i in range(len(dead)):
            self._double(mix(mix(self.salt, identity_of(peer), _AGAIN), self.round, i))
        self._look_for_somebody()

    def _double(self, bits: int) -> None:
        if self.view:
            contact, _ = self.view[mix(bits, 1) % len(self.view)]
            self._add([(contact, self.round)], ())
