"""Skeen's atomic multicast: every destination proposes a timestamp, the largest proposal decides, all deliver by it.

Genuine: only the destinations and the client take part. Spec: docs/protocols/skeen.md (AMC-K1 to AMC-K7).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable
from typing import ClassVar, Self

import msgspec

from ordercast.core.errors import InvariantError, PeerError
from ordercast.core.ids import NodeId
from ordercast.core.machine import Outbox, Place
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.multicast.multicast import (
    ANY_ORDER_LINKS,
    NO_FAULTS,
    Ask,
    CheckedOptions,
    Done,
    Key,
    Multicast,
    Ranks,
    key_of,
)

Timestamp = tuple[int, int]
"""Clock value and rank of the proposer: no two are equal, and all nodes compare them alike."""


class Propose(Packet, frozen=True, tag=3):
    """The sender's proposal for a message."""

    carries: ClassVar[str | None] = "message"

    message: Message
    clock: int


class SkeenRecord(msgspec.Struct, frozen=True, gc=False):
    """A message that is not delivered yet, and what is known of its time."""

    message: Message
    ranks: Ranks
    proposals: tuple[Timestamp, ...] = ()
    """Ascending, so that equal knowledge is an equal state."""
    own: Timestamp | None = None
    final: Timestamp | None = None


class Skeen(Multicast):
    """One server or client."""

    durable: ClassVar[tuple[str, ...]] = (*Multicast.durable, "clock", "records", "line")

    name: ClassVar[str] = "skeen"
    everyone_answers: ClassVar[bool] = True

    def __init__(self, place: Place, options: CheckedOptions) -> None:
        super().__init__(place, options)
        self.clock = 0
        self.records: dict[Key, SkeenRecord] = {}
        self.line: list[tuple[Timestamp, Key]] = []
        """Messages with an own proposal, by final timestamp where it is known and by the own one where not."""

    def _entries(self, ranks: Ranks) -> Ranks:
        return ranks

    def _on_ask(self, message: Message, ranks: Ranks, out: Outbox) -> None:
        """AMC-K1, AMC-K2: propose the next tick of the clock to all other destinations."""
        key = key_of(message)
        record = self.records.get(key) or SkeenRecord(message, ranks)
        self._tick()
        own = (self.clock, self.me)
        insort(self.line, (own, key))
        proposal = Propose(message, self.clock)
        for rank in ranks:
            if rank != self.me:
                out.send(self.servers[rank], proposal)
        self._settle(key, SkeenRecord(message, ranks, _with(record.proposals, own), own), out)

    def _on_step(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        """AMC-K3: note a proposal; it may be here before the client's copy."""
        if not isinstance(packet, Propose):
            raise self._not_ours(peer, packet)
        message = packet.message
        key = key_of(message)
        record = self.records.get(key)
        if record is None:
            record = SkeenRecord(message, self._received_ranks(peer, message))
        rank = self.rank.get(peer, -1)
        if rank not in record.ranks or any(rank == proposer for _, proposer in record.proposals):
            raise PeerError(peer, f"proposes for message {message.id} out of turn")
        proposals = _with(record.proposals, (packet.clock, rank))
        self._settle(key, SkeenRecord(message, record.ranks, proposals, record.own), out)

    def _settle(self, key: Key, record: SkeenRecord, out: Outbox) -> None:
        """AMC-K4, AMC-K5: with all proposals the largest is final; what is first in line and final is delivered."""
        if len(record.proposals) == len(record.ranks) and record.own is not None:
            final = record.proposals[-1]
            if final != record.own:
                del self.line[bisect_left(self.line, (record.own, key))]
                insort(self.line, (final, key))
            record = msgspec.structs.replace(record, final=final)
            self._catch_up(final)
        self.records[key] = record
        while self.line:
            record = self.records[self.line[0][1]]
            if record.final is None:
                return
            self._deliver(record, out)

    def _tick(self) -> None:
        self.clock += 1

    def _catch_up(self, final: Timestamp) -> None:
        """AMC-K4: later proposals exceed every final timestamp seen here."""
        self.clock = max(self.clock, final[0])

    def _deliver(self, record: SkeenRecord, out: Outbox) -> None:
        """AMC-K6, AMC-K7: deliver and answer."""
        if self.checked:
            self._check_delivery(record)
        _, key = self.line.pop(0)
        del self.records[key]
        out.deliver(record.message)
        self._answer(record.message, out)

    def _check_delivery(self, record: SkeenRecord) -> None:
        """AMC-S2 to AMC-S4: nothing known has a lower timestamp, and because of the clock nothing later gets one."""
        final = record.final
        mine = [other for other in self.records.values() if other.own is not None]
        lowest = min(other.final or other.own or () for other in mine)
        if final is None or final != lowest:
            raise InvariantError(f"{self.node} delivers {record.message.id} at {final}, with {lowest} outstanding")
        if self.clock < max(final[0], *(other.own[0] for other in mine if other.own is not None)):
            raise InvariantError(f"{self.node}: the clock is at {self.clock}, behind a timestamp it has seen")

    def copy(self) -> Self:
        """By hand: records are frozen, so two shallow copies do."""
        clone = object.__new__(type(self))
        clone.__dict__.update(self.__dict__)
        clone.awaited = self.awaited.copy()
        clone.records = self.records.copy()
        clone.line = self.line.copy()
        return clone

    def frozen(self) -> Hashable:
        """The line follows from the records."""
        return (self.clock, frozenset(self.awaited.items()), frozenset(self.records.items()))


def _with(proposals: tuple[Timestamp, ...], proposal: Timestamp) -> tuple[Timestamp, ...]:
    return tuple(sorted((*proposals, proposal)))


SKEEN = ProtocolInfo(
    name="skeen",
    summary="atomic multicast: destinations propose timestamps to each other and deliver by the largest proposal",
    source=(
        "Skeen 1985 (unpublished), as told by Birman and Joseph, Reliable Communication in the Presence of Failures, "
        "ACM TOCS 5(1), 1987, section 4 (ABCAST)"
    ),
    guarantee=Guarantee.ATOMIC,
    overlay=ANY_ORDER_LINKS,
    faults=NO_FAULTS,
    metadata="16 + o + d",
    genuine=True,
    build=Skeen,
    packets=(Ask, Done, Propose),
    options=CheckedOptions,
)
