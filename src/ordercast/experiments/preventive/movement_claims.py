"""Claims about links and processes that come and go, and about what is remembered."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ordercast.experiments.kit.claims import HELD, VIOLATED
from ordercast.experiments.kit.results import Curve, Point, curve, estimate, listed, shown
from ordercast.experiments.kit.study import OURS, PROTOTYPE, Row, SourceClaim
from ordercast.experiments.preventive.claims import TOO_FEW, held, no_gaps, number, paths, preventive
from ordercast.experiments.preventive.scales import SLOW_MS
from ordercast.experiments.preventive.sources import PC18

_STILL = 1.25
_COLLECTED = 0.20


def by_period(rows: Sequence[Row], column: str, protocol: str = "preventive") -> Curve:
    return curve(
        rows, column, along="period_s", protocol=protocol, latency_ms=SLOW_MS, links_differ=False, hold_ms=0.0,
        max_buffer=1024,
    )  # fmt: skip


def by_churn(rows: Sequence[Row], column: str) -> Curve:
    return curve(rows, column, along="churn_per_minute", protocol="preventive", latency_ms=100.0, rate_per_s=1.0)


def remembered(rows: Sequence[Row], memory: str, period_s: float) -> list[Point]:
    """Entries a process while messages travel (0), and after the last of them (1)."""
    found = [
        curve(rows, column, along="max_buffer", memory=memory, period_s=period_s, rate_per_s=10.0, latency_ms=100.0)
        for column in ("remembered", "remembered_at_rest")
    ]
    return [Point(place, point.mean, point.error) for place, points in enumerate(found) for point in points]


def movement_claims(table: pa.Table) -> list[SourceClaim]:
    """Claims about links and processes that come and go."""
    rows: list[Row] = table.to_pylist()
    usual = [row for row in rows if not row["hold_ms"] and not row["links_differ"]]
    return [held(rows), no_gaps(rows), _flood_breaks(rows), paths(usual), _time_flat(rows), _buffers(rows),
            _collected(rows), _break_first(rows), _forgets(rows), _isolated(rows)]  # fmt: skip


def _flood_breaks(rows: Sequence[Row]) -> SourceClaim:
    found = [row for row in rows if row["links_differ"] and row["protocol"] == "flood-overlay"]
    broken = sum(row["judged"] == VIOLATED and "causal" in str(row["failed_checks"]) for row in found)
    ours = [row["judged"] == HELD for row in rows if row["links_differ"] and row["protocol"] == "preventive"]
    return SourceClaim(
        id="K3-flood",
        source=PC18,
        statement="Where links differ and move, flooding breaks causal order and the preventive broadcast does not.",
        measured=f"flooding broke it in {broken} of {len(found)} runs, preventive kept it in {sum(ours)} of "
        f"{len(ours)}",
        holds=broken > 0 and all(ours) if found and ours else None,
    )


def _time_flat(rows: Sequence[Row]) -> SourceClaim:
    points = {point.x: point.mean for point in by_period(rows, "time_to_all_ms")}
    moving = {x: mean for x, mean in points.items() if x}
    fastest = min(moving, default=None)
    ratio = points[fastest] / points[0.0] if fastest is not None and points.get(0.0) else None
    return SourceClaim(
        id="K9-time",
        source=PC18,
        statement=f"The faster neighbours change, the time to all stays within {_STILL:g} times that of links that "
        "stay as they are.",
        measured=f"{listed(by_period(rows, 'time_to_all_ms'), 0, 'ms')} by period in seconds; ratio {ratio:.2f}"
        if ratio is not None else TOO_FEW,
        holds=ratio <= _STILL if ratio is not None else None,
    )  # fmt: skip


def _break_first(rows: Sequence[Row]) -> SourceClaim:
    found = [row for row in rows if row["hold_ms"]]
    shares = [number(row, "digests") / number(row, "new_links") for row in found if row["new_links"]]
    return SourceClaim(
        id="K12-break-first",
        source=PROTOTYPE,
        statement="If mediators let links go at once, locks find no way: more than one digest for every two new links.",
        measured=f"{min(shares):.2f} digests for each new link" if shares else TOO_FEW,
        holds=min(shares) > 0.5 if shares else None,
    )


def _bounded(rows: Sequence[Row], column: str, most: float) -> list[float]:
    """What the runs with this bound have, all of them."""
    return [number(row, column) for row in rows if row["max_buffer"] == most]


def _largest(rows: Sequence[Row], column: str, most: float) -> float:
    return max(_bounded(rows, column, most))


def _runs(rows: Sequence[Row], column: str, most: float) -> str:
    return shown(estimate(_bounded(rows, column, most)))


def _buffers(rows: Sequence[Row]) -> SourceClaim:
    found = [row for row in rows if row["max_buffer"] != 1024]
    over = [row for row in found if number(row, "buffer_max") > number(row, "max_buffer")]
    told = "; ".join(
        f"{most:g}: {_largest(rows, 'buffer_max', most):.0f} at most, {_runs(rows, 'lock_restarts', most)} restarts a "
        f"run, {_runs(rows, 'failed_links', most)} links given up"
        for most in sorted({number(row, "max_buffer") for row in found})
    )
    return SourceClaim(
        id="K10-buffers",
        source=PC18,
        statement="What waits for a link that is not safe yet never exceeds the bound.",
        measured=told or TOO_FEW,
        holds=not over if found else None,
    )


def _collected(rows: Sequence[Row]) -> SourceClaim:
    """Rows in which more than a message or two is expected, and no bound is in the way."""
    pairs = [
        (number(row, "collected"), expected)
        for row in preventive(rows)
        if row["memory"] == "vector" and row["collected"] is not None and number(row, "max_buffer") >= 64
        and not row["links_differ"] and (expected := number(row, "rate_per_s") * number(row, "phase_ms") / 1000) >= 3
    ]  # fmt: skip
    worst = max((abs(found - expected) / expected for found, expected in pairs), default=None)
    return SourceClaim(
        id="K10-mean",
        source=PROTOTYPE,
        statement="When a link becomes safe, as many messages have waited for it as were published during its phase "
        f"(mean within {_COLLECTED:.0%}, where at least three are expected).",
        measured=f"worst {worst:.0%} off in {len(pairs)} runs" if worst is not None else TOO_FEW,
        holds=worst <= _COLLECTED if worst is not None else None,
    )


def _forgets(rows: Sequence[Row]) -> SourceClaim:
    found = [row for row in rows if row["memory"] != "vector"]
    beside = [
        row for row in rows if row["memory"] == "vector" and row["rate_per_s"] == 10.0 and row["max_buffer"] == 1024
    ]
    left = [number(row, "remembered_at_rest") for row in found]
    kept = [number(row, "remembered_at_rest") for row in beside]
    told = "; ".join(
        f"{memory}: {max(number(row, 'remembered') for row in found if row['memory'] == memory):.2f} entries a "
        "process while messages travel at most"
        for memory in sorted({str(row["memory"]) for row in found})
    )
    return SourceClaim(
        id="K13-silence",
        source=OURS,
        statement="After the last message, memories of links come to hold nothing, whoever published; a vector keeps "
        "an entry for each.",
        measured=f"{told}; {max(left):g} at rest, of a vector {max(kept):g}" if left and kept else TOO_FEW,
        holds=max(left) == 0 < min(kept) if left and kept else None,
    )


def _isolated(rows: Sequence[Row]) -> SourceClaim:
    found = [row for row in preventive(rows) if row["churn_per_minute"]]
    alone, left = (sum(number(row, column) for row in found) for column in ("isolated", "isolated_at_end"))
    return SourceClaim(
        id="K15-isolated",
        source=PROTOTYPE,
        statement="While processes come and go, whoever is left without a safe link finds back or joins again.",
        measured=f"{alone:.0f} times somebody had no safe link; {left:.0f} have none at the end of {len(found)} runs"
        if found else TOO_FEW,
        holds=left == 0 if found else None,
    )  # fmt: skip
