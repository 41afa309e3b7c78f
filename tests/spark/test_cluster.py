"""A standalone cluster on loopback: what is judged, measured and swept there is what one process finds.

`make cluster-test` does the same with the commands, and kills workers.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ordercast.experiments import STUDIES
from ordercast.trace.store import event_files
from ordercast.trace.synthetic import TraceShape, write_synthetic
from ordercast.verify.judge import judge_path
from ordercast.verify.metrics.local import measure
from tests.support.spark_cluster import SparkCluster
from tests.support.webhdfs import WebHdfs

pytestmark = pytest.mark.spark

SHAPE = TraceShape(nodes=4, publishers=3, deliveries=60, window=2, violations=(("causal", 1), ("lost", 1)))
STUDY = "vector-overhead"
_DRIVER = """
import sys
from pathlib import Path
import msgspec
from ordercast.experiments import STUDIES
from ordercast.experiments.kit.sweep import Sweep
from ordercast.verify.spark.jobs import verify_runs
from ordercast.verify.spark.metrics import measure
from ordercast.verify.spark.session import session
master, url, unreachable = sys.argv[1:4]
spark = session(master, memory="1g", quick=True, conf={"spark.sql.shuffle.partitions": "2"})
study = STUDIES["vector-overhead"]
lightest = min(study.configurations("quick"), key=lambda one: study.weigh(one.parameters)).parameters
sweep = Sweep(spark, study.run, [lightest, lightest], weights=[1, 1], at_once=2)
verdicts, problems = verify_runs(spark, [url, "run", "damaged", unreachable])
found = {
    "verdicts": verdicts,
    "problems": problems,
    "metrics": measure(spark, [url]),
    "swept": [outcome.result for outcome in sweep.outcomes()],
}
print(msgspec.json.encode(found).decode())
"""


def plain(values: Any) -> list[dict[str, Any]]:
    read = json.loads(msgspec.json.encode(values))
    return [{k: v for k, v in one.items() if k not in ("path", "engine")} for one in read]


def test_a_cluster_says_what_one_process_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trace comes by a file system that only Spark can read, and by a relative path that all hosts have."""
    run = write_synthetic(tmp_path / "served" / "run", SHAPE)
    shutil.copytree(run, run.with_name("damaged"))
    event_files(run.with_name("damaged"))[0].write_bytes(b"PAR1")
    served = WebHdfs(tmp_path / "served")
    with monkeypatch.context() as there:  # Not here: this process has compiled kernels already.
        there.setenv("NUMBA_DISABLE_JIT", "1")  # Shipped kernels would be compiled by every worker, for sixty rows.
        with SparkCluster(tmp_path / "cluster") as cluster:
            master, url = cluster.master, served.url
            command = [sys.executable, "-P", "-c", _DRIVER, master, f"{url}/run", f"{url}/nothing"]
            where, env = tmp_path / "served", dict(os.environ)
            done = subprocess.run(command, capture_output=True, cwd=where, env=env, timeout=300)
    served.close()

    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    assert plain(found["verdicts"]) == plain(judge_path(run)) * 2
    assert [one["engine"] for one in found["verdicts"]] == ["distributed", "local"]
    damaged, nothing = found["problems"]
    assert "damaged/events/part-00000.parquet: unreadable" in damaged
    assert damaged.endswith(f"(on host {socket.gethostname()})")
    assert nothing == f"{served.url}/nothing: no such file or directory"
    assert plain(found["metrics"]) == plain(measure([run]))
    study = STUDIES[STUDY]
    lightest = min(study.configurations("quick"), key=lambda one: study.weigh(one.parameters)).parameters
    assert found["swept"] == [msgspec.to_builtins(study.run(lightest))] * 2
