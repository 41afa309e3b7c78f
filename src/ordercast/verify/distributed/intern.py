"""The second stage, by message: numbers for ids, and the rows dealt out by receiver.

All rows of a message are in one bucket, so that a bucket knows which of its messages were published, by whom first, and
whether anybody delivered them. Codes count the messages of one bucket; what comes before them is known later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ordercast.trace.store import TraceError
from ordercast.verify.arrow import taken
from ordercast.verify.build import NO_TIME as NEVER
from ordercast.verify.build import left_by, lives_of, present_at_the_end
from ordercast.verify.distributed.rows import rare_rows
from ordercast.verify.distributed.scan import ABOUT_PUBLICATION, NO_TIME, PLACED, one_row, placed
from ordercast.verify.distributed.setup import AGAIN, NO_MESSAGE, place
from ordercast.verify.distributed.wire import column, packed, schema_of, shortened, table_bytes, table_from
from ordercast.verify.kernels.grouping import group
from ordercast.verify.kernels.lookup import dated_before, delivered_first, places_of
from ordercast.verify.rows import KIND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ordercast.verify.distributed.setup import Setup

TO_ORDER = -1
"""Where rows go that the order of messages needs; all others go to the part of their receiver."""
NOBODYS = -1
"""The code of a row without a message; codes below are of messages that nobody published."""
INTERNED = schema_of(
    to=pa.int32(),
    bucket=pa.int32(),
    node=pa.binary(),
    seq=pa.binary(),
    kind=pa.binary(),
    code=pa.binary(),
    about=pa.binary(),
    published=pa.binary(),
)


def intern(setup: Setup, bucket: int, table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The rows of one bucket, with codes for messages, to where they are needed."""
    if not table.num_rows:
        return
    node, seq, kind = (np.concatenate(shortened(table, name, dtype)) for name, dtype in PLACED)
    message = np.concatenate(column(table, "message", np.int64))
    times = np.concatenate(shortened(table, "time_ns", np.int64)) if setup.dated else np.empty(0, np.int64)
    publishes = np.flatnonzero(kind == KIND["publish"])
    order = np.lexsort((seq[publishes], node[publishes], message[publishes]))
    hashes, first = np.unique(message[publishes[order]], return_index=True)
    original = order[first]
    about = _publications(table)
    _expect_one_name_each(setup, about, order, first)
    code = places_of(message, hashes)
    known = code >= 0
    kind[np.delete(publishes, original)] += AGAIN
    nameless = kind >= NO_MESSAGE
    kind[nameless] -= NO_MESSAGE
    code[nameless] = NOBODYS
    unknown = np.flatnonzero(~known & ~nameless)
    strangers, which = np.unique(message[unknown], return_inverse=True)
    code[unknown] = NOBODYS - 1 - which
    facts = _deliveries(setup, node, seq, kind, code, publishes[original])
    hasty = np.empty(0, np.int64)
    if setup.dated:
        facts["time_ns"] = np.where(times[publishes[original]] == NO_TIME, 0, times[publishes[original]])
        hasty = np.flatnonzero(dated_before(kind, code, times, facts["time_ns"], KIND["deliver"], NO_TIME))
    if setup.asks_real_time:
        facts |= _first_moments(setup, node, seq, kind, code, times, original.size)
    chosen = (known & (kind == KIND["deliver"])) | (kind == KIND["publish"])
    chosen &= seq < setup.nodes.published_until[node]
    rows = node, seq, kind, code
    if about is not None or facts["own"].any():
        published = table_bytes(taken(about, original).combine_chunks()) if about is not None else b""
        yield _row(TO_ORDER, bucket, rows, np.flatnonzero(chosen), packed(None, facts), published)
    met = _first_met(strangers.size, which, node[unknown], seq[unknown], kind[unknown])
    hasty_part = setup.part_of[node[hasty]]
    starts, by_part = group(setup.part_of.astype(np.int32)[node], setup.cut.parts)
    for p in range(setup.cut.parts):
        mine = by_part[starts[p] : starts[p + 1]]
        if mine.size:
            early = hasty[hasty_part == p]
            odd = packed(None, {"first": met, "hasty": place(node[early], seq[early])})
            yield _row(p, bucket, rows, mine, odd, b"")


