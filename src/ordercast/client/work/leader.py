"""The leader of a group: who does what, and what is done (docs/protocols/shared-work.md).

There is one leader at a time because it is one client name: the broker tree fences the older session of a name when a
newer one joins (BRK-M13). What a leader has not written down, its successor learns from the members.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ordercast.client.work.lanes import WorkLanes, WorkUnit, unit_of
from ordercast.client.work.words import GroupProgress, Orders, Report, WorkOrder
from ordercast.core.ids import Origin
from ordercast.core.state import State
from ordercast.pubsub.closed import Closed, ClosedSessions
from ordercast.pubsub.cuts import CutSet, closed_in, intervals, is_interval, plain
from ordercast.pubsub.publications import Publication, PublicationId
from ordercast.pubsub.received import Received, Vector


class WorkSettings(msgspec.Struct, frozen=True):
    """Settings of a group's work; the same for all its members."""

    window: int = 256
    """Units that a member is sent ahead of what it has done."""
    silent_ms: int = 5000
    """A member, or a leader, that is not heard of for so long is given up."""
    max_attempts: int = 5
    """So often a unit is begun; then it goes to the topic of the dead."""
    in_hand_ms: int = 0
    """An application that has had a unit for so long, without `done` or `retry`, is given up: others are given what its
    member holds. So is one that takes nothing for so long although there is work for it. 0: it may take for ever."""

    @property
    def silent_ns(self) -> int:
        return self.silent_ms * 1_000_000

    @property
    def in_hand_ns(self) -> int:
        return self.in_hand_ms * 1_000_000

    @property
    def beat_ns(self) -> int:
        """The period in which everybody is heard of."""
        return self.silent_ns // 5


class KnownMember(State):
    """The leader's knowledge of one member."""

    def __init__(self, heard_ns: int, *, reported: bool) -> None:
        self.heard_ns = heard_ns
        self.reported = reported
        """It has told this leader what it holds."""
        self.recorded = not reported
        """It is written down; before that it is sent nothing."""
        self.number = 0
        """Of its last report, once it has told this leader what it holds."""
        self.heard = 0
        """Of its last report."""
        self.confirmed = 0
        self.room = 0
        """SHW-9: units that it takes ahead; 0: the whole window."""
        self.told = -1
        """The confirmation that it was last sent."""
        self.sent_ns = -(1 << 62)


