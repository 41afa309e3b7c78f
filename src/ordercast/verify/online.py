"""A watch on deliveries as they happen: fifo, causal and total order, in bounded memory.

It is told the rows of journals, of each node in their order, and raises an alarm when a message comes that should have
come before one that was there already. So it looks for what was overtaken, not for what is missing: that a message
never came, and all the rest, is for the judge (`ordercast verify`) to say when the run is over. Definitions are the
judge's (docs/verification.md) for runs of brokers: order is that of sessions, happened-before that of one topic.

There are no false alarms as long as nothing was forgotten. What is forgotten, because there is a bound for everything,
can only hide a violation, and is counted.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from ordercast.trace.schema import (
    FROM_EVERYTHING,
    INFO_BOOT,
    INFO_FILTER,
    INFO_FROM,
    INFO_ORDER_SCOPE,
    INFO_PENDING,
    INFO_STATE,
    STATE_KEPT,
)
from ordercast.trace.store import TraceError

FIFO, CAUSAL, TOTAL = "fifo", "causal", "total"
_LEVELS = {"eventual": 0, "fifo": 1, "causal": 2, "total": 3}
_NOTHING = np.zeros(0, np.int64)
_PAST_BYTES = 1 << 28
"""What the pasts of all messages that are remembered may take."""

Past = np.ndarray[Any, np.dtype[np.int64]]
T = TypeVar("T")


class OnlineRow(msgspec.Struct, frozen=True, array_like=True):
    """One row of a journal, as far as the watch reads it."""

    kind: str
    time_ns: int
    msg: str | None = None
    topic: str | None = None
    keys: tuple[str, ...] = ()
    guarantee: str | None = None
    info: Mapping[str, str] = {}


class Alarm(msgspec.Struct, frozen=True):
    """A message that came after one that it belongs before."""

    order: str
    node: str
    topic: str
    message: str
    overtaken_by: str
    other: str = ""
    """Of total order: the node that has delivered the two the other way round."""

    def __str__(self) -> str:
        """One line."""
        elsewhere = f"; {self.other} has them the other way round" if self.other else ""
        return f"{self.order}: {self.node} delivered {self.message} after {self.overtaken_by}{elsewhere}"


class _SeenPublication(msgspec.Struct):
    """A publication that was seen."""

    level: int
    keys: tuple[str, ...]
    past: Past
    time_ns: int
    boot: str
    of: _WatchedTopic | None = None
    """The topic as it was known then: `past` counts its publishers."""


class _Line(msgspec.Struct):
    """The arrivals of one publisher in a stay: everything from `first` to `highest` but for `missing`."""

    first: int
    highest: int
    missing: OrderedDict[int, None]
    ordered: int = 0
    """The highest of those that keep fifo order, and its id."""
    ordered_id: str = ""


class _Reader:
    """One node's view of one topic."""

    def __init__(self) -> None:
        self.seen: Past = _NOTHING
        """By publisher: up to which number there is anything in its past."""
        self.begin(None)

    def begin(self, since_ns: int | None) -> None:
        """A stay begins; None: nobody has said when."""
        self.since_ns = since_ns
        self.lines: dict[int, _Line] = {}
        self.floor: Past = _NOTHING
        """By publisher: up to which number messages have come that depend on it."""
        self.floor_ids: dict[int, str] = {}

    def forget_publishers(self, gone: int) -> None:
        self.seen, self.floor = self.seen[gone:].copy(), self.floor[gone:].copy()
        self.lines = {line - gone: came for line, came in self.lines.items() if line >= gone}
        self.floor_ids = {line - gone: told for line, told in self.floor_ids.items() if line >= gone}


class _WatchedTopic:
    """The state of one topic: the numbers of those who publish there, and what each node has of it."""

    def __init__(self) -> None:
        self.publishers: dict[str, int] = {}
        self.readers: OrderedDict[str, _Reader] = OrderedDict()

    def forget_publishers(self, gone: int) -> None:
        """Without the first of them, by when they were first seen. Whoever of them comes back is new."""
        self.publishers = {name: line - gone for name, line in self.publishers.items() if line >= gone}
        for reader in self.readers.values():
            reader.forget_publishers(gone)


