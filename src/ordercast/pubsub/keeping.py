"""Which topics are kept, for how long, and by which brokers: the same answer at every broker (ARC-1)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

from ordercast.core.chance import salt
from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Topic
from ordercast.core.state import State
from ordercast.pubsub.filters import check_filter, common, matches

_Count = Annotated[int, msgspec.Meta(ge=1, le=1000)]
_Amount = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_SIZE = re.compile(r"(\d{1,15})\s*(B|kB|KB|KiB|MB|MiB|GB|GiB|TB|TiB)?")
_AGE = re.compile(r"(\d{1,12})\s*(ms|s|min|h|d)?")
_BYTES = {
    "B": 1, "kB": 1000, "KB": 1000, "KiB": 1 << 10, "MB": 10**6, "MiB": 1 << 20, "GB": 10**9, "GiB": 1 << 30,
    "TB": 10**12, "TiB": 1 << 40,
}  # fmt: skip
_MS = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class KeepRule(msgspec.Struct, frozen=True, array_like=True):
    """Topics that the filter takes in are kept, by so many brokers. Limits of 0 are none."""

    filter: str
    max_age_ms: _Amount = 0
    max_bytes: _Amount = 0
    copies: _Count = 2
    compact: Literal["none", "key"] = "none"
    """`key`: of each key only the last publication stays; those without a key all stay."""
    stopped: bool = False
    """The topics are kept no longer, and what was kept of them is removed."""


class StampedRule(msgspec.Struct, frozen=True, array_like=True):
    """A rule, and when it was made: of two about one filter the later one counts. Rules of the file have version 0."""

    rule: KeepRule
    version: _Amount = 0
    broker: NodeId = NodeId("")

    @property
    def stamp(self) -> tuple[int, str]:
        return self.version, self.broker


class KeepTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[[keep]]` in a file: a rule as people write it."""

    filter: str
    max_age: str | int = 0
    """`7d`, `12h`, `90s`, or milliseconds; 0: no limit."""
    max_bytes: str | int = 0
    """`10GB`, `512MiB`, or bytes; 0: no limit. For each topic and copy."""
    copies: _Count = 2
    compact: Literal["none", "key"] = "none"

    def rule(self) -> KeepRule:
        check_filter(self.filter)
        return KeepRule(self.filter, age_ms(self.max_age), size_bytes(self.max_bytes), self.copies, self.compact)


def age_ms(said: str | int) -> int:
    """`7d` in milliseconds."""
    return _amount(said, _AGE, _MS, "ms", "max_age", "7d, 12h, 30min, 90s or 500ms")


def size_bytes(said: str | int) -> int:
    """`10GB` in bytes."""
    return _amount(said, _SIZE, _BYTES, "B", "max_bytes", "10GB, 512MiB or a number of bytes")


def _amount(
    said: str | int, form: re.Pattern[str], units: dict[str, int], plain: str, field: str, expected: str
) -> int:  # fmt: skip
    found = form.fullmatch(str(said).strip())
    if found is None:
        raise UsageError(f"{field}: {str(said)[:40]!r} is not like {expected}")
    amount = int(found[1]) * units[found[2] or plain]
    if amount >= 1 << 62:
        raise UsageError(f"{field}: {str(said)[:40]!r} is too much")
    return amount


class KeepBook(State):
    """The rules that a broker knows. Among those that take a topic in, the latest counts, then the plainest filter."""

    def __init__(self, rules: Iterable[KeepRule] = ()) -> None:
        self._rules: dict[str, StampedRule] = {}
        self._order: list[StampedRule] = []
        for rule in rules:
            self.learn(StampedRule(rule))

    def learn(self, stamped: StampedRule) -> bool:
        """Take the rule in; whether it is news."""
        known = self._rules.get(stamped.rule.filter)
        if known is not None and known.stamp >= stamped.stamp:
            return False
        self._rules[stamped.rule.filter] = stamped
        self._order = sorted(self._rules.values(), key=_precedence)
        return True

    def next_version(self) -> int:
        return 1 + max((stamped.version for stamped in self._rules.values()), default=0)

    def everything(self) -> tuple[StampedRule, ...]:
        return tuple(self._order)

    def rule_of(self, topic: Topic) -> KeepRule | None:
        """The rule that the topic is kept by, if it is."""
        for stamped in self._order:
            if matches(stamped.rule.filter, topic):
                return None if stamped.rule.stopped else stamped.rule
        return None

    def may_keep(self, pattern: str) -> bool:
        """Whether a rule takes in some topic of the filter, be it one that nobody has ever named."""
        return any(not one.rule.stopped and common(one.rule.filter, pattern) is not None for one in self._order)

    def __bool__(self) -> bool:
        return bool(self._rules)


def _precedence(stamped: StampedRule) -> tuple[int, str, int, int, str]:
    pattern = stamped.rule.filter
    return -stamped.version, stamped.broker, pattern.count(">"), pattern.count("*"), pattern


def ranked(topic: Topic, brokers: Iterable[NodeId]) -> list[NodeId]:
    """ARC-2: the brokers in the order in which they keep the topic: by a draw that belongs to topic and broker.

    When a broker comes or goes only the topics that it keeps itself change hands.
    """
    return sorted(brokers, key=lambda broker: (salt(0, "keep", topic, broker), broker), reverse=True)
