"""The third stage, one task: the messages along one possible execution, and happened-before between them.

It needs the logs of those who publish, each up to its last publication: what comes after that, and what others deliver,
is in nobody's past.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from ordercast.verify.arrow import taken
from ordercast.verify.build import first_deliveries, lives_of
from ordercast.verify.columns import BIT
from ordercast.verify.distributed.rows import RowPieces, SomeRows, assembled
from ordercast.verify.distributed.scan import ABOUT_PUBLICATION, LISTS, PLACED
from ordercast.verify.distributed.wire import (
    as_it_was,
    column,
    packed,
    schema_of,
    shortened,
    squeezed,
    table_from,
    unpacked,
    values,
)
from ordercast.verify.duties import Duties, duties_of
from ordercast.verify.kernels.realize import publish_order, renumbered
from ordercast.verify.logs import Lives, Logs
from ordercast.verify.members import Publications, published_in
from ordercast.verify.obligations import past_in
from ordercast.verify.order import DeliveryOrder, Scopes, affecting, happened_before, scopes_of
from ordercast.verify.rows import KIND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ordercast.verify.distributed.setup import Setup
    from ordercast.verify.kernels.jit import Ints, Offsets

ORDERED = schema_of(chunk=pa.int32(), data=pa.binary())
_CHUNK = 16 << 20
_OF_DUTIES = ("topic", "audience", "addressed", "dst_off", "dst", "obliges", "key_off", "keys", "key_topic")
_PAST = ("past_prev", "past_edge_off", "past_edges")


class AboutOrder(msgspec.Struct):
    """The messages' side of a run, without its arrays."""

    checks: list[str]
    claimed: list[str]
    topics: list[str]
    audiences: int
    dst_names: list[str]
    scopes: tuple[str, str]
    live: int
    own: bool
    held: list[str]
    """Checks that any message is held to."""


@dataclass(frozen=True)
class Ordered:
    """The messages' side of a run: all that a task has to know about messages to judge receivers."""

    about: AboutOrder
    duties: Duties
    published: Publications
    arrays: dict[str, Any]
    """By name in columns.Arrays: lines, happened-before, pub_seq, copied."""
    number: Ints
    """Of each message by its code; `base` says where the codes of each bucket begin."""
    base: dict[int, int]
    early: Offsets
    """Deliveries before their own publication: message, receiver, seq."""
    first: Offsets
    """Of each message: where it was first delivered, as setup.place numbers rows."""


@dataclass(frozen=True)
class NumberedRun:
    """The parts of which `Ordered` is made, with the rows and the names."""

    ordered: Ordered
    rows: SomeRows
    lives: Lives
    logs: Logs


