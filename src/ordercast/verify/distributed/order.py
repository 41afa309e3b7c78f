"""The third stage, one task: the messages along one possible execution, and happened-before between them.

It needs the logs of those who publish, each up to its last publication: what comes after that, and what others deliver,
is in nobody's past.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from ordercast.verify.arrow import taken
from ordercast.verify.build import first_deliveries, lives_of
from ordercast.verify.columns import BIT
from ordercast.verify.distributed.rows import RowPiece, SomeRows, assembled
from ordercast.verify.distributed.scan import ABOUT_PUBLICATION, LISTS
from ordercast.verify.distributed.stretches import AboutPast, OrderPiece, piece_row, sent, stretches_of
from ordercast.verify.distributed.wire import column, table_from, unpacked, values
from ordercast.verify.duties import Duties, duties_of
from ordercast.verify.kernels.realize import publish_order, renumbered
from ordercast.verify.logs import Lives, Logs
from ordercast.verify.members import Publications, published_in
from ordercast.verify.obligations import past_in
from ordercast.verify.order import Scopes, affecting, happened_before, scopes_of
from ordercast.verify.rows import KIND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ordercast.verify.distributed.setup import Setup
    from ordercast.verify.kernels.jit import Ints, Offsets
    from ordercast.verify.past import HappenedBefore


class AboutOrder(msgspec.Struct):
    """The messages' side of a run, without its arrays."""

    checks: list[str]
    claimed: list[str]
    topics: list[str]
    audiences: int
    dst_names: list[str]
    scopes: tuple[str, str]
    own: bool
    held: list[str]
    """Checks that any message is held to."""
    bounds: list[int]
    """Where the stretches begin in which the messages come, and the end."""
    dated: bool
    causal: AboutPast
    whole_past: AboutPast | None
    """What the obligations read, where no clock tells; `same` if that is what the checks read."""
    same: bool


@dataclass(frozen=True)
class Ordered:
    """The messages' side of a run, of all messages or of some: what a task has to know of them to judge receivers."""

    about: AboutOrder
    duties: Duties
    published: Publications
    arrays: dict[str, Any]
    """By name in columns.Arrays: lines, copied, moments."""
    past: HappenedBefore
    early: Offsets
    """Deliveries before their own publication: message, as the run numbers it, receiver, seq."""
    first: Offsets
    """Of each message: where it was first delivered, as setup.place numbers rows."""

    @property
    def messages(self) -> int:
        """How many the run has."""
        return self.about.bounds[-1]


@dataclass(frozen=True)
class NumberedRun:
    """The messages' side of a whole run, with the rows and names of which it is made."""

    ordered: Ordered
    rows: SomeRows
    lives: Lives
    logs: Logs
    number: Ints
    """Of each message by its code; the codes of each bucket follow each other."""
    codes: dict[int, slice]
    """Of each bucket."""