def _row(
    to: int, bucket: int, rows: tuple[Any, ...], chosen: np.ndarray[Any, Any], about: bytes, published: bytes
) -> pa.RecordBatch:
    node, seq, kind, code = (values[chosen] for values in rows)
    columns = {**placed(node, seq, kind), "code": code.tobytes()}
    return one_row(INTERNED, to=to, bucket=bucket, about=about, published=published, **columns)


def _publications(table: pa.Table) -> pa.Table | None:
    parts = [table_from(value.as_buffer()) for value in table.column("published") if len(value.as_buffer())]
    return pa.concat_tables(parts).select(list(ABOUT_PUBLICATION)) if parts else None


def _expect_one_name_each(setup: Setup, about: pa.Table | None, order: Any, first: Any) -> None:
    """Two ids that share a hash would be one message. It takes four billion messages for that to be likely."""
    if about is None or first.size == order.size:
        return
    names = taken(about.column("msg"), order).to_pylist()
    for begin, end in zip(first.tolist(), [*first[1:].tolist(), len(names)], strict=True):
        if len(set(names[begin:end])) > 1:
            one, two = sorted(set(names[begin:end]))[:2]
            raise TraceError(f"{setup.path}: messages {one} and {two} have the same hash: judge it with --no-spark")


def _deliveries(
    setup: Setup, node: Any, seq: Any, kind: Any, code: Any, publications: Any
) -> dict[str, np.ndarray[Any, Any]]:
    """Of each message: did anybody who counts deliver it, and where was it first? Of all: any of a node's own?"""
    rows = rare_rows(setup)
    lives = lives_of(rows)
    counts = np.ones(lives.node.size, bool)
    if setup.manifest is not None and not setup.manifest.uniform:
        counts = present_at_the_end(lives, left_by(rows, lives, setup.manifest))
    receiver = setup.receivers(node, seq).astype(np.int32)
    copied, first, own = delivered_first(
        kind, code, place(node, seq), receiver, counts, receiver[publications], KIND["deliver"]
    )
    return {"copied": copied, "first": first, "own": np.array([own])}


def _first_moments(
    setup: Setup, node: Any, seq: Any, kind: Any, code: Any, times: Any, messages: int
) -> dict[str, np.ndarray[Any, Any]]:
    """Of each message: when it was first delivered, and by which receiver; what a receiver repeats does not count."""
    delivers = np.flatnonzero((kind == KIND["deliver"]) & (code >= 0))
    receiver = setup.receivers(node[delivers], seq[delivers])
    message, time_ns = code[delivers], times[delivers]
    time_ns = np.where(time_ns == NO_TIME, NEVER, time_ns)
    order = np.lexsort((seq[delivers], receiver, message))
    again = np.zeros(order.size, bool)
    again[1:] = (np.diff(message[order]) == 0) & (np.diff(receiver[order]) == 0)
    order = order[~again]
    order = order[np.lexsort((receiver[order], time_ns[order], message[order]))]
    found, first = np.unique(message[order], return_index=True)
    first_ns = np.full(messages, NEVER, np.int64)
    first_by = np.full(messages, -1, np.int32)
    first_ns[found], first_by[found] = time_ns[order][first], receiver[order][first]
    return {"first_ns": first_ns, "first_by": first_by}


def _first_met(count: int, which: Any, node: Any, seq: Any, kind: Any) -> np.ndarray[Any, Any]:
    """Of each message that nobody published: where it was first delivered."""
    first = np.full(count, np.iinfo(np.int64).max, np.int64)
    delivered = kind == KIND["deliver"]
    np.minimum.at(first, which[delivered], place(node, seq)[delivered])
    return first
