"""Obligations of receivers: what each owes, may and must not deliver, by subscriptions as intervals of its own history.

A subscription binds a message if it was confirmed before the publication and not given up before it. "Before" is dated
by the clock where all nodes share one; otherwise it is happened-before: the publisher's past contains something that
the subscriber did after the row in question, or the publisher was heard in that stay before. What is owed may not be
overtaken as long as the stay lasts, whatever becomes of the receiver later; in the end it is asked for where the
receiver is still there, or stayed to the end of the run.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ordercast.trace.schema import FROM_EVERYTHING, FROM_MEMBERSHIP
from ordercast.trace.store import TraceError
from ordercast.verify.kernels.grouping import group
from ordercast.verify.kernels.happened import prune, publications
from ordercast.verify.kernels.integrity import MAY, MUST, MUST_NOT, OWED, owed_and_forbidden
from ordercast.verify.kernels.jit import NEVER
from ordercast.verify.past import whole_past

if TYPE_CHECKING:
    from ordercast.verify.kernels.jit import Flags, Ints, Offsets
    from ordercast.verify.past import HappenedBefore

ALWAYS = -1
"""As the start of an interval: from before the first event. As the end: never closed."""
PENDING = (2**31 - 1, 2**63 - 1)
"""A place and a time after everything: of what is pending and never completed."""
_EVERYTHING = (ALWAYS, 0)
"""The place and time at which a stay begins that nothing was before."""
_MARKS_AT_ONCE = 62
_Bools: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]


class Interval(NamedTuple):
    """A stay of a receiver in an audience: from and to a place in its log, and the times of the rows that say so."""

    receiver: int
    audience: int
    start: int
    start_ns: int
    stop: int = ALWAYS
    stop_ns: int = 0
    """Where it began to end: what is published from here on is not owed."""
    end: int = ALWAYS
    end_ns: int = 0
    """Where its end was complete: what is published from here on must not come."""
    stayed: bool = False
    """The run ended there, and not the membership."""


class MembershipChange(NamedTuple):
    """A membership row: what happened at which place of a receiver's log. `topic` is -1 for all topics."""

    kind: str
    topic: int
    place: int
    time_ns: int
    pending: bool = False
    """It has begun and is not complete: messages may come, and need not."""
    stayed: bool = False
    """Of a leave: the run ended for this node, which gave up nothing."""
    past: str = ""
    """Of a subscription: whether the whole past is owed, or no longer is."""
    since: int = -1
    """Of a subscription: the filter that had made it one before the topic began; -1: none had."""
    follows: bool = False
    """Of a subscription: its topic is a filter."""


@dataclass(frozen=True, slots=True)
class PublishedMessage:
    """The messages as the obligations see them. An audience is a topic, or the destinations of one message."""

    ev: Ints
    off: Offsets
    pub: Ints
    place: Ints
    """Of each message in its publisher's log."""
    audience: Ints
    audiences: int
    time_ns: Offsets | None
    """Of each publication, where all nodes share a clock."""
    own_implied: bool
    alive: Flags
    """Of each receiver, and when the others ceased to be, by the clock."""
    gone_ns: Offsets
    past: HappenedBefore | None = None
    """Happened-before through all topics, if it is known already: else it is found in the logs."""


@dataclass(frozen=True, slots=True)
class Owed:
    """Per receiver what it owed and did not deliver; flags on the deliveries that were not for it; and how many."""

    missed_off: Offsets
    missed: Ints
    due: Ints
    """The place in the receiver's log up to which nothing may overtake the message; NEVER for all of it."""
    asked: Flags
    """Whether it is asked for in the end: the receiver was still there."""
    forbidden: Flags
    made: int
    excused: int


def stays(
    receiver: int, initial: list[int], start: MembershipChange | None, changes: list[MembershipChange]
) -> list[Interval]:
    """The intervals of one receiver: it begins in `initial` (from `start` on, if given) and lives through `changes`."""
    begin = (ALWAYS, 0) if start is None else (start.place, start.time_ns)
    joins = bool(changes) and changes[0].kind == "join" and changes[0].place == 0 and start is None
    history = _History(receiver, {} if joins else dict.fromkeys(initial, begin))  # A join first: no member before it.
    for change in changes:
        if change.kind in ("subscribe", "join"):
            for topic in initial if change.kind == "join" else [change.topic]:
                history.enter(topic, change)
        elif change.pending:
            history.begin_to_end(change)
        else:
            for topic in list(history.current) if change.kind == "leave" else [change.topic]:
                history.end(topic, change)
    return history.intervals()


