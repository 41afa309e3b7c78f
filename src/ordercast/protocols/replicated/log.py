"""The log that the replicas of one group agree on, entry by entry, while a majority of them lives.

One replica leads a view and appends; what a majority has is committed and stays. When a leader is suspected the next
replica collects what a majority knows before it leads, so no committed entry is lost; wrong suspicions cost time only.
Spec: docs/protocols/replicated.md (REP-V1 to REP-V9).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import msgspec

from ordercast.core.errors import InvariantError, PeerError
from ordercast.core.ids import NodeId
from ordercast.core.machine import Outbox
from ordercast.core.messages import Packet
from ordercast.core.state import State

_PART_BYTES = 1 << 15
"""So much of a log travels in one packet, or a single entry: no backlog makes a packet that a link cannot carry."""
_ENTRY_BYTES = 16
"""What an entry takes at most beside its source and its body."""
_NOT_HERE = -1
"""Less than any length: even an empty log is still to be shown to a replica that has not entered the view."""


class LogEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One input of the group: the `number`-th packet on the channel from `source`."""

    source: NodeId
    number: int
    body: bytes


def in_parts(start: int, entries: list[LogEntry]) -> Iterator[tuple[int, tuple[LogEntry, ...]]]:
    """The entries in parts that fit into a packet each, with where they begin; one empty part if there are none."""
    begin = size = 0
    for i, entry in enumerate(entries):
        takes = len(entry.source) + len(entry.body) + _ENTRY_BYTES
        if i > begin and size + takes > _PART_BYTES:
            yield start + begin, tuple(entries[begin:i])
            begin, size = i, 0
        size += takes
    yield start + begin, tuple(entries[begin:])


class Append(Packet, frozen=True, tag=11):
    """The leader's log from `start` on; if that is too much for one packet, the rest follows in others."""

    view: int
    start: int
    entries: tuple[LogEntry, ...]
    committed: int
    stable: int
    """So many entries are known to be committed everywhere and will never be asked for."""


class Appended(Packet, frozen=True, tag=12):
    view: int
    length: int
    committed: int


class Behind(Packet, frozen=True, tag=13):
    """The sender lacks what comes before an Append; it has the leader's log up to `length`."""

    view: int
    length: int


class Prepare(Packet, frozen=True, tag=14):
    """The sender wants to lead the view and has committed so much."""

    view: int
    committed: int


class Promise(Packet, frozen=True, tag=15):
    """The sender follows no lower view any more, and this is what it has, or a part of it."""

    view: int
    last_view: int
    start: int
    entries: tuple[LogEntry, ...]
    committed: int
    length: int
    """Of the sender's log: the promise is given with the part that reaches it."""

    @property
    def end(self) -> int:
        return self.start + len(self.entries)

    @property
    def rank(self) -> tuple[int, int]:
        """Of two logs the one with the higher rank holds everything that can be committed."""
        return self.last_view, self.end

    def joined(self, part: Promise) -> Promise:
        """With what the part adds; as it is if something between the two is missing."""
        if not self.start <= part.start <= self.end:
            return self
        return msgspec.structs.replace(self, entries=self.entries + part.entries[self.end - part.start :])


class Stale(Packet, frozen=True, tag=16):
    """The sender waits in this view: the receiver does not know it, or its leader is gone, or has not shown its log."""

    view: int


LOG_PACKETS = (Append, Appended, Behind, Prepare, Promise, Stale)


