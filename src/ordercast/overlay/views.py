"""A partial view: whom a process has arcs to, with their ages; and what every sampler does with it.

Spec: docs/protocols/peer-sampling.md (SMP-V1 to SMP-V5).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import ClassVar
from zlib import crc32

import msgspec

from ordercast.core.chance import mix
from ordercast.core.errors import PeerError
from ordercast.core.ids import Origin
from ordercast.core.messages import Packet
from ordercast.overlay.sampling import Contact, Sampler, SamplerWires

Arc = tuple[Contact, int]
"""To whom, and in which of the holder's rounds the arc was new: the older the arc, the smaller the number."""
Sample = tuple[tuple[Contact, int], ...]
"""Contacts with their ages, as they travel."""

MOST_IN_SAMPLE = 4096
"""No sample is longer: what exceeds it is nonsense."""
_MOST_AGE = 1 << 40
_MOST_REMEMBERED = 16
_PATIENT = 4
"""So often somebody to begin with is looked for while a run waits for it; then in the background."""
_TIE, _SAMPLE = 1, 2
"""What a draw of an exchange is for. Samplers number their own draws from FIRST_DRAW on."""
FIRST_DRAW = 3


class SamplingTimes(msgspec.Struct, frozen=True):
    """The period of exchanges of views, and how long an answer may take."""

    period_ns: int
    reply_ns: int
    retry_ns: int


class ExchangeHalf(Packet, frozen=True):
    """Base of a sampler's packets that carry a part of a view."""

    round: int
    """Of the process that asked."""
    sample: Sample


class ExchangeRefusal(Packet, frozen=True):
    """Base of a sampler's packet that says: the process asked is in another exchange."""

    round: int


