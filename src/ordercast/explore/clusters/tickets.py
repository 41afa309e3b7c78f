"""The tickets of one entry completely: three managers, some that want it, packets in any order, lost or not.

Time passes in halves of a lease, for everybody alike; one manager may lose its memory. No two own the entry at a time
and no epoch ever has two owners. To ask two managers and to hear their answers is one step here, and a claim is
answered at once or never: what was heard may be out of date when the claim arrives, but two are asked at one moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

from ordercast.core.messages import Packet
from ordercast.core.process import Peer
from ordercast.explore.clusters.search import BrokenScopeError, Explored, explore_all
from ordercast.protocols.cluster.options import ClusterOptions
from ordercast.protocols.cluster.packets import Claim, Release, Renew, TicketAsked, TicketState
from ordercast.protocols.cluster.tickets.lease import Lease, Phase
from ordercast.protocols.cluster.tickets.manager import Manager

LEASE, _CLAIM = 2, 1
"""In halves of a lease: a lease, and how long a claim is waited for."""
_MANAGERS = ("m0", "m1", "m2")


class Flying(NamedTuple):
    """A packet on its way."""

    source: Peer
    to: str
    packet: Packet


class TicketMoment(NamedTuple):
    """A state."""

    now: int
    managers: tuple[Manager, ...]
    wanting: tuple[Lease, ...]
    flying: frozenset[Flying]
    owners: tuple[tuple[int, int], ...]
    """Epochs that somebody got, and who."""
    asks: tuple[int, ...]
    forgets: int


class TicketScope:
    """`wanting` processes with `asks` attempts each, until so many `halves` of a lease have passed."""

    def __init__(
        self, wanting: int = 2, asks: int = 1, halves: int = 5, forgets: int = 0, *,
        manager: type[Manager] = Manager, lease: type[Lease] = Lease,
    ) -> None:  # fmt: skip
        self.options = ClusterOptions(
            managers=_MANAGERS, entries=1, lease_ms=LEASE * 1e-6, claim_ms=_CLAIM * 1e-6, drift=0.0
        )
        self.halves = halves
        self.manager = manager
        self.peers = tuple(Peer("node", f"q{i}", 0, f"q{i}") for i in range(wanting))
        managers = tuple(manager(Peer("node", name, 0, name), self.options) for name in _MANAGERS)
        leases = tuple(lease("room", self.options, i) for i in range(wanting))
        self.start = TicketMoment(0, managers, leases, frozenset(), (), (asks,) * wanting, forgets)

    def explore(self, most: int = 2_000_000) -> Explored:
        return explore_all(self.start, self._steps, most)

    def _steps(self, moment: TicketMoment) -> Iterator[tuple[str, TicketMoment]]:
        for step, after in self._moves(moment):
            yield step, self._checked(step, after)

    def _moves(self, moment: TicketMoment) -> Iterator[tuple[str, TicketMoment]]:
        for flying in sorted(moment.flying, key=str):
            step = f"{type(flying.packet).__name__} of {flying.source.name} reaches {flying.to}"
            unanswered, answered = self._reached(moment, flying)
            yield f"{step}, the answer is lost", unanswered
            yield step, answered
        for i, lease in enumerate(moment.wanting):
            yield from self._wish(moment, i, lease)
        if moment.now < self.halves:
            yield "half a lease passes", moment._replace(now=moment.now + 1)
        if moment.forgets:
            for i, name in enumerate(_MANAGERS):
                yield f"{name} forgets", self._forget(moment, i)

    def _wish(self, moment: TicketMoment, i: int, lease: Lease) -> Iterator[tuple[str, TicketMoment]]:
        name = self.peers[i].name
        if lease.phase in (Phase.NONE, Phase.BACKING_OFF) and moment.asks[i]:
            left = (*moment.asks[:i], moment.asks[i] - 1, *moment.asks[i + 1 :])
            for quorum in combinations(range(len(_MANAGERS)), self.options.tolerated + 1):
                asked = ", ".join(_MANAGERS[m] for m in quorum)
                yield f"{name} asks {asked}", self._asked(moment._replace(asks=left), i, quorum)
        elif lease.phase is Phase.CLAIMING and moment.now - lease.sent_ns >= _CLAIM:
            yield f"{name} gives its claim up", self._acted(moment, i, "give_up_claim")
        elif lease.phase is Phase.OWNER and lease.is_valid(moment.now):
            yield f"{name} gives it back", self._acted(moment, i, "release")

    def _acted(self, moment: TicketMoment, i: int, what: str) -> TicketMoment:
        lease, said = moment.wanting[i].copy(), set(moment.flying)

        def cast(address: str, packet: Packet) -> None:
            said.add(Flying(self.peers[i], address, packet))

        getattr(lease, what)(*([cast] if what == "release" else [moment.now, cast]))
        return self._with_lease(moment, i, lease)._replace(flying=frozenset(said))

    def _reached(self, moment: TicketMoment, flying: Flying) -> tuple[TicketMoment, TicketMoment]:
        """A packet reaches a manager: without its answer, and with it."""
        after = self._arrive(moment, flying)
        answers = [one for one in after.flying - moment.flying if one.to not in _MANAGERS]
        unanswered = answered = after._replace(flying=after.flying.difference(answers))
        for answer in answers:
            answered = self._arrive(answered, answer)
        return unanswered, answered

    def _asked(self, moment: TicketMoment, i: int, quorum: tuple[int, ...]) -> TicketMoment:
        """Ask and hear the answers of these managers; the claim is on its way then, if they have not given it away."""
        flying = moment.flying
        asked = self._acted(moment, i, "ask")
        for m in quorum:
            question = next(one for one in asked.flying - flying if one.to == _MANAGERS[m])
            answered = self._arrive(asked, question)
            for answer in [one for one in answered.flying - asked.flying if isinstance(one.packet, TicketState)]:
                answered = self._arrive(answered, answer) if answer.to not in _MANAGERS else answered
            asked = answered
        left = frozenset(one for one in asked.flying if not isinstance(one.packet, TicketAsked) or one.packet.nonce < 0)
        return asked._replace(flying=left)

    def _arrive(self, moment: TicketMoment, flying: Flying) -> TicketMoment:
        said = set(moment.flying) - {flying}
        if flying.to in _MANAGERS:
            return self._at_manager(moment, _MANAGERS.index(flying.to), flying, said)
        i = next(i for i, peer in enumerate(self.peers) if peer.address == flying.to)
        lease = moment.wanting[i].copy()
        grant = lease.receive(
            flying.source.address, flying.packet, moment.now,
            lambda address, packet: said.add(Flying(self.peers[i], address, packet)),
        )  # fmt: skip
        after = self._with_lease(moment, i, lease)._replace(flying=frozenset(said))
        return after if grant is None else after._replace(owners=(*after.owners, (grant.epoch, i)))

    def _at_manager(self, moment: TicketMoment, i: int, flying: Flying, said: set[Flying]) -> TicketMoment:
        manager: Any = moment.managers[i].copy()
        if isinstance(flying.packet, TicketAsked | Claim | Renew | Release | TicketState):
            manager.receive(
                flying.source, flying.packet, moment.now,
                lambda address, packet: said.add(Flying(manager.me, address, packet)),
            )  # fmt: skip
        managers = (*moment.managers[:i], manager, *moment.managers[i + 1 :])
        return moment._replace(managers=managers, flying=frozenset(said))

    def _forget(self, moment: TicketMoment, i: int) -> TicketMoment:
        fresh = self.manager(Peer("node", _MANAGERS[i], 1, _MANAGERS[i]), self.options)
        fresh.start(moment.now)
        managers = (*moment.managers[:i], fresh, *moment.managers[i + 1 :])
        return moment._replace(managers=managers, forgets=moment.forgets - 1)

    def _with_lease(self, moment: TicketMoment, i: int, lease: Lease) -> TicketMoment:
        return moment._replace(wanting=(*moment.wanting[:i], lease, *moment.wanting[i + 1 :]))

    def _checked(self, step: str, moment: TicketMoment) -> TicketMoment:
        epochs = [epoch for epoch, _ in moment.owners]
        if len(epochs) != len(set(epochs)):
            raise BrokenScopeError(f"{step} | O5: two owners of one epoch: {moment.owners}")
        valid = [i for i, lease in enumerate(moment.wanting) if lease.is_valid(moment.now)]
        if len(valid) > 1:
            raise BrokenScopeError(f"{step} | O6: {[self.peers[i].name for i in valid]} own the entry at a time")
        return moment
