"""A manager of entries: promises each epoch of an entry to one process, and no new one while a lease runs. CLU-6.

What a manager has promised must outlive it. It is either durable (`save`, `restore`, or what `kept` was told, and
`remember`), or learned anew after a restart: such a manager keeps silent until every lease that it could have given is
over, and then asks the others of the group. That is safe as long as no more than the tolerated number of a group's
managers are dead or learning at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import msgspec

from ordercast.core.messages import Packet
from ordercast.core.process import Peer
from ordercast.core.state import State
from ordercast.protocols.cluster.events import MAX_EPOCH, Value
from ordercast.protocols.cluster.options import ClusterOptions
from ordercast.protocols.cluster.packets import (
    Claim,
    Denied,
    Granted,
    Release,
    Renew,
    Renewed,
    TicketAsked,
    TicketState,
)  # fmt: skip
from ordercast.protocols.cluster.tickets.ring import group_of

MOST_TICKETS = 100_000
"""A manager looks after so many entries at most: what it has promised it may never forget."""

Cast = Callable[[str, Packet], None]
Holder = tuple[str, int]
"""A process in one life: name and life, as its packets prove it."""


class EntryTicket(msgspec.Struct, frozen=True):
    """A manager's knowledge of one entry."""

    promised: int = 0
    """The highest epoch that was given to anybody."""
    owner: Holder | None = None
    lease_until_ns: int = 0
    base: Value = 0
    """The highest value of the entry that an owner has told."""

    @property
    def leased(self) -> bool:
        """Whether a lease runs, or ran and was never given back."""
        return self.lease_until_ns > 0


Keep = Callable[[str, int, EntryTicket], None]
"""Hears of every ticket that has changed, before anybody can hear of it: cluster, entry, ticket."""


def keep_nothing(_cluster: str, _entry: int, _ticket: EntryTicket) -> None:
    """For managers that are durable as a whole, or learn anew."""


class Learning(msgspec.Struct, frozen=True):
    """CLU-6.9: what a manager without memory has heard of an entry so far."""

    nonce: int
    ticket: EntryTicket
    told: tuple[str, ...]


