"""Topic names and topic filters: `accounts.PT` is a topic; `accounts.*` and `accounts.>` are filters.

Segments are separated by dots. `*` stands for exactly one segment, `>` (only at the end) for one or more.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Generic, TypeVar

from ordercast.core.errors import UsageError
from ordercast.core.ids import Topic
from ordercast.core.state import State

LONGEST_TOPIC = 255
_FORBIDDEN = {"#", ";", ",", " ", "~"}
_FOLLOWING = "~"
_HERE = ""
"""In a node of the index: who has a filter that ends there. No segment is empty."""
_FILTER = " "
"""In a node of the index: the filter that ends there. No segment has a space in it."""

W = TypeVar("W")


@lru_cache(maxsize=1 << 12)
def check_topic(name: str) -> None:
    """Raise a UsageError unless `name` can be a topic. Every packet names one, mostly one of a few."""
    _check(name, "topic")
    if is_filter(name):
        raise UsageError(f"topic {name!r}: '*' and '>' are for filters of subscribers")


def check_filter(name: str) -> None:
    """Raise a UsageError unless `name` can be a topic or a filter."""
    _check(name, "filter")
    segments = name.split(".")
    for i, segment in enumerate(segments):
        if segment == ">" and i != len(segments) - 1:
            raise UsageError(f"filter {name!r}: '>' stands only at the end")
        if segment not in ("*", ">") and ("*" in segment or ">" in segment):
            raise UsageError(f"filter {name!r}: a wildcard is a whole segment, {segment!r} is not")


def is_filter(name: str) -> bool:
    return "*" in name or ">" in name


def matches(pattern: str, topic: str) -> bool:
    """Whether `pattern`, a filter or a topic, takes `topic` in."""
    wanted = pattern.split(".")
    given = topic.split(".")
    if wanted[-1] == ">":
        wanted = wanted[:-1]
        if len(given) <= len(wanted):
            return False
        given = given[: len(wanted)]
    return len(wanted) == len(given) and all(w in ("*", g) for w, g in zip(wanted, given, strict=True))


def allows(patterns: Iterable[str], topic: str) -> bool:
    """Whether one of the patterns takes the topic in."""
    return any(matches(pattern, topic) for pattern in patterns)


def following(pattern: str) -> Topic:
    """The name under which those who follow the filter are members of it; no topic is called so."""
    return Topic(_FOLLOWING + pattern)


def is_following(name: str) -> bool:
    return name.startswith(_FOLLOWING)


def followed(name: str) -> str:
    """The filter that `following` was given."""
    return name[len(_FOLLOWING) :]


def common(one: str, other: str) -> str | None:
    """The filter that takes in what both do; None: there is nothing."""
    mine, yours = one.split("."), other.split(".")
    both: list[str] = []
    for i in range(max(len(mine), len(yours))):
        if mine[i:] == [">"] or yours[i:] == [">"]:
            rest = yours[i:] if mine[i:] == [">"] else mine[i:]
            return ".".join(both + rest) if rest else None
        if i >= len(mine) or i >= len(yours) or ("*" not in (mine[i], yours[i]) and mine[i] != yours[i]):
            return None
        both.append(yours[i] if mine[i] == "*" else mine[i])
    return ".".join(both)


class FilterIndex(State, Generic[W]):
    """An index of filters: finding those that take a topic in is a walk along its segments, not a look at each."""

    def __init__(self) -> None:
        self._root: dict[str, Any] = {}

    def add(self, pattern: str, watcher: W) -> None:
        node = self._root
        for segment in pattern.split("."):
            node = node.setdefault(segment, {})
        node.setdefault(_HERE, set()).add(watcher)
        node[_FILTER] = pattern

    def discard(self, pattern: str, watcher: W) -> None:
        """Forget the filter, and every node that only it needed."""
        path = [self._root]
        segments = pattern.split(".")
        for segment in segments:
            if segment not in path[-1]:
                return
            path.append(path[-1][segment])
        path[-1].get(_HERE, set()).discard(watcher)
        if not path[-1].get(_HERE):
            path[-1].pop(_HERE, None)
            path[-1].pop(_FILTER, None)
        for parent, segment in zip(reversed(path[:-1]), reversed(segments), strict=True):
            if parent[segment]:
                return
            del parent[segment]

    def matching(self, topic: str) -> list[tuple[W, str]]:
        """Every watcher and filter that takes `topic` in, in no particular order.

        All places that the segments so far lead to are looked at together, each once: whoever chooses filters of many
        segments so that as many of them as possible go on for long pays for each of them with a filter.
        """
        ends: list[dict[str, Any]] = []
        places = [self._root]
        for segment in topic.split("."):
            ends += [place[">"] for place in places if ">" in place]
            places = [place[one] for place in places for one in (segment, "*") if one in place]
        return [(watcher, end[_FILTER]) for end in (*ends, *places) for watcher in end.get(_HERE, ())]


def _check(name: str, what: str) -> None:
    if not name or len(name) > LONGEST_TOPIC:
        raise UsageError(f"{what} {name[:40]!r}: has {len(name)} characters; from 1 to {LONGEST_TOPIC} are allowed")
    if not name.isprintable() or not _FORBIDDEN.isdisjoint(name):
        raise UsageError(f"{what} {name!r}: contains a character that is not allowed in it")
    if "" in name.split("."):
        raise UsageError(f"{what} {name!r}: has an empty segment")