class ViewSampler(Sampler, ABC):
    """Base of Spray and Cyclon: rounds, one exchange at a time, and who to turn to when everybody is gone.

    A sampler says how much it offers and gives (`_offered_count`, `_given`), what becomes of both sides' arcs
    (`_settle`, `_answered`), and how it heals (`_gone`).
    """

    ask: ClassVar[type[ExchangeHalf]]
    answer: ClassVar[type[ExchangeHalf]]
    busy: ClassVar[type[ExchangeRefusal]]
    constant: ClassVar[tuple[str, ...]] = (*Sampler.constant, "times", "salt", "genesis")

    def __init__(self, wires: SamplerWires, me: Contact, times: SamplingTimes, salt: int, *, genesis: bool) -> None:
        super().__init__(wires, me)
        self.times = times
        self.salt = salt
        self.genesis = genesis
        self.round = 0
        self.view: list[Arc] = []
        self.sought: set[str] = set()
        """Addresses at which somebody is looked for."""
        self.known: list[str] = []
        """Where to begin again if everybody is lost."""
        self.partner: Origin | None = None
        """Whom an exchange is under way with; one at a time, or arcs would be doubled or lost (SMP-V3)."""
        self.offered: list[Arc] = []
        """What the exchange gives away."""
        self.round_asked = 0
        """In which round the exchange under way began."""
        self.looked = 0
        """How often in a row everybody was looked for."""

    # Beginning

    def on_start(self, addresses: tuple[str, ...]) -> None:
        """SMP-V1: of two that the network begins with, one has an arc to the other; who comes back has one to all."""
        self.known = sorted({*addresses} - {self.me.address})[:_MOST_REMEMBERED]
        mine = sorted({*addresses} - {self.me.address})
        for address in mine:
            if not self.genesis or holds_arc(self.me.address, address):
                self._seek(address)
        self._plan_round(first=True)

    def on_joined(self, contact: Contact, addresses: tuple[str, ...]) -> None:
        """SMP-S1, SMP-C4: who joins has one arc, to its contact."""
        self.known = sorted({*addresses, contact.address} - {self.me.address})
        self._add([(contact, self.round)], ())
        self._plan_round(first=True)

    def on_met(self, peer: Contact, *, dialed: bool) -> None:  # noqa: ARG002
        if peer.address in self.sought:
            self.sought.discard(peer.address)
            self._add([(peer, self.round)], ())

    def on_unreachable(self, address: str) -> None:
        if address in self.sought:
            self.sought.discard(address)
            self._look_for_somebody()

    def _seek(self, address: str) -> None:
        self.sought.add(address)
        self.wires.meet(address)

    def _look_for_somebody(self) -> None:
        """SMP-V5: without any arc nobody is ever met again, so begin anew where somebody was once."""
        if not self.view and not self.sought:
            self.looked += 1
            self.wires.set_timer("seek", self.times.retry_ns, background=self.looked > _PATIENT)

    # Rounds

    def on_timer(self, name: Hashable) -> None:
        if name == "round":
            self.round += 1
            self._plan_round()
            if self.partner is None:
                self._exchange()
        elif name == "reply":
            self._no_reply()
        elif name == "seek" and not self.view:
            for address in self.known:
                self._seek(address)

    def _plan_round(self, *, first: bool = False) -> None:
        """SMP-V2: once a period, each process at a time of its own."""
        period = self.times.period_ns
        delay = mix(self.salt, 0) % period if first else period
        self.wires.set_timer("round", delay, background=True)

    def _no_reply(self) -> None:
        """Count a partner that does not answer in time as gone."""
        partner, self.partner, self.offered = self.partner, None, []
        if partner is not None:
            self.wires.count("unanswered_exchanges")
            self._gone(partner)

    @abstractmethod
    def _gone(self, peer: Origin) -> None: ...

    # Exchanges

    def _exchange(self) -> None:
        """SMP-S3, SMP-C1: with the oldest neighbour whose links are in use; it is offered its own arc and others."""
        arcs = self.safe_arcs()
        if not arcs:
            return
        oldest = min(born for _, born in arcs)
        (chosen,) = self._draw([arc for arc in arcs if arc[1] == oldest], 1, self.round, _TIE)
        arcs.remove(chosen)
        others = self._draw(arcs, self._offered_count(len(arcs)), self.round, _SAMPLE)
        partner = chosen[0].pid
        self._begin(partner, [chosen, *others])
        self._promise(partner, others)
        self.wires.count("exchanges")
        self.wires.send(partner, self.ask(self.round, self._as_sent([chosen, *others], partner)))

    @abstractmethod
    def _offered_count(self, others: int) -> int:
        """How many of the other arcs are offered beside the one to the partner."""

    def on_packet(self, peer: Origin, packet: Packet) -> None:
        if isinstance(packet, self.ask):
            self._answer(peer, packet)
        elif not isinstance(packet, self.answer | self.busy):
            raise PeerError(peer, f"sent a {type(packet).__name__}, which is not for {type(self).__name__}")
        elif peer != self.partner or packet.round != self.round_asked:
            self.wires.count("late_answers")
        elif isinstance(packet, self.answer):
            self._answered(self._end(), self._taken(peer, packet.sample), peer)
        else:
            self._end()

    def _answer(self, peer: Origin, ask: ExchangeHalf) -> None:
        """SMP-S4, SMP-C2: arcs for those that were sent, unless another exchange is under way."""
        if self.partner is not None or not self.wires.is_met(peer):
            self.wires.send(peer, self.busy(ask.round))
            return
        taken = self._taken(peer, ask.sample)
        given = self._given(peer, ask.round)
        self.wires.send(peer, self.answer(ask.round, self._as_sent(given, peer)))
        self._promise(peer, given)
        self._settle(given, taken, peer)

    @abstractmethod
    def _given(self, peer: Origin, round_: int) -> list[Arc]:
        """The arcs given to the partner that asked in that round of its own."""

    @abstractmethod
    def _settle(self, given: list[Arc], taken: list[Arc], via: Origin) -> None:
        """Exchange the arcs of both sides; their giver is where locks pass."""

    def _answered(self, offered: list[Arc], taken: list[Arc], via: Origin) -> None:
        """Exchange arcs at the side that asked: the first of `offered` is the arc to the partner."""
        self._settle(offered, taken, via)

    def _begin(self, partner: Origin, offered: list[Arc]) -> None:
        self.partner, self.offered, self.round_asked = partner, offered, self.round
        self.wires.set_timer("reply", self.times.reply_ns, background=True)

    def _end(self) -> list[Arc]:
        offered, self.partner, self.offered = self.offered, None, []
        self.wires.cancel_timer("reply")
        return offered

    def on_lost(self, peer: Origin) -> None:
        if peer == self.partner:
            self._end()
        self._gone(peer)
        self._look_for_somebody()

    def on_leave(self) -> None:
        self.view.clear()
        self.sought.clear()
        self.known.clear()
        for timer in ("round", "reply", "seek"):
            self.wires.cancel_timer(timer)

    # The view

    def safe_arcs(self) -> list[Arc]:
        """SMP-V3: only neighbours whose links are in use both ways are offered, or asked."""
        is_safe = self.wires.is_safe
        return [arc for arc in self.view if is_safe(arc[0].pid)]

    def _add(self, arcs: list[Arc], via: tuple[Origin, ...]) -> None:
        for contact, born in arcs:
            self.view.append((contact, born))
            if contact.address not in self.known:
                self.known = [contact.address, *self.known][:_MOST_REMEMBERED]
            self.wires.want(contact, via)
        if arcs:
            self.looked = 0

    def _remove(self, arcs: list[Arc]) -> None:
        """Those of the arcs that are still there; the links of peers without any are given up."""
        for arc in arcs:
            if arc in self.view:
                self.view.remove(arc)
        left = {contact.pid for contact, _ in self.view}
        for pid in sorted({contact.pid for contact, _ in arcs} - left):
            self.wires.unwant(pid)

    def _promise(self, taker: Origin, given: list[Arc]) -> None:
        """SMP-V4: make before break: keep both links until the locks between taker and given have passed here."""
        for contact, _ in given:
            if contact.pid not in (taker, self.me.pid):
                self.wires.hold(taker, contact.pid)
                self.wires.hold(contact.pid, taker)

    def _taken(self, peer: Origin, sample: Sample) -> list[Arc]:
        """A sample as arcs of this process; what cannot be is the peer's fault."""
        if len(sample) > MOST_IN_SAMPLE or any(not 0 <= age <= _MOST_AGE for _, age in sample):
            raise PeerError(peer, "sent a sample that is no sample")
        for contact, _ in sample:
            check_contact(peer, contact)
        return [(contact, self.round - age) for contact, age in sample if contact.pid != self.me.pid]

    def _as_sent(self, arcs: list[Arc], taker: Origin) -> Sample:
        """An arc to whom it is given to becomes one to the giver."""
        return tuple((self.me, 0) if contact.pid == taker else (contact, self.round - born) for contact, born in arcs)

    def _draw(self, arcs: list[Arc], count: int, *identity: int) -> list[Arc]:
        """`count` of the arcs; which ones belongs to the identity."""
        bits = self.salt
        for part in identity:
            bits = mix(bits, part)
        ranked = sorted(range(len(arcs)), key=lambda i: mix(bits, i))
        return [arcs[i] for i in ranked[:count]]


def holds_arc(mine: str, theirs: str) -> bool:
    """Which of two that know each other from the beginning has the arc: both ends answer alike, each with half."""
    low, high = sorted((mine, theirs))
    return (mine == low) == bool(crc32(f"{low} {high}".encode()) & 1)


def check_contact(peer: Origin, contact: Contact) -> None:
    """Refuse a contact that does not say who and where it is."""
    if not contact.pid or not contact.address:
        raise PeerError(peer, "names somebody without a name or an address")


def identity_of(pid: Origin) -> int:
    return crc32(pid.encode())
