"""Membership as the trace tells it: the manifest's groups, subscription rows, destinations, or what was delivered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ordercast.trace.schema import FROM_FILTER, INFO_END, INFO_FILTER, INFO_FROM, INFO_PENDING
from ordercast.verify.filters import taken_in
from ordercast.verify.obligations import (
    ALWAYS,
    Interval,
    MembershipChange,
    Owed,
    PublishedMessage,
    change_of,
    settle,
    stays,
)

if TYPE_CHECKING:
    from ordercast.verify.asked import JudgeOptions
    from ordercast.verify.duties import Duties
    from ordercast.verify.kernels.jit import Ints, Offsets
    from ordercast.verify.load import LoadedTrace
    from ordercast.verify.logs import Lives, Logs
    from ordercast.verify.past import HappenedBefore
    from ordercast.verify.rows import Rows

_CHANGES = ("subscribe", "unsubscribe", "join", "leave")
_DENSE = 50_000_000


@dataclass(frozen=True, slots=True)
class Publications:
    """Of each message: who published it, at which place of its log, and when, where all nodes share a clock."""

    pub: Ints
    place: Ints
    time_ns: Offsets | None
    past: HappenedBefore | None = None
    """Happened-before through all topics, where it is known already."""
    own: bool | None = None
    """Whether any node delivers what it published itself, where that is known already."""


def published_in(rows: Rows, lives: Lives, logs: Logs, *, dated: bool) -> Publications:
    """The publications of the logs; with `dated`, their times too."""
    pub = np.searchsorted(lives.entry_off, logs.publication, side="right").astype(np.int32) - np.int32(1)
    place = np.empty(pub.size, np.int32)
    publishes = np.flatnonzero(logs.ev < 0)
    place[~logs.ev[publishes]] = publishes - logs.off[pub[~logs.ev[publishes]]]
    return Publications(pub, place, rows.times(logs.publication) if dated else None)


def settle_members(
    trace: LoadedTrace,
    rows: Rows,
    lives: Lives,
    logs: Logs,
    duties: Duties,
    published: Publications,
    asked: JudgeOptions,
    mine: np.ndarray[Any, np.dtype[np.bool_]] | None = None,
) -> tuple[Owed, Offsets, list[str]]:
    """Every obligation of the run, and what had to be assumed for it, in words.

    In between: all (audience, node) pairs that belong together, as audience * nodes + node. With `mine`, only those
    receivers are looked at, and nobody else's log has to be there.
    """
    groups = asked.groups_of(trace)
    assumed = []
    pub = published.pub
    if groups is None and not rows.of_kind("subscribe").size:
        fixed, intervals = _by_deliveries(logs, lives, rows, duties)
        if duties.topics:
            assumed.append(
                "who delivers anything of a topic is a member of it from its first event on (else: --members)"
            )
    else:
        fixed, intervals = _nobody(), _by_rows(rows, lives, logs, duties, groups or {}, trace.path)
    explicit, later = _by_destinations(rows, lives, duties)
    receiver, audience = np.concatenate((fixed[0], explicit[0])), np.concatenate((fixed[1], explicit[1]))
    passing = intervals + later
    if mine is not None:
        receiver, audience = receiver[mine[receiver]], audience[mine[receiver]]
        passing = [interval for interval in passing if mine[interval.receiver]]
    own_implied = asked.own_deliveries is False
    if asked.own_deliveries is None and trace.manifest is None:
        own_implied = not (_delivers_own(logs, pub) if published.own is None else published.own)
        told = "not recorded, and so not asked for" if own_implied else "recorded, and so asked of every node"
        assumed.append(f"deliveries of a node's own messages are {told} (else: --own-deliveries)")
    messages = PublishedMessage(
        ev=logs.ev,
        off=logs.off,
        pub=pub,
        place=published.place,
        past=published.past,
        audience=duties.audience,
        audiences=duties.audiences,
        time_ns=published.time_ns,
        own_implied=own_implied,
        alive=lives.alive,
        gone_ns=_gone(rows, lives) if published.time_ns is not None else np.zeros(lives.node.size, np.int64),
    )
    owed = settle(messages, (receiver, audience), passing)
    member = np.array([(i.audience, i.receiver) for i in passing], np.int64).reshape(-1, 2)
    pairs = np.concatenate((np.stack((audience, receiver), axis=1).astype(np.int64), member))
    return owed, np.unique(pairs[:, 0] * len(rows.nodes) + lives.node[pairs[:, 1]]), assumed


def _gone(rows: Rows, lives: Lives) -> Offsets:
    """The time at which each receiver that is not up at the end ceased to be, by the clock."""
    gone = np.zeros(lives.node.size, np.int64)
    ended = np.flatnonzero(lives.fell >= 0)
    gone[ended] = rows.times(lives.fell[ended])
    return gone


def _nobody() -> tuple[Ints, Ints]:
    return np.empty(0, np.int32), np.empty(0, np.int32)


def _delivers_own(logs: Logs, pub: Ints) -> bool:
    """Does any node deliver what it published itself? If none does, the trace leaves such deliveries out."""
    receiver = np.repeat(np.arange(logs.off.size - 1), np.diff(logs.off))
    delivers = logs.ev >= 0
    return bool((pub[logs.ev[delivers]] == receiver[delivers]).any())


def _by_deliveries(logs: Logs, lives: Lives, rows: Rows, duties: Duties) -> tuple[tuple[Ints, Ints], list[Interval]]:
    """No membership recorded: who delivers anything of a topic subscribes to it from its first event on."""
    topics = len(duties.topics)
    receiver = np.repeat(np.arange(logs.off.size - 1), np.diff(logs.off))
    delivers = logs.ev >= 0
    audience = duties.audience[logs.ev[delivers]]
    pair = receiver[delivers][audience < topics] * topics + audience[audience < topics]
    if lives.node.size * topics <= _DENSE:
        seen = np.zeros(lives.node.size * topics, bool)
        seen[pair] = True
        pair = np.flatnonzero(seen)
    else:
        pair = np.unique(pair)
    first_life = lives.life[pair // max(topics, 1)] == 0
    fixed = pair[first_life]
    later = pair[~first_life]
    intervals = [Interval(int(p // topics), int(p % topics), 0, _began(rows, lives, int(p // topics))) for p in later]
    return ((fixed // max(topics, 1)).astype(np.int32), (fixed % max(topics, 1)).astype(np.int32)), intervals


def _began(rows: Rows, lives: Lives, receiver: int) -> int:
    """The time at which a later life began: that of its recover row."""
    return int(rows.times(lives.entry_off[receiver : receiver + 1])[0])


def _by_rows(
    rows: Rows, lives: Lives, logs: Logs, duties: Duties, groups: dict[str, list[str]], path: str
) -> list[Interval]:
    """Members of the manifest's groups from the beginning, and what the rows of each receiver change about it."""
    code = {name: number for number, name in enumerate(duties.topics)}
    initial: dict[str, list[int]] = {}
    for topic, nodes in sorted(groups.items()):
        for node in nodes:
            initial.setdefault(node, []).append(code[topic])
    changes = _changes(rows, lives, logs, code, path)
    begun = _BegunTopics(duties)
    intervals = []
    for receiver in range(lives.node.size):
        mine = initial.get(rows.nodes[lives.node[receiver]], [])
        start = MembershipChange("recover", -1, 0, _began(rows, lives, receiver)) if lives.life[receiver] else None
        theirs = changes.get(receiver, [])
        found = stays(receiver, mine, start, theirs)
        intervals += found + _never_told(found, {*mine, *(change.topic for change in theirs)}, theirs, begun)
    return intervals


