"""Topic names and topic filters: `accounts.PT` is a topic; `accounts.*` and `accounts.>` are filters.

Segments are separated by dots. `*` stands for exactly one segment, `>` (only at the end) for one or more.
"""

from __future__ import annotations

from collections.abc import Iterable

from ordercast.core.errors import UsageError

LONGEST_TOPIC = 255
_FORBIDDEN = {"#", ";", ",", " ", "~"}


def check_topic(name: str) -> None:
    """Raise a UsageError unless `name` can be a topic."""
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


def _check(name: str, what: str) -> None:
    if not name or len(name) > LONGEST_TOPIC:
        raise UsageError(f"{what} {name[:40]!r}: has {len(name)} characters; from 1 to {LONGEST_TOPIC} are allowed")
    if not name.isprintable() or set(name) & _FORBIDDEN:
        raise UsageError(f"{what} {name!r}: contains a character that is not allowed in it")
    if any(not segment for segment in name.split(".")):
        raise UsageError(f"{what} {name!r}: has an empty segment")
