"""Overlays that change with real processes: they join, leave, are killed and come back, and the promise holds."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ordercast.core.errors import UsageError
from ordercast.net.supervise.cluster import run_processes, run_together
from ordercast.scenario.brokers import Join, Leave
from ordercast.scenario.model import Crash, OpenLoad, Regular, Scenario
from ordercast.verify.judge import judge_path
from tests.support.loop import run_async

CALM = Scenario(
    name="overlay",
    overlay=Regular(nodes=6, degree=3),
    protocol="preventive",
    workload=[OpenLoad(rate_per_s=60.0, limit=90)],
    duration_ms=1500.0,
    options={"ack_ms": 500.0, "retry_ms": 100.0},
)


def check(run: Path) -> None:
    (verdict,) = judge_path(run)
    assert verdict.exit_code() == 0, verdict


@pytest.mark.parametrize("sampling", ["fixed", "spray"])
def test_everybody_delivers_everything_in_causal_order(sampling: str, tmp_path: Path) -> None:
    options = {**CALM.options, "sampling": sampling, "period_ms": 200.0}
    scenario = msgspec.structs.replace(CALM, options=options)
    run_async(lambda: run_together(scenario, seed=1, out=tmp_path / "run"))
    check(tmp_path / "run")


def test_processes_join_leave_and_are_killed(tmp_path: Path) -> None:
    faults = [
        Join(node="n3", at_ms=300.0),
        Leave(node="n5", at_ms=700.0),
        Crash(node="n4", at_ms=500.0, recover_ms=900.0, state="lost"),
    ]
    scenario = msgspec.structs.replace(CALM, fault=faults)
    outcome = run_processes(scenario, seed=1, out=tmp_path / "run", processes=2)
    assert outcome.manifest.faults == {"crash": 1, "join": 1, "leave": 1, "recover": 1}
    check(tmp_path / "run")


def test_what_real_processes_cannot_do_is_refused_in_one_line(tmp_path: Path) -> None:
    kept = msgspec.structs.replace(CALM, fault=[Crash(node="n4", at_ms=500.0, recover_ms=900.0)])
    with pytest.raises(UsageError, match=r"fault\[0\].state: over TCP, nodes that choose their neighbours"):
        run_processes(kept, out=tmp_path / "run")
    scripted = msgspec.structs.replace(CALM, options={"script": ["n0 opens n2 at 5"]}, protocol="preventive")
    with pytest.raises(UsageError, match=r"options\.script: links by name are for simulate and explore"):
        run_processes(scripted, out=tmp_path / "run")
