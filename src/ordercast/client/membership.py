"""One topic at the client: numbers, outbox, received-set, history. No packets and no timers here."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import compress, islice, takewhile
from typing import ClassVar

from msgspec.structs import replace

from ordercast.client.ports import SAFE, SavedTopic
from ordercast.core.ids import Origin, Topic
from ordercast.core.state import State
from ordercast.pubsub.batches import follow_each_other, new_ones, weighed_pieces
from ordercast.pubsub.client_packets import Sealed
from ordercast.pubsub.closed import ClosedSessions
from ordercast.pubsub.cuts import folded, intervals
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Received, Vector
from ordercast.pubsub.seals import NO_SEAL, SEAL_BYTES, cut

# How far the present edge has come with the membership. Publications leave in LIVE only, deliveries count from GRANTED.
OUT, ASKED, RESUMED, GRANTED, LIVE, LEAVING = "out", "asked", "resumed", "granted", "live", "leaving"

NO_KEY = ("",)
"""The keys of a publication that names none."""


class Membership(State):
    """The client's state of one topic, whichever broker is its edge."""

    constant: ClassVar[tuple[str, ...]] = ("topic",)
    derived: ClassVar[tuple[str, ...]] = ("since",)

    def __init__(self, topic: Topic, origin: Origin, saved: SavedTopic | None = None) -> None:
        kept = saved or SavedTopic()
        self.topic = topic
        self.origin = origin
        self.wants: bool | None = kept.receives
        """True: receive; False: publish only; None: be no member (any more)."""
        self.phase = OUT
        self.asked_to_receive = False
        """What the Subscribe that is under way, or was granted, said."""
        self.receiving = bool(kept.receives) and kept.granted
        """Whether deliveries go to the application: from the first grant until it unsubscribes."""
        self.since = ""
        """The filter that was confirmed before the topic began, and made this client a member of it from then on."""
        self.unasked = False
        """It wants to receive because a filter takes in what it publishes on; nobody knows yet whether it may."""
        self.counted = kept.receives is not None
        """The broker tree may count this client among the members: it has to take leave, or come back."""
        self.open = True
        self.counter = kept.counter
        self.outbox: dict[int, Publication] = {publication.number: publication for publication in kept.outbox}
        self.unsent: list[Publication] = []
        """The part of the outbox that waits for the end of the turn, or for Flow."""
        self.under_way: deque[tuple[int, int]] = deque()
        """Batches that the edge has not acknowledged: the last number, and the bytes."""
        self.bytes_under_way = 0
        self.written = self.counter
        """Publications up to this number are in the ledger."""
        self.have = Received(kept.have)
        self.base: Vector = dict(kept.base)
        taken = len(kept.history) - kept.untaken
        self.history: list[Publication] = kept.history[:taken]
        """Taken by the application, not stable, in the order of delivery."""
        self.untaken: deque[Sequence[Publication]] = deque()
        """Delivered and not taken by the application yet: what its memory holds."""
        self.taken_of_first = 0
        if kept.untaken:
            self.untaken.append(kept.history[taken:])
        self.sealed: list[tuple[Sequence[Publication], bytes]] = []
        """Proofs of what is kept of the deliveries, for the next edge: batches as they came, and their seals."""
        if kept.seals:
            seals = [kept.seals.get((entry.origin, entry.number), NO_SEAL) for entry in kept.history]
            self.sealed.append((tuple(kept.history), b"".join(seals)))
        self.base_seals = dict(kept.base_seals)
        self.coming: Sealed | None = None
        """Proofs of what the edge's next packet carries."""
        self.unreported = 0
        self.unreported_bytes = 0
        """Of payloads, as if those of a batch were all as long as its first."""
        self.reported: Vector | None = None
        """None: nothing yet, to this edge."""
        self.ahead: frozenset[Origin] = frozenset()
        """Publishers of whom more is known to be stable here than the edge knew when it granted the membership."""
        self.levels: dict[str, tuple[int, tuple[int, ...]]] = {}
        self.safe_before = kept.safe
        """What an earlier life was told to be safe."""
        self.aged = False
        """Sessions of the topic are closed, of which nothing is counted one by one."""

    def rename(self, origin: Origin) -> None:
        """BRK-F1: the session has another ticket; nothing was ever sent under the name before."""
        self.origin = origin
        self.outbox = {number: replace(entry, origin=origin) for number, entry in self.outbox.items()}
        self.unsent = [self.outbox[entry.number] for entry in self.unsent if entry.number in self.outbox]

    # Publishing

    def republish(self) -> None:
        """BRK-C6: the whole outbox once more, in order."""
        self.arrived(self.counter)
        self.unsent = list(self.outbox.values())

    def batches(self, most: int, most_bytes: int, window_bytes: int) -> Iterator[tuple[Publication, ...]]:
        """Publications that wait to be sent, a packet at a time; afterwards only what is beyond the window waits."""
        if self.bytes_under_way >= window_bytes:
            return
        sent = 0
        for batch, size in weighed_pieces(self.unsent, most, most_bytes):
            sent += len(batch)
            self.bytes_under_way += size
            self.under_way.append((batch[-1].number, size))
            yield batch
            if self.bytes_under_way >= window_bytes:
                break
        del self.unsent[:sent]  # Often a few of very many: the rest is not copied.

    def arrived(self, number: int) -> bool:
        """The edge has everything up to this number; whether more may be sent now."""
        while self.under_way and self.under_way[0][0] <= number:
            self.bytes_under_way -= self.under_way.popleft()[1]
        return bool(self.unsent)

    def drop_outbox(self) -> None:
        """The topic is denied: nothing that waits will ever be sent."""
        self.outbox.clear()
        self.unsent = []

    def send_nothing_yet(self) -> None:
        """Publications wait in the outbox until an edge has confirmed the membership (BRK-C5)."""
        self.unsent = []

    def give_up(self, number: int) -> bool:
        """It was refused, and leaves the outbox; whether more may be sent now."""
        del self.outbox[number]
        return self.arrived(number)

    def set_flow(self, *, open_: bool) -> None:
        """BRK-ST4: whether the edge takes more of the topic now."""
        self.open = open_

    def unanswered(self) -> list[Publication]:
        """Publications in the outbox that were never called safe."""
        return [entry for entry in self.outbox.values() if not self._is_safe(entry.number)]

    def unsafe(self) -> bool:
        """Whether something that was published here might be lost with a broker if this client did not have it."""
        own = (entry.number for entry in self.history if entry.origin == self.origin)
        return bool(self.outbox) or not all(map(self._is_safe, own))

    def _is_safe(self, number: int) -> bool:
        """Whether this life or an earlier one was told so."""
        told = (self.levels.get(SAFE, (0, ())), self.safe_before)
        return any(number <= low or number in extras for low, extras in told)

    # Delivering

    def take(self, entries: Sequence[Publication], closed: ClosedSessions) -> Sequence[Publication]:
        """BRK-C2, BRK-C4, BRK-F8: the entries that are new, in order; own ones leave the outbox."""
        fresh = new_ones(self.have, entries, closed, in_a_row=follow_each_other(entries))
        if self.outbox:
            mine = self.origin
            for entry in fresh:
                if entry.origin == mine:
                    self.outbox.pop(entry.number, None)
        return fresh

    def expect(self, proofs: Sealed) -> None:
        """The edge has proved what its next packet carries."""
        self.coming = proofs

    def seal(self, entries: Sequence[Publication], fresh: Sequence[Publication]) -> bytes:
        """Keep the proofs of the entries; gives those of the fresh ones among them, none if there are none."""
        coming, self.coming = self.coming, None
        if coming is None or len(coming.entries) != len(entries) * SEAL_BYTES or not entries:
            return b""
        self.sealed.append((entries, coming.entries))
        return coming.entries if len(fresh) == len(entries) else self._seals_of(fresh)

    def _seals_of(self, entries: Sequence[Publication]) -> bytes:
        known = {
            (entry.origin, entry.number): seal
            for batch, seals in self.sealed
            for entry, seal in zip(batch, cut(seals, len(batch)), strict=True)
        }
        return b"".join(known.get((entry.origin, entry.number), NO_SEAL) for entry in entries)

    def proof(self, entries: Sequence[Publication]) -> Sealed | None:
        """The seal that shows that base and deliveries are as brokers said; None where they never proved anything."""
        if not self.sealed and not self.base_seals:
            return None
        base = b"".join(self.base_seals.get(origin, NO_SEAL) for origin in self.base)
        return Sealed(self.topic, base, self._seals_of(entries))

    def remember(self, fresh: Sequence[Publication], *, taken: bool) -> None:
        """Keep what was delivered until it is stable."""
        if taken:
            self.history.extend(fresh)
            self._count_taken(fresh, len(fresh))
        else:
            self.untaken.append(fresh)

    def consumed(self, count: int) -> None:
        """The application has taken the next `count` deliveries."""
        while count and self.untaken:  # Nothing is untaken any more once deliveries have ended.
            first = self.untaken[0]
            left = len(first) - self.taken_of_first
            self._count_taken(first, min(count, left))
            if count < left:
                self.history.extend(first[self.taken_of_first : self.taken_of_first + count])
                self.taken_of_first += count
                return
            self.history.extend(first[self.taken_of_first :] if self.taken_of_first else first)
            self.untaken.popleft()
            self.taken_of_first = 0
            count -= left

    def _count_taken(self, batch: Sequence[Publication], count: int) -> None:
        self.unreported += count
        self.unreported_bytes += len(batch[0].payload) * count

    def follows(self, pattern: str, *, unasked: bool) -> None:
        """A filter led here: one that was confirmed before the topic began, or empty; `unasked`: by a publication."""
        self.since = pattern or self.since
        self.unasked = unasked

    def is_asked_for(self) -> None:
        """The application, or an edge that told of the topic, says that it is to receive."""
        self.unasked = False

    def only_publish(self) -> None:
        """It may not receive; whether it is a member at all is as before."""
        self.since, self.unasked = "", False
        self.wants = False if self.wants else self.wants

    def begin_deliveries(self) -> str:
        """The first grant; gives the filter that the topic began after, which is told once."""
        since, self.since, self.unasked = self.since, "", False
        self.receiving = True
        return since

    def end_deliveries(self) -> None:
        """The application takes no more: what it was handed counts as taken."""
        self.receiving = False
        self.since = ""
        self.history = self.kept()
        self.untaken.clear()
        self.taken_of_first = 0

    def kept(self) -> list[Publication]:
        """Everything delivered and not stable, in the order of delivery."""
        return self.history + list(self._untaken_entries())

    def untaken_behind(self, count: int) -> list[Sequence[Publication]]:
        """What the application has not taken, without the first so many deliveries of it."""
        skip, behind = count + self.taken_of_first, []
        for batch in self.untaken:
            if skip < len(batch):
                behind.append(batch[skip:] if skip else batch)
            skip = max(0, skip - len(batch))
        return behind

    def first_untaken(self, count: int) -> list[Publication]:
        return list(islice(self._untaken_entries(), count))

    def untaken_count(self) -> int:
        return sum(map(len, self.untaken)) - self.taken_of_first

    def _untaken_entries(self) -> Iterator[Publication]:
        for i, batch in enumerate(self.untaken):
            yield from batch if i else islice(batch, self.taken_of_first, None)

    # Stability

    def consumed_vector(self) -> Vector:
        """BRK-ST1: per publisher, everything up to this number has been taken by the application."""
        vector = self.have.vector()
        for entry in self._untaken_entries():
            if vector.get(entry.origin, 0) >= entry.number:
                vector[entry.origin] = entry.number - 1
        return vector

    def report(self) -> Vector | None:
        """BRK-ST1: the part of it that the edge does not know to be stable; None: nothing new to it."""
        low, ahead = self.base.get, self.ahead
        vector = {
            origin: number for origin, number in self.consumed_vector().items()
            if number > low(origin, 0) or origin in ahead
        }  # fmt: skip
        if (not self.have.low) if self.reported is None else (vector.items() <= self.reported.items()):
            return None
        self.reported = vector
        return vector

    def granted(self, base: Vector, *, aged: bool) -> None:
        """The edge knows so much to be stable; `aged`: and everything of closed sessions of the topic."""
        self.aged = self.aged or aged
        self.ahead = frozenset(origin for origin, number in self.base.items() if number > base.get(origin, 0))

    def stable(self, base: Vector, closed: ClosedSessions) -> Vector:
        """BRK-C7, BRK-C8: cut history and outbox; gives what of the base has grown."""
        mine = self.base
        grown = {origin: number for origin, number in base.items() if number > mine.get(origin, 0)}
        if closed:
            grown = {origin: number for origin, number in grown.items() if origin in mine or origin not in closed}
        if not grown:
            return grown
        mine.update(grown)
        self._seal_base(base, grown)
        self.have.raise_to(grown)
        low = mine.get
        if self.sealed:
            unstable = [any(one.number > low(one.origin, 0) for one in reversed(batch)) for batch, _ in self.sealed]
            self.sealed = list(compress(self.sealed, unstable))
        self.history = [entry for entry in self.history if entry.number > low(entry.origin, 0)]
        if self.origin in grown and self.outbox:
            known = grown[self.origin]
            for number in list(takewhile(known.__ge__, self.outbox)):  # They are in order.
                del self.outbox[number]
        return grown

    def with_closed(self, cut: Vector, closed: ClosedSessions) -> Vector:
        """ARC-12: the cut as one of a kept topic: everything of sessions that are closed is in it."""
        return folded(cut | intervals(closed.summary())) if self.aged else cut

    def fold(self, closed: ClosedSessions) -> None:
        """BRK-F8: what was delivered of closed sessions is stable; nothing of them is remembered one by one."""
        for origin in [origin for origin in {*self.have.low, *self.have.extras, *self.base} if origin in closed]:
            self.have.forget(origin)
            self.base.pop(origin, None)
            self.base_seals.pop(origin, None)
            self.aged = True
        self.history = [entry for entry in self.history if entry.origin not in closed]
        self.sealed = [one for one in self.sealed if any(entry.origin not in closed for entry in one[0])]
        self.ahead = frozenset(closed.without(self.ahead))

    def _seal_base(self, base: Vector, grown: Vector) -> None:
        coming, self.coming = self.coming, None
        seals = dict(zip(base, cut(coming.base if coming else b"", len(base)), strict=False))
        for origin in grown:
            self.base_seals.pop(origin, None)
            if origin in seals:
                self.base_seals[origin] = seals[origin]

    # Acknowledgements

    def reached(self, level: str, low: int, extras: tuple[int, ...]) -> bool:
        """Whether this is news: an edge that knows less than an earlier one takes nothing back."""
        before = self.levels.get(level, (0, ()))
        if low < before[0] or (low, extras) == before:
            return False
        self.levels[level] = (low, extras)
        return True


def split(proof: Sealed, count: int) -> tuple[Sealed, Sealed]:
    """The proofs of the base and of so many entries, and those of the other entries."""
    end = count * SEAL_BYTES
    return Sealed(proof.topic, proof.base, proof.entries[:end]), Sealed(proof.topic, b"", proof.entries[end:])
