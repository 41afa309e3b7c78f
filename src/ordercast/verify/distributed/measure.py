"""Measuring a run whose rows nobody has in one place: the passes, in their order, and what they measured.

1. `tally` adds the rows up. 2. `deal_spans` deals publications, deliveries and receipts out by message.
3. `settle_spans`, by message, works out the time that each delivery took and keeps these times where they are, sorted.
4. `narrowed` finds the values at the ranks of percentiles among them: the same as a sort of them all would.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from ordercast.verify.distributed.ranks import Stretch, narrowed
from ordercast.verify.distributed.spans import (
    CELLS,
    DEALT,
    HELD,
    SUMMARY,
    SpanSetup,
    SpanSummary,
    deal_spans,
    settle_spans,
)
from ordercast.verify.distributed.tally import TALLIED, spread_of_counts, tally, tally_from
from ordercast.verify.distributed.wire import packed, schema_of, unpacked, values
from ordercast.verify.metrics.compose import BUCKETS, Measured, Row
from ordercast.verify.metrics.local import distribution, rank_of
from ordercast.verify.metrics.rare_rows import detections, faults, repairs, told
from ordercast.verify.metrics.values import QUANTILES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ordercast.verify.distributed.engine import TableFlow
    from ordercast.verify.distributed.ranks import Edges
    from ordercast.verify.distributed.spans import CellSummary
    from ordercast.verify.distributed.tally import RunTally, Tables

F = TypeVar("F")
ANSWERED = schema_of(data=pa.binary())


def measured_apart(
    flow: TableFlow[F], rows: F, tables: Tables, path: str, buckets_for: Callable[[int], int]
) -> Measured:
    """Measures of one run, the same as where one process has it whole.

    `tables` reads `rows`; `buckets_for` says into how many tasks so many rows by message are cut.
    """
    added = tally_from(path, values(flow.collected(flow.mapped(rows, partial(tally, tables), TALLIED)), "data"))
    measured = _of_tally(added)
    first_ns, last_ns = added.totals.get("first_ns"), added.totals.get("last_ns")
    if first_ns is None or last_ns is None:
        return measured
    held = sum(int(added.totals[name] or 0) for name in ("published", "delivered")) + added.receives
    setup = SpanSetup(
        nodes=sorted(added.nodes),
        guarantees=added.guarantees,
        first_ns=first_ns,
        last_ns=last_ns,
        holds=added.receives > 0,
        buckets=buckets_for(held),
    )
    dealt = flow.mapped(rows, partial(deal_spans, setup, tables), DEALT)
    settling = partial(settle_spans, setup)
    cells = flow.kept(flow.grouped(dealt, "bucket", settling, CELLS, values=range(setup.buckets)))
    summary = SpanSummary(deliveries=[0] * BUCKETS)
    for data in values(flow.collected(flow.where(cells, "cell", SUMMARY, SUMMARY)), "data"):
        summary.add(msgspec.msgpack.decode(data, type=SpanSummary))
    _add_spans(measured, setup, summary, _Curves(flow, cells, summary))
    return measured


def _of_tally(added: RunTally) -> Measured:
    if not added.nodes:
        return Measured()
    rare = added.rare
    spreads = {name: spread_of_counts(sizes) for name, sizes in added.packets.items()}
    return Measured(
        totals=added.totals,
        nodes={name: count for name, count in sorted(added.nodes.items()) if count},
        headers=spread_of_counts(added.headers),
        packets={name: spread for name, spread in spreads.items() if spread is not None},
        repair=distribution(np.array(repairs(rare), np.int64)),
        detection=distribution(np.array(detections(rare), np.int64)),
        faults=faults(rare),
        told=told(rare),
    )


class _Curves:
    """The groups of cells whose percentiles are asked for, and where each group's numbers are."""

    def __init__(self, flow: TableFlow[Any], cells: Any, summary: SpanSummary) -> None:
        self.flow = flow
        self.cells = cells
        self.members: dict[int, list[int]] = {}
        self.summaries: dict[int, CellSummary] = {}
        self._wanted: list[Stretch] = []
        self._known = summary.cells

    def ask(self, group: int, cells: list[int], shares: Iterable[float]) -> bool:
        """Ask for the values at these shares of all numbers in some cells; whether there are any."""
        mine = [cell for cell in cells if cell in self._known]
        if not mine:
            return False
        whole = msgspec.structs.replace(self._known[mine[0]])
        for cell in mine[1:]:
            whole.add(self._known[cell])
        self.members[group], self.summaries[group] = mine, whole
        ranks = [rank_of(share, whole.count) for share in shares]
        self._wanted += [Stretch(group, rank, whole.least, whole.most, 0, whole.count) for rank in ranks]
        return True

    def answers(self) -> dict[int, list[int]]:
        """By group, in the order of its shares."""
        found: dict[int, list[int]] = {}
        for one, value in zip(self._wanted, narrowed(self._wanted, self._count_below, self._fetch), strict=True):
            found.setdefault(one.group, []).append(value)
        return found

    def row(self, group: int, curve: list[int]) -> Row:
        whole = self.summaries[group]
        return {"count": whole.count, "mean": whole.total / whole.count, "curve": curve}

    def _groups_of(self, groups: Iterable[int]) -> dict[int, list[int]]:
        """Of each cell: the groups that it belongs to."""
        found: dict[int, list[int]] = {}
        for group in groups:
            for cell in self.members[group]:
                found.setdefault(cell, []).append(group)
        return found

    def _count_below(self, edges: Edges) -> Edges:
        answers = self._asked(partial(count_below, self._groups_of(edges), edges))
        return {group: np.sum([answer[str(group)] for answer in answers], axis=0) for group in edges}

    def _fetch(self, stretches: list[tuple[int, int, int]]) -> dict[tuple[int, int, int], Any]:
        answers = self._asked(partial(between, self._groups_of({group for group, _, _ in stretches}), stretches))
        return {
            stretch: np.sort(np.concatenate([answer[str(n)] for answer in answers if str(n) in answer]))
            for n, stretch in enumerate(stretches)
        }

    def _asked(self, question: Callable[[Any], Iterator[pa.RecordBatch]]) -> list[dict[str, Any]]:
        table = self.flow.collected(self.flow.mapped(self.cells, question, ANSWERED))
        return [unpacked(data)[1] for data in values(table, "data")]