def order(setup: Setup, _: int, table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The messages' side of the run, in pieces."""
    found = numbered(setup, table)
    ordered = found.ordered
    about, duties = ordered.about, ordered.duties
    yield piece_row(OrderPiece.ABOUT, 0, about, {})
    for bucket, codes in found.codes.items():
        number = found.number[codes]
        yield piece_row(OrderPiece.NUMBERS, bucket, None, {"number": number, "topic": duties.topic[number]})
    yield from _facts(ordered)
    yield from sent(ordered.past, OrderPiece.CAUSAL, about.bounds)
    if about.whole_past is not None and ordered.published.past is not None:
        yield from sent(ordered.published.past, OrderPiece.WHOLE_PAST, about.bounds)


def numbered(setup: Setup, table: pa.Table, more: pa.Table | None = None, whole_nodes: Any = None) -> NumberedRun:
    """Number the messages. `table` is what the second stage sent here, `more` are all rows of `whole_nodes`."""
    by_bucket = np.argsort(np.array(values(table, "bucket"), np.int64), kind="stable").tolist()
    table = pa.concat_tables([table.slice(0, 0), *(table.slice(row, 1) for row in by_bucket)])
    facts = [unpacked(value)[1] for value in values(table, "about")]
    ends = np.cumsum([fact["copied"].size for fact in facts]).tolist()
    buckets = zip(values(table, "bucket"), [0, *ends], ends, strict=False)
    codes = {bucket: slice(begin, end) for bucket, begin, end in buckets}
    if whole_nodes is None:
        whole_nodes = np.zeros(len(setup.nodes.names), bool)
    pieces = _pieces(table, codes, ~whole_nodes)
    if more is not None:
        pieces += _pieces(more, codes, whole_nodes)
    rows = assembled(setup, pieces, whole_nodes)
    pieces.clear()
    about = _publications(table)
    lives = lives_of(rows)
    logs, early = _logs(rows, lives, about)
    duties = duties_of(setup.trace(about), rows, logs.publication, setup.asked)
    del about  # Words of every message, which are numbers now.
    scopes = scopes_of(setup.manifest, setup.path, setup.asked.scope, setup.asked.order_scope)
    published = published_in(rows, lives, logs, dated=False)
    affects = affecting(setup.asked.causes, rows.nodes, lives.node, published.pub)
    past, arrays = happened_before(logs.ev, logs.off, duties, scopes, published, affects)
    same = (scopes.causal, scopes.order) == ("global", "session") and affects is None
    by_code = rows.msg[logs.publication]
    number = np.empty(by_code.size, np.int32)
    number[by_code] = np.arange(by_code.size)
    arrays["pub_seq"] = rows.seq[logs.publication]
    arrays["copied"] = _of_messages(facts, "copied", by_code, np.uint8)
    for name, dtype in (("first_ns", np.int64), ("first_by", np.int32)) if setup.asks_real_time else ():
        arrays[name] = _of_messages(facts, name, by_code, dtype)
    times = _of_messages(facts, "time_ns", by_code) if setup.dated else None
    whole_past = None
    if not setup.dated:
        whole_past = past if same else past_in(logs.ev, logs.off, published.pub, published.place)
    own = any(bool(fact["own"].any()) for fact in facts)
    published = Publications(published.pub, published.place, times, whole_past, own)
    said = _about(setup, duties, scopes, past, published, same=same)
    first = _of_messages(facts, "first", by_code)
    return NumberedRun(Ordered(said, duties, published, arrays, past, early, first), rows, lives, logs, number, codes)


def _of_messages(facts: list[dict[str, Any]], name: str, codes: Ints, dtype: Any = np.int64) -> Any:
    """What the buckets say of messages, for those with these codes."""
    return np.concatenate([np.empty(0, dtype), *(fact[name] for fact in facts)])[codes]


def _about(
    setup: Setup, duties: Duties, scopes: Scopes, past: HappenedBefore, published: Publications, *, same: bool
) -> AboutOrder:
    whole_past = None if same else published.past
    pasts = [past, *([] if whole_past is None else [whole_past])]
    return AboutOrder(
        checks=duties.checks,
        claimed=duties.claimed,
        topics=duties.topics,
        audiences=duties.audiences,
        dst_names=duties.dst_names,
        scopes=(scopes.causal, scopes.order),
        own=bool(published.own),
        held=[check for check, bit in BIT.items() if (duties.obliges & bit).any()],
        bounds=stretches_of(duties.topic.size, setup.cut.stretch_bytes, duties.key_off, pasts),
        dated=published.time_ns is not None,
        causal=AboutPast(past.rows, past.per_message),
        whole_past=None if whole_past is None else AboutPast(whole_past.rows, whole_past.per_message),
        same=same,
    )


def _pieces(table: pa.Table, codes: dict[int, slice], wanted: Any) -> list[RowPiece]:
    """The rows of the wanted nodes, with codes that count the messages of all buckets; -1 for what nobody published."""
    pieces = []
    for i, (bucket, code) in enumerate(zip(values(table, "bucket"), column(table, "code", np.int32), strict=True)):
        piece = RowPiece(table.slice(i, 1), code, base=codes[bucket].start if bucket in codes else 0)
        chosen = wanted[piece.nodes]
        if not chosen.all():
            piece.chosen = np.flatnonzero(chosen)
        pieces.append(piece)
    return pieces


def _publications(table: pa.Table) -> pa.Table:
    """Facts about each message, by its code."""
    parts = [table_from(value.as_buffer()) for value in table.column("published") if len(value.as_buffer())]
    words = pa.array([], pa.string())
    found = pa.concat_tables(parts) if parts else pa.table(dict.fromkeys(ABOUT_PUBLICATION, words))
    columns: dict[str, Any] = {name: found.column(name) for name in ABOUT_PUBLICATION}
    return pa.table(columns | {name: _list(found, name) for name in LISTS})


def _list(table: pa.Table, name: str) -> Any:
    lists = pa.list_(pa.string())
    texts = table.column(name)
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), lists)
    read = msgspec.json.Decoder(list[str | None])
    return pa.array([None if text is None else read.decode(text) for text in values(table, name)], lists)


