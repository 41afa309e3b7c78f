"""Replicated groups as real processes: the leader of every group is killed mid-run, and the judge finds nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.net.cluster import run_processes
from ordercast.scenario.model import ClosedLoad, Crash, Detector, ExplicitTo, Scenario, Servers
from ordercast.verify.judge import judge_path
from ordercast.verify.verdict import PASS

LEFT, RIGHT = ["n0", "n1", "n2"], ["n3", "n4", "n5"]
LIMIT = 400


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
