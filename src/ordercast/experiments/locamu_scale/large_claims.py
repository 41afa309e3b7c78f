"""Decides the claims about locality with thousands of nodes: headers, memory and time against their number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pyarrow as pa

from ordercast.experiments.kit.claims import all_of, guarantees_hold
from ordercast.experiments.kit.results import Curve, Point, curve, listed
from ordercast.experiments.kit.study import OURS, Row, SourceClaim
from ordercast.experiments.locamu.sources import SHORT
from ordercast.experiments.locamu_scale.large import MESSAGES, ONE, PUBLISHERS, SUBTREES

FROM_NODES = 511
"""From here on every neighbourhood of f = 1 is whole somewhere in the tree."""
_FLAT_HEADER = 0.05
_FLAT_MEMORY = 0.10
_TIME_FACTOR = 2.0
_MICRO = 1e6
GROUPS = {ONE: "one group", SUBTREES: "a group below each interior node"}


def claims(results: pa.Table) -> list[SourceClaim]:
    rows: list[Row] = results.to_pylist()
    return [
        guarantees_hold(rows),
        _everything_arrives(rows),
        _flat_header(rows, "model_mean", "by the source's count", "header-flat", SHORT),
        _flat_header(rows, "wire_mean", "on the wire", "wire-header-flat", OURS),
        _flat_memory(rows),
        _time(rows),
    ]


def by_size(rows: Sequence[Row], column: str, *, groups: str = ONE, protocol: str = "locamu") -> Curve:
    return curve(rows, column, along="nodes", groups=groups, protocol=protocol)


def micros_per_hop(rows: Sequence[Row], *, groups: str = ONE, protocol: str = "locamu") -> Curve:
    """Processor time of the whole run over the copies of messages in it: acknowledgements are part of the price."""
    time, copies = (by_size(rows, name, groups=groups, protocol=protocol) for name in ("run_cpu_s", "copies"))
    return [Point(t.x, t.mean / c.mean * _MICRO) for t, c in zip(time, copies, strict=True)]


def _spread(points: Curve) -> float | None:
    """How much the largest of the values from `FROM_NODES` on exceeds the smallest."""
    means = [point.mean for point in points if point.x >= FROM_NODES]
    return max(means) / min(means) - 1 if len(means) > 1 else None


def _everything_arrives(rows: Sequence[Row]) -> SourceClaim:
    runs = [row for row in rows if row["protocol"] == "locamu" and row["groups"] == ONE]
    told = ", ".join(f"{row['nodes']:,}: {row['delivered']:,}" for row in sorted(runs, key=lambda r: r["nodes"]))  # type: ignore[arg-type,return-value]
    return SourceClaim(
        id="everything-arrives",
        source=OURS,
        statement=f"Every node delivers every one of {MESSAGES} messages of {PUBLISHERS} publishers (one group), and "
        "all runs publish as many and come to rest.",
        measured=f"deliveries by nodes: {told}" if told else "nothing measured",
        holds=all_of(
            row["rested"] is True
            and row["published"] == row["messages"]
            and (row["groups"] != ONE or row["delivered"] == cast("int", row["nodes"]) * cast("int", row["published"]))
            for row in rows
        ),
    )


def _flat_header(rows: Sequence[Row], column: str, how: str, id_: str, source: str) -> SourceClaim:
    """What is on the wire is our own encoding, of which the source says nothing."""
    curves = {groups: by_size(rows, column, groups=groups) for groups in (ONE, SUBTREES)}
    spreads = [_spread(points) for points in curves.values()]
    most = by_size(rows, column.replace("mean", "most"))
    told = "; ".join(f"{GROUPS[groups]} {listed(points, 1)}" for groups, points in curves.items())
    return SourceClaim(
        id=id_,
        source=source,
        statement=f"LoCaMu's mean header {how} does not depend on the size of the system: within {_FLAT_HEADER:.0%} "
        f"from {FROM_NODES} nodes up.",
        measured=f"bytes by nodes: {told}; largest, one group: {listed(most, 0)}",
        holds=all_of(None if spread is None else spread <= _FLAT_HEADER for spread in spreads),
    )


def _flat_memory(rows: Sequence[Row]) -> SourceClaim:
    own, resident = by_size(rows, "own_bytes_per_node"), by_size(rows, "resident_bytes_per_node")
    spread = _spread(own)
    return SourceClaim(
        id="memory-flat",
        source=SHORT,
        statement="What a LoCaMu node keeps does not depend on the size of the system: the mean memory of a machine is "
        f"within {_FLAT_MEMORY:.0%} from {FROM_NODES} nodes up (one group).",
        measured=f"bytes of a machine by nodes: {listed(own, 0)}; of the process, per node, after the run: "
        f"{listed(resident, 0)}",
        holds=None if spread is None else spread <= _FLAT_MEMORY,
    )


def _time(rows: Sequence[Row]) -> SourceClaim:
    locamu, flood = micros_per_hop(rows), micros_per_hop(rows, protocol="flood")
    by_nodes = {point.x: point.mean for point in locamu}
    base, last = by_nodes.get(FROM_NODES), locamu[-1] if locamu else None
    rates = ", ".join(f"{point.x:,g}: {_MICRO / point.mean:,.0f}" for point in locamu)
    return SourceClaim(
        id="time-per-hop",
        source=OURS,
        statement=f"A simulated hop takes at most {_TIME_FACTOR:g} times as long in the largest system as with "
        f"{FROM_NODES} nodes.",
        measured=f"processor time per copy, acknowledgements included, in microseconds by nodes: {listed(locamu, 1)} "
        f"(flood: {listed(flood, 1)}); hops per second: {rates or '?'}",
        holds=None if base is None or last is None or last.x == FROM_NODES else last.mean <= _TIME_FACTOR * base,
    )