def _logs(rows: SomeRows, lives: Lives, about: pa.Table) -> tuple[Logs, Offsets]:
    """As build does it for a whole run: the logs, with messages numbered, and what precedes its own publication."""
    entry = rows.of_kind("publish", "deliver")
    if (rows.msg[entry] < 0).any():
        entry = entry[rows.msg[entry] >= 0]
    ev = rows.msg[entry]
    np.invert(ev, out=ev, where=rows.kind[entry] == KIND["publish"])
    entry, ev, off, _ = first_deliveries(entry, ev, lives, about.num_rows)
    number, flagged = publish_order(ev, off, about.num_rows)
    publication = np.empty(about.num_rows, np.int64)
    publication[number[~ev[ev < 0]]] = entry[ev < 0]
    early = entry[flagged != 0]
    receiver = np.searchsorted(lives.entry_off, early, side="right") - 1
    told = np.stack((number[rows.msg[early]], receiver, rows.seq[early]), axis=1).astype(np.int64)
    names = about.column("msg").combine_chunks()
    names = taken(names, rows.msg[publication])
    nothing = np.empty((0, 4), np.int64)
    return Logs(renumbered(ev, number), off, entry, publication, nothing, names), told.reshape(-1, 3)


def _facts(ordered: Ordered) -> Iterator[pa.RecordBatch]:
    """What is to be known of each message, stretch by stretch."""
    duties, published, arrays = ordered.duties, ordered.published, ordered.arrays
    hot = np.zeros(duties.key_topic.size, np.uint8)
    hot[duties.keys[np.repeat((duties.obliges & BIT["total"]) != 0, np.diff(duties.key_off))]] = 1
    of_message: dict[str, Any] = {name: arrays[name] for name in ("copied", "first_ns", "first_by") if name in arrays}
    of_message |= {"topic": duties.topic, "obliges": duties.obliges, "first": ordered.first}
    of_message |= {"pub": published.pub, "place": published.place}
    if published.time_ns is not None:
        of_message["time_ns"] = published.time_ns
    bounds = ordered.about.bounds
    for number, (first, last) in enumerate(pairwise(bounds)):
        key_sizes, keys = _lists(duties.key_off, duties.keys, first, last)
        line_sizes, lines = _lists(arrays["line_off"], arrays["lines"], first, last)
        begin, end = np.searchsorted(duties.addressed, (first, last))
        dst_sizes, dst = _lists(duties.dst_off, duties.dst, begin, end)
        early = ordered.early[(ordered.early[:, 0] >= first) & (ordered.early[:, 0] < last)]
        facts: dict[str, Any] = {name: values_[first:last] for name, values_ in of_message.items()}
        facts |= {"key_sizes": key_sizes, "keys": keys, "hot": hot[keys], "line_sizes": line_sizes, "lines": lines}
        facts |= {"addressed": duties.addressed[begin:end] - np.int32(first), "dst_sizes": dst_sizes, "dst": dst}
        yield piece_row(OrderPiece.FACTS, number, None, facts | {"early": early})


def _lists(off: Offsets, entries: Ints, first: int, last: int) -> tuple[Ints, Ints]:
    """How many entries each of some has, and the entries."""
    return np.diff(off[first : last + 1]).astype(np.int32), entries[off[first] : off[last]]
