"""Measuring, the second pass: how long deliveries took and how long messages were held back, dealt out by message."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from ordercast.verify.distributed.files import hash_of
from ordercast.verify.distributed.wire import packed, schema_of, unpacked, values
from ordercast.verify.kernels.lookup import places_of
from ordercast.verify.metrics.compose import BUCKETS
from ordercast.verify.metrics.local import NO_TIME, TraceRows, exact_sum, in_slices

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ordercast.verify.distributed.tally import Tables

DEALT = schema_of(bucket=pa.int32(), data=pa.binary())
CELLS = schema_of(cell=pa.int32(), data=pa.binary())
SUMMARY = -1
"""The cell of a row that sums up a task; all other rows are the sorted values of their cell."""
HELD = -2
"""The cell of times that messages were held back. Others are a slice of time and a guarantee: see `cell_of`."""


@dataclass(frozen=True)
class SpanSetup:
    """Facts of the run that every task has to know."""

    nodes: list[str]
    guarantees: list[str]
    first_ns: int
    last_ns: int
    holds: bool
    """Whether anybody recorded that it received anything."""
    buckets: int

    @property
    def stated(self) -> int:
        """How many guarantees there are, with that of messages of which none is known."""
        return len(self.guarantees) + 1

    def cell_of(self, slice_: Any, guarantee: Any) -> Any:
        return slice_ * self.stated + guarantee


class CellSummary(msgspec.Struct):
    """Sums over the values of one cell."""

    count: int
    total: int
    least: int
    most: int

    def add(self, other: CellSummary) -> None:
        self.count += other.count
        self.total += other.total
        self.least = min(self.least, other.least)
        self.most = max(self.most, other.most)


class SpanSummary(msgspec.Struct):
    """Sums over the spans of one task, or of all."""

    cells: dict[int, CellSummary] = {}
    deliveries: list[int] = []
    """Of each slice of the run's time."""
    waited: int = 0

    def add(self, other: SpanSummary) -> None:
        for cell, summary in other.cells.items():
            if cell in self.cells:
                self.cells[cell].add(summary)
            else:
                self.cells[cell] = summary
        self.deliveries = [a + b for a, b in zip(self.deliveries or [0] * BUCKETS, other.deliveries, strict=True)]
        self.waited += other.waited