class _BegunTopics:
    """The topics on which anything was published, by the filters that take them in."""

    def __init__(self, duties: Duties) -> None:
        self._topics = duties.topics
        self._used = set(np.unique(duties.topic).tolist())
        self._by_filter: dict[int, set[int]] = {}

    def of(self, filter_: int) -> set[int]:
        if filter_ not in self._by_filter:
            self._by_filter[filter_] = self._used.intersection(taken_in(self._topics[filter_], self._topics))
        return self._by_filter[filter_]


def _never_told(
    stays_: list[Interval], known: set[int], changes: list[MembershipChange], begun: _BegunTopics
) -> list[Interval]:
    """The stays of filters, once more for each topic that they take in and of which the receiver has no row.

    Filters may overlap: those that last come last, so that they count.
    """
    filters = {change.topic for change in changes if change.follows}
    those = [stay for stay in stays_ if stay.audience in filters]
    those.sort(key=lambda stay: (stay.stop == ALWAYS, stay.stop, stay.stop_ns))
    return [stay._replace(audience=topic) for stay in those for topic in sorted(begun.of(stay.audience) - known)]


def _changes(
    rows: Rows, lives: Lives, logs: Logs, code: dict[str, int], path: str
) -> dict[int, list[MembershipChange]]:
    """Membership rows by receiver. The place of one is the number of publications and deliveries before it."""
    entries = rows.of_kind(*_CHANGES)
    receivers = np.searchsorted(lives.entry_off, entries, side="right") - 1
    places = np.searchsorted(logs.entry, entries) - logs.off[receivers]
    names: list[Any] = [rows.column(name, entries) if entries.size else [] for name in ("kind", "topic", "time_ns")]
    pending, ends = (set(rows.info(key)[0].tolist()) if entries.size else set() for key in (INFO_PENDING, INFO_END))
    past, filters = (_told(rows, key) if entries.size else {} for key in (INFO_FROM, INFO_FILTER))
    found: dict[int, list[MembershipChange]] = {}
    for entry, receiver, place, kind, topic, time_ns in zip(entries, receivers, places, *names, strict=True):
        where = f"{path}: node {rows.nodes[lives.node[receiver]]}, seq {rows.seq[entry]}"
        change = change_of(kind, None if topic is None else code[topic], int(place), time_ns, where)
        told = past.get(int(entry), "")
        since = code.get(filters.get(int(entry), ""), -1) if told == FROM_FILTER else -1
        follows = kind == "subscribe" and filters.get(int(entry)) == topic
        flags = {"pending": int(entry) in pending, "stayed": int(entry) in ends, "follows": follows}
        change = change._replace(past=told, since=since, **flags)
        found.setdefault(int(receiver), []).append(change)
    return found


