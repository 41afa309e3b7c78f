"""Metrics of traces in this process, without Spark: whole columns at a time, exact percentiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordercast.trace.arrow_schema import EVENT_SCHEMA
from ordercast.trace.schema import INFO_DIGEST
from ordercast.trace.store import TraceError
from ordercast.verify.arrow import coded, first_line, taken, whole
from ordercast.verify.metrics.compose import BUCKETS, PACKET_CLASS, PLACE_KINDS, Measured, Row, metrics_of
from ordercast.verify.metrics.rare_rows import detections, faults, repairs, told
from ordercast.verify.metrics.sources import Source, in_our_columns, open_sources
from ordercast.verify.metrics.values import QUANTILES
from ordercast.verify.parquet import Wanted, read_parquet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ordercast.verify.metrics.values import RunMetrics

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Chosen = np.ndarray[Any, np.dtype[np.bool_]]

REPEATING = ("node", "kind", "topic", "guarantee", "peer")
NEEDED = tuple(name for name in EVENT_SCHEMA.names if name not in ("run", "keys", "dst"))
NO_TIME = np.iinfo(np.int64).max
"""Stands for a time that a row does not have: later than every other, so that it never is the first."""
NO_SIZE = -1


def measure(paths: Sequence[Path]) -> list[RunMetrics]:
    """The metrics of every run in `paths`, in the order given; one run at a time is in memory."""
    return [
        metrics_of(str(source.path), source.manifest, measured_of(table_of(source)))
        for path in paths
        for source in open_sources(path)
    ]


def table_of(source: Source) -> pa.Table:
    """All rows of a source, in the columns that measuring needs."""
    if source.table is not None:
        return in_our_columns(source.table)
    return pa.concat_tables(
        [_read(file, source.manifest.crc32.get(file.name)) for file in source.files]
    ).unify_dictionaries()


def _read(file: Path, crc32: int | None) -> pa.Table:
    table = read_parquet(Wanted(str(file), NEEDED, REPEATING), crc32)
    try:
        return in_our_columns(table, words=REPEATING)
    except pa.ArrowException as error:
        raise TraceError(f"{file}: unreadable: {first_line(error)}") from None


def measured_of(table: pa.Table) -> Measured:
    """Everything that one run's rows tell."""
    rows = TraceRows(table)
    if not len(rows.time):
        return Measured()
    measured = Measured(totals=rows.totals(), nodes=rows.deliveries_by_node())
    measured.headers = distribution(rows.message_headers())
    spreads = {name: distribution(sizes) for name, sizes in rows.packet_sizes()}
    measured.packets = {name: spread for name, spread in spreads.items() if spread is not None}
    latency = _Latency(rows)
    measured.latency = dict(latency.by_guarantee())
    measured.slices = list(latency.slices(measured.totals)) if measured.totals else []
    measured.held = _hold_back(rows)
    rare = rows.rare(PLACE_KINDS)
    measured.repair = distribution(np.array(repairs(rare), np.int64))
    measured.detection = distribution(np.array(detections(rare), np.int64))
    measured.faults = faults(rare)
    measured.told = told(rare)
    return measured


