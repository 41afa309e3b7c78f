"""Closed sessions: ended for good, and everything of them that will ever be delivered is stable everywhere (BRK-F7).

Nothing about them is forgotten: whatever anybody brings back of a closed session counts as known. But a session is one
number among those that its broker has given out one after the other, so that a million of them are one interval.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise

from ordercast.core.ids import Origin, ticket_of, valid_node
from ordercast.core.state import State

Closed = dict[str, tuple[int, ...]]
"""On the wire: per issuer of tickets the bounds of the closed intervals, first number and the one behind the last."""
_BEYOND = 1 << 62
"""No broker gives out so many tickets."""


class ClosedSessions(State):
    """A set of sessions in memory that grows with its gaps only."""

    def __init__(self, closed: Mapping[str, Iterable[int]] | None = None) -> None:
        self._bounds: Closed = {}
        self.merge(closed or {})

    def __bool__(self) -> bool:
        return bool(self._bounds)

    def __contains__(self, origin: Origin) -> bool:
        ticket = ticket_of(origin) if self._bounds else None
        if ticket is None:
            return False
        bounds = self._bounds.get(ticket[0])
        return bounds is not None and bisect_right(bounds, ticket[1]) % 2 == 1

    def without(self, origins: Iterable[Origin]) -> list[Origin]:
        """Those that are not closed."""
        return [origin for origin in origins if origin not in self]

    def of(self, origins: Iterable[Origin]) -> Closed:
        """For the wire: what closing these sessions adds to the set."""
        added: dict[str, list[int]] = {}
        for origin in origins:
            ticket = ticket_of(origin)
            if ticket is not None:
                _add(added.setdefault(ticket[0], []), ticket[1], ticket[1] + 1)
        return {issuer: tuple(bounds) for issuer, bounds in sorted(added.items())}

    def merge(self, closed: Mapping[str, Iterable[int]]) -> Closed:
        """Close all of these too; gives the whole of each issuer of whose sessions one was open.

        Every new neighbour names all issuers, of which nearly all are known: those cost one comparison each.
        """
        if not self._bounds:
            self._bounds = {issuer: tuple(bounds) for issuer, bounds in closed.items()}
            return self.summary()
        known, news = self._bounds.get, Closed()
        for issuer in sorted([issuer for issuer, bounds in closed.items() if known(issuer) != bounds]):
            before, bounds = known(issuer, ()), tuple(closed[issuer])
            now = _union(before, bounds) if before else bounds
            if now != before:
                self._bounds[issuer] = news[issuer] = now
        return news

    def has_all(self, closed: Mapping[str, Iterable[int]]) -> bool:
        """Whether all of these are closed."""
        known = self._bounds.get
        return all(
            known(issuer) == bounds or _has_all(known(issuer, ()), tuple(bounds)) for issuer, bounds in closed.items()
        )

    def shared_with(self, closed: Mapping[str, Iterable[int]]) -> Closed:
        """Those of these that are closed."""
        found = {issuer: _shared(self._bounds.get(issuer, ()), tuple(bounds)) for issuer, bounds in closed.items()}
        return {issuer: bounds for issuer, bounds in found.items() if bounds}

    def but(self, origins: Iterable[Origin]) -> Closed:
        """All of them without these."""
        left = dict(self.summary())
        for issuer, number in filter(None, map(ticket_of, origins)):
            bounds = left.get(issuer, ())
            place = bisect_right(bounds, number)
            if place % 2:
                around = [bounds[place - 1], number, number + 1, bounds[place]]
                parts = [*(around[:2] if around[0] < number else ()), *(around[2:] if number + 1 < around[3] else ())]
                left[issuer] = (*bounds[: place - 1], *parts, *bounds[place + 1 :])
        return {issuer: bounds for issuer, bounds in left.items() if bounds}

    def summary(self) -> Closed:
        return {issuer: self._bounds[issuer] for issuer in sorted(self._bounds)}


def _union(before: tuple[int, ...], bounds: tuple[int, ...]) -> tuple[int, ...]:
    both = list(before)
    for first, behind in zip(bounds[::2], bounds[1::2], strict=True):
        _add(both, first, behind)
    return tuple(both)


def _has_all(mine: tuple[int, ...], theirs: tuple[int, ...]) -> bool:
    """Whether each of their intervals lies in one of mine."""
    for first, behind in zip(theirs[::2], theirs[1::2], strict=True):
        place = bisect_right(mine, first)
        if place % 2 == 0 or mine[place] < behind:
            return False
    return True


def _shared(mine: tuple[int, ...], theirs: tuple[int, ...]) -> tuple[int, ...]:
    shared: list[int] = []
    for first, behind in zip(theirs[::2], theirs[1::2], strict=True):
        for low, high in zip(mine[::2], mine[1::2], strict=True):
            if max(first, low) < min(behind, high):
                shared += [max(first, low), min(behind, high)]
    return tuple(shared)


def _add(bounds: list[int], first: int, behind: int) -> None:
    """One interval more; those that it touches become one with it."""
    start = bisect_right(bounds, first - 1)
    end = bisect_right(bounds, behind)
    bounds[start:end] = ([first] if start % 2 == 0 else []) + ([behind] if end % 2 == 0 else [])


def senseless(closed: Closed) -> str:
    """The reason why this cannot be a set of closed sessions; empty if it can."""
    for issuer, bounds in closed.items():
        if not _is_rising(bounds) or not _is_issuer(issuer):
            return f"closed sessions {str(bounds)[:40]} of {issuer[:40]!r}"
    return ""


def _is_rising(bounds: tuple[int, ...]) -> bool:
    if len(bounds) == 2:  # Of nearly every issuer that has ended.
        return 0 < bounds[0] < bounds[1] < _BEYOND
    return bool(bounds) and len(bounds) % 2 == 0 and all(low < high for low, high in pairwise((0, *bounds, _BEYOND)))


@lru_cache(maxsize=1 << 14)
def _is_issuer(issuer: str) -> bool:
    """Remembered: every new neighbour names all of them."""
    return is_ticket(f"1.{issuer}")


def is_ticket(ticket: str) -> bool:
    """Whether a broker may have given it out."""
    name = Origin(f"x~1.{ticket}")
    life, _, node = ticket.partition(".")[2].partition(".")
    return ticket_of(name) is not None and life.isascii() and life.isdecimal() and valid_node(node)