def _told(rows: Rows, key: str) -> dict[int, str]:
    """What rows say under that key of their extra content."""
    having, values = rows.info(key)
    return dict(zip(having.tolist(), values, strict=True))


def _by_destinations(rows: Rows, lives: Lives, duties: Duties) -> tuple[tuple[Ints, Ints], list[Interval]]:
    """Messages that name their destinations: whoever is named, from its first life on."""
    if not duties.addressed.size:
        return _nobody(), []
    number = {name: node for node, name in enumerate(rows.nodes)}
    node = np.array([number[name] for name in duties.dst_names], np.int32)[duties.dst]
    topics = len(duties.topics)
    audience = (topics + np.repeat(np.arange(duties.addressed.size), np.diff(duties.dst_off))).astype(np.int32)
    once = np.unique(audience.astype(np.int64) * len(rows.nodes) + node)
    audience, node = (once // len(rows.nodes)).astype(np.int32), (once % len(rows.nodes)).astype(np.int32)
    first_receiver = np.flatnonzero(lives.life == 0).astype(np.int32)
    later = [
        Interval(int(receiver), int(a), 0, _began(rows, lives, int(receiver)))
        for receiver in np.flatnonzero(lives.life > 0)
        for a in audience[node == lives.node[receiver]]
    ]
    return (first_receiver[node], audience), later
