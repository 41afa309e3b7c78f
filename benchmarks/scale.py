"""How the cost of a verdict grows with the trace, measured: on one core, on two, and on a cluster of two workers.

    python benchmarks/scale.py [--least 1] [--most 200] [--on 'local[1]' 'local[2]' cluster] [--draw]

Each line of the plan is a trace (`ordercast synth`, with violations in known places) and where it is judged. What has
been measured is in docs/scale.csv and is not measured again; delete its line to do so. `--draw` measures nothing and
draws docs/scale.svg anew. Every verdict has to be the same wherever it was worked out, and to say what was put in.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import json
import os
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.engines import Watched
from ordercast.trace.synthetic import TraceShape, write_synthetic
from tests.support.spark_cluster import SparkCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

_DOCS = Path(__file__).parents[1] / "docs"
_TABLE = _DOCS / "scale.csv"
_FIGURE = _DOCS / "scale.svg"
_TRACES = [(1, 100), (10, 100), (30, 100), (100, 1000), (100, 100), (200, 100)]
"""Millions of deliveries, and nodes."""
_PLACES = ("local", "local[1]", "local[2]", "cluster")
_INJECTED = (("causal", 2), ("duplicate", 1), ("lost", 1), ("invented", 1))
_BROKEN = {"integrity", "agreement", "causal"}
"""The checks that have to fail."""
_MOST_LOCAL = 100
"""Millions that the engine in one process is given: more does not fit into the memory of a small machine."""


@dataclass
class Measured:
    """One line of the table; memory is the most at any time, `found` a number for what the verdict says."""

    millions: int
    nodes: int
    on: str
    wall_s: float
    cpu_s: float
    driver_mb: float
    java_mb: float
    workers_mb: float
    worker_1_mb: float
    worker_2_mb: float
    shuffled_mb: float
    found: str
    load: float


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--least", type=int, default=1, help="millions of deliveries")
    parser.add_argument("--most", type=int, default=200, help="millions of deliveries")
    parser.add_argument("--on", nargs="+", default=list(_PLACES), choices=_PLACES)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "ordercast-scale")
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    given = parser.parse_args()
    table = _read()
    for millions, nodes in [] if given.draw else _TRACES:
        done = {one.on for one in table if (one.millions, one.nodes) == (millions, nodes)}
        left = [on for on in given.on if on not in done and (on != "local" or millions <= _MOST_LOCAL)]
        if not given.least <= millions <= given.most or nodes not in given.nodes or not left:
            continue
        run = _trace(given.scratch, millions, nodes)
        for on in left:
            one = _measured(given.scratch, run, millions, nodes, on)
            _expect_same(table, one)
            table.append(one)
            _write(table)
            print(" ".join(f"{name} {value}" for name, value in asdict(one).items()), flush=True)
        shutil.rmtree(run)
    _draw(table)


def _trace(scratch: Path, millions: int, nodes: int) -> Path:
    run = scratch / f"{millions}m-{nodes}"
    if not run.exists():
        scratch.mkdir(parents=True, exist_ok=True)
        print(f"writing {run}", flush=True)
        write_synthetic(run, TraceShape(nodes, 20, millions * 1_000_000, violations=_INJECTED))
    return run


def _measured(scratch: Path, run: Path, millions: int, nodes: int, on: str) -> Measured:
    events = scratch / "events"
    shutil.rmtree(events, ignore_errors=True)
    events.mkdir(parents=True)
    conf = {"enabled": "true", "dir": events.as_uri(), "compress": "false", "rolling.enabled": "false"}
    said = "".join(f"spark.eventLog.{name} {value}\n" for name, value in conf.items())
    (scratch / "spark-defaults.conf").write_text(said)
    load = os.getloadavg()[0]
    with _place(scratch, on) as (options, workers):
        command = [sys.executable, "-P", "-m", "ordercast", "verify", str(run), "--json", *options]
        environment = os.environ | {"SPARK_CONF_DIR": str(scratch), "ORDERCAST_SHIP_PACKAGE": "no"}
        watched = Watched(command, workers, environment)
    peak = watched.peak_mb
    return Measured(
        millions=millions,
        nodes=nodes,
        on=on,
        wall_s=round(watched.wall, 1),
        cpu_s=round(watched.cpu, 1),
        driver_mb=round(peak["driver"]),
        java_mb=round(peak["java"]),
        workers_mb=round(peak["workers"]),
        worker_1_mb=round(peak["worker 1"]),
        worker_2_mb=round(peak["worker 2"]),
        shuffled_mb=round(_shuffled(events)),
        found=_found(watched.out),
        load=round(load, 1),
    )


@contextlib.contextmanager
def _place(scratch: Path, on: str) -> Iterator[tuple[list[str], dict[int, str]]]:
    """The options of the command, and the processes that work for it besides its own."""
    if on == "local":
        yield ["--no-spark"], {}
    elif on != "cluster":
        yield ["--engine", "distributed", "--master", on], {}
    else:
        shutil.rmtree(scratch / "cluster", ignore_errors=True)
        with SparkCluster(scratch / "cluster", memory="2g") as cluster:
            workers = {worker.pid: f"worker {n}" for n, worker in enumerate(cluster.workers, 1)}
            yield ["--engine", "distributed", "--master", cluster.master], workers


def _shuffled(events: Path) -> float:
    """Megabytes that tasks have written for others to read, by Spark's own account."""
    written = 0
    for file in events.iterdir():
        with file.open() as lines:
            for line in lines:
                if '"SparkListenerTaskEnd"' in line:
                    metrics = json.loads(line).get("Task Metrics") or {}
                    written += metrics.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
    return written / 1e6