def deal_spans(setup: SpanSetup, tables: Tables, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Publications, deliveries and receipts, dealt out by the hash of their message."""
    number = {name: i for i, name in enumerate(setup.nodes)}
    stated = {name: i for i, name in enumerate(setup.guarantees)}
    for table in tables(batches):
        rows = TraceRows(table)
        of_word = np.append(hash_of(rows.messages), 0)
        of_node = np.array([number[name] for name in rows.nodes], np.int32)
        of_guarantee = np.array([*(stated[name] for name in rows.guarantees), -1], np.int16)
        message = of_word[rows.msg]
        bucket = (message.view(np.uint64) % np.uint64(setup.buckets)).astype(np.int16)
        kinds = {kind: rows.of(kind) for kind in ("publish", "deliver", *(["receive"] * setup.holds))}
        kinds["publish"] &= rows.msg >= 0
        for b in range(setup.buckets):
            arrays = {}
            for kind, of_kind in kinds.items():
                mine = np.flatnonzero(of_kind & (bucket == b))
                arrays[f"{kind} message"], arrays[f"{kind} time"] = message[mine], rows.time[mine]
                arrays[f"{kind} guarantee"] = of_guarantee[rows.guarantee[mine]]
                if setup.holds or kind == "publish":
                    arrays[f"{kind} node"], arrays[f"{kind} seq"] = of_node[rows.node[mine]], rows.seq[mine]
            if any(values_.size for values_ in arrays.values()):
                yield pa.RecordBatch.from_pydict({"bucket": [b], "data": [packed(None, arrays)]}, schema=DEALT)


def settle_spans(setup: SpanSetup, _: int, table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The spans of the messages of one bucket, sorted by cell, and what they add up to."""
    parts = [unpacked(value)[1] for value in values(table, "data")]
    if not parts:
        return
    rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    summary = SpanSummary(deliveries=[0] * BUCKETS)
    found = [*_latencies(setup, rows, summary), *_held(setup, rows, summary)]
    for cell, spans in found:
        summary.cells[cell] = CellSummary(spans.size, exact_sum(spans), int(spans[0]), int(spans[-1]))
        yield _row(cell, spans.tobytes())
    yield _row(SUMMARY, msgspec.msgpack.encode(summary))


def _latencies(setup: SpanSetup, rows: dict[str, Any], summary: SpanSummary) -> Iterator[tuple[int, Any]]:
    since, published_as = _publications(rows)
    place = places_of(rows["deliver message"], np.unique(rows["publish message"]))
    time, own = rows["deliver time"], rows["deliver guarantee"]
    since, published_as = np.append(since, NO_TIME)[place], np.append(published_as, -1)[place]
    guarantee = np.where(published_as >= 0, published_as, own)
    guarantee = np.where(guarantee >= 0, guarantee, setup.stated - 1)
    timed = time != NO_TIME
    slice_ = np.zeros(time.size, np.int64)
    slice_[timed] = in_slices(time[timed], setup.first_ns, setup.last_ns)
    summary.deliveries = np.bincount(slice_[timed], minlength=BUCKETS).tolist()
    known = np.flatnonzero(timed & (since != NO_TIME))
    latency = time[known] - since[known]
    by_value = np.argsort(latency)
    cell = setup.cell_of(slice_[known], guarantee[known])[by_value]
    cell = cell.astype(np.int16 if BUCKETS * setup.stated < 1 << 15 else np.int32)  # Short ones are sorted faster.
    by_cell = np.argsort(cell, kind="stable")
    latency, cell = latency[by_value[by_cell]], cell[by_cell]
    cells, begins = np.unique(cell, return_index=True)
    for name, (begin, end) in zip(cells.tolist(), pairwise([*begins, cell.size]), strict=True):
        yield name, latency[begin:end]


def _publications(rows: dict[str, Any]) -> tuple[Any, Any]:
    """Of each message that was published, by hash: when first, and as what by the first node that says it."""
    message, time = rows["publish message"], rows["publish time"]
    order = np.lexsort((rows["publish seq"], rows["publish node"], message))
    hashes, begins = np.unique(message[order], return_index=True)
    since = np.minimum.reduceat(time[order], begins) if begins.size else time
    published_as = np.full(hashes.size, -1, np.int16)
    named = order[rows["publish guarantee"][order] >= 0][::-1]  # The first one that names it is written last.
    published_as[places_of(message[named], hashes)] = rows["publish guarantee"][named]
    return since, published_as


def _held(setup: SpanSetup, rows: dict[str, Any], summary: SpanSummary) -> Iterator[tuple[int, Any]]:
    if not setup.holds:
        return
    received, delivered = _firsts(rows, "receive"), _firsts(rows, "deliver")
    at = places_of(received[0], delivered[0])
    met = np.flatnonzero(at >= 0)
    to = at[met]
    in_turn = received[1][met] < delivered[1][to]
    start, end = received[2][met][in_turn], delivered[2][to][in_turn]
    held = np.sort((end - start)[(start != NO_TIME) & (end != NO_TIME)])
    summary.waited = int((held > 0).sum())
    if held.size:
        yield HELD, held


def _firsts(rows: dict[str, Any], kind: str) -> tuple[Any, Any, Any]:
    """Of each node and message with a row of this kind: a number for the pair, the first place and the first time.

    The number is the message's hash and the node's number put together: one in 2^64 that two pairs share it.
    """
    message = rows[f"{kind} message"]
    node = rows[f"{kind} node"].astype(np.int64)
    chosen = np.flatnonzero(message != 0)
    pair = message[chosen] ^ ((node[chosen] + 1) * np.int64(0x1E3779B97F4A7C15))
    order = np.argsort(pair, kind="stable")
    pair, chosen = pair[order], chosen[order]
    begins = np.flatnonzero(np.append(True, pair[1:] != pair[:-1])) if pair.size else np.empty(0, np.int64)
    if not begins.size:
        return pair, pair, pair
    seq, time = rows[f"{kind} seq"][chosen], rows[f"{kind} time"][chosen]
    return pair[begins], np.minimum.reduceat(seq, begins), np.minimum.reduceat(time, begins)


def _row(cell: int, data: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"cell": [cell], "data": [data]}, schema=CELLS)
