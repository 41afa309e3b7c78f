"""The judge on a real Spark cluster: `python -m tests.chaos.spark_cluster`, or `make cluster-test`.

A standalone master and two workers on loopback, from the installed package alone. The trace is served by WebHDFS and is
not reachable under its path from the driver; the package travels by itself. The verdict has to be the one that the
judge in one process gives, also if a worker is killed with everything that it runs, in the middle.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from ordercast.trace.synthetic import TraceShape, write_synthetic
from ordercast.verify.judge import judge_path
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


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        where = Path(directory)
        run = write_synthetic(where / "served" / "run", SHAPE)
        expected = [_plain(verdict) for verdict in judge_path(run)]
        served = WebHdfs(where / "served")
        with SparkCluster(where / "cluster") as cluster:
            for lost in (False, True):
                begun = time.monotonic()
                found = _verified(f"{served.url}/run", cluster, where, lose_a_worker=lost)
                same = found == expected
                told = "a worker killed" if lost else "all workers there"
                print(f"{told}: {'the same' if same else 'ANOTHER'} verdict, {time.monotonic() - begun:.0f} s")
                if not same:
                    sys.exit(1)
        served.close()


def _verified(url: str, cluster: SparkCluster, where: Path, *, lose_a_worker: bool) -> list[Any]:
    """The verdicts that the command prints, run from a directory that has nothing to do with the trace."""
    command = [sys.executable, "-P", "-m", "ordercast", "verify", url, "--master", cluster.master, "--json"]
    environment = os.environ | {"ORDERCAST_SPARK_MEMORY": "1g"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=where, env=environment) as process:
        if lose_a_worker:
            while not _is_judging(where / "cluster" / "worker-2") and process.poll() is None:
                time.sleep(0.2)  # Spark says in no other way that it has begun.
            cluster.kill_worker(1)
        out, _ = process.communicate(timeout=900)
    assert process.returncode == 1, f"exit {process.returncode}"
    return [_plain(msgspec.convert(one, dict)) for one in json.loads(out)]


def _is_judging(worker: Path) -> bool:
    """Whether a Python task has begun there, in the second application that the worker has seen."""
    logs = list(worker.glob("app-*-0001/*/stderr"))
    return any("Starting Python task execution" in log.read_text() for log in logs)


def _plain(verdict: Any) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(verdict)
    return {name: value for name, value in found.items() if name not in ("path", "engine")}


if __name__ == "__main__":
    main()
