"""Claims about the number of processes, and about vector clocks on the same overlay."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pyarrow as pa

from ordercast.experiments.kit.results import Curve, curve, fit_line, listed
from ordercast.experiments.kit.study import OURS, PROTOTYPE, Row, SourceClaim
from ordercast.experiments.preventive.claims import TOLERANCE, TOO_FEW, held, no_gaps, number, preventive
from ordercast.experiments.preventive.setting import ORIGINS
from ordercast.experiments.preventive.sources import CB91, PC18, PROTOTYPE_DEGREE, PROTOTYPE_PATH
from ordercast.protocols import lookup

_HEADER_BYTES = 4


def vector_header(nodes: int) -> int:
    """Bytes of a vector clock's header with so many processes, by the formula that the tests hold `vector` to."""
    return int(eval(lookup("vector").metadata, {"__builtins__": {}}, {"o": 5, "t": 2, "N": nodes}))  # noqa: S307


def by_size(rows: Sequence[Row], column: str) -> Curve:
    """Rows that differ in the number of processes alone, not in how much is said."""
    return curve(rows, column, along="nodes", protocol="preventive", latency_ms=50.0, origins=ORIGINS, rate_per_s=1.0)


def by_origins(rows: Sequence[Row], column: str, protocol: str) -> Curve:
    """Rows in which so many origins publish four messages each."""
    return curve(rows, column, along="origins", protocol=protocol, rate_per_s=4.0)


def size_claims(table: pa.Table) -> list[SourceClaim]:
    """Claims about the number of processes."""
    rows: list[Row] = table.to_pylist()
    return [held(rows), no_gaps(rows), _header_flat(rows), _vector_grows(rows), _clocks(rows), _comparisons(rows),
            _waits(rows), _time_log(rows), _copies(rows),
            _prototype(rows, "links", PROTOTYPE_DEGREE, "links of a process"),
            _prototype(rows, "path_safe", PROTOTYPE_PATH, "hops of a mean path over safe links")]  # fmt: skip


def _header_flat(rows: Sequence[Row]) -> SourceClaim:
    low = [number(row, "header_min") for row in preventive(rows)]
    high = [number(row, "header_max") for row in preventive(rows)]
    return SourceClaim(
        id="K1-header",
        source=PC18,
        statement=f"The header of a message has the same size whatever the number of processes (within {_HEADER_BYTES} "
        "bytes, for longer names and counters).",
        measured=f"{min(low):.0f} to {max(high):.0f} bytes, framing, origin and topic included" if low else TOO_FEW,
        holds=max(high) - min(low) <= _HEADER_BYTES if low else None,
    )


def _vector_grows(rows: Sequence[Row]) -> SourceClaim:
    sizes = sorted({int(number(row, "nodes")) for row in rows})
    growth = [(vector_header(b) - vector_header(a)) / (b - a) for a, b in itertools.pairwise(sizes)]
    return SourceClaim(
        id="K1-vector",
        source=CB91,
        statement="The header of a vector clock grows with the number of processes: at least a byte for each.",
        measured=f"`vector`, closed form: {', '.join(f'{n:,}: {vector_header(n):,} B' for n in sizes)}",
        holds=min(growth) >= 1 if growth else None,
    )


def _clocks(rows: Sequence[Row]) -> SourceClaim:
    points = by_origins(rows, "header_max", "vector-overlay")
    growth = [(b.mean - a.mean) / (b.x - a.x) for a, b in itertools.pairwise(points)]
    return SourceClaim(
        id="K1-clocks",
        source=CB91,
        statement="On the same overlay the header of a vector clock grows by at least four bytes for each process that "
        "ever published.",
        measured=f"`vector-overlay`, largest: {listed(points, 0, 'B')} by publishers; `preventive`: "
        f"{listed(by_origins(rows, 'header_max', 'preventive'), 0, 'B')}" if growth else TOO_FEW,
        holds=min(growth) >= 4 if growth else None,
    )  # fmt: skip


def _comparisons(rows: Sequence[Row]) -> SourceClaim:
    points = by_origins(rows, "comparisons", "vector-overlay")
    line = fit_line(points)
    return SourceClaim(
        id="K2-comparisons",
        source=CB91,
        statement="Entries of vector clocks that are compared for a delivery grow linearly with the number of "
        "processes that publish (R² above 0.99); the preventive broadcast compares one number a copy.",
        measured=f"{listed(points, 1, '')} by publishers, R² {line.r2:.3f}" if line else TOO_FEW,
        holds=line.r2 > 0.99 if line else None,
    )


def _waits(rows: Sequence[Row]) -> SourceClaim:
    found = [row for row in rows if row["protocol"] == "vector-overlay"]
    broken = [row for row in found if "causal" in str(row["failed_checks"])]
    missing = sum(number(row, "missing") for row in found)
    return SourceClaim(
        id="K3-vector",
        source=CB91,
        statement="Vector clocks keep causal order on the same overlay.",
        measured=f"broken in {len(broken)} of {len(found)} runs; {missing:.0f} deliveries missing"
        if found
        else TOO_FEW,
        holds=not broken if found else None,
    )


def _time_log(rows: Sequence[Row]) -> SourceClaim:
    points = by_size(rows, "time_to_all_ms")
    logs = [type(point)(math.log(point.x), point.mean, point.error) for point in points]
    line = fit_line(logs)
    errors = [abs(line.intercept + line.slope * p.x - p.mean) / p.mean for p in logs] if line else []
    return SourceClaim(
        id="K11-time-log",
        source=PC18,
        statement="The time from a broadcast to its last delivery grows like the logarithm of the number of processes "
        "(every point within 10 % of the line).",
        measured=f"{listed(points, 0, 'ms')}; worst {max(errors):.0%} from the line" if errors else TOO_FEW,
        holds=max(errors) < 0.10 if errors else None,
    )


def _copies(rows: Sequence[Row]) -> SourceClaim:
    pairs = [(number(row, "copies"), number(row, "links") - 1) for row in preventive(rows)]
    worst = max((abs(a - b) / b for a, b in pairs), default=0.0)
    return SourceClaim(
        id="K14-copies",
        source=OURS,
        statement="A process gets as many copies of a message as it has links, less about one: nobody sends it back "
        f"(within {TOLERANCE:.0%}).",
        measured=f"copies {listed(by_size(rows, 'copies'), 1, '')}; links {listed(by_size(rows, 'links'), 1, '')}",
        holds=worst <= TOLERANCE if pairs else None,
    )


def _prototype(rows: Sequence[Row], column: str, reference: dict[int, float], what: str) -> SourceClaim:
    points = {int(point.x): point.mean for point in by_size(rows, column)}
    both = [n for n in reference if n in points]
    return SourceClaim(
        id=f"prototype-{column.replace('_', '-')}",
        source=PROTOTYPE,
        statement=f"As many {what} as in the prototype (within {TOLERANCE:.0%}).",
        measured="; ".join(f"{n:,}: {points[n]:.2f} against {reference[n]:.1f}" for n in both) or TOO_FEW,
        holds=all(abs(points[n] - reference[n]) <= TOLERANCE * reference[n] for n in both) if both else None,
    )
