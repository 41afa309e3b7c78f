"""Replicated groups as real processes: the leader of every group is killed mid-run, and the judge finds nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ordercast.net.supervise.cluster import run_processes
from ordercast.scenario.model import ClosedLoad, Crash, Detector, ExplicitTo, Scenario, Servers
from ordercast.trace.store import event_files
from ordercast.verify.judge import judge_path
from ordercast.verify.verdict import PASS

LEFT, RIGHT = ["n0", "n1", "n2"], ["n3", "n4", "n5"]
LIMIT = 400


def deliveries(run: Path) -> Counter[str]:
    rows = [row for file in event_files(run) for row in pq.read_table(file, columns=["node", "kind"]).to_pylist()]
    return Counter(row["node"] for row in rows if row["kind"] == "deliver")


@pytest.mark.parametrize("protocol", ["replicated-daisy-chain", "replicated-skeen"])
def test_killed_leaders_take_nothing_with_them(protocol: str, tmp_path: Path) -> None:
    scenario = Scenario(
        name="killed-leaders",
        overlay=Servers(nodes=6, clients=2),
        protocol=protocol,
        duration_ms=20_000,
        detector=Detector(delay_ms=1_500),
        workload=[
            ClosedLoad(
                publishers="clients",
                until="completed",
                outstanding=2,
                think_ms=2.0,
                limit=LIMIT,
                to=ExplicitTo(sets=[LEFT, RIGHT, LEFT + RIGHT]),
            )
        ],
        fault=[Crash(node="n0", at_ms=150), Crash(node="n3", at_ms=250)],
    )
    outcome = run_processes(scenario, seed=3, out=tmp_path / "run", processes=1)
    (verdict,) = judge_path(tmp_path / "run", checks=["integrity", "agreement", "prefix", "acyclic"])
    assert outcome.manifest.faults == {"crash": 2}
    assert outcome.published == LIMIT
    assert {result.verdict for result in verdict.results} == {PASS}, verdict
    delivered = deliveries(tmp_path / "run")
    for dead, survivor in (("n0", "n1"), ("n3", "n4")):
        assert 0 < delivered[dead] < delivered[survivor], "not killed in the middle"
