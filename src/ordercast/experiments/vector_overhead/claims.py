"""Decides the claims of the study, each with the numbers that decide it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ordercast.experiments.kit.claims import guarantees_hold
from ordercast.experiments.kit.results import Curve, curve, fit_line, listed, rises
from ordercast.experiments.kit.study import OURS, Row, SourceClaim
from ordercast.experiments.vector_overhead.runs import DURATION_MS, HISTORY_NODES, LOAD_NODES, RATE
from ordercast.experiments.vector_overhead.sources import BSS91, CB91, PC18

_LINEAR_R2 = 0.99
_FLAT_BYTES = 4.0
"""Names and counters of variable length grow by some bytes in any system that grows; this much counts as flat."""
_FLAT_FACTOR = 1.5
_FIXED_ENTRY_BYTES = 8.0
_PERCENT = 100.0
_TOO_FEW = "fewer than three sizes were measured"


def claims(results: pa.Table) -> list[SourceClaim]:
    """The claims of the study, judged by `results`."""
    rows: list[Row] = results.to_pylist()
    return [
        guarantees_hold(rows),
        _vector_header_is_linear(rows),
        _header_is_flat(rows, "flood"),
        _header_is_flat(rows, "fifo"),
        _entry_is_small(rows),
        _entry_grows_with_the_run(rows),
        _flood_never_waits(rows),
        _fifo_waits_less(rows),
        _waiting_grows_with_the_rate(rows),
        _waiting_is_flat_in_the_size(rows),
    ]


def by_size(rows: Sequence[Row], column: str, protocol: str) -> Curve:
    return curve(rows, column, along="nodes", protocol=protocol, rate_per_node=RATE, duration_ms=DURATION_MS)


def by_rate(rows: Sequence[Row], column: str) -> Curve:
    return curve(
        rows, column, along="rate_per_node", protocol="vector", nodes=LOAD_NODES, duration_ms=DURATION_MS
    )  # fmt: skip


def entry_bytes_by_duration(rows: Sequence[Row]) -> Curve:
    """Bytes that one entry of the vector takes: what the header has beyond that of flooding, over the entries."""
    plain = {(row["duration_ms"], row["seed"]): row for row in _history(rows, "flood")}
    entries: list[Row] = []
    for row in _history(rows, "vector"):
        beside = plain.get((row["duration_ms"], row["seed"]))
        if beside is not None:
            extra = float(row["header_bytes_mean"] or 0) - float(beside["header_bytes_mean"] or 0)
            entries.append({"duration_s": float(row["duration_ms"] or 0) / 1000, "bytes": extra / HISTORY_NODES})
    return curve(entries, "bytes", along="duration_s")


def _history(rows: Sequence[Row], protocol: str) -> list[Row]:
    wanted: Row = {"protocol": protocol, "nodes": HISTORY_NODES, "rate_per_node": RATE}
    return [row for row in rows if wanted.items() <= row.items()]


def _vector_header_is_linear(rows: Sequence[Row]) -> SourceClaim:
    line = fit_line(by_size(rows, "header_bytes_mean", "vector"))
    return SourceClaim(
        id="vector-header-linear",
        source=CB91,
        statement=f"The header of vector grows linearly with the number of nodes (R² above {_LINEAR_R2}).",
        measured=f"{line.intercept:.1f} + {line.slope:.2f} bytes per node, R² {line.r2:.5f}" if line else _TOO_FEW,
        holds=line.r2 > _LINEAR_R2 and line.slope > 0 if line else None,
    )


def _header_is_flat(rows: Sequence[Row], protocol: str) -> SourceClaim:
    points = by_size(rows, "header_bytes_mean", protocol)
    means = [point.mean for point in points]
    return SourceClaim(
        id=f"{protocol}-header-flat",
        source=PC18,
        statement=f"The header of {protocol} does not grow with the number of nodes "
        f"(by at most {_FLAT_BYTES:g} bytes over all sizes, for longer names and counters).",
        measured=listed(points, 1, "B"),
        holds=max(means) - min(means) <= _FLAT_BYTES if len(means) > 1 else None,
    )


def _entry_is_small(rows: Sequence[Row]) -> SourceClaim:
    points = entry_bytes_by_duration(rows)
    return SourceClaim(
        id="entry-below-fixed-size",
        source=OURS,
        statement=f"Counters of variable length take less than the {_FIXED_ENTRY_BYTES:g} bytes of a fixed counter, "
        "however long the run.",
        measured=f"bytes an entry by seconds of run: {listed(points, 2, 'B')}",
        holds=all(point.mean < _FIXED_ENTRY_BYTES for point in points) if points else None,
    )


def _entry_grows_with_the_run(rows: Sequence[Row]) -> SourceClaim:
    points = entry_bytes_by_duration(rows)
    return SourceClaim(
        id="entry-grows-with-the-run",
        source=OURS,
        statement="The header of vector grows with the length of the run too: longer histories need longer counters.",
        measured=f"bytes an entry by seconds of run, {HISTORY_NODES} nodes: {listed(points, 2, 'B')}",
        holds=points[0].mean < points[-1].mean if len(points) > 1 else None,
    )


def _flood_never_waits(rows: Sequence[Row]) -> SourceClaim:
    shares = [row["held_share"] for row in rows if row["protocol"] == "flood"]
    worst = max((float(share) for share in shares if share is not None), default=None)
    return SourceClaim(
        id="flood-never-waits",
        source=PC18,
        statement="Without an order to keep, no received message waits.",
        measured="no flood was measured" if worst is None else f"largest share held back: {worst:.2%}",
        holds=None if worst is None else worst == 0,
    )


def _fifo_waits_less(rows: Sequence[Row]) -> SourceClaim:
    fifo, vector = (by_size(rows, "held_share", protocol) for protocol in ("fifo", "vector"))
    sizes = {point.x: point.mean for point in fifo}
    pairs = [(sizes[point.x], point.mean) for point in vector if point.x in sizes]
    return SourceClaim(
        id="fifo-waits-less-than-vector",
        source=BSS91,
        statement="At every size, a smaller share of deliveries waits for FIFO order than for causal order.",
        measured=f"fifo {listed(fifo, 1, '%', scale=_PERCENT)}; vector {listed(vector, 1, '%', scale=_PERCENT)}",
        holds=all(low < high for low, high in pairs) if pairs else None,
    )


def _waiting_grows_with_the_rate(rows: Sequence[Row]) -> SourceClaim:
    points = by_rate(rows, "held_share")
    return SourceClaim(
        id="waiting-grows-with-the-rate",
        source=OURS,
        statement=f"Under vector, the share of deliveries that wait grows with the rate ({LOAD_NODES} nodes).",
        measured=f"by publications per second and node: {listed(points, 1, '%', scale=_PERCENT)}",
        holds=rises([point.mean for point in points]),
    )


def _waiting_is_flat_in_the_size(rows: Sequence[Row]) -> SourceClaim:
    points = by_size(rows, "held_share", "vector")
    means = [point.mean for point in points]
    return SourceClaim(
        id="waiting-flat-in-the-size",
        source=OURS,
        statement="Under vector, the share of deliveries that wait does not follow the number of nodes, every node "
        f"publishing at the same rate (largest at most {_FLAT_FACTOR:g} times the smallest).",
        measured=f"by nodes: {listed(points, 1, '%', scale=_PERCENT)}",
        holds=max(means) <= _FLAT_FACTOR * min(means) if len(means) > 1 else None,
    )
