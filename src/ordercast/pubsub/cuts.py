"""Cuts of a kept topic: per publisher up to which number, and, in intervals, the closed sessions of which it has all.

A cut is a vector. A closed session (BRK-F7) is not counted in it one by one: tickets 3 to 70 that broker b2 gave out in
its life 0 stand in it as one more name, `~3.0.b2`, with the number 70, and mean everything of all these sessions. No
client has such a name. So cuts stay what they are on the wire, on disk and in positions, however many sessions fold.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from ordercast.core.ids import Origin
from ordercast.core.state import Value
from ordercast.pubsub.closed import Closed, ClosedSessions, is_ticket
from ordercast.pubsub.received import Vector

_MARK = "~"
_DIGITS = 20
ALL = 1 << 62
"""Up to this number: everything of a session that is closed."""


class CutSet(Value):
    """A cut as a set: what is in it."""

    __slots__ = ("closed", "low")

    def __init__(self, cut: Mapping[Origin, int]) -> None:
        self.low = cut
        self.closed = ClosedSessions(closed_in(cut))

    def frozen(self) -> Hashable:
        return tuple(sorted(self.low.items()))

    def upto(self, origin: Origin) -> int:
        """Everything of the publisher up to this number is in it; `ALL` if its session is closed in it."""
        return ALL if self.closed and origin in self.closed else self.low.get(origin, 0)

    def has(self, origin: Origin, number: int) -> bool:
        return number <= self.low.get(origin, 0) or (bool(self.closed) and origin in self.closed)

    def has_all(self, cut: Mapping[Origin, int]) -> bool:
        """Whether everything in the other cut is in this one, as far as the two can tell.

        Of a session that is closed in the other one and counted here nobody can tell: that is taken for more.
        """
        low = self.low.get
        for origin, number in cut.items():
            if number > low(origin, 0) and not is_interval(origin) and origin not in self.closed:
                return False
        theirs = closed_in(cut)
        return not theirs or self.closed.has_all(theirs)


def is_interval(name: Origin) -> bool:
    """Whether the name in a cut stands for closed sessions."""
    return name.startswith(_MARK)


def closed_in(cut: Mapping[Origin, int]) -> Closed:
    """The closed sessions of a cut, as sets of them travel."""
    found = ClosedSessions()
    for name, last in cut.items():
        if name.startswith(_MARK):
            first, _, issuer = name[1:].partition(".")
            if first.isdecimal() and len(first) < _DIGITS and int(first) <= last:
                found.merge({issuer: (int(first), last + 1)})
    return found.summary()


def plain(cut: Mapping[Origin, int]) -> Vector:
    """What is counted one by one."""
    return {origin: number for origin, number in cut.items() if not origin.startswith(_MARK)}


def intervals(closed: Closed) -> Vector:
    """Closed sessions as the names that they have in a cut."""
    return {
        Origin(f"{_MARK}{bounds[i]}.{issuer}"): bounds[i + 1] - 1
        for issuer, bounds in closed.items()
        for i in range(0, len(bounds), 2)
    }


def folded(cut: Mapping[Origin, int]) -> Vector:
    """The same cut with nothing in it that is said twice: the shortest way to write it down."""
    if not any(origin.startswith(_MARK) for origin in cut):
        return dict(cut)
    closed = ClosedSessions(closed_in(cut))
    counted = {o: n for o, n in cut.items() if not o.startswith(_MARK) and o not in closed}
    return counted | intervals(closed.summary())


def union(one: Mapping[Origin, int], other: Mapping[Origin, int]) -> Vector:
    """Everything that is in one of two cuts."""
    both = dict(one)
    for origin, number in other.items():
        if number > both.get(origin, 0):
            both[origin] = number
    return folded(both)


def grow(cut: Vector, by: Mapping[Origin, int]) -> None:
    """Everything in the other cut is in this one from now on."""
    for origin, number in by.items():
        if number > cut.get(origin, 0):
            cut[origin] = number
    if any(origin.startswith(_MARK) for origin in by):
        shortest = folded(cut)
        cut.clear()
        cut.update(shortest)


def common(one: Mapping[Origin, int], other: Mapping[Origin, int]) -> Vector:
    """Everything that is in both of two cuts, as far as they can tell."""
    first, second = CutSet(one), CutSet(other)
    counted = {o: min(first.upto(o), second.upto(o)) for o in (plain(one) | plain(other))}
    both = first.closed.shared_with(second.closed.summary())
    return {o: n for o, n in counted.items() if 0 < n < ALL} | intervals(both)


def within(cut: Mapping[Origin, int], other: Mapping[Origin, int]) -> bool:
    """Whether everything in `cut` is in `other`, as far as the two can tell."""
    low = other.get
    if all(number <= low(origin, 0) for origin, number in cut.items()):
        return True
    return CutSet(other).has_all(cut)


def senseless_interval(cut: Mapping[Origin, int]) -> str:
    """A name in a cut that stands for closed sessions of nobody; nothing if there is none."""
    return next((name for name in cut if name.startswith(_MARK) and not is_ticket(name[1:])), "")