class _History:
    """The stays of one receiver, row by row.

    A subscription that is pending binds once a row without says so; one whose end is pending binds no longer. One that
    came with the past of its topic begins before everything, until a row takes that back. The first one to a topic that
    began while the receiver followed a filter begins where the stay of the filter did.
    """

    def __init__(self, receiver: int, current: dict[int, tuple[int, int]]) -> None:
        self.receiver = receiver
        self.current = current
        """Where each open stay begins."""
        self.confirmed: dict[int, tuple[int, int]] = {}
        self.ending: dict[int, tuple[int, int]] = {}
        self.left: set[int] = set()
        self.closed: list[Interval] = []

    def enter(self, topic: int, change: MembershipChange) -> None:
        if topic in self.ending:
            self._close(topic, self.ending.pop(topic), PENDING)
        if self.current.get(topic, PENDING) == PENDING:
            self.confirmed[topic] = PENDING if change.pending else (change.place, change.time_ns)
            self.current[topic] = self.confirmed[topic] if change.pending else self._begin(topic, change)
        elif change.past == FROM_MEMBERSHIP:
            self.current[topic] = self.confirmed.get(topic, self.current[topic])

    def _begin(self, topic: int, change: MembershipChange) -> tuple[int, int]:
        if change.past == FROM_EVERYTHING:
            return _EVERYTHING
        followed = PENDING if topic in self.left else self.current.get(change.since, PENDING)
        return min(self.confirmed[topic], followed)

    def begin_to_end(self, change: MembershipChange) -> None:
        if change.topic in self.current:
            self.ending.setdefault(change.topic, (change.place, change.time_ns))

    def end(self, topic: int, change: MembershipChange) -> None:
        if topic in self.current:
            here = (change.place, change.time_ns)
            stayed = change.stayed and topic not in self.ending
            self._close(topic, self.ending.pop(topic, here), here, stayed=stayed)

    def _close(self, topic: int, stop: tuple[int, int], end: tuple[int, int], *, stayed: bool = False) -> None:
        self.closed.append(Interval(self.receiver, topic, *self.current.pop(topic), *stop, *end, stayed))
        self.left.add(topic)

    def intervals(self) -> list[Interval]:
        """Those that are over, those that last, and those that are about to end."""
        lasting = [Interval(self.receiver, t, *at) for t, at in self.current.items() if t not in self.ending]
        ending = [Interval(self.receiver, t, *self.current[t], *stop, *PENDING) for t, stop in self.ending.items()]
        return self.closed + lasting + ending


def settle(messages: PublishedMessage, fixed: tuple[Ints, Ints], intervals: list[Interval]) -> Owed:
    """Decide every obligation. `fixed` are (receiver, audience) that hold from beginning to end."""
    audience_off, order = group(messages.audience, messages.audiences)
    audience_messages = order.astype(np.int32)
    place = np.empty(messages.audience.size, np.int32)
    place[order] = np.arange(order.size) - np.repeat(audience_off[:-1], np.diff(audience_off))
    lasting, passing = _sorted_out(intervals)
    statuses = _statuses(messages, passing, audience_off, audience_messages)
    receiver = [fixed[0], np.array([i.receiver for i in lasting] + [r for r, _ in statuses], np.int32)]
    audience = [fixed[1], np.array([i.audience for i in lasting] + [a for _, a in statuses], np.int32)]
    unchanging = np.full(fixed[0].size + len(lasting), -1, np.int64)
    sizes = np.array([status.of.size for status in statuses.values()], np.int64)
    codes = np.array([len(status.due) for status in statuses.values()], np.int64)
    member_off, by_receiver = group(np.concatenate(receiver), messages.off.size - 1)
    none = np.empty(0, np.uint8)
    missed_off, missed, due, asked, forbidden, made, excused = owed_and_forbidden(
        messages.ev,
        messages.off,
        messages.pub,
        messages.audience,
        place,
        audience_off,
        audience_messages,
        member_off,
        np.concatenate(audience)[by_receiver],
        np.concatenate((unchanging, np.cumsum(sizes) - sizes))[by_receiver],
        np.concatenate((unchanging, np.cumsum(codes) - codes))[by_receiver],
        np.concatenate([*(status.of for status in statuses.values()), none]),
        np.array([due for status in statuses.values() for due in status.due], np.int32),
        np.array([asked for status in statuses.values() for asked in status.asked], np.uint8),
        messages.own_implied,
        messages.alive,
        messages.gone_ns,
        messages.time_ns if messages.time_ns is not None else np.empty(0, np.int64),
    )
    if (due != NEVER).any():  # Kernels that read a log backwards meet what is due latest first.
        order = np.lexsort((missed, -due, np.repeat(np.arange(missed_off.size - 1), np.diff(missed_off))))
        missed, due, asked = missed[order], due[order], asked[order]
    return Owed(missed_off, missed, due, asked, forbidden, int(made), int(excused))


def _sorted_out(intervals: list[Interval]) -> tuple[list[Interval], list[Interval]]:
    """Stays that are the only one of their receiver in their audience and last from beginning to end; the others."""
    often = Counter((i.receiver, i.audience) for i in intervals)
    lasting: list[Interval] = []
    passing: list[Interval] = []
    for interval in intervals:
        alone = often[interval.receiver, interval.audience] == 1
        whole = interval.start == ALWAYS and interval.end == ALWAYS
        (lasting if alone and whole else passing).append(interval)
    return lasting, passing