class ReplicaLog(State):
    """One replica's part in the agreement of its group."""

    constant: ClassVar[tuple[str, ...]] = ("me", "members", "others")
    durable: ClassVar[tuple[str, ...]] = (
        "view", "last_view", "base", "entries", "committed", "applied", "leading", "promises",
        "sent", "told", "acked", "settled",
    )  # fmt: skip

    def __init__(self, me: NodeId, members: tuple[NodeId, ...]) -> None:
        self.me = me
        self.members = members
        self.others = tuple(member for member in members if member != me)
        self.view = 0
        self.last_view = 0
        """The view whose leader's log this one was last made equal to."""
        self.base = 0
        """So many entries at the front were dropped."""
        self.entries: list[LogEntry] = []
        self.committed = 0
        self.applied = 0
        self.leading = members[0] == me
        self.promises: dict[NodeId, Promise] = {}
        self.suspected: set[NodeId] = set()
        self.sent = dict.fromkeys(self.others, 0)
        self.told = dict.fromkeys(self.others, 0)
        """The number of committed entries that each replica was last told."""
        self.acked = dict.fromkeys(self.others, 0)
        """The length that each replica's log is known to have in this view; _NOT_HERE before it has entered it."""
        self.settled = dict.fromkeys(self.others, 0)
        """The number of committed entries that each replica says it knows of."""
        self.rewound: dict[NodeId, int] = {}
        """Where the log was last sent again from since the replica was last probed."""

    @property
    def length(self) -> int:
        return self.base + len(self.entries)

    @property
    def leader(self) -> NodeId | None:
        """The leader, as far as this replica knows; None between two views."""
        return self._leader_of(self.view) if self.view == self.last_view else None

    def _leader_of(self, view: int) -> NodeId:
        return self.members[view % len(self.members)]

    # The leader's side

    def propose(self, entry: LogEntry) -> None:
        """REP-V1: the leader appends; `flush` sends."""
        if not self.leading:
            raise InvariantError(f"{self.me} proposes and does not lead")
        self.entries.append(entry)

    def flush(self, out: Outbox) -> None:
        """REP-V1: bring every replica that is not suspected up to date, with one packet each."""
        if not self.leading:
            return
        for peer in self.others:
            if peer not in self.suspected and (self.sent[peer] < self.length or self.told[peer] < self.committed):
                self._append(peer, out)

    def _append(self, peer: NodeId, out: Outbox) -> None:
        start = self.sent[peer]
        stable = min([self.committed, *self.settled.values()])
        for place, part in in_parts(start, self.entries[start - self.base :]):
            out.send(peer, Append(self.view, place, part, self.committed, stable))
        self.sent[peer], self.told[peer] = self.length, self.committed

    def _probe(self, peer: NodeId, out: Outbox) -> None:
        """REP-V6: an Append that is empty; whoever lacks something says so."""
        self.rewound.pop(peer, None)
        self.sent[peer] = self.length
        self._append(peer, out)

    def _rewind(self, peer: NodeId, length: int, out: Outbox) -> None:
        """REP-V4: begin where the replica says, once: it says so for every packet behind the one that it lacks."""
        if self.rewound.get(peer) != length:
            self.rewound[peer] = length
            self.sent[peer] = max(length, self.base)
            self._append(peer, out)

    def uncommitted(self) -> list[LogEntry]:
        """Entries of the log that are not applied yet."""
        return self.entries[self.applied - self.base :]

    def take_committed(self) -> list[LogEntry]:
        """REP-V3: what is to be applied now, in order; each entry once."""
        if self.leading:
            self._commit()
        ready = self.entries[self.applied - self.base : self.committed - self.base]
        self.applied = self.committed
        if self.leading:
            self._drop_until(min([self.applied, *self.settled.values()]))
        return ready

    def _commit(self) -> None:
        """REP-V2: what a majority has in this view is committed."""
        lengths = sorted([self.length, *self.acked.values()], reverse=True)
        self.committed = max(self.committed, lengths[self._majority() - 1])

    def _majority(self) -> int:
        return len(self.members) // 2 + 1

    def _drop_until(self, stable: int) -> None:
        """REP-V9: what everybody has committed is dropped."""
        keep = min(stable, self.applied)
        if keep > self.base:
            del self.entries[: keep - self.base]
            self.base = keep

    # Packets

    def on_packet(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        if peer not in self.others:
            raise PeerError(peer, f"is no replica of the group of {self.me}")
        match packet:
            case Append():
                self._on_append(peer, packet, out)
            case Appended():
                self._on_appended(peer, packet)
            case Behind(view, length):
                if self.leading and view == self.view:
                    self._rewind(peer, length, out)
            case Prepare():
                self._on_prepare(peer, packet, out)
            case Promise():
                self._on_promise(peer, packet, out)
            case Stale(view):
                self._on_stale(peer, view, out)
            case _:
                raise PeerError(peer, f"sent a {type(packet).__name__}, which is not part of the log")

    def _on_append(self, peer: NodeId, packet: Append, out: Outbox) -> None:
        """REP-V4: follow the leader's log where the two are known to be equal up to `start`."""
        if not self._accepts_view(peer, packet.view, out):
            return
        known = self.length if self.last_view == packet.view else self.committed
        if packet.start > known or packet.start < self.base:
            out.send(peer, Behind(packet.view, known))
            return
        if self.last_view != packet.view:
            del self.entries[packet.start - self.base :]
            self.last_view = packet.view
        self.entries += packet.entries[self.length - packet.start :]
        if self.length < self.committed:
            raise InvariantError(f"{self.me}: view {packet.view} of {peer} lacks committed entries")
        self.committed = max(self.committed, min(packet.committed, self.length))
        self._drop_until(packet.stable)
        if packet.entries or packet.start == self.length:
            out.send(peer, Appended(packet.view, self.length, self.committed))

    def _on_appended(self, peer: NodeId, packet: Appended) -> None:
        if self.leading and packet.view == self.view:
            self.acked[peer] = max(self.acked[peer], packet.length)
            self.settled[peer] = max(self.settled[peer], packet.committed)

    def _accepts_view(self, peer: NodeId, view: int, out: Outbox) -> bool:
        """Whether the packet is of this view or a later one, which then becomes the own; the sender must lead it."""
        if peer != self._leader_of(view):
            raise PeerError(peer, f"leads view {view}, which is not its own")
        if view < self.view:
            out.send(peer, Stale(self.view))
            return False
        if view > self.view:
            self._leave_view(view)
        return True

    def _leave_view(self, view: int) -> None:
        self.view = view
        self.leading = False
        self.promises.clear()

    # Views

    def _on_prepare(self, peer: NodeId, packet: Prepare, out: Outbox) -> None:
        """REP-V5: promise to follow no lower view, and say what is here beyond what the sender has committed."""
        follows_already = packet.view == self.last_view  # Then the sender leads: this is a late copy of its question.
        if self._accepts_view(peer, packet.view, out) and not follows_already:
            start = min(packet.committed, self.length)
            if start < self.base:
                raise PeerError(peer, f"wants entries from {start} on, which it said to have")
            for place, part in in_parts(start, self.entries[start - self.base :]):
                out.send(peer, Promise(packet.view, self.last_view, place, part, self.committed, self.length))

    def _on_promise(self, peer: NodeId, packet: Promise, out: Outbox) -> None:
        if packet.view != self.view or self.leading or self._leader_of(self.view) != self.me:
            return
        known = self.promises.get(peer)
        if known is not None:
            self.promises[peer] = known.joined(packet)
        elif packet.start <= self.committed:
            self.promises[peer] = packet  # A later part without the first says nothing about what lies between.
        if len(self._given()) + 1 >= self._majority():
            self._lead(out)

    def _given(self) -> list[Promise]:
        """The promises that are here in full."""
        return [promise for promise in self.promises.values() if promise.end == promise.length]

    def _lead(self, out: Outbox) -> None:
        """REP-V6: take over the best log of a majority; it holds all that any earlier view has committed."""
        given = self._given()
        self._adopt(given)
        self.committed = max([self.committed, *(promise.committed for promise in given)])
        self.last_view = self.view
        self.leading = True
        self.promises.clear()
        for peer in self.others:
            self.acked[peer] = _NOT_HERE
            if peer not in self.suspected:
                self._probe(peer, out)

    def _adopt(self, promises: list[Promise]) -> None:
        best = max(promises, key=lambda promise: promise.rank, default=None)
        if best is not None and best.rank > (self.last_view, self.length):
            self.entries[best.start - self.base :] = best.entries

    def on_suspect(self, peer: NodeId, out: Outbox) -> None:
        self.suspected.add(peer)
        self._seek_leader(out)

    def on_trust(self, peer: NodeId, out: Outbox) -> None:
        """REP-V8: what was not sent meanwhile, or was lost, is sent now."""
        self.suspected.discard(peer)
        self._ask_where_it_stands(peer, out)
        self._seek_leader(out)

    def _ask_where_it_stands(self, peer: NodeId, out: Outbox) -> None:
        """REP-V8: whoever leads, or wants to, asks again; nobody else does."""
        if self.leading:
            self._probe(peer, out)
        elif self._leader_of(self.view) == self.me:
            out.send(peer, Prepare(self.view, self.committed))

    def is_waiting(self) -> bool:
        """Whether the next step of this replica depends on a packet that may be lost."""
        if self.leading:
            return any(self._lags(peer) for peer in self.others if peer not in self.suspected)
        return self._leader_of(self.view) == self.me

    def _lags(self, peer: NodeId) -> bool:
        return self.acked[peer] < self.length or self.settled[peer] < self.committed

    def retry(self, out: Outbox) -> None:
        """REP-V8: ask again for what has not come; between two views that is the log of the one who is to lead."""
        for peer in self.others:
            if peer not in self.suspected and not (self.leading and not self._lags(peer)):
                self._ask_where_it_stands(peer, out)
        leader = self._leader_of(self.view)
        if self.leader is None and leader != self.me and leader not in self.suspected:
            out.send(leader, Stale(self.view))
        self._seek_leader(out)

    def on_recover(self, out: Outbox) -> None:
        """REP-V8: the former self's suspicions are forgotten, and everybody hears where this replica stands."""
        self.suspected.clear()
        for peer in self.others:
            self.on_trust(peer, out)

    def _on_stale(self, peer: NodeId, view: int, out: Outbox) -> None:
        """REP-V7, REP-V8: enter the view if it is higher; whoever leads it shows the sender its log."""
        if view > self.view:
            self._leave_view(view)
        self._ask_where_it_stands(peer, out)
        self._seek_leader(out)

    def _seek_leader(self, out: Outbox) -> None:
        """REP-V5, REP-V7: behind a suspected leader comes the next that is not suspected; it is told if it sleeps."""
        if self._leader_of(self.view) not in self.suspected:
            return
        view = self.view + 1
        while self._leader_of(view) in self.suspected:
            view += 1
        if self._leader_of(view) != self.me:
            out.send(self._leader_of(view), Stale(self.view))
            return
        self._leave_view(view)
        for peer in self.others:
            if peer not in self.suspected:
                out.send(peer, Prepare(view, self.committed))
        if self._majority() == 1:
            self._lead(out)