class Manager(State):
    """Looks after the entries whose group it belongs to; keeps silent about all others."""

    constant: ClassVar[tuple[str, ...]] = ("me", "options", "keep")
    durable: ClassVar[tuple[str, ...]] = ("tickets", "forgetful")

    def __init__(self, me: Peer, options: ClusterOptions, keep: Keep = keep_nothing) -> None:
        self.me = me
        self.options = options
        self.keep = keep
        self.lease_ns = round(options.lease_ms * 1e6)
        self.tickets: dict[tuple[str, int], EntryTicket] = {}
        self.forgetful = me.life > 0
        """It had a life before this one and does not know what it promised then."""
        self.silent_until_ns = 0
        self.learning: dict[tuple[str, int], Learning] = {}
        self.nonces = -(me.life << 20)
        """Of its questions; below zero, and others in every life: late answers to a former one say nothing."""

    def remember(self, tickets: Mapping[tuple[str, int], EntryTicket], *, everything: bool) -> None:
        """Before it starts: what its former lives have promised; `everything` that they have, or a part of it."""
        self.tickets = dict(tickets)
        self.forgetful = not everything

    def start(self, now_ns: int) -> None:
        """Begin, or begin again. The clock may be another one now, so every lease that is known begins anew.

        CLU-6.9: without memory, every lease and every claim of the former life must be over first.
        """
        for place, ticket in self.tickets.items():
            if ticket.leased:  # Also one that it only heard of from others: it has no owner here.
                self.tickets[place] = msgspec.structs.replace(ticket, lease_until_ns=now_ns + self.lease_ns)
        if self.forgetful:
            wait_ns = self.lease_ns + round(self.options.claim_ms * 1e6)
            self.silent_until_ns = now_ns + round(wait_ns * (1 + 2 * self.options.drift) / (1 - self.options.drift))

    def receive(self, peer: Peer, packet: Packet, now_ns: int, cast: Cast) -> None:
        """A process asks for something; the answer, if there is one, goes where it listens."""
        match packet:
            case TicketAsked(cluster, entry, nonce):
                ticket = self._known(cluster, entry, now_ns, cast, learns=nonce >= 0)
                if ticket is not None:
                    busy = now_ns < ticket.lease_until_ns
                    cast(peer.address, TicketState(cluster, entry, nonce, ticket.promised, busy, ticket.base))
            case Claim(cluster, entry):
                ticket = self._known(cluster, entry, now_ns, cast)
                if ticket is not None:
                    cast(peer.address, self._claimed(peer, packet, ticket, now_ns))
            case Renew(cluster, entry, epoch, nonce):
                if self._renewed(peer, packet, now_ns):
                    cast(peer.address, Renewed(cluster, entry, epoch, nonce))
            case Release():
                self._released(peer, packet)
            case TicketState():
                self._learn(peer, packet, now_ns)

    def _claimed(self, peer: Peer, packet: Claim, ticket: EntryTicket, now_ns: int) -> Packet:
        """CLU-6.4: an epoch is given away once, and only while no lease runs."""
        cluster, entry, epoch = packet.cluster, packet.entry, packet.epoch
        holder = (peer.name, peer.life)
        if ticket.promised == epoch and ticket.owner == holder:
            return Granted(cluster, entry, epoch, ticket.base)  # The answer was lost, or the claim came twice.
        if not ticket.promised < epoch <= MAX_EPOCH or now_ns < ticket.lease_until_ns:
            return Denied(cluster, entry, epoch)
        self._put(cluster, entry, EntryTicket(epoch, holder, now_ns + self.lease_ns, ticket.base))
        return Granted(cluster, entry, epoch, ticket.base)

    def _renewed(self, peer: Peer, packet: Renew, now_ns: int) -> bool:
        """CLU-6.6: whether the owner keeps the entry for another lease."""
        ticket = self._held_by(peer, packet.cluster, packet.entry, packet.epoch)
        if ticket is None:
            return False
        base = max(ticket.base, packet.value)
        renewed = EntryTicket(packet.epoch, ticket.owner, now_ns + self.lease_ns, base)
        self._put(packet.cluster, packet.entry, renewed)
        return True

    def _released(self, peer: Peer, packet: Release) -> None:
        """CLU-6.7: the owner gives the entry back, with the last value that it used."""
        ticket = self._held_by(peer, packet.cluster, packet.entry, packet.epoch)
        if ticket is not None:
            base = max(ticket.base, packet.value)
            self._put(packet.cluster, packet.entry, EntryTicket(packet.epoch, None, 0, base))

    def _put(self, cluster: str, entry: int, ticket: EntryTicket) -> None:
        self.tickets[cluster, entry] = ticket
        self.keep(cluster, entry, ticket)

    def _held_by(self, peer: Peer, cluster: str, entry: int, epoch: int) -> EntryTicket | None:
        ticket = self.tickets.get((cluster, entry))
        if ticket is None or ticket.promised != epoch or ticket.owner != (peer.name, peer.life):
            return None
        return ticket

    def _known(self, cluster: str, entry: int, now_ns: int, cast: Cast, *, learns: bool = True) -> EntryTicket | None:
        """The ticket, if this manager looks after it and knows what it has promised.

        CLU-6.9: a question of a manager that learns is no reason to learn: two without memory would ask for ever.
        """
        found = self.tickets.get((cluster, entry))
        if found is not None or not 0 <= entry < self.options.entries or len(self.tickets) >= MOST_TICKETS:
            return found
        if self.me.address not in self._group(cluster, entry):
            return None
        if self.forgetful:
            if learns:
                self._begin_learning(cluster, entry, now_ns, cast)
            return None
        self.tickets[cluster, entry] = ticket = EntryTicket()
        return ticket

    def _group(self, cluster: str, entry: int) -> tuple[str, ...]:
        return group_of(cluster, entry, self.options.managers, self.options.tolerated)

    def _begin_learning(self, cluster: str, entry: int, now_ns: int, cast: Cast) -> None:
        """CLU-6.9: whoever asks for an entry makes this manager ask the others of its group."""
        if now_ns < self.silent_until_ns or len(self.learning) >= MOST_TICKETS:
            return
        known = self.learning.get((cluster, entry))
        if known is None:
            self.nonces -= 1
            known = self.learning[cluster, entry] = Learning(self.nonces, EntryTicket(), ())
        for address in self._group(cluster, entry):
            if address != self.me.address and address not in known.told:
                cast(address, TicketAsked(cluster, entry, known.nonce))

    def _learn(self, peer: Peer, packet: TicketState, now_ns: int) -> None:
        """CLU-6.9: k + 1 others, one of which was there for every epoch that this one has forgotten."""
        place = packet.cluster, packet.entry
        known = self.learning.get(place)
        if known is None or known.nonce != packet.nonce or peer.address not in self._group(*place):
            return
        told = (*known.told, peer.address) if peer.address not in known.told else known.told
        until_ns = now_ns + self.lease_ns if packet.busy else 0
        ticket = EntryTicket(
            max(known.ticket.promised, packet.promised), None, max(known.ticket.lease_until_ns, until_ns),
            max(known.ticket.base, packet.base),
        )  # fmt: skip
        if len(told) > self.options.tolerated:
            del self.learning[place]
            self._put(*place, ticket)
        else:
            self.learning[place] = Learning(known.nonce, ticket, told)