class WorkLeader(State):
    """Gives each unit to one member, takes it back from the dead, and says what is to be written down."""

    def __init__(
        self, epoch: int, last: GroupProgress | None, settings: WorkSettings, now_ns: int, *, gap: bool = False
    ) -> None:
        self.epoch = epoch
        self.settings = settings
        self.now_ns = now_ns
        self.done = Received(last.done if last is not None else None)
        """Closed sessions of which all is done stand in it as intervals (`pubsub/cuts.py`)."""
        self.folded = ClosedSessions(closed_in(self.done.low))
        self.seen: dict[Origin, int] = {}
        """Up to where work of a session has arrived that is not all done, or not known to be over."""
        self.attempts: dict[PublicationId, int] = {}
        self.members: dict[str, KnownMember] = {}
        if last is not None:
            self.attempts = {(origin, number): attempts for origin, number, attempts in last.attempts}
            self.members = {name: KnownMember(now_ns, reported=False) for name in last.members}
        self.unnamed_until_ns = now_ns + settings.silent_ns if gap else now_ns
        """SHW-13: until then members may be heard of whom no record names any more."""
        self.lanes = WorkLanes(settings.window)
        self.claims: dict[PublicationId, tuple[str, int]] = {}
        """SHW-6: what members of the former leader hold, and which attempt it is."""
        self.early: dict[PublicationId, Publication] = {}
        """Work that has arrived before everybody has reported."""
        self.ready = False
        self.dirty = last is None or last.epoch != epoch
        """Something is to be written down."""
        self.version = 0
        self.farewells: list[tuple[str, bool]] = []
        self.buried: list[tuple[WorkUnit, str]] = []
        """Work that is given up, and why; `bury` says that the topic of the dead has it."""
        self.upto: dict[int, dict[str, int]] = {}
        """By version of what is written down: the reports of each member that it covers."""
        self._look()

    # Work

    @property
    def waiting(self) -> int:
        """Units that are here and not done."""
        return self.lanes.count + len(self.early)

    def arrive(self, entries: Sequence[Publication]) -> None:
        """SHW-2: new messages of the topic, in order."""
        attempts = self.attempts
        self._see((entry.origin, entry.number) for entry in entries)
        fresh = [entry for entry in entries if not self._is_done((entry.origin, entry.number))]
        if self.ready:
            self.lanes.add([unit_of(entry, attempts.get((entry.origin, entry.number), 0)) for entry in fresh])
        else:
            self.early.update({(entry.origin, entry.number): entry for entry in fresh})
            self._look()

    def skip(self, pairs: Iterable[PublicationId]) -> None:
        """Nobody has to do these: they are done as they are."""
        for origin, number in pairs:
            self._see(((origin, number),))
            self.dirty |= self.done.add(origin, number)

    def _see(self, pairs: Iterable[PublicationId]) -> None:
        for origin, number in pairs:
            if number > self.seen.get(origin, 0):
                self.seen[origin] = number

    def _is_done(self, pair: PublicationId) -> bool:
        return pair in self.done or (bool(self.folded) and pair[0] in self.folded)

    def begin_behind(self, cut: Vector) -> None:
        """Everything in it is nobody's work."""
        self.done.raise_to(plain(cut))
        self.fold(closed_in(cut))

    def pass_over(self, cut: Vector, end: Vector, here: Received) -> int:
        """SHW-13: what lies between the two cuts and is not `here` is gone, and nobody's work; how many units."""
        low, done, gone = CutSet(cut).upto, self.done, 0
        for origin, top in plain(end).items():
            start, first = low(origin), min(here.extras.get(origin, {top + 1}))
            before = done.low.get(origin, 0)
            if start <= before < first - 1 and origin not in here.low:  # It may be very many.
                done.raise_to({origin: first - 1})
                start, gone = first - 1, gone + first - 1 - before
            gone += sum((origin, n) not in here and done.add(origin, n) for n in range(start + 1, top + 1))
        self.dirty |= bool(gone)
        self.fold(closed_in(end))
        self._look()
        return gone

    def fold(self, arrived: Closed) -> None:
        """SHW-12: these sessions are closed, and all of them has arrived: what is done of them is not counted."""
        arrived_all = ClosedSessions(arrived)
        for origin in [origin for origin in self.seen if origin in arrived_all and not self._is_under_way(origin)]:
            del self.seen[origin]
        if not self.folded.merge(arrived_all.but(self.seen)):
            return
        low = self.done.low
        for origin in [o for o in low if is_interval(o) or (o in self.folded and o not in self.done.extras)]:
            del low[origin]
        low.update(intervals(self.folded.summary()))
        self.dirty = True

    def _is_under_way(self, origin: Origin) -> bool:
        return origin in self.done.extras or self.seen[origin] > self.done.low.get(origin, 0)

    def _look(self) -> None:
        """SHW-6: begin once every member of the former leader has said what it holds, and all of that is here."""
        if self.ready or self._may_be_unnamed or not all(member.reported for member in self.members.values()):
            return
        self.claims = {pair: claim for pair, claim in self.claims.items() if not self._is_done(pair)}
        if not self.claims.keys() <= self.early.keys():
            return
        self.ready = True
        held: dict[str, list[WorkUnit]] = {name: [] for name in self.members}
        for pair, (name, attempt) in self.claims.items():
            held[name].append(unit_of(self.early.pop(pair), attempt - 1))
        for name, member in self.members.items():
            if member.recorded:
                self.lanes.open(name, held[name], member.room)
        early, self.early, self.claims = self.early, {}, {}
        self.arrive(list(early.values()))

    # Members

    def report(self, report: Report) -> None:
        """SHW-4: what a member says."""
        member = self.members.get(report.member)
        if member is None:
            self._stranger(report)
            return
        member.heard_ns = self.now_ns
        member.heard = max(member.heard, report.number)
        if report.epoch == self.epoch and report.holding is not None and not member.reported:
            member.reported = True
            for origin, number, attempt in report.holding:
                self.claims[origin, number] = (report.member, attempt)
        if report.done:
            pairs = [(origin, number) for origin, numbers in report.done.items() for number in numbers]
            self._are_done(report.member, pairs)
        for origin, number, attempts in report.tried:
            if not self._is_done((origin, number)):
                self.attempts[origin, number] = attempts
                self.dirty = True
        if member.reported and report.number > member.number:
            member.number = report.number  # Before that, an earlier leader may have heard what this one has not.
            self.dirty |= bool(report.done)
        if report.room != member.room:
            member.room = report.room
            self.lanes.resize(report.member, report.room)
        if report.leaving:
            self._goes(report.member, begun=False)
        self._look()

    def _stranger(self, report: Report) -> None:
        """SHW-3: a newcomer is welcome once it is written down; one that was given up is told so.

        SHW-13: one that may have been written down in a record that is lost is asked what it holds.
        """
        unnamed = self._may_be_unnamed and not any(_replaces(name, report.member) for name in self.members)
        unnamed &= not report.fresh
        if report.leaving or not (report.fresh or unnamed):
            self.farewells.append((report.member, not report.leaving))
            return
        for older in [name for name in self.members if _replaces(report.member, name)]:
            self._goes(older, begun=True)
        known = self.members[report.member] = KnownMember(self.now_ns, reported=not unnamed)
        known.room = report.room
        self.dirty = True

    @property
    def _may_be_unnamed(self) -> bool:
        return self.now_ns < self.unnamed_until_ns

    def _are_done(self, member: str, pairs: Sequence[PublicationId]) -> None:
        """Count work that the member held as done; what it does not hold any more is somebody else's to do."""
        if self.ready:
            pairs = self.lanes.done(member, pairs)
        else:
            pairs = [pair for pair in pairs if self.claims.get(pair, (member, 0))[0] == member]
            for pair in pairs:
                self.claims.pop(pair, None)
                self.early.pop(pair, None)
        pairs = [pair for pair in pairs if not self._is_done(pair)]
        if self.attempts:
            for pair in pairs:
                self.attempts.pop(pair, None)
        self.done.update(pairs)
        self.dirty |= bool(pairs)

    def _goes(self, name: str, *, begun: bool) -> None:
        """SHW-5: what it held goes to others, in the order of its keys."""
        del self.members[name]
        self.dirty = True
        failed = [pair for pair, (holder, _) in self.claims.items() if holder == name]
        for pair in failed:
            del self.claims[pair]
        units = self.lanes.close(name) if self.lanes.desk(name) is not None else []
        if begun:
            for unit in units:
                self._failed(unit)
            for pair in failed:
                self.attempts[pair] = self.attempts.get(pair, 0) + 1
        self.lanes.resume()

    def _failed(self, unit: WorkUnit) -> None:
        unit.attempts += 1
        self.attempts[unit.id] = unit.attempts
        if unit.attempts >= self.settings.max_attempts:
            self.lanes.drop(unit)
            self.buried.append((unit, f"its holder was lost, at attempt {unit.attempts}"))

    def bury(self, unit: WorkUnit) -> None:
        """The topic of the dead has it."""
        self.attempts.pop(unit.id, None)
        self.done.add(*unit.id)
        self.dirty = True

    # Time, and what leaves

    def tick(self, now_ns: int) -> None:
        late = now_ns - self.now_ns
        if late > self.settings.beat_ns:  # It was this process that did not look.
            self.unnamed_until_ns += late
            for member in self.members.values():
                member.heard_ns += late
        self.now_ns = now_ns
        for name in [
            name for name, member in self.members.items() if now_ns - member.heard_ns > self.settings.silent_ns
        ]:
            self._goes(name, begun=True)
            self.farewells.append((name, True))
        self._look()

    def progress(self) -> GroupProgress | None:
        """SHW-7: what is to be written down now; None: nothing new.

        SHW-13: nothing, before all members are known; or a successor would take that for everything.
        """
        if not self.dirty or self._may_be_unnamed:
            return None
        self.dirty = False
        self.version += 1
        self.upto[self.version] = {name: member.number for name, member in self.members.items()}
        attempts = tuple((*pair, attempts) for pair, attempts in sorted(self.attempts.items()))
        return GroupProgress(self.epoch, self.done.summary(), tuple(self.members), attempts)

    def recorded(self, version: int) -> None:
        """SHW-7: that version is safe: members in it may be sent work, and what it says to be done is done for ever."""
        for name, number in self.upto.pop(version, {}).items():
            member = self.members.get(name)
            if member is None:
                continue
            member.confirmed = max(member.confirmed, number)
            if not member.recorded:
                member.recorded = True
                if self.ready:
                    self.lanes.open(name, room=member.room)

    def orders(self) -> list[Orders]:
        """Orders for members that are due now: work, confirmations, and now and then that there is a leader."""
        assigned: dict[str, list[WorkOrder]] = {}
        for name, unit in self.lanes.outgoing():
            if unit.holder == name:
                assigned.setdefault(name, []).append(WorkOrder(unit.entry, unit.attempts + 1))
        told = [Orders(self.epoch, name, expelled=expelled) for name, expelled in self.farewells if expelled]
        self.farewells = []
        for rank, (name, member) in enumerate(self.members.items()):
            late = self.now_ns - member.sent_ns >= self.settings.beat_ns
            if not member.recorded:
                if late:
                    member.sent_ns = self.now_ns
                    told.append(Orders(self.epoch, name, noted=True))
            elif late or member.confirmed != member.told or name in assigned:
                member.sent_ns, member.told = self.now_ns, member.confirmed
                work = tuple(assigned.get(name, ()))
                told.append(Orders(self.epoch, name, work, member.confirmed, rank, heard=member.heard))
        return told


def _replaces(newer: str, older: str) -> bool:
    """Whether it is a later life of that member: of the same session, or of a session of the same client."""
    (client, session, life), (other, earlier, before) = _parts(newer), _parts(older)
    return client == other and (session, life) > (earlier, before)


def _parts(member: str) -> tuple[str, int, int]:
    origin, _, life = member.rpartition("/")
    client, _, session = origin.partition("~")
    return client, _number(session), _number(life)


def _number(text: str) -> int:
    """The number that a stranger wrote, if it is one."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < _LONGEST_NUMBER else 0


_LONGEST_NUMBER = 19
