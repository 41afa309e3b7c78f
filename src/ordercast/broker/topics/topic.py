"""One topic at one broker: what it has, what is pending, who takes part. State and its own arithmetic, no packets."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from typing import ClassVar

from ordercast.broker.topics.holding import Holding, Queues
from ordercast.core.errors import InvariantError
from ordercast.core.ids import Origin, Topic
from ordercast.core.process import Connection
from ordercast.core.state import State, Value, freeze
from ordercast.pubsub.publications import BESIDES_PAYLOAD, Publication, PublicationId
from ordercast.pubsub.received import Received, Summary, Vector

Coverage = frozenset[tuple[Origin, int]]
"""Members and the epochs in which a broker answers for them (BRK-L2)."""
Extent = tuple[int, tuple[int, ...]]
"""All numbers up to the first, and the sorted extras above it."""
MOST_IN_PACKET = 1000
_MOST_BYTES = 1 << 18
"""A packet is cut here, unless one entry alone is larger: a quarter of what a connection takes."""
_LETTER_BYTES = 4
_NUMBERS_BYTES = 40
_ALWAYS_EXACT = 256
"""A log up to this length never keeps a stable entry."""


class Member(State):
    """A confirmed local member. Without a connection: one that leaves, or this broker on behalf of orphans."""

    def __init__(self, connection: Connection | None, epoch: int, *, receives: bool) -> None:
        self.connection = connection
        self.epoch = epoch
        self.receives = receives
        self.leaving = False
        self.vector: Vector | None = None
        """Its last stability report."""
        self.acked: object = None
        """The last acknowledgements that it was sent."""


class WaitingMember(State):
    """A local client whose membership the root has not confirmed yet (BRK-M2)."""

    def __init__(self, connection: Connection | None, epoch: int, *, receives: bool) -> None:
        self.connection = connection
        self.epoch = epoch
        self.receives = receives
        self.have: Summary = {}
        self.base: Vector = {}
        self.heard_ns = 0
        self.resumed = False
        """It has answered the last TopicState."""
        self.complete = False
        """Its whole history is here: only then is the root asked to confirm it."""
        self.asked = 0
        """How often the root was asked in vain, on the present way to it."""
        self.ask_ns = 0
        """When it is asked again."""


class Vote(Value):
    """BRK-ST1: members that have voted, and what all of them have. No vector: none of them holds anybody up."""

    __slots__ = ("members", "vector")

    def __init__(self, members: Coverage, vector: Vector | None) -> None:
        self.members = members
        self.vector = vector

    def frozen(self) -> Hashable:
        return self.members, freeze(self.vector)


class TopicNode(State):
    """The state of one topic. `have` and `log` agree: everything received is at or below the base, or in the log."""

    constant: ClassVar[tuple[str, ...]] = ("topic", "by_key")
    derived: ClassVar[tuple[str, ...]] = ("version", "_checked", "_weight", "_batches")
    ordered: ClassVar[tuple[str, ...]] = ("pend", "recheck")

    def __init__(self, topic: Topic, *, by_key: bool = False) -> None:
        self.topic = topic
        self.by_key = by_key
        """Whether the publications of one client keep their order only where they share a key."""
        self.open_id = 0
        """Of the channel to the parent; 0: none."""
        self.up_live = False
        self.down: dict[Connection, bool] = {}
        """Children that take part, each with its grounded flag."""
        self.members: dict[Origin, Member] = {}
        self.waiting: dict[Origin, WaitingMember] = {}
        self.keeper = 0
        """Brokers of this side that were asked to hold the topic; 0: this one takes part for its members only."""
        self.was_grounded = False
        self.flow_open = True
        self.receivers: tuple[Connection, ...] = ()
        self.clear()

    def clear(self) -> None:
        """BRK-S7: everything that a reset empties."""
        self.have = Received()
        self.base: Vector = {}
        self.log: list[Publication] = []
        self._compacted = 0
        self._weight = 0
        """Bytes of the log and of the pending totals; a batch that is stable in part counts whole."""
        self._batches: deque[tuple[int, int]] = deque()
        """How many entries each batch of the log still has, and the bytes of the whole batch: entries that leave in
        the order in which they came need not be weighed again."""
        self.pend: dict[PublicationId, Publication] = {}
        self.locks: dict[str, int] = {}
        """Key to the number of pending totals that carry it."""
        self.pending_of: dict[Origin, set[int]] = {}
        """Numbers of each client's pending totals."""
        self._pending_top: dict[Origin, int] = {}
        self.turns = Queues(by_key=self.by_key)
        """In which order the pending totals of one client are to be committed (BRK-L4)."""
        self.hold = Holding(by_key=self.by_key)
        self._reached: dict[tuple[Origin, bool], int] = {}
        self.clear_reports()
        self.votes: dict[Connection, Vote] = {}
        self.holders: dict[Connection, list[Received]] = {}
        """Per link and level: what is held by at least level + 1 brokers beyond it."""
        self.interest: dict[Connection, set[Origin]] = {}
        """Origins whose acknowledgements are wanted beyond the link."""
        self.fresh: set[Origin] = set()
        """Origins with news for acknowledgements since the last turn ended."""
        self.held_sent: dict[tuple[Connection, int, Origin], object] = {}
        self.enlisted: dict[Connection, int] = {}
        """Children that were asked to hold the topic, with so many brokers."""
        self.closers: dict[Connection, dict[int, Summary]] = {}
        """Children that have closed and wait for the word that others hold what they had."""
        self.version = 0
        self._checked = -1

    def clear_reports(self) -> None:
        """BRK-O16: reports of another term are void."""
        self.reports: dict[PublicationId, dict[Connection, Coverage]] = {}
        self.sent: dict[PublicationId, Coverage] = {}
        self.member_reports: dict[Connection, Coverage] = {}
        self.member_sent: Coverage | None = None
        self.votes = {}
        self.vote_sent: Vote | None = None
        self.recheck: dict[PublicationId, None] = {}
        self.recheck_all = True

    # Members

    def is_grounded(self) -> bool:
        """BRK-S7: a confirmed member is here or below."""
        return bool(self.members) or True in self.down.values()

    def members_changed(self) -> None:
        self.receivers = tuple(
            member.connection
            for member in self.members.values()
            if member.receives and member.connection is not None and not member.leaving
        )

    def local_coverage(self) -> Coverage:
        return frozenset((origin, member.epoch) for origin, member in self.members.items())

    def coverage(self, pair: PublicationId, local: Coverage) -> Coverage:
        """BRK-L2: the local members, and those that children have reported the pending total for."""
        reports = self.reports.get(pair)
        return local.union(*[reports[child] for child in self.down if child in reports]) if reports else local

    def all_children_cover(self, pair: PublicationId) -> bool:
        """BRK-L3: whether every child that takes part has reported the pending total."""
        return not self.down or self.down.keys() <= self.reports.get(pair, {}).keys()

    def present(self) -> Coverage:
        """BRK-M7: confirmed and waiting members here, and the ones that children have reported."""
        here = {(origin, member.epoch) for origin, member in self.members.items()}
        here.update((origin, waiting.epoch) for origin, waiting in self.waiting.items() if waiting.complete)
        return frozenset(here).union(*self.member_reports.values())

    # The log

    def of_one(self, origin: Origin) -> tuple[Summary, Vector]:
        """What is received and stable of one publisher: all that somebody who only publishes needs to know."""
        low, extras = self.have.low.get(origin, 0), self.have.extras.get(origin, ())
        have = {origin: (low, tuple(sorted(extras)))} if low or extras else {}
        return have, {origin: self.base[origin]} if origin in self.base else {}

    def append(self, entries: Sequence[Publication]) -> None:
        """New entries, already in `have`, at the end of the log."""
        self.log.extend(entries)
        weight = _weight_of(entries)
        self._weight += weight
        self._batches.append((len(entries), weight))
        self.version += 1

    def raise_base(self, base: Vector) -> Vector:
        """BRK-ST3: what of `base` is news, after everything at or below it has left the log and the pending totals."""
        mine = self.base
        grown = {origin: number for origin, number in base.items() if number > mine.get(origin, 0)}
        if not grown:
            return grown
        mine.update(grown)
        self.have.raise_to(grown)
        for pending in [p for p in self.pend if p[1] <= grown.get(p[0], 0)]:
            self.remove_pending(pending)
        if self.hold:
            for origin, number in grown.items():
                self.hold.stable(origin, number)
        self._cut()
        self.fresh.update(grown)
        self.version += 1
        return grown

    def _cut(self) -> None:
        """The stable front leaves at once; stable entries behind an unstable one when they are worth the look."""
        log, low = self.log, self.base.get
        front = 0
        for entry in log:
            if entry.number > low(entry.origin, 0):
                break
            front += 1
        del log[:front]
        self._take_off(front)
        if len(log) <= _ALWAYS_EXACT or len(log) > 2 * self._compacted:
            self.log = [entry for entry in log if entry.number > low(entry.origin, 0)]
            self._compacted = len(self.log)
            if self._compacted < len(log):
                weight = _weight_of(self.log)
                self._weight += weight - sum(batch for _, batch in self._batches)
                self._batches = deque([(self._compacted, weight)])

    def _take_off(self, entries: int) -> None:
        batches = self._batches
        while entries:
            count, weight = batches[0]
            if count > entries:
                batches[0] = (count - entries, weight)
                return
            batches.popleft()
            self._weight -= weight
            entries -= count

    @property
    def weight(self) -> int:
        """Bytes of all publications that are logged, pending or held."""
        return self._weight + self.hold.weight

    def difference(self, have: Summary, base: Vector) -> list[Publication]:
        """BRK-S4: log entries, in log order, that a peer with `have` and `base` lacks."""
        theirs = Received(have)
        theirs.raise_to(base)
        return [entry for entry in self.log if (entry.origin, entry.number) not in theirs]

    def unstable(self) -> list[Publication]:
        """Everything that is not known to be stable: the log in order, then the pending totals."""
        low = self.base.get
        kept = [entry for entry in self.log if entry.number > low(entry.origin, 0)]
        return [*kept, *self.pend.values()]

    # Pending totals

    def add_pending(self, entry: Publication) -> bool:
        """BRK-L1: lock all its keys at once; False if it is known or pending already."""
        pair = (entry.origin, entry.number)
        if pair in self.pend or pair in self.have:
            return False
        self.pend[pair] = entry
        self._weight += entry.weight
        self.pending_of.setdefault(entry.origin, set()).add(entry.number)
        self._pending_top[entry.origin] = max(entry.number, self._pending_top.get(entry.origin, 0))
        self.turns.add(entry)
        for key in entry.keys:
            self.locks[key] = self.locks.get(key, 0) + 1
        if self.hold:
            self.hold.known((pair,))
        self.recheck[pair] = None
        self.fresh.add(entry.origin)
        self.version += 1
        return True

    def remove_pending(self, pair: PublicationId) -> list[PublicationId]:
        """Committed, or stable: unlock; gives the totals whose turn may be next."""
        entry = self.pend.pop(pair, None)
        if entry is None:
            return []
        self._weight -= entry.weight
        numbers = self.pending_of[entry.origin]
        numbers.remove(entry.number)
        if not numbers:
            del self.pending_of[entry.origin], self._pending_top[entry.origin]
            self.hold.nothing_pending(entry.origin)
        for key in entry.keys:
            left = self.locks[key] - 1
            if left:
                self.locks[key] = left
            else:
                del self.locks[key]
                self.hold.unlocked(key)
        self.reports.pop(pair, None)
        self.sent.pop(pair, None)
        self.recheck.pop(pair, None)
        self.version += 1
        return self.turns.remove(entry)

    def known(self, pair: PublicationId) -> bool:
        """In the log, stable, or pending."""
        return pair in self.have or pair in self.pend

    def extent(self, origin: Origin, *, held: bool = False) -> Extent:
        """What is in the log, stable or pending of the origin; with `held`, also what waits to be admitted."""
        extras, pending = self.have.extras.get(origin, ()), self.pending_of.get(origin, ())
        waiting = self.hold.of.get(origin, {}) if held else {}
        low = self.have.low.get(origin, 0)
        if not extras and not pending and not waiting:
            return low, ()
        low = max(low, self._reached.get((origin, held), 0))  # What was here once is here for good.
        while low + 1 in pending or low + 1 in waiting or low + 1 in extras:
            low += 1
        self._reached[origin, held] = low
        above = {number for number in extras if number > low}
        if self._pending_top.get(origin, 0) > low:
            above.update(number for number in pending if number > low)
        if waiting and next(reversed(waiting)) > low:
            above.update(number for number in waiting if number > low)
        return low, tuple(sorted(above))

    def drop_link(self, link: Connection) -> None:
        """BRK-S8: whatever the link said counts no more."""
        for reports in self.reports.values():
            reports.pop(link, None)
        self.member_reports.pop(link, None)
        self.votes.pop(link, None)
        self.holders.pop(link, None)
        self.interest.pop(link, None)
        self.enlisted.pop(link, None)
        self.held_sent = {told: what for told, what in self.held_sent.items() if told[0] != link}

    # Invariants

    def check(self) -> None:
        """BRK-I2, and: no entry leaves the log above the base. Only looked at if something has changed."""
        if self._checked == self.version:
            return
        self._checked = self.version
        locks: dict[str, int] = {}
        for pair, entry in self.pend.items():
            if pair in self.have:
                raise InvariantError(f"{entry.id} is both in the log and pending")
            for key in entry.keys:
                locks[key] = locks.get(key, 0) + 1
        if locks != self.locks:
            raise InvariantError(f"topic {self.topic}: the locks {self.locks} are not those of the pending totals")
        logged = Received()
        for entry in self.log:
            if not logged.add(entry.origin, entry.number):
                raise InvariantError(f"{entry.id} is twice in the log")
        logged.raise_to(self.base)
        if logged.summary() != self.have.summary():
            raise InvariantError(f"topic {self.topic}: received {self.have.summary()}, kept {logged.summary()}")
        if sum(count for count, _ in self._batches) != len(self.log):
            raise InvariantError(f"topic {self.topic}: its batches are not those of the log")
        if self._weight < _weight_of([*self.log, *self.pend.values()]):
            raise InvariantError(f"topic {self.topic}: its publications weigh more than {self._weight} bytes")


def _weight_of(entries: Sequence[Publication]) -> int:
    return sum([len(entry.payload) for entry in entries]) + BESIDES_PAYLOAD * len(entries)


def packets_of(entries: Sequence[Publication]) -> Iterator[tuple[Publication, ...]]:
    """The entries in order, in pieces that fit a packet."""
    start = size = 0
    for i, entry in enumerate(entries):
        letters = len(entry.origin) + len(entry.topic) + len("".join(entry.keys))
        length = len(entry.payload) + _LETTER_BYTES * letters + _NUMBERS_BYTES
        if i > start and (i - start >= MOST_IN_PACKET or size + length > _MOST_BYTES):
            yield tuple(entries[start:i])
            start, size = i, 0
        size += length
    if start < len(entries):
        yield tuple(entries[start:])