class _Status(NamedTuple):
    """A membership that comes or goes: what each message of the audience is to it."""

    of: np.ndarray[Any, Any]
    """MUST_NOT, MAY or MUST, or from OWED on: owed in the stay of that number."""
    due: list[int]
    asked: list[bool]
    """Of each such stay: up to where nothing may overtake, and whether it lasted to the end of the run."""


class _Row(NamedTuple):
    """A question: which messages of `part` were published after the row at this place and time of a receiver's log?"""

    receiver: int
    place: int
    time_ns: int
    part: Ints


def _statuses(
    messages: PublishedMessage, intervals: list[Interval], audience_off: Offsets, audience_messages: Ints
) -> dict[tuple[int, int], _Status]:
    parts = [audience_messages[audience_off[i.audience] : audience_off[i.audience + 1]] for i in intervals]
    ends = [((i.start, i.start_ns), (i.stop, i.stop_ns), (i.end, i.end_ns)) for i in intervals]
    rows = [
        _Row(interval.receiver, *row, part)
        for interval, rows, part in zip(intervals, ends, parts, strict=True)
        for row in rows
        if row[0] != ALWAYS
    ]
    answers = iter((_by_clock if messages.time_ns is not None else _by_causality)(messages, rows))
    most = max(Counter((i.receiver, i.audience) for i in intervals).values(), default=0)
    code = np.uint8 if most + OWED < np.iinfo(np.uint8).max else np.uint16
    statuses: dict[tuple[int, int], _Status] = {}
    for interval, part in zip(intervals, parts, strict=True):
        key = (interval.receiver, interval.audience)
        status = statuses.setdefault(key, _Status(np.full(part.size, MUST_NOT, code), [], []))
        begun = next(answers) if interval.start != ALWAYS else np.ones(part.size, bool)
        if messages.time_ns is None and interval.start != ALWAYS:
            begun = begun | _follows_on(messages, interval, part)
        if interval.end == ALWAYS:
            status.of[status.of == MUST_NOT] = MAY
            status.of[begun] = MUST
        else:
            stopped, ended = next(answers), next(answers)
            status.of[~ended & (status.of == MUST_NOT)] = MAY
            status.of[begun & ~stopped] = OWED + len(status.due)
            status.due.append(interval.stop)
            status.asked.append(interval.stayed)
    return statuses


def _follows_on(messages: PublishedMessage, interval: Interval, part: Ints) -> _Bools:
    """Which messages come, in their publisher's own order, after one that was delivered in the stay.

    Nobody has to have heard of a subscription for it to bind: it had begun for the first, so it has for the rest.
    """
    begin, end = messages.off[interval.receiver : interval.receiver + 2]
    stop = end if interval.stop == ALWAYS else min(end, begin + interval.stop)
    log = messages.ev[begin + interval.start : stop]
    heard = log[log >= 0]
    heard = heard[messages.audience[heard] == interval.audience]
    first = np.full(messages.off.size - 1, PENDING[0], np.int64)
    np.minimum.at(first, messages.pub[heard], messages.place[heard])
    return np.asarray(messages.place[part] > first[messages.pub[part]])


def _by_clock(messages: PublishedMessage, rows: list[_Row]) -> list[_Bools]:
    """The answers by the clock of all nodes."""
    assert messages.time_ns is not None
    return [messages.time_ns[row.part] > row.time_ns for row in rows]


def _by_causality(messages: PublishedMessage, rows: list[_Row]) -> list[_Bools]:
    """The answers by happened-before, which always runs through all topics: it is a fact of the execution."""
    if not rows:
        return []
    receivers = messages.off.size - 1
    past = messages.past or past_in(messages.ev, messages.off, messages.pub, messages.place)
    places = np.array([(row.receiver, row.place) for row in rows], np.int32)
    marks, mark_of = np.unique(places, axis=0, return_inverse=True)
    after: list[_Bools] = [np.empty(0, bool)] * len(rows)
    for first in range(0, len(marks), _MARKS_AT_ONCE):
        chunk = marks[first : first + _MARKS_AT_ONCE]
        mark_off, bit = group(chunk[:, 0].copy(), receivers)
        where = chunk[bit, 1].copy()
        known = past.marks_known(mark_off, bit, where)
        for i in np.flatnonzero((mark_of >= first) & (mark_of < first + len(chunk))):
            after[i] = (known[rows[i].part] >> (mark_of[i] - first)) & 1 == 1
    return after


def past_in(ev: Ints, off: Offsets, pub: Ints, place: Ints) -> HappenedBefore:
    """Happened-before through all topics, as the logs have it."""
    chain, at, prev, begin = publications(ev, off, pub.size)
    return whole_past(pub, place, prev, *prune(ev, chain, at, begin, off.size - 1))


def change_of(kind: str, topic: int | None, place: int, time_ns: int | None, where: str) -> MembershipChange:
    """A membership row, checked."""
    if kind in ("subscribe", "unsubscribe") and topic is None:
        raise TraceError(f"{where}: {kind} without topic")
    return MembershipChange(kind, -1 if topic is None else topic, place, time_ns or 0)
