"""Everything that runs on Spark, on a real cluster: `python -m tests.chaos.spark_cluster`, or `make cluster-test`.

A standalone master and two workers on loopback, from the installed package alone. The trace is served by WebHDFS and is
not reachable under its path from the driver; the package travels by itself. `verify`, `metrics`, `report` and a study
have to say what they say in one process, also if a worker is killed with everything that it runs, in the middle.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ordercast.trace.synthetic import TraceShape, write_synthetic
from tests.support.spark_cluster import SparkCluster
from tests.support.webhdfs import WebHdfs

SHAPE = TraceShape(
    nodes=8,
    publishers=4,
    deliveries=8000,
    window=4,
    guarantee="total",
    violations=(("causal", 1), ("total", 1), ("lost", 1), ("invented", 1)),
)
STUDY = ("experiment", "run", "vector-overhead", "--seeds", "1", "--json")
Told = Callable[[str], Any]
"""What of a command's output has to be the same everywhere."""


def main() -> int:
    wrong = 0
    with tempfile.TemporaryDirectory() as directory:
        where = Path(directory)
        run = write_synthetic(where / "served" / "run", SHAPE)
        served = WebHdfs(where / "served")
        with SparkCluster(where / "cluster") as cluster:
            commands: list[tuple[tuple[str, ...], str, Told, int]] = [
                (("verify", "--json"), f"{served.url}/run", _verdicts, 1),
                (("metrics", "--json"), f"{served.url}/run", _metrics, 0),
                (("report", "-o", "page.html"), f"{served.url}/run", lambda _: _page(where / "page.html"), 1),
                ((*STUDY, "--out", "study", "--fresh"), "", lambda _: _rows(where / "study"), 0),
            ]
            for lost in (False, True):
                for options, url, told, code in commands:
                    begun = time.monotonic()
                    expected = told(_said([*options, *[str(run)] * bool(url), "--no-spark"], where, code))
                    command = [*options, *[url] * bool(url), "--master", cluster.master]
                    found = told(_said(command, where, code, cluster if lost else None))
                    wrong += found != expected
                    _tell(options[0], begun, same=found == expected, lost=lost)
        served.close()
    return int(wrong > 0)


def _tell(command: str, begun: float, *, same: bool, lost: bool) -> None:
    with_whom = "a worker killed" if lost else "all workers there"
    print(
        f"{command}, {with_whom}: {'the same' if same else 'ANOTHER'} result, {time.monotonic() - begun:.0f} s",
        flush=True,
    )


def _said(options: list[str], where: Path, code: int, losing: SparkCluster | None = None) -> str:
    """What the command prints, run from a directory that has nothing to do with the trace; `losing` loses a worker."""
    command = [sys.executable, "-P", "-m", "ordercast", *options]
    environment = os.environ | {"ORDERCAST_SPARK_MEMORY": "1g"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=where, env=environment) as process:
        if losing is not None:
            _lose_a_worker(losing, process)
        out, _ = process.communicate(timeout=900)
    assert process.returncode == code, f"{' '.join(options)}: exit {process.returncode}"
    return out.decode()


def _lose_a_worker(cluster: SparkCluster, process: subprocess.Popen[bytes]) -> None:
    """Kill the last worker as soon as it has begun a Python task for this command, and put another one in its place."""
    name = f"worker-{cluster.started - 1}"
    before = set((cluster.where / name).glob("app-*"))
    while not _is_at_work(cluster.where / name, before) and process.poll() is None:
        time.sleep(0.1)  # Spark says in no other way that it has begun.
    assert process.poll() is None, "the command ended before a worker could be killed"
    cluster.kill_worker(len(cluster.workers) - 1)
    cluster.workers.append(cluster.add_worker())


def _is_at_work(worker: Path, before: set[Path]) -> bool:
    logs = [log for app in set(worker.glob("app-*")) - before for log in app.glob("*/stderr")]
    return any("Starting Python task execution" in log.read_text() for log in logs)


def _verdicts(out: str) -> Any:
    return [{name: value for name, value in one.items() if name not in ("path", "engine")} for one in json.loads(out)]


def _metrics(out: str) -> Any:
    return [{name: value for name, value in one.items() if name != "path"} for one in json.loads(out)]


def _page(page: Path) -> Any:
    """The words of the report, without paths; its drawings are the same if their numbers are."""
    text = re.sub(r"<(svg|style|script).*?</\1>", "", page.read_text(), flags=re.DOTALL)
    return re.sub(r"webhdfs://[^<\s\"]*|/[^<\s\"]*/served/run|distributed|local", "", re.sub(r"<[^>]*>", " ", text))


def _rows(out: Path) -> Any:
    table = pq.read_table(out / "results.parquet")
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in table.to_pylist())


if __name__ == "__main__":
    sys.exit(main())
