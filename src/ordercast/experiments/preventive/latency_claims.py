"""Claims about how long a hop takes."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ordercast.experiments.kit.claims import all_of
from ordercast.experiments.kit.results import Curve, curve
from ordercast.experiments.kit.study import PROTOTYPE, Row, SourceClaim
from ordercast.experiments.preventive.claims import TOLERANCE, TOO_FEW, held, no_gaps, number, paths
from ordercast.experiments.preventive.scales import SLOW_MS
from ordercast.experiments.preventive.sources import PC18, PC18_LINKS, PC18_UNSAFE

_PHASE_HOPS = 3.0
_USUAL = 0.97


def by_latency(rows: Sequence[Row], column: str, nodes: int) -> Curve:
    return curve(rows, column, along="latency_ms", protocol="preventive", nodes=nodes)


def latency_claims(table: pa.Table) -> list[SourceClaim]:
    """Claims about how long a hop takes."""
    rows: list[Row] = table.to_pylist()
    return [held(rows), no_gaps(rows), _phase(rows), _control(rows), _little(rows), _unsafe(rows), paths(rows)]


def _phase(rows: Sequence[Row]) -> SourceClaim:
    ratios = [number(row, "phase_ms") / number(row, "latency_ms") for row in rows if row["phase_ms"]]
    return SourceClaim(
        id="K4-phase",
        source=PC18,
        statement=f"A new link becomes safe after {_PHASE_HOPS:g} hops: two of the lock and one of its acknowledgement "
        "(mean within 5 %).",
        measured=f"{min(ratios):.2f} to {max(ratios):.2f} hops" if ratios else TOO_FEW,
        holds=all(abs(ratio - _PHASE_HOPS) <= 0.05 * _PHASE_HOPS for ratio in ratios) if ratios else None,
    )


def _control(rows: Sequence[Row]) -> SourceClaim:
    shares = [number(row, "three_packets") for row in rows if row["three_packets"] is not None]
    return SourceClaim(
        id="K5-control",
        source=PROTOTYPE,
        statement="Three control packets make a new link safe, two hops of its lock and the acknowledgement, for at "
        f"least {_USUAL:.0%} of all new links.",
        measured=f"{min(shares):.1%} to {max(shares):.1%} of the links of a run" if shares else TOO_FEW,
        holds=min(shares) >= _USUAL if shares else None,
    )


def _little(rows: Sequence[Row]) -> SourceClaim:
    """Unsafe links are those that began within one phase: their rate times its length."""
    pairs = [(_expected_unsafe(row), number(row, "unsafe")) for row in rows if number(row, "latency_ms") >= SLOW_MS]
    worst = max((abs(a - b) / b for a, b in pairs if b), default=None)
    return SourceClaim(
        id="K6-little",
        source=PROTOTYPE,
        statement=f"Unsafe links of a process are the rate of new ones times the phase (within {TOLERANCE:.0%}), from "
        f"{SLOW_MS:g} ms a hop on.",
        measured=f"worst {worst:.0%} off in {len(pairs)} runs" if worst is not None else TOO_FEW,
        holds=worst <= TOLERANCE if worst is not None else None,
    )


def _expected_unsafe(row: Row) -> float:
    return number(row, "new_links_per_s") * number(row, "phase_ms") / 1000


def _unsafe(rows: Sequence[Row]) -> SourceClaim:
    slow = [row for row in rows if row["nodes"] == 10_000 and row["latency_ms"] == 5_000.0]
    unsafe = [number(row, "unsafe") for row in slow]
    links = [number(row, "links") for row in slow]
    near = [*(PC18_UNSAFE[0] <= value <= PC18_UNSAFE[1] for value in unsafe)]
    near += [PC18_LINKS[0] <= value <= PC18_LINKS[1] for value in links]
    return SourceClaim(
        id="K7-unsafe",
        source=PC18,
        statement="10,000 processes, 5 s a hop, a change a minute: at most about 3 of about 17 links of a process are "
        "unsafe (2 to 4 of 16 to 19).",
        measured=f"{unsafe[0]:.2f} of {links[0]:.2f}" if slow else "10,000 processes were not measured at this scale",
        holds=all_of(near),
    )
