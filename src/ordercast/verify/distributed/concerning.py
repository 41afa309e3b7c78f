"""The share of a run that concerns some receivers: their rows, and of the messages' side what is about their messages.

A message concerns a receiver that has a row about it, or is in its audience. Here messages are numbered anew, in the
same order, and so are keys; `RunNumbers` says which ones they are in the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ordercast.trace.schema import INFO_FILTER
from ordercast.verify.arrow import whole
from ordercast.verify.distributed.order import AboutOrder, Ordered
from ordercast.verify.distributed.rows import RowPiece
from ordercast.verify.distributed.stretches import OrderPiece, OrderPieces, offsets_of, past_from
from ordercast.verify.distributed.wire import column, shortened, unpacked, values
from ordercast.verify.duties import Duties
from ordercast.verify.filters import taken_in
from ordercast.verify.kernels.lookup import mark, marked, marks_before, renumber
from ordercast.verify.keys import renumbered
from ordercast.verify.members import Publications
from ordercast.verify.rows import KIND

if TYPE_CHECKING:
    from ordercast.verify.distributed.setup import Setup
    from ordercast.verify.kernels.jit import Ints, Offsets

_MARKS_A_WORD = 64


class RunNumbers(NamedTuple):
    """The numbers in the run of the messages and keys here."""

    messages: Ints
    keys: Ints
    hot: Ints
    """Keys, as numbered here, that any total message of the run has."""


class Share(NamedTuple):
    """All that one part judges."""

    ordered: Ordered
    numbers: RunNumbers
    rows: list[RowPiece]
    first_met: Offsets
    """Of each message that nobody published: where it was first delivered. In `rows` these follow all others."""
    hasty: Offsets
    """Deliveries that are dated before their publication, as setup.place numbers rows."""


def share_of(setup: Setup, table: pa.Table, order: pa.Table, mine: np.ndarray[Any, np.dtype[np.bool_]]) -> Share:
    """The share of the nodes that are `mine`: `table` has their rows, `order` what the messages' side was sent as."""
    pieces = OrderPieces(order)
    about: AboutOrder = pieces.read(OrderPiece.ABOUT, 0, AboutOrder)[0]
    marks = np.zeros(about.bounds[-1] // _MARKS_A_WORD + 1, np.uint64)
    topics = _topics_of_members(setup, about, mine)
    rows, first_met, hasty = _rows(table, pieces, marks, topics)
    ordered, numbers = _gathered(setup, pieces, about, marks, topics, mine)
    before = marks_before(marks)
    for piece in rows:
        renumber(piece.code, marks, before, numbers.messages.size)
    return Share(ordered, numbers, rows, first_met, hasty)


def _topics_of_members(setup: Setup, about: AboutOrder, mine: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which topics any of these nodes is or becomes a member of, as groups and rows tell it."""
    nodes = {setup.nodes.names[i] for i in np.flatnonzero(mine)}
    groups = setup.asked.groups_of(setup.trace(setup.rare)) or {}
    named = {topic for topic, members in groups.items() if not nodes.isdisjoint(members)}
    theirs = setup.rare.filter(pa.array(mine[np.asarray(whole(setup.rare.column("node")))]))
    rows = list(zip(theirs.column("topic").to_pylist(), theirs.column("info").to_pylist(), strict=True))
    named.update(topic for topic, _ in rows if topic is not None)
    filters = {topic for topic, info in rows if topic is not None and (INFO_FILTER, topic) in (info or ())}
    named.update(about.topics[place] for filter_ in sorted(filters) for place in taken_in(filter_, about.topics))
    return np.array([*(topic in named for topic in about.topics), False], bool)


def _rows(table: pa.Table, pieces: OrderPieces, marks: Any, topics: Any) -> tuple[list[RowPiece], Offsets, Offsets]:
    """Rows with the run's numbers for messages, which are marked; what nobody published counts down from -2.

    Also marked are the topics of which anything is delivered: a trace may not say otherwise who is a member.
    """
    first_met, hasty = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    rows = []
    for i, (bucket, code) in enumerate(zip(values(table, "bucket"), column(table, "code", np.int32), strict=True)):
        strangers = sum(part.size for part in first_met)
        message = np.where(code < -1, code - strangers, -1).astype(np.int32)
        known = np.flatnonzero(code >= 0)
        if known.size:
            of_code = pieces.read(OrderPiece.NUMBERS, bucket)[1]
            message[known] = of_code["number"][code[known]]
            mark(message[known], marks)
            (kind,) = shortened(table.slice(i, 1), "kind", np.int8)
            topics[of_code["topic"][code[known[kind[known] == KIND["deliver"]]]]] = True
        rows.append(RowPiece(table.slice(i, 1), message))
        said = unpacked(table.column("about")[i].as_py())[1]
        first_met.append(said["first"])
        hasty.append(said["hasty"])
    topics[-1] = False
    return rows, np.concatenate(first_met), np.concatenate(hasty)


def _gathered(
    setup: Setup, pieces: OrderPieces, about: AboutOrder, marks: Any, topics: Any, mine: Any
) -> tuple[Ordered, RunNumbers]:
    """Of every stretch the facts about messages that are marked, of these topics, or addressed to one of `mine`."""
    addressee = mine[_numbers_of(setup.nodes.names, about.dst_names)]
    facts = _Facts()
    for number, first in enumerate(about.bounds[:-1]):
        arrays = pieces.read(OrderPiece.FACTS, number)[1]
        chosen = topics[arrays["topic"]] | marked(marks, first, arrays["topic"].size)
        chosen[np.repeat(arrays["addressed"], arrays["dst_sizes"])[addressee[arrays["dst"]]]] = True
        mark((first + np.flatnonzero(chosen)).astype(np.int32), marks)
        facts.add(first, arrays, chosen)
    return facts.put_together(pieces, about)


def _numbers_of(names: list[str], wanted: list[str]) -> np.ndarray[Any, Any]:
    number = {name: i for i, name in enumerate(names)}
    return np.array([number[name] for name in wanted], np.int64)


class _Facts:
    """The facts about chosen messages, stretch by stretch."""

    def __init__(self) -> None:
        self._parts: dict[str, list[Any]] = {}
        self._count = 0

    def add(self, first: int, arrays: dict[str, Any], chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        at = np.flatnonzero(chosen).astype(np.int32)
        of_key, of_line = (np.repeat(chosen, arrays[name]) for name in ("key_sizes", "line_sizes"))
        addressed = chosen[arrays["addressed"]]
        by_entry = {"keys": of_key, "hot": of_key, "lines": of_line}
        by_entry |= {"dst": np.repeat(addressed, arrays["dst_sizes"]), "dst_sizes": addressed}
        place = np.cumsum(chosen, dtype=np.int32) - np.int32(1)
        self._parts.setdefault("messages", []).append(at + np.int32(first))
        self._parts.setdefault("addressed", []).append(place[arrays.pop("addressed")[addressed]] + self._count)
        self._parts.setdefault("early", []).append(arrays.pop("early"))
        for name, values_ in arrays.items():
            self._parts.setdefault(name, []).append(values_[by_entry.get(name, chosen)])
        self._count += at.size

    def _joined(self, name: str, dtype: Any) -> Any:
        """All of one fact; its parts are given up."""
        return np.concatenate([np.empty(0, dtype), *self._parts.pop(name, [])])

    def put_together(self, pieces: OrderPieces, about: AboutOrder) -> tuple[Ordered, RunNumbers]:
        messages = self._joined("messages", np.int32)
        causal = past_from(pieces, OrderPiece.CAUSAL, about.causal, about.bounds, messages)
        past = None
        if about.whole_past is not None:
            past = past_from(pieces, OrderPiece.WHOLE_PAST, about.whole_past, about.bounds, messages)
        keys, key = renumbered(self._joined("keys", np.int32))
        hot = np.zeros(keys.size, bool)
        hot[key] = self._joined("hot", np.uint8)
        duties = self._duties(about, keys.size, key)
        arrays = {
            "line_off": offsets_of(self._joined("line_sizes", np.int32)),
            "lines": renumbered(self._joined("lines", np.int32))[1],
            "copied": self._joined("copied", np.uint8),
        }
        for name, dtype in (("first_ns", np.int64), ("first_by", np.int32)):
            if name in self._parts:
                arrays[name] = self._joined(name, dtype)
        pub, place = (self._joined(name, np.int32) for name in ("pub", "place"))
        time_ns = self._joined("time_ns", np.int64) if about.dated else None
        published = Publications(pub, place, time_ns, causal if about.same else past, about.own)
        parts = [np.empty((0, 3), np.int64), *self._parts.pop("early", [])]
        first = self._joined("first", np.int64)
        found = Ordered(about, duties, published, arrays, causal, np.concatenate(parts), first)
        return found, RunNumbers(messages, keys, np.flatnonzero(hot).astype(np.int32))

    def _duties(self, about: AboutOrder, keys: int, key: Ints) -> Duties:
        topic = self._joined("topic", np.int32)
        key_off = offsets_of(self._joined("key_sizes", np.int32))
        key_topic = np.zeros(keys, np.int32)
        key_topic[key] = np.repeat(topic, np.diff(key_off))
        addressed = self._joined("addressed", np.int32)
        audience = topic.copy()
        audience[addressed] = len(about.topics) + np.arange(addressed.size)
        return Duties(
            checks=about.checks,
            claimed=about.claimed,
            topics=about.topics,
            topic=topic,
            audience=audience,
            audiences=len(about.topics) + addressed.size,
            addressed=addressed,
            dst_off=offsets_of(self._joined("dst_sizes", np.int32)),
            dst_names=about.dst_names,
            dst=self._joined("dst", np.int32),
            obliges=self._joined("obliges", np.uint16),
            key_off=key_off,
            keys=key,
            key_topic=key_topic,
            key_names=pa.array([], pa.string()),
        )
