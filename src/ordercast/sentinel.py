"""Watches the order in which one consumer of any broker gets its messages, and counts what broke.

Add it to a producer and a consumer of Kafka, NATS, MQTT or whatever else carries a header:

    sentinel = Sentinel("billing")
    header = sentinel.published("orders")                       # put this text into a header of the message
    findings = sentinel.delivered(header, "orders", key="17")   # at the other end, in the order of processing
    text = sentinel.prometheus()                                # for /metrics

Nothing of Ordercast is needed at either end but this module, which imports nothing but the standard library. A stamp
says who published, the how many-th message of it on the topic this is, and what of others it had seen since its last
message on the topic. So a consumer knows, for every message of the topics it reads, what should have come before.

Disorder is never silent if all messages come, and there are no false alarms: a message counts as overtaken only when it
arrives after the one that overtook it. What never arrives is no matter of order; it is counted as missing as long as it
is remembered. Memory is bounded: lines, keys and missing numbers that were not heard of for the longest are forgotten,
and `forgotten` counts them. What is forgotten can hide a violation, and a second copy of a forgotten message can look
like a late one. A process that publishes and consumes uses one Sentinel for both, because what it consumed is what its
messages depend on.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

FIFO, KEY, CAUSAL = "fifo", "key", "causal"
_VERSION = 1
_LONGEST_STAMP = 1 << 16
_LONGEST_NAME = 255
_LARGEST = 1 << 62

Line = tuple[str, str]
"""What one publisher puts on one topic: its numbers there have no gaps."""


@dataclass(frozen=True)
class Finding:
    """One message that came too late: `order` says which order that breaks."""

    order: str
    topic: str
    publisher: str
    number: int
    overtaken_by: str
    """The publisher of the message that came first although this one belonged before it."""


class _Arrivals:
    """The arrivals of one line: everything from `first` to `highest` but for `missing`."""

    __slots__ = ("first", "highest", "missing")

    def __init__(self, number: int) -> None:
        self.first = self.highest = number
        self.missing: OrderedDict[int, None] = OrderedDict()


class Sentinel:
    """The watch of one process, which may publish, consume or both. Safe to use from several threads."""

    def __init__(
        self,
        name: str,
        *,
        across_topics: bool = True,
        lines: int = 10_000,
        keys: int = 100_000,
        missing: int = 1_000,
        depends: int = 200,
    ) -> None:
        """`across_topics`: whether a message may be overtaken by one of another topic, or only of its own.

        `lines`, `keys` and `missing` (of a line) bound what is remembered, `depends` what a stamp carries.
        """
        self.name = _checked_name(name)
        self.publisher = ""
        """Under which this process publishes: a name of its own for every life, because its numbers begin anew."""
        self.counts = dict.fromkeys(_COUNTED, 0)
        self._most_lines, self._most_keys, self._most_missing, self._most_depends = lines, keys, missing, depends
        self._across_topics = across_topics
        self._lock = threading.Lock()
        self._next: dict[str, int] = {}
        self._said: dict[str, int] = {}
        """For each topic that this process publishes on: how much it had seen at its last message there."""
        self._arrived: OrderedDict[Line, _Arrivals] = OrderedDict()
        self._keys: OrderedDict[tuple[str, str, str], int] = OrderedDict()
        self._overtaken: OrderedDict[Line, tuple[int, str]] = OrderedDict()
        """Up to which number of a line messages have come that depend on it, and the publisher of the furthest one."""
        self._seen: OrderedDict[Line, tuple[int, int]] = OrderedDict()
        """How far this process has seen each line, also through what others had seen, and when; the newest last."""
        self._sight = 0
        self._begin_anew()

    def published(self, topic: str) -> str:
        """The stamp of a message that is about to be published; it belongs into a header of exactly that message."""
        with self._lock:
            self.counts["published"] += 1
            if topic not in self._next and len(self._next) >= self._most_lines:
                self._begin_anew()
            number = self._next[topic] = self._next.get(topic, 0) + 1
            depends = self._unsaid(topic)
            self._said[topic] = self._sight
            self._see(self.publisher, topic, number)
            return json.dumps([_VERSION, self.publisher, number, depends], separators=(",", ":"))

    def delivered(self, stamp: str | bytes | None, topic: str, key: str | None = None) -> list[Finding]:
        """Tell of a message that is being processed; what its coming now proves to be out of order."""
        with self._lock:
            read = _read(stamp)
            if read is None:
                self.counts["unreadable"] += 1
                return []
            publisher, number, depends = read
            self.counts["delivered"] += 1
            found = self._arrive(publisher, topic, number, key)
            for who, where, upto in depends:
                if self._across_topics or where == topic:
                    self._overtake(who, where, upto, publisher)
                self._see(who, where, upto)
            self._see(publisher, topic, number)
            return found

    @property
    def missing(self) -> int:
        """Messages that later ones of their publisher overtook and that have not come, as far as remembered."""
        with self._lock:
            return sum(len(line.missing) for line in self._arrived.values())

    def prometheus(self) -> str:
        """All counters as Prometheus reads them."""
        lines = []
        for name, (kind, help_text) in _METRICS.items():
            value = self.missing if name == "missing" else self.counts[name.removesuffix("_total")]
            full = f"ordercast_sentinel_{name}"
            lines += [
                f"# HELP {full} {help_text}",
                f"# TYPE {full} {kind}",
                f'{full}{{consumer="{self.name}"}} {value}',
            ]
        return "\n".join(lines) + "\n"

    def _begin_anew(self) -> None:
        """A new name to publish under: at the start, and when there are too many topics to count on."""
        self.publisher = f"{self.name}.{secrets.token_hex(6)}"
        self._next.clear()
        self._said.clear()

    def _unsaid(self, topic: str) -> list[tuple[str, str, int]]:
        """The lines seen further since the last message on the topic; of too many, the newest."""
        said = self._said.get(topic, 0)
        found: list[tuple[str, str, int]] = []
        for (who, where), (upto, sight) in reversed(self._seen.items()):
            if sight <= said:
                break
            if len(found) == self._most_depends:
                self.counts["forgotten"] += 1
                break
            if (who, where) != (self.publisher, topic):  # That one is said by the number of the message itself.
                found.append((who, where, upto))
        return found

    def _arrive(self, publisher: str, topic: str, number: int, key: str | None) -> list[Finding]:
        if not self._is_new(publisher, topic, number):
            self.counts["duplicates"] += 1
            return []
        found = []
        if number < self._arrived[publisher, topic].highest:
            found.append(Finding(FIFO, topic, publisher, number, publisher))
        upto, overtaker = self._overtaken.get((publisher, topic), (0, ""))
        if number <= upto:
            found.append(Finding(CAUSAL, topic, publisher, number, overtaker))
        if key is not None and number < self._newest_of_key(publisher, topic, key, number):
            found.append(Finding(KEY, topic, publisher, number, publisher))
        for finding in found:
            self.counts[f"{finding.order}_violations"] += 1
        return found

    def _is_new(self, publisher: str, topic: str, number: int) -> bool:
        """Note that the number has come; whether it is for the first time."""
        line = self._arrived.get((publisher, topic))
        if line is None:
            self._arrived[publisher, topic] = _Arrivals(number)
            self._trim(self._arrived, self._most_lines)
            return True
        self._arrived.move_to_end((publisher, topic))
        if number > line.highest:
            self._miss(line, line.highest + 1, number)
            line.highest = number
        elif number < line.first:
            self._miss(line, number + 1, line.first)
            line.first = number
        elif number in line.missing:
            del line.missing[number]
        else:
            return False
        return True

    def _miss(self, line: _Arrivals, begin: int, end: int) -> None:
        """Everything from `begin` to before `end` is missing from now on; of much, the newest part."""
        kept = max(begin, end - self._most_missing)
        self.counts["forgotten"] += kept - begin
        line.missing.update(dict.fromkeys(range(kept, end)))
        self._trim(line.missing, self._most_missing)

    def _newest_of_key(self, publisher: str, topic: str, key: str, number: int) -> int:
        """The newest number of a key so far, this one included."""
        place = (publisher, topic, key)
        newest = self._keys[place] = max(self._keys.pop(place, 0), number)
        self._trim(self._keys, self._most_keys)
        return newest

    def _overtake(self, who: str, where: str, upto: int, overtaker: str) -> None:
        """A message has come that depends on number `upto` of a line: whatever of it comes later is late."""
        if upto > self._overtaken.get((who, where), (0, ""))[0]:
            self._overtaken[who, where] = (upto, overtaker)
            self._overtaken.move_to_end((who, where))
            self._trim(self._overtaken, self._most_lines)

    def _see(self, who: str, where: str, upto: int) -> None:
        """This process has seen the line up to `upto`: whatever it publishes from now on depends on that."""
        if self._seen.get((who, where), (0, 0))[0] < upto:
            self._sight += 1
            self._seen[who, where] = (upto, self._sight)
            self._seen.move_to_end((who, where))
            self._trim(self._seen, self._most_lines)

    def _trim(self, remembered: OrderedDict[Any, Any], most: int) -> None:
        while len(remembered) > most:
            remembered.popitem(last=False)
            self.counts["forgotten"] += 1


_METRICS = {
    "published_total": ("counter", "Messages that got a stamp here."),
    "delivered_total": ("counter", "Messages with a stamp that were told of here."),
    "unreadable_total": ("counter", "Messages whose stamp is missing or cannot be read."),
    "duplicates_total": ("counter", "Messages that came a second time."),
    "fifo_violations_total": ("counter", "Messages that a later one of the same publisher and topic overtook."),
    "key_violations_total": ("counter", "Messages that a later one of the same publisher, topic and key overtook."),
    "causal_violations_total": ("counter", "Messages that one overtook whose publisher had seen them."),
    "missing": ("gauge", "Messages that later ones of their publisher overtook and that have not come so far."),
    "forgotten_total": ("counter", "Things no longer remembered because there were too many."),
}
_COUNTED = [name.removesuffix("_total") for name, (kind, _) in _METRICS.items() if kind == "counter"]


def _read(stamp: str | bytes | None) -> tuple[str, int, list[tuple[str, str, int]]] | None:
    """Publisher, number and dependencies of a stamp; None of what is none, whoever wrote it."""
    if stamp is None or len(stamp) > _LONGEST_STAMP:
        return None
    try:
        version, publisher, number, depends = json.loads(stamp)
        if version != _VERSION or not _is_name(publisher) or not _is_number(number):
            return None
        read = [(who, where, upto) for who, where, upto in depends]
    except (ValueError, TypeError, RecursionError):
        return None
    if all(_is_name(who) and _is_name(where) and _is_number(upto) for who, where, upto in read):
        return publisher, number, read
    return None


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < _LARGEST


def _checked_name(name: str) -> str:
    if not _is_name(name) or not all(char.isprintable() and char not in '"\\' for char in name):
        raise ValueError(f"{name!r}: a sentinel's name is printable text without quotes, of at most {_LONGEST_NAME}")
    return name