def _found(out: str) -> str:
    """A short name for what a verdict says; nothing if it does not say that what was put in is wrong."""
    (verdict,) = json.loads(out)
    failed = {result["check"] for result in verdict["results"] if result["verdict"] == "fail"}
    if not failed >= _BROKEN:
        return ""
    told = json.dumps([verdict["results"], verdict["facts"]], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def _expect_same(table: list[Measured], one: Measured) -> None:
    others = {other.found for other in table if (other.millions, other.nodes) == (one.millions, one.nodes)}
    if not one.found or others - {one.found}:
        sys.exit(f"{one}: another verdict than {others}")


def _read() -> list[Measured]:
    if not _TABLE.exists():
        return []
    kinds: dict[str, Any] = {"int": int, "float": float, "str": str}
    with _TABLE.open(newline="") as file:
        return [
            Measured(**{f.name: kinds[str(f.type)](row[f.name]) for f in fields(Measured)})
            for row in csv.DictReader(file)
        ]


def _write(table: list[Measured]) -> None:
    with _TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Measured)], lineterminator="\n")
        writer.writeheader()
        order = sorted(table, key=lambda one: (one.millions, one.nodes, _PLACES.index(one.on)))
        writer.writerows(asdict(one) for one in order)


def _draw(table: list[Measured]) -> None:
    """Processor time and the memory of the largest process, over the size of the trace."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams |= {"svg.hashsalt": "scale", "svg.fonttype": "none", "font.size": 9}
    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    seconds, memory = figure.subplots(1, 2)
    for on in _PLACES:
        mine = sorted((one for one in table if one.on == on and one.nodes == 100), key=lambda one: one.millions)
        if mine:
            sizes = [one.millions for one in mine]
            seconds.plot(sizes, [one.cpu_s for one in mine], marker="o", label=on)
            memory.plot(sizes, [_largest(one) / 1000 for one in mine], marker="o", label=on)
    for axes, what in ((seconds, "processor time, s"), (memory, "memory, all processes, GB")):
        axes.set(xscale="log", yscale="log", xlabel="million deliveries", ylabel=what)
        axes.grid(visible=True, which="major", linewidth=0.4)
    seconds.legend(frameon=False)
    figure.savefig(_FIGURE, metadata={"Date": None})
    print(_FIGURE)


def _largest(one: Measured) -> float:
    return one.driver_mb + one.java_mb + one.workers_mb + one.worker_1_mb + one.worker_2_mb


if __name__ == "__main__":
    main()
