"""The first stage: rows as they were read, in any order, dealt out by message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ordercast.verify.arrow import filled, taken, whole
from ordercast.verify.distributed.setup import NO_MESSAGE
from ordercast.verify.distributed.wire import runs, schema_of, steps, table_bytes
from ordercast.verify.rows import KIND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ordercast.verify.distributed.setup import Setup

ABOUT_PUBLICATION = ("msg", "topic", "guarantee", "keys", "dst")
"""What is read of a publication besides its place; null in all other rows."""
LISTS = ("keys", "dst")
"""Of these, the ones that are lists: as text, in JSON."""
SCANNED = schema_of(
    bucket=pa.int32(),
    node=pa.binary(),
    seq=pa.binary(),
    kind=pa.binary(),
    message=pa.binary(),
    time_ns=pa.binary(),
    published=pa.binary(),
)
PLACED = (("node", np.int32), ("seq", np.int32), ("kind", np.int8))
"""The columns that say where a row stands and what it is, shortened."""
NO_TIME = np.iinfo(np.int64).min
_AT_ONCE = 1_000_000


def scan(setup: Setup, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Deal rows out by message. Columns: node and message as hashes, seq, kind, time_ns, and the publications'."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _AT_ONCE:
            yield from _dealt(setup, pa.Table.from_batches(waiting))
            waiting, rows = [], 0
    if rows:
        yield from _dealt(setup, pa.Table.from_batches(waiting))


@dataclass(frozen=True)
class Dealt:
    """Rows as columns of numbers, in any order."""

    node: Any
    seq: Any
    kind: Any
    """May be changed by whoever deals them out."""
    message: Any
    """The hash of its name."""
    named: Any
    """Whether it has one."""
    times: Any
    """None where nobody shares a clock."""


def _dealt(setup: Setup, table: pa.Table) -> Iterator[pa.RecordBatch]:
    by_hash = np.flatnonzero(setup.nodes.rows)  # Only who has rows has a hash.
    by_hash = by_hash[np.argsort(setup.nodes.hashes[by_hash])]
    rows = Dealt(
        node=by_hash[np.searchsorted(setup.nodes.hashes[by_hash], _numbers(table, "node"))].astype(np.int32),
        seq=_numbers(table, "seq").astype(np.int32),
        kind=_numbers(table, "kind").astype(np.int8),
        message=_numbers(table, "message"),
        named=np.asarray(whole(table.column("message").is_valid())),
        times=_numbers(table, "time_ns", NO_TIME) if setup.dated else None,
    )
    about = table.select(list(ABOUT_PUBLICATION))
    yield from dealt(setup, rows, lambda publications: taken(about, publications).combine_chunks())


def dealt(setup: Setup, rows: Dealt, about: Callable[[np.ndarray[Any, Any]], pa.Table]) -> Iterator[pa.RecordBatch]:
    """A row for each bucket of messages; `about` gives what is read of publications, at these places."""
    message = np.where(rows.named, rows.message, rows.node.astype(np.int64))
    rows.kind[~rows.named] += NO_MESSAGE
    bucket = (message.view(np.uint64) % np.uint64(setup.cut.buckets)).astype(np.int16)
    order = np.argsort(bucket, kind="stable")
    starts = np.searchsorted(bucket[order], np.arange(setup.cut.buckets + 1))
    for b in range(setup.cut.buckets):
        mine = order[starts[b] : starts[b + 1]]
        if mine.size:
            publications = mine[rows.kind[mine] == KIND["publish"]]
            yield one_row(
                SCANNED,
                bucket=b,
                **placed(rows.node[mine], rows.seq[mine], rows.kind[mine]),
                message=message[mine].tobytes(),
                time_ns=b"" if rows.times is None else steps(rows.times[mine]),
                published=table_bytes(about(publications)) if publications.size else b"",
            )


def placed(node: Any, seq: Any, kind: Any) -> dict[str, bytes]:
    """The columns PLACED of some rows: they come log by log, mostly, and are mostly deliveries."""
    return {"node": runs(node), "seq": steps(seq), "kind": runs(kind)}


def _numbers(table: pa.Table, name: str, missing: int = 0) -> Any:
    return np.asarray(filled(table.column(name), missing), dtype=np.int64)


def one_row(schema: pa.Schema, **values: Any) -> pa.RecordBatch:
    """A batch of one row."""
    return pa.RecordBatch.from_pydict({name: [values[name]] for name in schema.names}, schema=schema)
