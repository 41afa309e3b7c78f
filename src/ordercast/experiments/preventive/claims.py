"""Helpers that the claims of all preventive studies share."""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.experiments.kit.claims import guarantees_hold
from ordercast.experiments.kit.study import OURS, Row, SourceClaim
from ordercast.experiments.preventive.sources import PC18

TOLERANCE = 0.15
TOO_FEW = "fewer than three points were measured"
_PATH = 1.10


def preventive(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["protocol"] == "preventive"]


def number(row: Row, column: str) -> float:
    return float(row[column] or 0)


def held(rows: Sequence[Row]) -> SourceClaim:
    return guarantees_hold(
        preventive(rows), "Every judged run of preventive kept causal order, integrity and agreement (K3)."
    )


def no_gaps(rows: Sequence[Row]) -> SourceClaim:
    gaps = sum(number(row, "gaps") + number(row, "peer_errors") for row in preventive(rows))
    missing = sum(number(row, "missing") for row in preventive(rows))
    return SourceClaim(
        id="no-gaps",
        source=OURS,
        statement="In no run, judged or not, did a process meet a gap in what an origin sent, blame another, or miss a "
        "message that everybody was owed.",
        measured=f"{gaps:.0f} gaps and complaints, {missing:.0f} deliveries missing in {len(preventive(rows))} runs",
        holds=gaps == 0 and missing == 0 if preventive(rows) else None,
    )


def paths(rows: Sequence[Row]) -> SourceClaim:
    ratios = [number(row, "path_safe") / number(row, "path_all") for row in preventive(rows) if row["path_all"]]
    return SourceClaim(
        id="K8-paths",
        source=PC18,
        statement=f"Paths over safe links are at most {_PATH:g} times as long as over all links of the same moment.",
        measured=f"{min(ratios):.3f} to {max(ratios):.3f}" if ratios else TOO_FEW,
        holds=max(ratios) <= _PATH if ratios else None,
    )
