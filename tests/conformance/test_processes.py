"""Real processes that are killed, restarted and paused, and the run that is collected from what they left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ordercast.core.errors import InvariantError, UsageError
from ordercast.core.ids import NodeId
from ordercast.net.cluster import LOGS, run_processes, run_together
from ordercast.net.process import Assignment
from ordercast.net.settings import NetSettings
from ordercast.scenario.model import (
    Clique,
    ClosedLoad,
    Crash,
    Detector,
    Fault,
    OpenLoad,
    Partition,
    Pause,
    ReplyLoad,
    Scenario,
    Workload,
)
from ordercast.trace.store import read_manifest
from ordercast.verify.judge import judge_path
from tests.support.loop import run_async

BROKEN = f"{Path(__file__).parent.parent / 'support' / 'broken.py'}:BROKEN"


def scenario(*faults: Fault, workload: list[Workload] | None = None, protocol: str = "fifo") -> Scenario:
    return Scenario(
        name="processes",
        overlay=Clique(nodes=3),
        protocol=protocol,
        duration_ms=1_200,
        detector=Detector(delay_ms=200),
        workload=workload or [OpenLoad(rate_per_s=300), ReplyLoad(probability=0.2, depth=2)],
        fault=list(faults),
    )


def test_killed_restarted_and_paused_processes_keep_the_promise(tmp_path: Path) -> None:
    out = tmp_path / "run"
    faults = (
        Crash(node="n2", at_ms=300, recover_ms=600, state="lost"),
        Pause(node="n1", at_ms=700, until_ms=1_000),
    )
    run_processes(scenario(*faults), out=out, seed=3)
    (verdict,) = judge_path(out)
    assert verdict.exit_code() == 0, verdict
    manifest = read_manifest(out)
    assert manifest.faults == {"crash": 1, "pause": 1, "recover": 1}
    assert manifest.drained
    assert manifest.clock == "global"
    assert manifest.totals["published"] > 200
    assert {path.name for path in (out / LOGS).iterdir()} == {"n0.jsonl", "n1.jsonl", "n2.jsonl"}


def test_a_process_that_is_left_alone_ends(tmp_path: Path) -> None:
    assignment = Assignment(
        nodes=[NodeId("n0")], scenario=scenario(), protocol="fifo", seed=0, cluster="c", token="00", life=0, epoch_ns=0,
        journals=str(tmp_path), settings=NetSettings(),
    )  # fmt: skip
    command = [sys.executable, "-m", "ordercast.net.process"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as orphan:
        assert orphan.stdin is not None
        assert orphan.stdout is not None
        orphan.stdin.write(msgspec.json.encode(assignment) + b"\n")
        orphan.stdin.flush()
        assert b"127.0.0.1" in orphan.stdout.readline()
        _, log = orphan.communicate(timeout=30)
    assert orphan.returncode == 0
    assert b"left alone" in log


def test_a_bug_in_a_handler_ends_the_run_instead_of_being_swallowed(tmp_path: Path) -> None:
    async def main() -> None:
        broken = scenario(protocol=BROKEN)
        await run_together(broken, out=tmp_path / "run")

    with pytest.raises(ZeroDivisionError):
        run_async(main)
    assert not (tmp_path / "run").exists()


def test_a_process_that_breaks_down_is_named_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(InvariantError, match=r"the process of n\d ended by itself: .*ZeroDivisionError"):
        run_processes(scenario(protocol=BROKEN), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (scenario(Crash(node="n2", at_ms=1, recover_ms=5)), r"fault\[0\].state: a killed process loses its state"),
        (scenario(Crash(node="n9", at_ms=1)), r"fault\[0\].node: unknown node 'n9'"),
        (scenario(Pause(node="n1", at_ms=500, until_ms=200)), r"fault\[0\].at_ms"),
        (scenario(Partition(sides=(["n0"], ["n1"]), at_ms=1, until_ms=2)), r"fault\[0\].kind"),
        (
            scenario(Crash(node="n2", at_ms=1, recover_ms=5, state="lost"), protocol="vector"),
            "cannot take back a node that lost its state",
        ),
        (scenario(workload=[ClosedLoad()]), r"workload\[0\].until"),
        (scenario(workload=[OpenLoad(rate_per_s=0)]), r"workload\[0\].rate_per_s"),
        (scenario(workload=[OpenLoad(rate_per_s=1, publishers=["x"])]), r"workload\[0\].publishers"),
    ],
)
def test_what_processes_cannot_do_is_refused_by_its_field(value: Scenario, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=complaint):
        run_processes(value, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
