"""Who must, may and must not deliver what: subscriptions as intervals of a receiver's own history.

A subscription binds a message if it was confirmed before the publication. "Before" is dated by the clock where all
nodes share one; otherwise it is happened-before: the publisher's past contains something that the subscriber did after
the confirmation. An interval that is closed later on obliges to nothing, and forbids what is published after it closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ordercast.trace.store import TraceError
from ordercast.verify.kernels.grouping import group
from ordercast.verify.kernels.happened import known_marks, prune, publications
from ordercast.verify.kernels.integrity import MAY, MUST, MUST_NOT, owed_and_forbidden

if TYPE_CHECKING:
    from ordercast.verify.kernels.jit import Flags, Ints, Offsets

ALWAYS = -1
"""As the start of an interval: from before the first event. As the end: never closed."""
NEVER = (2**31 - 1, 2**63 - 1)
"""A place and a time after everything: of what is pending and never completed."""
_MARKS_AT_ONCE = 62
_Bools: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]


class Interval(NamedTuple):
    """A stay of a receiver in an audience: from and to a place in its log, and the times of the rows that say so."""

    receiver: int
    audience: int
    start: int
    start_ns: int
    end: int = ALWAYS
    end_ns: int = 0


class Change(NamedTuple):
    """A membership row: what happened at which place of a receiver's log. `topic` is -1 for all topics."""

    kind: str
    topic: int
    place: int
    time_ns: int
    pending: bool = False
    """It has begun and is not complete: messages may come, and need not."""


@dataclass(frozen=True, slots=True)
class Published:
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


@dataclass(frozen=True, slots=True)
class Owed:
    """Per receiver what it had to deliver and did not; and flags on the deliveries that were not for it."""

    missed_off: Offsets
    missed: Ints
    forbidden: Flags


def stays(receiver: int, initial: list[int], start: Change | None, changes: list[Change]) -> list[Interval]:
    """The intervals of one receiver: it begins in `initial` (from `start` on, if given) and lives through `changes`.

    A subscription that is pending binds once a row without says so; one whose end is pending binds no longer.
    """
    begin = (ALWAYS, 0) if start is None else (start.place, start.time_ns)
    current = dict.fromkeys(initial, begin)
    if changes and changes[0].kind == "join" and changes[0].place == 0 and start is None:
        current.clear()  # Its history begins with a join: it was no member before.
    closed, ending = [], set()
    for change in changes:
        now = NEVER if change.pending else (change.place, change.time_ns)
        if change.kind in ("subscribe", "join"):
            for topic in initial if change.kind == "join" else [change.topic]:
                if topic in ending:
                    ending.discard(topic)
                    closed.append(Interval(receiver, topic, *current.pop(topic), *NEVER))
                if current.get(topic, NEVER) == NEVER:
                    current[topic] = now
        elif change.pending:
            ending |= {change.topic} & set(current)
        else:
            left = list(current) if change.kind == "leave" else [change.topic]
            closed += [Interval(receiver, topic, *current.pop(topic), *now) for topic in left if topic in current]
            ending -= set(left)
    lasting = [Interval(receiver, topic, *since) for topic, since in current.items() if topic not in ending]
    return closed + lasting + [Interval(receiver, topic, *current[topic], *NEVER) for topic in sorted(ending)]