def count_below(groups_of: dict[int, list[int]], edges: Edges, batches: Any) -> Iterator[pa.RecordBatch]:
    """How many numbers of each group are below each of its edges, in the cells of one task."""
    counts = {str(group): np.zeros(mine.size, np.int64) for group, mine in edges.items()}
    for cell, numbers in _cells(batches):
        for group in groups_of.get(cell, ()):
            counts[str(group)] += np.searchsorted(numbers, edges[group])
    yield pa.RecordBatch.from_pydict({"data": [packed(None, counts)]}, schema=ANSWERED)


def between(
    groups_of: dict[int, list[int]], stretches: list[tuple[int, int, int]], batches: Any
) -> Iterator[pa.RecordBatch]:
    """The numbers of each stretch, in the cells of one task."""
    found: dict[str, list[Any]] = {}
    for cell, numbers in _cells(batches):
        for n, (group, low, high) in enumerate(stretches):
            if group in groups_of.get(cell, ()):
                begin, end = np.searchsorted(numbers, low), np.searchsorted(numbers, high, side="right")
                found.setdefault(str(n), []).append(numbers[begin:end])
    arrays = {name: np.concatenate(parts) for name, parts in found.items()}
    yield pa.RecordBatch.from_pydict({"data": [packed(None, arrays)]}, schema=ANSWERED)


def _cells(batches: Any) -> Iterator[tuple[int, Any]]:
    for batch in batches:
        for cell, data in zip(batch.column("cell").to_pylist(), batch.column("data"), strict=True):
            if cell != SUMMARY:
                yield cell, np.frombuffer(memoryview(data.as_buffer()), np.int64)


def _add_spans(measured: Measured, setup: SpanSetup, summary: SpanSummary, curves: _Curves) -> None:
    """Latencies by guarantee, over all and by slice of the run's time, and how long messages were held back."""
    names: list[str | None] = [*setup.guarantees, "unstated", None]
    over_all = len(names) - 1
    slices = range(BUCKETS)
    asked = []
    for number, name in enumerate(names):
        stated = range(setup.stated) if name is None else [number]
        cells = [setup.cell_of(slice_, guarantee) for slice_ in slices for guarantee in stated]
        asked += [number] if curves.ask(number, cells, QUANTILES) else []
    held = over_all + 1
    holds = curves.ask(held, [HELD], QUANTILES)
    for slice_ in slices:
        mine = [setup.cell_of(slice_, guarantee) for guarantee in range(setup.stated)]
        curves.ask(held + 1 + slice_, mine, [0.99])
    found = curves.answers()
    measured.latency = {names[number]: curves.row(number, found[number]) for number in asked}
    measured.held = {"held": curves.row(held, found[held]), "waited": summary.waited} if holds else None
    measured.slices = [
        {"bucket": slice_, "deliveries": count, "p99_ns": found.get(held + 1 + slice_, [None])[0]}
        for slice_, count in enumerate(summary.deliveries)
        if count
    ]
