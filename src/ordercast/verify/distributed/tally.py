"""Measuring, the first pass: what the rows of a run add up to, without a look at which message they are about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from ordercast.trace.store import TraceError
from ordercast.verify.distributed.files import MOST_RARE
from ordercast.verify.distributed.wire import schema_of
from ordercast.verify.metrics.compose import PLACE_KINDS, Row
from ordercast.verify.metrics.local import NO_SIZE, TraceRows, rank_of
from ordercast.verify.metrics.values import QUANTILES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Tables = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.Table]]
    """Reads what Spark brings as tables in the columns of the trace format."""

TALLIED = schema_of(data=pa.binary())
_FIRST = ("first_ns", "first_publish_ns")
_LAST = ("last_ns", "last_deliver_ns")


class RunTally(msgspec.Struct):
    """Sums over some rows of a run."""

    totals: dict[str, int | None] = {}
    nodes: dict[str, int] = {}
    """Deliveries of each node, also if there are none."""
    guarantees: list[str] = []
    receives: int = 0
    headers: dict[int, int] = {}
    """How many copies of messages have so many bytes of header."""
    packets: dict[str, dict[int, int]] = {}
    """The same by class of packet."""
    rare: list[dict[str, Any]] = []
    """Rows about places, faults and digests, as they are."""

    def add(self, other: RunTally) -> None:
        for name, value in other.totals.items():
            self.totals[name] = _together(name, self.totals.get(name), value)
        _add(self.nodes, other.nodes)
        self.guarantees = sorted({*self.guarantees, *other.guarantees})
        self.receives += other.receives
        _add(self.headers, other.headers)
        for packet, sizes in other.packets.items():
            _add(self.packets.setdefault(packet, {}), sizes)
        self.rare += other.rare


def _together(name: str, one: int | None, two: int | None) -> int | None:
    if one is None or two is None:
        return two if one is None else one
    if name in _FIRST:
        return min(one, two)
    return max(one, two) if name in _LAST else one + two


def _add(counts: dict[Any, int], more: dict[Any, int]) -> None:
    for name, count in more.items():
        counts[name] = counts.get(name, 0) + count


def tally(tables: Tables, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sums over the rows of one task, in one row."""
    found = RunTally()
    for table in tables(batches):
        found.add(_tally(table))
    yield pa.RecordBatch.from_pydict({"data": [msgspec.msgpack.encode(found)]}, schema=TALLIED)


def tally_from(path: str, rows: Iterable[bytes]) -> RunTally:
    """The sums of all tasks together."""
    found = RunTally()
    for data in rows:
        found.add(msgspec.msgpack.decode(data, type=RunTally))
        if len(found.rare) > MOST_RARE:
            raise TraceError(f"{path}: more than {MOST_RARE:,} rows about places, faults and digests")
    return found


def _tally(table: pa.Table) -> RunTally:
    rows = TraceRows(table)
    if (rows.node < 0).any():
        raise TraceError(f"{int((rows.node < 0).sum()):,} rows have no node")
    counts = np.bincount(rows.node[rows.of("deliver")], minlength=len(rows.nodes)).tolist()
    return RunTally(
        totals=dict(rows.totals()),
        nodes=dict(zip(rows.nodes, counts, strict=True)),
        guarantees=rows.guarantees,
        receives=int(rows.of("receive").sum()),
        headers=_counts(rows.message_headers()),
        packets={name: _counts(sizes) for name, sizes in rows.packet_sizes()},
        rare=[dict(row) for row in rows.rare(PLACE_KINDS)],
    )


def _counts(sizes: Any) -> dict[int, int]:
    values, counts = np.unique(sizes[sizes != NO_SIZE], return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def spread_of_counts(counts: dict[int, int]) -> Row | None:
    """The distribution of values that are counted; None of nothing."""
    if not counts:
        return None
    values = sorted(counts)
    up_to = np.cumsum([counts[value] for value in values])
    count = int(up_to[-1])
    curve = [values[int(np.searchsorted(up_to, rank_of(share, count), side="right"))] for share in QUANTILES]
    return {"count": count, "mean": sum(value * counts[value] for value in values) / count, "curve": curve}