class TraceRows:
    """The rows of one run as arrays; words are numbered, -1 for none."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.kinds, self.kind = _words(table, "kind")
        self.nodes, self.node = _words(table, "node")
        self.messages, self.msg = _codes(table, "msg")
        self.guarantees, self.guarantee = _words(table, "guarantee")
        self.seq = _numbers(table, "seq", 0)
        self.time = _numbers(table, "time_ns", NO_TIME)
        self.header = _numbers(table, "header_bytes", NO_SIZE)
        self.payload = _numbers(table, "payload_bytes", NO_SIZE)

    def of(self, kind: str) -> Chosen:
        """Which rows are of this kind."""
        return self.kind == self.kinds.index(kind) if kind in self.kinds else np.zeros(self.kind.size, bool)

    def totals(self) -> Row:
        timed, sent, of_message = self.time[self.time != NO_TIME], self.of("send"), self.msg >= 0
        published, delivered = self.of("publish"), self.of("deliver")
        deliver_times = self.time[delivered & (self.time != NO_TIME)]
        return {
            "first_ns": _least(timed),
            "last_ns": int(timed.max()) if timed.size else None,
            "first_publish_ns": _least(self.time[published & (self.time != NO_TIME)]),
            "last_deliver_ns": int(deliver_times.max()) if deliver_times.size else None,
            "published": int(published.sum()),
            "delivered": int(delivered.sum()),
            "message_sends": int((sent & of_message).sum()),
            "control_sends": int((sent & ~of_message).sum()),
            "drops": int(self.of("drop").sum()),
            "header_total": _sum_of_sizes(self.header[sent]),
            "payload_total": _sum_of_sizes(self.payload[sent]),
        }

    def deliveries_by_node(self) -> dict[str, int]:
        counts = np.bincount(self.node[self.of("deliver")], minlength=len(self.nodes))
        return {name: int(count) for name, count in sorted(zip(self.nodes, counts, strict=True)) if count}

    def message_headers(self) -> Numbers:
        """Header sizes of the copies of messages that were put on a link."""
        sizes: Numbers = self.header[self.of("send") & (self.msg >= 0) & (self.header != NO_SIZE)]
        return sizes

    def packet_sizes(self) -> Iterator[tuple[str, Numbers]]:
        """Header sizes of sent packets by their class, where the rows name one."""
        sent = np.flatnonzero(self.of("send"))
        info = self.table.column("info")
        if not sent.size or info.null_count == len(info):
            return
        classes: Any = pc.map_lookup(whole(taken(info, sent)), PACKET_CLASS, "first")
        names, codes = coded(classes.dictionary_encode())
        header = self.header[sent]
        for code, name in enumerate(names.to_pylist()):
            yield name, header[(codes == code) & (header != NO_SIZE)]

    def rare(self, kinds: tuple[str, ...]) -> list[Row]:
        """The rows of these kinds, and those that have a digest, as they are."""
        codes = np.array([*(kind in kinds for kind in self.kinds), False])
        wanted = codes[self.kind]
        info = whole(self.table.column("info"))
        if info.null_count < len(info):
            wanted |= np.asarray(pc.map_lookup(info, INFO_DIGEST, "first").is_valid())
        chosen = np.flatnonzero(wanted)
        columns = ["node", "seq", "kind", "time_ns", "topic", "peer", "info"]
        return [
            {**row, "info": dict(row["info"] or ())} for row in taken(self.table.select(columns), chosen).to_pylist()
        ]


class _Latency:
    """Every delivery: when it was, the guarantee of its message, and how long after the publication."""

    def __init__(self, rows: TraceRows) -> None:
        published = np.flatnonzero(rows.of("publish") & (rows.msg >= 0))
        message = rows.msg[published]
        published_ns = np.full(len(rows.messages), NO_TIME)
        np.minimum.at(published_ns, message, rows.time[published])
        named = published[rows.guarantee[published] >= 0]
        by_name = np.argsort(np.array(rows.nodes, object))
        place = np.empty(by_name.size, np.int32)
        place[by_name] = np.arange(by_name.size)
        named = named[np.lexsort((rows.seq[named], place[rows.node[named]]))][::-1]  # Who comes first is written last.
        published_as = np.full(len(rows.messages), -1, np.int32)
        published_as[rows.msg[named]] = rows.guarantee[named]
        delivered = np.flatnonzero(rows.of("deliver"))
        self.time = rows.time[delivered]
        since = np.append(published_ns, NO_TIME)[rows.msg[delivered]]
        self.known = (since != NO_TIME) & (self.time != NO_TIME)
        self.latency = np.where(self.known, self.time - since, 0)
        own = np.append(published_as, -1)[rows.msg[delivered]]
        self.guarantee = np.where(own >= 0, own, rows.guarantee[delivered])
        self.names = rows.guarantees

    def by_guarantee(self) -> Iterator[tuple[str | None, Row]]:
        """The distribution for each guarantee, and under None over all of them."""
        groups = [(name, self.guarantee == code) for code, name in enumerate(self.names)]
        groups += [("unstated", self.guarantee < 0)]
        for name, chosen in [*groups, (None, np.ones(self.known.size, bool))]:
            spread = distribution(self.latency[chosen & self.known])
            if spread is not None:
                yield name, spread

    def slices(self, totals: Row) -> Iterator[Row]:
        """Deliveries and their p99 latency in equal parts of the run's time."""
        if totals["first_ns"] is None:
            return
        timed = self.time != NO_TIME
        bucket = in_slices(self.time[timed], totals["first_ns"], totals["last_ns"])
        deliveries = np.bincount(bucket, minlength=BUCKETS)
        known = self.known[timed]
        order = np.lexsort((self.latency[timed][known], bucket[known]))
        ends = np.searchsorted(bucket[known][order], np.arange(BUCKETS + 1))
        for number in np.flatnonzero(deliveries):
            ranked = self.latency[timed][known][order[ends[number] : ends[number + 1]]]
            p99 = int(ranked[rank_of(0.99, ranked.size)]) if ranked.size else None
            yield {"bucket": int(number), "deliveries": int(deliveries[number]), "p99_ns": p99}


