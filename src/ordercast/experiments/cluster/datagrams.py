"""Real datagrams: latency of updates against the number of members, on this machine's clock, beside the simulation.

Several members share a process. What is measured depends on the machine and on what else it does; a round is long
compared to that, and latency is told in rounds.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ordercast.experiments.cluster.sources import LCC05, WORDS
from ordercast.experiments.kit.claims import all_of, guarantees_hold, judged
from ordercast.experiments.kit.figures import CONFIDENCE, Look, doubling, drawn, label, line, own_legend, panels
from ordercast.experiments.kit.results import Curve, Point, curve, fit_line, listed
from ordercast.experiments.kit.study import OURS, Picture, Row, SourceClaim, Study
from ordercast.scenario.model import Clique, Link, OpenLoad, Scenario, Trace
from ordercast.scenario.tables import Uniform
from ordercast.trace.store import event_files

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROUND_MS = 200.0
_UPDATERS = 5
_PROCESSES = 4
_LOOKS = {
    "udp": Look("datagrams, real processes", "#0072b2"),
    "tcp": Look("connections, real processes", "#d55e00", "^", "--"),
    "simulated": Look("simulated", "#4d4d4d", "s", ":", hollow=True),
}


def _scale(sizes: Sequence[int], tcp_sizes: Sequence[int], seeds: int, duration_ms: float) -> list[Row]:
    places = [("udp", sizes), ("tcp", tcp_sizes), ("simulated", sizes)]
    return [
        {"runtime": runtime, "members": members, "duration_ms": duration_ms, "seed": seed}
        for runtime, each in places
        for members in each
        for seed in range(seeds)
    ]


def scenario(parameters: Row) -> Scenario:
    members, runtime = cast("int", parameters["members"]), str(parameters["runtime"])
    updaters = [f"n{i}" for i in range(_UPDATERS)]
    return Scenario(
        name="cluster-datagrams",
        protocol="cluster",
        overlay=Clique(nodes=members),
        carrier="tcp" if runtime == "tcp" else "udp",
        link=Link(latency_ms=Uniform(low_ms=0.2, high_ms=2.0)),
        options={
            "clusters": ["t0"], "round_ms": _ROUND_MS, "entries": _UPDATERS, "coordinators": updaters, "rounds": 7,
            "view": members + 1,
        },
        workload=[OpenLoad(rate_per_s=10.0, publishers=list(updaters))],
        duration_ms=cast("float", parameters["duration_ms"]),
        trace=Trace(record="app"),
        seed=cast("int", parameters["seed"]),
    )  # fmt: skip


def run(parameters: Row) -> Row:
    from ordercast.net.supervise.cluster import run_processes
    from ordercast.protocols import lookup
    from ordercast.sim import simulate
    from ordercast.verify.judge import judge_path

    value = scenario(parameters)
    with tempfile.TemporaryDirectory(prefix="ordercast-") as directory:
        path = Path(directory) / "run"
        if parameters["runtime"] == "simulated":
            simulate(value, lookup("cluster"), out=path)
        else:
            run_processes(value, out=path, processes=_PROCESSES)
        (verdict,) = judge_path(path)
        latencies, published, delivered = _latencies(path)
    members = cast("int", parameters["members"])
    return {
        **judged(verdict),
        "latency_rounds": fmean(latencies) / _ROUND_MS if latencies else None,
        "slowest_rounds": max(latencies) / _ROUND_MS if latencies else None,
        "published": published,
        "delivered_share": delivered / (published * members) if published else None,
    }


def _latencies(run_path: Path) -> tuple[list[float], int, int]:
    """Milliseconds from publication to delivery elsewhere; how many publications and deliveries there were."""
    columns = ["node", "kind", "msg", "time_ns"]
    events = pa.concat_tables([pq.read_table(path, columns=columns) for path in event_files(run_path)])
    published = events.filter(pc.field("kind") == "publish")
    delivered = events.filter(pc.field("kind") == "deliver")
    began = dict(zip(published["msg"].to_pylist(), published["time_ns"].to_pylist(), strict=True))
    by = dict(zip(published["msg"].to_pylist(), published["node"].to_pylist(), strict=True))
    rows = zip(*(delivered[name].to_pylist() for name in ("msg", "node", "time_ns")), strict=True)
    found = [(time - began[msg]) / 1e6 for msg, node, time in rows if by[msg] != node]
    return found, published.num_rows, delivered.num_rows


def claims(results: pa.Table) -> list[SourceClaim]:
    rows: list[Row] = results.to_pylist()
    return [
        guarantees_hold(rows, "Every run, on datagrams too, keeps causal order.", what="runtime"),
        _logarithmic(rows),
        _arrives(rows),
        _as_simulated(rows),
    ]


def _by_members(rows: Sequence[Row], column: str, runtime: str) -> Curve:
    return curve(rows, column, along="members", runtime=runtime)


def _logarithmic(rows: Sequence[Row]) -> SourceClaim:
    points = _by_members(rows, "latency_rounds", "udp")
    straight, curved = fit_line(points), fit_line([Point(math.log(point.x), point.mean) for point in points])
    told = ""
    if straight is not None and curved is not None:
        told = f"; R² {curved.r2:.3f} against log(members), {straight.r2:.3f} against members"
    return SourceClaim(
        id="latency-logarithmic-on-datagrams", source=LCC05,
        statement="On real datagrams, latency grows with the logarithm of the number of members (which fits better "
        "than a line).",
        measured=f"{listed(points, 2, 'rounds')}{told}",
        holds=None if straight is None or curved is None else curved.r2 > straight.r2,
    )  # fmt: skip


def _arrives(rows: Sequence[Row]) -> SourceClaim:
    shares = [float(row["delivered_share"] or 0) for row in rows if row["runtime"] == "udp"]
    return SourceClaim(
        id="datagrams-arrive", source=OURS,
        statement="At least 99.9 % of all updates are delivered by all members, on real datagrams.",
        measured=f"lowest share of any run: {min(shares):.3%}" if shares else "nothing",
        holds=min(shares) >= 0.999 if shares else None,
    )  # fmt: skip


def _as_simulated(rows: Sequence[Row]) -> SourceClaim:
    real, simulated = (
        {point.x: point.mean for point in _by_members(rows, "latency_rounds", name)} for name in ("udp", "simulated")
    )
    shared = sorted(real.keys() & simulated.keys())
    return SourceClaim(
        id="as-simulated", source=OURS,
        statement="The simulation predicts the latency on real datagrams within 20 %, in rounds.",
        measured=", ".join(f"{x:g}: {real[x]:.2f} real, {simulated[x]:.2f} simulated" for x in shared),
        holds=all_of(abs(real[x] - simulated[x]) <= 0.2 * simulated[x] for x in shared),
    )  # fmt: skip


def figures(results: pa.Table, directory: Path) -> list[Picture]:
    rows: list[Row] = results.to_pylist()
    return drawn(rows, directory, {"datagrams": _figure})


def _figure(rows: Sequence[Row]) -> Figure:
    figure, (axes,) = panels(
        1, 1, f"Mean time from the making of an update to its delivery by another member, in rounds of "
        f"{_ROUND_MS:g} ms, against the number of members; real processes on one machine, "
        f"{_PROCESSES} of them sharing the members, and the simulation. {CONFIDENCE}", width=6.0,
    )  # fmt: skip
    for runtime, look in _LOOKS.items():
        line(axes, _by_members(rows, "latency_rounds", runtime), look)
    doubling(axes, sorted({float(cast("int", row["members"])) for row in rows}))
    label(axes, "Latency on real datagrams", "members", "rounds")
    axes.set_ylim(bottom=0)
    own_legend(axes)
    return figure


STUDY = Study(
    name="cluster-datagrams",
    version=1,
    title="Causal clusters on real datagrams: latency against the number of members",
    source=LCC05,
    description=(
        f"Up to 100 members on this machine, {_PROCESSES} processes sharing them, each member with a datagram socket "
        f"of its own; 5 updaters make 10 updates a second; rounds of {_ROUND_MS:g} ms. The same scenario is simulated. "
        "Every run is judged from its trace."
    ),
    scales={
        "quick": _scale((10, 25, 50, 100), (10, 25), seeds=1, duration_ms=4_000.0),
        "paper": _scale((6, 12, 25, 50, 100), (6, 12, 25, 50), seeds=5, duration_ms=15_000.0),
    },
    run=run,
    claims=claims,
    figures=figures,
    words=WORDS,
    weigh=lambda row: float(cast("int", row["members"])),
)  # fmt: skip