def order(setup: Setup, _: int, table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The messages' side of the run, compressed once because every part gets a copy, and cut into rows."""
    data = squeezed(_packed(numbered(setup, table).ordered))
    for chunk, begin in enumerate(range(0, len(data), _CHUNK)):
        yield pa.RecordBatch.from_pydict({"chunk": [chunk], "data": [data[begin : begin + _CHUNK]]}, schema=ORDERED)


def numbered(setup: Setup, table: pa.Table, more: pa.Table | None = None, whole_nodes: Any = None) -> NumberedRun:
    """Number the messages. `table` is what the second stage sent here, `more` are all rows of `whole_nodes`."""
    table = taken(table, np.argsort(np.array(values(table, "bucket"), np.int64), kind="stable"))
    facts = [unpacked(value)[1] for value in values(table, "about")]
    sizes = np.array([fact["copied"].size for fact in facts], np.int64)
    base = dict(zip(values(table, "bucket"), (np.cumsum(sizes) - sizes).tolist(), strict=True))
    if whole_nodes is None:
        whole_nodes = np.zeros(len(setup.nodes.names), bool)
    pieces = _pieces(table, base, ~whole_nodes)
    if more is not None:
        theirs = _pieces(more, base, whole_nodes)
        pieces = RowPieces(*(getattr(pieces, f.name) + getattr(theirs, f.name) for f in fields(RowPieces)))
    rows = assembled(setup, pieces, whole_nodes)
    about = _publications(table)
    lives = lives_of(rows)
    logs, early = _logs(rows, lives, about)
    trace = setup.trace(about)
    duties = duties_of(trace, rows, logs.publication, setup.asked)
    scopes = scopes_of(setup.manifest, setup.path, setup.asked.scope, setup.asked.order_scope)
    published = published_in(rows, lives, logs, dated=False)
    local = affecting(setup.asked.causes, rows.nodes, lives.node, published.pub)
    happened = happened_before(logs.ev, logs.off, duties, scopes, local)
    copied = np.concatenate([np.empty(0, np.uint8), *(fact["copied"] for fact in facts)])
    first = np.concatenate([np.empty(0, np.int64), *(fact["first"] for fact in facts)])
    number = np.empty(copied.size, np.int32)
    number[rows.msg[logs.publication]] = np.arange(copied.size)
    own = any(bool(fact["own"].any()) for fact in facts)
    arrays = {
        **happened.arrays,
        "pub_seq": rows.seq[logs.publication],
        "copied": copied[rows.msg[logs.publication]],
    }
    for name in ("first_ns", "first_by") if setup.asks_real_time else ():
        arrays[name] = _of_messages(facts, name, rows.msg[logs.publication])
    times = _of_messages(facts, "time_ns", rows.msg[logs.publication]) if setup.dated else None
    past = None
    if not setup.dated:
        same = (scopes.causal, scopes.order) == ("global", "session") and local is None
        graph = happened.arrays["prev"], happened.arrays["edge_off"], happened.arrays["edges"]
        past = graph if same else past_in(logs.ev, logs.off, number.size)
    published = Publications(published.pub, published.place, times, past, own)
    said = _about(duties, scopes, happened, own=own)
    first = first[rows.msg[logs.publication]]
    return NumberedRun(Ordered(said, duties, published, arrays, number, base, early, first), rows, lives, logs)


def _of_messages(facts: list[dict[str, Any]], name: str, codes: Ints) -> Any:
    """What the buckets say of messages, for those with these codes."""
    return np.concatenate([np.empty(0, np.int64), *(fact[name] for fact in facts)])[codes]


def _about(duties: Duties, scopes: Scopes, happened: DeliveryOrder, *, own: bool) -> AboutOrder:
    return AboutOrder(
        checks=duties.checks,
        claimed=duties.claimed,
        topics=duties.topics,
        audiences=duties.audiences,
        dst_names=duties.dst_names,
        scopes=(scopes.causal, scopes.order),
        live=int(happened.live),
        own=own,
        held=[check for check, bit in BIT.items() if (duties.obliges & bit).any()],
    )


def _pieces(table: pa.Table, base: dict[int, int], wanted: Any) -> RowPieces:
    """The rows of the wanted nodes, with codes that count the messages of all buckets; -1 for what nobody published."""
    pieces = RowPieces([], [], [], [])
    columns = [*(shortened(table, name, dtype) for name, dtype in PLACED), column(table, "code", np.int32)]
    for i, bucket in enumerate(values(table, "bucket")):
        node, seq, kind, code = (parts[i] for parts in columns)
        chosen = np.flatnonzero(wanted[node])
        pieces.node.append(node[chosen])
        pieces.seq.append(seq[chosen])
        pieces.kind.append(kind[chosen])
        pieces.code.append(np.where(code[chosen] >= 0, code[chosen] + base.get(bucket, 0), -1).astype(np.int32))
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
    entry = entry[rows.msg[entry] >= 0]
    publishes = rows.kind[entry] == KIND["publish"]
    ev = np.where(publishes, ~rows.msg[entry], rows.msg[entry]).astype(np.int32)
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


def _packed(ordered: Ordered) -> bytes:
    published = ordered.published
    buckets = np.array(sorted(ordered.base.items()), np.int64).reshape(-1, 2)
    arrays = {
        **{name: getattr(ordered.duties, name) for name in _OF_DUTIES},
        **{name: value for name, value in ordered.arrays.items() if name not in ("log", "log_off", "chain", "at")},
        "pub": published.pub,
        "place": published.place,
        "number": ordered.number,
        "base": buckets,
        "early": ordered.early,
        "first": ordered.first,
    }
    if published.time_ns is not None:
        arrays["time_ns"] = published.time_ns
    graph = published.past
    if graph is not None and graph[2] is not ordered.arrays["edges"]:
        arrays |= dict(zip(_PAST, graph, strict=True))
    return packed(ordered.about, arrays)


def ordered_from(table: pa.Table) -> Ordered:
    """The order put together from what `order` sent."""
    order_ = np.argsort(np.asarray(table.column("chunk").combine_chunks()), kind="stable")
    data = b"".join(table.column("data")[int(i)].as_py() for i in order_)
    about, arrays = unpacked(as_it_was(data), AboutOrder)
    duties = Duties(
        checks=about.checks,
        claimed=about.claimed,
        topics=about.topics,
        audiences=about.audiences,
        dst_names=about.dst_names,
        key_names=pa.array([], pa.string()),
        **{name: arrays.pop(name) for name in _OF_DUTIES},
    )
    time_ns = arrays.pop("time_ns", None)
    graph = tuple(arrays.pop(name) for name in _PAST if name in arrays) or tuple(
        arrays[name] for name in ("prev", "edge_off", "edges")
    )
    past = None if time_ns is not None else graph
    published = Publications(arrays.pop("pub"), arrays.pop("place"), time_ns, past, about.own)
    base = dict(arrays.pop("base").tolist())
    number, early, first = (arrays.pop(name) for name in ("number", "early", "first"))
    return Ordered(about, duties, published, arrays, number, base, early, first)