def settle(messages: Published, fixed: tuple[Ints, Ints], intervals: list[Interval]) -> Owed:
    """Decide every obligation. `fixed` are (receiver, audience) that hold from beginning to end."""
    audience_off, order = group(messages.audience, messages.audiences)
    audience_messages = order.astype(np.int32)
    place = np.empty(messages.audience.size, np.int32)
    place[order] = np.arange(order.size) - np.repeat(audience_off[:-1], np.diff(audience_off))
    lasting = [i for i in intervals if i.start == ALWAYS and i.end == ALWAYS]
    passing = [i for i in intervals if i.start != ALWAYS or i.end != ALWAYS]
    statuses = _statuses(messages, passing, audience_off, audience_messages)
    receiver = [fixed[0], np.array([i.receiver for i in lasting] + [r for r, _ in statuses], np.int32)]
    audience = [fixed[1], np.array([i.audience for i in lasting] + [a for _, a in statuses], np.int32)]
    sizes = np.array([status.size for status in statuses.values()], np.int64)
    begins = [np.full(fixed[0].size + len(lasting), -1, np.int64), np.cumsum(sizes) - sizes]
    member_off, by_receiver = group(np.concatenate(receiver), messages.off.size - 1)
    missed_off, missed, forbidden = owed_and_forbidden(
        messages.ev,
        messages.off,
        messages.pub,
        messages.audience,
        place,
        audience_off,
        audience_messages,
        member_off,
        np.concatenate(audience)[by_receiver],
        np.concatenate(begins)[by_receiver],
        np.concatenate([*statuses.values(), np.empty(0, np.uint8)]),
        messages.own_implied,
    )
    return Owed(missed_off, missed, forbidden)


def _statuses(
    messages: Published, intervals: list[Interval], audience_off: Offsets, audience_messages: Ints
) -> dict[tuple[int, int], Flags]:
    """For each membership that comes or goes: MUST, MAY or MUST_NOT for each message of the audience."""
    parts = [audience_messages[audience_off[i.audience] : audience_off[i.audience + 1]] for i in intervals]
    published_after = _by_clock if messages.time_ns is not None else _by_causality
    statuses: dict[tuple[int, int], Flags] = {}
    for interval, after in zip(intervals, published_after(messages, intervals, parts), strict=True):
        status = np.where(after, MUST if interval.end == ALWAYS else MUST_NOT, MAY).astype(np.uint8)
        key = (interval.receiver, interval.audience)
        statuses[key] = np.maximum(status, statuses[key]) if key in statuses else status
    return statuses


def _by_clock(messages: Published, intervals: list[Interval], parts: list[Ints]) -> list[_Bools]:
    """Per interval, of the messages in its part: published after what decides about it, by the clock of all nodes.

    What decides is the end of an interval that is closed, the start of one that is open.
    """
    assert messages.time_ns is not None
    decided = [i.start_ns if i.end == ALWAYS else i.end_ns for i in intervals]
    return [messages.time_ns[part] > moment for part, moment in zip(parts, decided, strict=True)]


def _by_causality(messages: Published, intervals: list[Interval], parts: list[Ints]) -> list[_Bools]:
    """The same by happened-before, which always runs through all topics: it is a fact of the execution."""
    if not intervals:
        return []
    receivers = messages.off.size - 1
    chain, at, prev, begin = publications(messages.ev, messages.off, messages.pub.size)
    edge_off, edges = prune(messages.ev, chain, at, begin, receivers)
    places = np.array([(i.receiver, i.start if i.end == ALWAYS else i.end) for i in intervals], np.int32)
    marks, mark_of = np.unique(places, axis=0, return_inverse=True)
    after: list[_Bools] = [np.empty(0, bool)] * len(intervals)
    for first in range(0, len(marks), _MARKS_AT_ONCE):
        chunk = marks[first : first + _MARKS_AT_ONCE]
        mark_off, bit = group(chunk[:, 0].copy(), receivers)
        where = chunk[bit, 1].copy()
        known = known_marks(messages.pub, messages.place, prev, edge_off, edges, mark_off, bit, where)
        for i in np.flatnonzero((mark_of >= first) & (mark_of < first + len(chunk))):
            after[i] = (known[parts[i]] >> (mark_of[i] - first)) & 1 == 1
    return after


def change_of(kind: str, topic: int | None, place: int, time_ns: int | None, where: str) -> Change:
    """A membership row, checked."""
    if kind in ("subscribe", "unsubscribe") and topic is None:
        raise TraceError(f"{where}: {kind} without topic")
    return Change(kind, -1 if topic is None else topic, place, time_ns or 0)