class _TotalLane:
    """The deliveries of one key of one topic, at every node: where two nodes differ about a total message."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._totals = False
        """Whether there was any: until then it is enough to know who has what at which place."""
        self._counts: dict[str, int] = {}
        self._places: OrderedDict[str, dict[str, int]] = OrderedDict()
        self._furthest: dict[tuple[str, str, bool], tuple[int, str]] = {}
        """Of two nodes: of what both have, the last by the order of the second; of all of it, and of totals only."""

    def deliver(self, node: str, message: str, *, total: bool) -> tuple[str, str] | None:
        """The message that this one should have preceded here, and the node that says so; None: there is none."""
        place = self._counts[node] = self._counts.get(node, 0) + 1
        places = self._places.setdefault(message, {})
        if node in places:
            return None
        found = None
        self._totals = self._totals or total
        for other, theirs in places.items() if self._totals else ():
            furthest = self._furthest.get((node, other, not total), (0, ""))
            if theirs < furthest[0]:
                found = found or (furthest[1], other)
            for pair, at in (((node, other), theirs), ((other, node), place)):
                self._note(pair, at, message, total=total)
        places[node] = place
        if len(self._places) > self._window:
            self._places.popitem(last=False)
        return found

    def _note(self, pair: tuple[str, str], at: int, message: str, *, total: bool) -> None:
        for totals_only in (False, True) if total else (False,):
            key = (*pair, totals_only)
            if at > self._furthest.get(key, (0, ""))[0]:
                self._furthest[key] = (at, message)


class OrderWatch:
    """The deliveries of all nodes so far, as far as order needs them."""

    def __init__(
        self, *, messages: int = 200_000, missing: int = 1000, lanes: int = 10_000, places: int = 1000,
        waiting: int = 100_000, patience: int = 3, topics: int = 10_000, publishers: int = 2000, readers: int = 10_000,
    ) -> None:  # fmt: skip
        """`messages`: publications that are remembered; `missing`: numbers of a line that have not come.

        `lanes`: keys of topics whose total order is watched, and `places`: messages of each that are remembered.

        A delivery whose publication has not been seen waits for it, with all that its node did afterwards: for
        `patience` calls of `feed`, and `waiting` rows at most.

        `topics`, and of each topic `publishers` and `readers`: so many are remembered; the longest known
        publishers, and of the others those that nothing was heard of for longest, are forgotten first.
        """
        self._most_messages, self._most_missing = messages, missing
        self._most_lanes, self._most_places = lanes, places
        self._most_waiting, self._patience = waiting, patience
        self._most_topics, self._most_publishers, self._most_readers = topics, publishers, readers
        self._known: OrderedDict[str, _SeenPublication] = OrderedDict()
        self._past_bytes = 0
        self._topics: OrderedDict[str, _WatchedTopic] = OrderedDict()
        self._boots: dict[str, str] = {}
        self._lanes: OrderedDict[tuple[str, str], _TotalLane] = OrderedDict()
        self._queues: dict[str, deque[OnlineRow]] = {}
        self._blocked: dict[str, int] = {}
        self.counts = dict.fromkeys(("delivered", "unknown", "forgotten", FIFO, CAUSAL, TOTAL), 0)

    def feed(self, rows: Mapping[str, Sequence[OnlineRow]]) -> list[Alarm]:
        """Take the next rows of some nodes; what is wrong with them, or with rows that had waited for these."""
        for node in sorted(rows):
            self._queues.setdefault(node, deque()).extend(rows[node])
        found: list[Alarm] = []
        while self._step(found):
            pass
        for node, queue in self._queues.items():
            self._blocked[node] = self._blocked.get(node, 0) + 1 if queue else 0
            while queue and (self._blocked[node] > self._patience or len(queue) > self._most_waiting):
                self._take(node, queue.popleft(), found)  # Its publisher keeps no journal, or it is lost.
        for alarm in found:
            self.counts[alarm.order] += 1
        return found

    @property
    def waiting(self) -> int:
        """Rows that wait for a publication."""
        return sum(map(len, self._queues.values()))

    def _step(self, found: list[Alarm]) -> bool:
        """Take what does not wait for anything; whether there was any."""
        moved = False
        for node, queue in self._queues.items():
            while queue and not (queue[0].kind == "deliver" and queue[0].msg not in self._known):
                self._take(node, queue.popleft(), found)
                moved = True
        return moved

    def _take(self, node: str, row: OnlineRow, found: list[Alarm]) -> None:
        if row.kind == "deliver" and row.msg:
            found += self._delivered(node, row)
        elif row.kind == "publish" and row.msg:
            self._published(node, row)
        elif row.kind in ("join", "recover", "leave"):
            self._life(node, row)
        elif row.topic and row.info.get(INFO_FILTER) == row.topic:
            pass  # A filter: the topics that it leads to have rows of their own.
        elif row.kind in ("subscribe", "unsubscribe") and row.topic and INFO_PENDING not in row.info:
            since = 0 if row.info.get(INFO_FROM) == FROM_EVERYTHING else row.time_ns
            self._reader(node, self._topic(row.topic)).begin(since if row.kind == "subscribe" else None)

    def _life(self, node: str, row: OnlineRow) -> None:
        if row.info.get(INFO_ORDER_SCOPE) == "key":
            raise TraceError(f"node {node}: order_scope = 'key', and the watch knows the order of sessions only")
        self._boots[node] = row.info.get(INFO_BOOT, "") or self._boots.get(node, "")
        if row.info.get(INFO_STATE) != STATE_KEPT:
            for topic in self._topics.values():
                topic.readers.pop(node, None)

    def _topic(self, name: str) -> _WatchedTopic:
        return self._latest(self._topics, name, _WatchedTopic, self._most_topics)

    def _reader(self, node: str, topic: _WatchedTopic) -> _Reader:
        return self._latest(topic.readers, node, _Reader, self._most_readers)

    def _latest(self, known: OrderedDict[str, T], name: str, new: Callable[[], T], most: int) -> T:
        """The one of that name, as the last one heard of; with more than `most` the first one goes."""
        found = known.get(name)
        if found is None:
            found = known[name] = new()
            if len(known) > most:
                known.popitem(last=False)
                self.counts["forgotten"] += 1
        known.move_to_end(name)
        return found

    def _line_of(self, message: str, topic: _WatchedTopic) -> tuple[int, int]:
        """Which publisher of the topic, by number, and the how many-th of its messages there."""
        origin, _, number = message.rpartition("#")
        if origin not in topic.publishers and len(topic.publishers) >= self._most_publishers:
            self._forget_publishers(topic)
        line = topic.publishers.setdefault(origin, len(topic.publishers))
        return line, int(number) if number.isdecimal() else 0

    def _forget_publishers(self, topic: _WatchedTopic) -> None:
        """The older half of them. Messages that have the same past go on sharing it."""
        gone = (len(topic.publishers) + 1) // 2
        topic.forget_publishers(gone)
        self.counts["forgotten"] += gone
        shorter: dict[int, tuple[Past, Past]] = {}
        for seen in self._known.values():
            if seen.of is topic:
                longer = seen.past
                if id(longer) not in shorter:
                    shorter[id(longer)] = longer, longer[gone:].copy()
                seen.past = shorter[id(longer)][1]
                self._past_bytes += seen.past.nbytes - longer.nbytes

    def _published(self, node: str, row: OnlineRow) -> None:
        assert row.msg is not None
        topic = self._topic(row.topic or "")
        reader = self._reader(node, topic)
        line, number = self._line_of(row.msg, topic)
        level, boot = _LEVELS.get(row.guarantee or "", 0), self._boots.get(node, "")
        self._known[row.msg] = _SeenPublication(level, row.keys, reader.seen, row.time_ns, boot, topic)
        self._past_bytes += reader.seen.nbytes
        while len(self._known) > self._most_messages or self._past_bytes > _PAST_BYTES:
            self._past_bytes -= self._known.popitem(last=False)[1].past.nbytes
            self.counts["forgotten"] += 1
        reader.seen = _raised(reader.seen, line, number)

    def _delivered(self, node: str, row: OnlineRow) -> Iterable[Alarm]:
        assert row.msg is not None
        self.counts["delivered"] += 1
        name = row.topic or ""
        topic = self._topic(name)
        known = self._publication(row, topic)
        reader = self._reader(node, topic)
        line, number = self._line_of(row.msg, topic)
        late = self._late(node, reader, known, line, number)
        if late is not None:
            yield Alarm(late[0], node, name, row.msg, late[1])
        self._arrived(reader, known, line, number, row.msg)
        yield from self._in_lanes(node, name, row.msg, known)

    def _publication(self, row: OnlineRow, topic: _WatchedTopic) -> _SeenPublication:
        """What was seen of it; of a publisher that nobody watches, what the delivery itself says."""
        known = self._known.get(row.msg or "")
        if known is None:
            self.counts["unknown"] += 1
            return _SeenPublication(_LEVELS.get(row.guarantee or "", 0), row.keys, _NOTHING, 0, "", topic)
        if known.of is not topic:
            self._past_bytes -= known.past.nbytes  # The topic was forgotten meanwhile, with the numbers of publishers.
            known.past, known.of = _NOTHING, topic
        return known

    def _late(
        self, node: str, reader: _Reader, known: _SeenPublication, line: int, number: int
    ) -> tuple[str, str] | None:
        """The message that has overtaken this one here, and in which order that is wrong."""
        came = reader.lines.get(line)
        if came is not None and came.first <= number <= came.highest and number not in came.missing:
            return None  # A second time: no matter of order.
        if (came is None or number < came.first) and not self._is_owed(node, reader, known):
            return None  # It may be from before the stay.
        if came is not None and known.level >= _LEVELS[FIFO] and number < came.ordered:
            return FIFO, came.ordered_id
        if known.level >= _LEVELS[CAUSAL] and line < reader.floor.size and number <= reader.floor[line]:
            return CAUSAL, reader.floor_ids[line]
        return None

    def _is_owed(self, node: str, reader: _Reader, known: _SeenPublication) -> bool:
        """Whether it was published after the stay began, by a clock of both."""
        if reader.since_ns is None or not known.boot:
            return False
        return reader.since_ns == 0 or (known.boot == self._boots.get(node) and known.time_ns > reader.since_ns)

    def _arrived(self, reader: _Reader, known: _SeenPublication, line: int, number: int, message: str) -> None:
        came = reader.lines.get(line)
        if came is None:
            came = reader.lines[line] = _Line(number, number, OrderedDict())
        came.missing.pop(number, None)
        if number < came.first:
            came.missing.update(dict.fromkeys(range(max(number + 1, came.first - self._most_missing), came.first)))
            came.first = number
        if number - came.highest > self._most_missing:
            self.counts["forgotten"] += number - came.highest - self._most_missing
        for lacking in range(max(came.highest + 1, number - self._most_missing), number):
            came.missing[lacking] = None
        while len(came.missing) > self._most_missing:
            came.missing.popitem(last=False)
            self.counts["forgotten"] += 1
        came.highest = max(came.highest, number)
        if known.level >= _LEVELS[FIFO] and number > came.ordered:
            came.ordered, came.ordered_id = number, message
        if known.level >= _LEVELS[CAUSAL]:
            self._raise_floor(reader, known.past, message)
        reader.seen = _raised(_joined(reader.seen, known.past), line, number)

    def _raise_floor(self, reader: _Reader, past: Past, message: str) -> None:
        if past.size > reader.floor.size:
            reader.floor = np.concatenate((reader.floor, np.zeros(past.size - reader.floor.size, np.int64)))
        higher = np.flatnonzero(past > reader.floor[: past.size])
        if higher.size:
            reader.floor = reader.floor.copy()
            reader.floor[higher] = past[higher]
            for line in higher.tolist():
                reader.floor_ids[line] = message

    def _in_lanes(self, node: str, topic: str, message: str, known: _SeenPublication) -> Iterable[Alarm]:
        total = known.level == _LEVELS[TOTAL]
        for key in known.keys:
            lane = self._lanes.get((topic, key))
            if lane is None:
                lane = self._lanes[topic, key] = _TotalLane(self._most_places)
                if len(self._lanes) > self._most_lanes:
                    self._lanes.popitem(last=False)
                    self.counts["forgotten"] += 1
            late = lane.deliver(node, message, total=total)
            if late is not None:
                yield Alarm(TOTAL, node, topic, message, *late)


def _joined(one: Past, other: Past) -> Past:
    """The larger of each; neither is changed."""
    if one.size < other.size:
        one, other = other, one
    if not other.size or (one[: other.size] >= other).all():
        return one
    found = one.copy()
    np.maximum(found[: other.size], other, out=found[: other.size])
    return found


def _raised(past: Past, line: int, number: int) -> Past:
    """The past with a message more; the given one is not changed: messages have it as theirs."""
    if line < past.size and past[line] >= number:
        return past
    found = np.zeros(max(past.size, line + 1), np.int64)
    found[: past.size] = past
    found[line] = number
    return found