def _hold_back(rows: TraceRows) -> Row | None:
    """The time that each node kept what it had received before delivering it, and how many waited at all."""
    received = _firsts(rows, "receive")
    delivered = _firsts(rows, "deliver")
    _, at, to = np.intersect1d(received[0], delivered[0], assume_unique=True, return_indices=True)
    in_turn = received[1][at] < delivered[1][to]
    start, end = received[2][at][in_turn], delivered[2][to][in_turn]
    held = (end - start)[(start != NO_TIME) & (end != NO_TIME)]
    spread = distribution(held)
    return None if spread is None else {"held": spread, "waited": int((held > 0).sum())}


def _firsts(rows: TraceRows, kind: str) -> tuple[Numbers, Numbers, Numbers]:
    """Of each node and message with a row of this kind: a number for the pair, the first place and the first time."""
    chosen = np.flatnonzero(rows.of(kind) & (rows.msg >= 0))
    pair = rows.node[chosen].astype(np.int64) * len(rows.messages) + rows.msg[chosen]
    order = np.argsort(pair, kind="stable")
    pair, chosen = pair[order], chosen[order]
    begins = np.flatnonzero(np.append(True, pair[1:] != pair[:-1])) if pair.size else np.empty(0, np.int64)
    if not begins.size:
        return pair, pair, pair
    return pair[begins], np.minimum.reduceat(rows.seq[chosen], begins), np.minimum.reduceat(rows.time[chosen], begins)


def distribution(values: Numbers) -> Row | None:
    """Count, mean and the curve at QUANTILES by nearest rank; None of nothing."""
    if not values.size:
        return None
    ordered = np.sort(values)
    curve = [int(ordered[rank_of(share, ordered.size)]) for share in QUANTILES]
    return {"count": ordered.size, "mean": exact_sum(ordered) / ordered.size, "curve": curve}


def exact_sum(values: Numbers) -> int:
    """The sum, however large: of the upper and the lower half of each number."""
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())


def in_slices(times: Numbers, first_ns: int, last_ns: int) -> Numbers:
    """In which of BUCKETS equal parts of the run's time each of these times is."""
    step = max((last_ns - first_ns) / BUCKETS, 1.0)
    return np.minimum((times - first_ns) / step, BUCKETS - 1).astype(np.int64)


def rank_of(share: float, count: int) -> int:
    """Nearest rank: the place of the smallest value that at least that share of all values do not exceed."""
    return max(int(np.ceil(share * count)), 1) - 1


def _sum_of_sizes(sizes: Numbers) -> int | None:
    known = sizes[sizes != NO_SIZE]
    return int(known.sum()) if known.size else None


def _least(values: Numbers) -> int | None:
    return int(values.min()) if values.size else None


def _words(table: pa.Table, name: str) -> tuple[list[str], np.ndarray[Any, np.dtype[np.int32]]]:
    names, codes = _codes(table, name)
    return names.to_pylist(), codes


def _codes(table: pa.Table, name: str) -> tuple[Any, np.ndarray[Any, np.dtype[np.int32]]]:
    column: Any = table.column(name)
    return coded(column if pa.types.is_dictionary(column.type) else column.dictionary_encode())


def _numbers(table: pa.Table, name: str, absent: int) -> Numbers:
    column: Any = table.column(name).cast(pa.int64())
    return np.asarray(whole(column.fill_null(absent)), dtype=np.int64)
