"""One topic at one broker: what it has, what is pending, who takes part. State and its own arithmetic, no packets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import ClassVar

from ordercast.broker.topics.holding import Holding
from ordercast.broker.topics.state.log import TopicLog
from ordercast.broker.topics.state.member import Coverage, Member, Roll, Vote, WaitingMember
from ordercast.broker.topics.state.pending import PendingTotals
from ordercast.core.errors import InvariantError
from ordercast.core.ids import Origin, Topic
from ordercast.core.process import Connection
from ordercast.core.state import State
from ordercast.pubsub.batches import PublisherRun
from ordercast.pubsub.closed import ClosedSessions
from ordercast.pubsub.publications import Publication, PublicationId
from ordercast.pubsub.received import Received, Summary, Vector

Extent = tuple[int, tuple[int, ...]]
"""All numbers up to the first, and the sorted extras above it."""


class TopicNode(State):
    """The state of one topic. `have` and `log` agree: everything received is at or below the base, or in the log."""

    constant: ClassVar[tuple[str, ...]] = ("topic", "by_key")
    derived: ClassVar[tuple[str, ...]] = ("version", "_checked")
    ordered: ClassVar[tuple[str, ...]] = ("recheck",)

    def __init__(self, topic: Topic, *, by_key: bool = False) -> None:
        self.topic = topic
        self.life = 0
        """Which log of this broker's it is: another one after every reset."""
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
        self.kept = False
        """ARC-2: this broker takes part because it keeps the topic, whether or not it has members of it."""
        self.was_grounded = False
        self.flow_open = True
        self.receivers: tuple[Connection, ...] = ()
        self.clear()

    def clear(self) -> None:
        """BRK-S7: everything that a reset empties."""
        self.have = Received()
        self.base: Vector = {}
        self.log = TopicLog()
        self.pending = PendingTotals(by_key=self.by_key)
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
        self.member_reports: dict[Connection, Roll] = {}
        self.member_sent: Roll | None = None
        self.votes = {}
        self.vote_sent: Vote | None = None
        self.recheck: dict[PublicationId, None] = {}
        self.recheck_all = True

    def is_known(self) -> bool:
        """Whether anything was published here that could come back."""
        return bool(self.base or self.have.low or self.have.extras or self.log or self.pending.entries or self.hold)

    # Members

    def is_grounded(self) -> bool:
        """BRK-S7: a confirmed member is here or below."""
        return bool(self.members) or True in self.down.values()

    def admit(self, origin: Origin, epoch: int) -> Member:
        """BRK-M6: who has waited is a member. One that was here before goes on with what it has reported."""
        waiting, before = self.waiting.pop(origin), self.members.get(origin)
        member = self.members[origin] = Member(waiting.connection, epoch, receives=waiting.receives)
        if before is not None and before.connection == member.connection:
            member.go_on_from(before)
        if waiting.away:
            member.step_away(receives=waiting.receives)
        self.members_changed()
        return member

    def dismiss(self, origin: Origin) -> None:
        """It is a member no more."""
        del self.members[origin]
        self.members_changed()

    def stop_waiting(self, origin: Origin) -> WaitingMember | None:
        return self.waiting.pop(origin, None)

    def members_changed(self) -> None:
        """Also after a member has begun to leave, or lost its connection."""
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

    def roll(self) -> Roll:
        """BRK-M7: confirmed and waiting members here, and the ones that children have reported."""
        here: set[tuple[Origin, int]] = set()
        away: set[tuple[Origin, int]] = set()
        for origin, member in self.members.items():
            (away if member.away else here).add((origin, member.epoch))
        for origin, waiting in self.waiting.items():
            if waiting.complete:
                (away if waiting.away else here).add((origin, waiting.epoch))
        below = self.member_reports.values()
        return Roll(
            frozenset(here).union(*(roll.here for roll in below)),
            frozenset(away).union(*(roll.away for roll in below)),
        )

    # The log

    def of_one(self, origin: Origin) -> tuple[Summary, Vector]:
        """Publications of one origin that are received and stable: all that somebody who only publishes must know."""
        low, extras = self.have.low.get(origin, 0), self.have.extras.get(origin, ())
        have = {origin: (low, tuple(sorted(extras)))} if low or extras else {}
        return have, {origin: self.base[origin]} if origin in self.base else {}

    def append(self, entries: Sequence[Publication], run: PublisherRun | None = None) -> None:
        """New entries, already in `have`, at the end of the log; and the run that they are, if that is known."""
        self.log.append(entries, run)
        self.version += 1

    def raise_base(self, base: Vector, closed: ClosedSessions) -> Vector:
        """BRK-ST3: what of `base` is news, after everything at or below it has left the log and the pending totals."""
        mine = self.base
        grown = {origin: number for origin, number in base.items() if number > mine.get(origin, 0)}
        if closed and grown:
            grown = {origin: number for origin, number in grown.items() if origin in mine or origin not in closed}
        if not grown:
            return grown
        mine.update(grown)
        self.have.raise_to(grown)
        for pending in [p for p in self.pending.entries if p[1] <= grown.get(p[0], 0)]:
            self.remove_pending(pending)
        if self.hold:
            for origin, number in grown.items():
                self.hold.stable(origin, number)
        self.log.cut(self.base)
        self.fresh.update(grown)
        self.version += 1
        return grown

    def fold(self, origins: Collection[Origin]) -> None:
        """BRK-F7: these sessions are closed; nothing of them is kept one by one."""
        for origin in origins:
            top = max([self.base.get(origin, 0), self.have.low.get(origin, 0), *self.have.extras.get(origin, ())])
            numbers = self.pending.numbers.get(origin, ())
            self.base[origin] = max([top, *numbers])
            for number in sorted(numbers):
                self.remove_pending((origin, number))
        self.log.cut(self.base, exactly=True)
        for origin in origins:
            self._forget(origin)
        self.version += 1

    def _forget(self, origin: Origin) -> None:
        self.base.pop(origin, None)
        self.have.forget(origin)
        self.hold.drop(origin)
        self.fresh.discard(origin)
        self._reached.pop((origin, False), None)
        self._reached.pop((origin, True), None)
        for parts in self.holders.values():
            for part in parts:
                part.forget(origin)
        for wanted in self.interest.values():
            wanted.discard(origin)
        for link in self.interest:
            for level in range(1, 1 + max(map(len, self.holders.values()), default=1)):
                self.held_sent.pop((link, level, origin), None)

    @property
    def weight(self) -> int:
        """Bytes of all publications that are logged, pending or held."""
        return self.log.weight + self.pending.weight + self.hold.weight

    def difference(self, have: Summary, base: Vector) -> list[Publication]:
        """BRK-S4: log entries, in log order, that a peer with `have` and `base` lacks."""
        theirs = Received(have)
        theirs.raise_to(base)
        return self.log.lacking(theirs)

    def unstable(self) -> list[Publication]:
        """Everything that is not known to be stable: the log in order, then the pending totals."""
        return [*self.log.above(self.base), *self.pending.entries.values()]

    # Pending totals

    def add_pending(self, entry: Publication) -> bool:
        """BRK-L1: lock all its keys at once; False if it is known or pending already."""
        pair = entry.origin, entry.number
        if pair in self.pending.entries or pair in self.have:
            return False
        self.pending.add(entry)
        if self.hold.of:
            self.hold.known((pair,))
        self.recheck[pair] = None
        self.fresh.add(entry.origin)
        self.version += 1
        return True

    def remove_pending(self, pair: PublicationId) -> list[PublicationId]:
        """Committed, or stable: unlock; gives the totals whose turn may be next."""
        pending, hold = self.pending, self.hold
        entry = pending.entries.get(pair)
        if entry is None:
            return []
        unlocked = pending.remove(entry)
        if entry.origin not in pending.numbers:
            hold.nothing_pending(entry.origin)
        for key in unlocked:
            hold.unlocked(key)
        for told in (self.reports, self.sent, self.recheck):
            if told:
                told.pop(pair, None)
        self.version += 1
        return pending.turns.remove(entry)

    def known(self, pair: PublicationId) -> bool:
        """In the log, stable, or pending."""
        return pair in self.have or pair in self.pending.entries

    def extent(self, origin: Origin, *, held: bool = False) -> Extent:
        """Publications of the origin in the log, stable or pending; with `held`, also those waiting to be admitted."""
        extras, pending = self.have.extras.get(origin, ()), self.pending.numbers.get(origin, ())
        waiting = self.hold.of.get(origin, {}) if held else {}
        low = self.have.low.get(origin, 0)
        if not extras and not pending and not waiting:
            return low, ()
        low = max(low, self._reached.get((origin, held), 0))  # What was here once is here for good.
        while low + 1 in pending or low + 1 in waiting or low + 1 in extras:
            low += 1
        self._reached[origin, held] = low
        above = {number for number in extras if number > low}
        above.update(self.pending.above(origin, low))
        if waiting and next(reversed(waiting)) > low:
            above.update(number for number in waiting if number > low)
        return low, tuple(sorted(above))

    # Links

    def notice(self, origins: Iterable[Origin]) -> None:
        """There may be news for those who publish them: the turn's end tells."""
        self.fresh.update(origins)

    def take_news(self) -> set[Origin]:
        """The origins that were noticed since the last time."""
        fresh, self.fresh = self.fresh, set()
        return fresh

    def want_acks(self, link: Connection, origins: Iterable[Origin]) -> None:
        """Beyond the link, somebody wants to know how safe the publications of these are."""
        wanted = self.interest.get(link)
        if wanted is None:
            wanted = self.interest[link] = set()
        wanted.update(origins)

    def covered_by(self, child: Connection, pair: PublicationId, covered: Coverage) -> None:
        """BRK-L5: a child's report of a pending total."""
        self.reports.setdefault(pair, {})[child] = covered
        self.recheck[pair] = None

    def take_due(self) -> list[PublicationId]:
        """BRK-L6: the pending totals to look at again; all of them after `look_at_all`."""
        due = list(self.pending.entries if self.recheck_all else self.recheck)
        self.recheck, self.recheck_all = {}, False
        return due

    def look_at_all(self) -> None:
        self.recheck_all = True

    def begin_channel(self) -> None:
        """BRK-S1: nothing has been said to the parent on the channel that begins."""
        self.sent.clear()
        self.member_sent = self.vote_sent = None

    def lose_child(self, child: Connection) -> bool:
        """Its connection is gone; whether it had been asked to hold the topic."""
        self.closers.pop(child, None)
        return bool(self.enlisted.pop(child, None))

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
        for pair in self.pending.entries:
            if pair in self.have:
                raise InvariantError(f"{pair} of topic {self.topic} is both in the log and pending")
        self.pending.check(self.topic)
        self.log.check(self.topic, self.base, self.have)
