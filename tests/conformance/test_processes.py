"""Real processes that are killed, restarted and paused, and the run that is collected from what they left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pyarrow.dataset
import pytest

from ordercast.core.errors import InvariantError, UsageError
from ordercast.core.ids import NodeId
from ordercast.net.nodes.settings import NodeSettings
from ordercast.net.supervise.cluster import LOGS, run_processes, run_together
from ordercast.net.supervise.orders import Assignment, WorkerAnswer, WorkerOrder
from ordercast.net.supervise.workers import ProcessWorker
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
from ordercast.trace.schema import EVENTS
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


KEEPERS = ["fifo", "flood", "sequencer", "vector"]


@pytest.mark.parametrize("protocol", KEEPERS)
def test_a_node_that_was_killed_twice_comes_back_with_its_state(protocol: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    faults = (Crash(node="n2", at_ms=300, recover_ms=450), Crash(node="n2", at_ms=800, recover_ms=850))
    run_processes(scenario(*faults, protocol=protocol), out=out, seed=3, processes=1)
    (verdict,) = judge_path(out)
    assert verdict.exit_code() == 0, verdict
    assert read_manifest(out).drained
    assert states(out, "n2") == ["kept", "kept"]


def test_a_node_may_lose_its_state_once_and_keep_it_later(tmp_path: Path) -> None:
    out = tmp_path / "run"
    faults = (
        Crash(node="n2", at_ms=200, recover_ms=250, state="kept"),
        Crash(node="n2", at_ms=500, recover_ms=550, state="lost"),
        Crash(node="n2", at_ms=800, recover_ms=850, state="kept"),
    )
    run_processes(scenario(*faults), out=out, seed=3, processes=1)
    (verdict,) = judge_path(out)
    assert verdict.exit_code() == 0, verdict
    assert states(out, "n2") == ["kept", "lost", "kept"]


def test_whoever_is_killed_by_somebody_else_comes_back_where_all_keep_their_state(tmp_path: Path) -> None:
    out = tmp_path / "run"
    value = scenario()
    with victims(2):
        run_processes(value, out=out, seed=3, durable=True)
    (verdict,) = judge_path(out)
    assert verdict.exit_code() == 0, verdict
    assert read_manifest(out).faults == {"crash": 2, "recover": 2}


def test_whoever_is_killed_by_somebody_else_ends_a_run_without_states(tmp_path: Path) -> None:
    with victims(1), pytest.raises(UsageError, match=r"the process of n\d was killed \(signal 9\) by somebody else"):
        run_processes(scenario(), out=tmp_path / "run", seed=3)
    assert not (tmp_path / "run").exists()


def states(out: Path, node: str) -> list[str]:
    """How the node came back, each time."""
    events = pyarrow.dataset.dataset(out / EVENTS).to_table(columns=["node", "seq", "kind", "info"]).to_pylist()
    back = sorted((e["seq"], dict(e["info"])["state"]) for e in events if e["node"] == node and e["kind"] == "recover")
    return [state for _, state in back]


@contextmanager
def victims(count: int) -> Iterator[None]:
    """Kill some processes of the cluster that runs meanwhile, as somebody with a terminal would."""
    running: list[asyncio.subprocess.Process] = []
    original = ProcessWorker.ask

    async def ask(self: ProcessWorker, order: WorkerOrder) -> WorkerAnswer:
        if order.do == "go" and len(running) < count:
            running.append(self._process)
            asyncio.get_running_loop().call_later(0.2 * len(running), os.kill, self._process.pid, signal.SIGKILL)
        return await original(self, order)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProcessWorker, "ask", ask)
        yield


def test_a_process_that_is_left_alone_ends(tmp_path: Path) -> None:
    assignment = Assignment(
        nodes=[NodeId("n0")], scenario=scenario(), protocol="fifo", seed=0, cluster="c", token="00", life=0, epoch_ns=0,
        journals=str(tmp_path), settings=NodeSettings(),
    )  # fmt: skip
    command = [sys.executable, "-m", "ordercast.net.supervise.process"]
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
        await run_together(broken, BROKEN, out=tmp_path / "run")

    with pytest.raises(ZeroDivisionError):
        run_async(main)
    assert not (tmp_path / "run").exists()


def test_a_process_that_breaks_down_is_named_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(InvariantError, match=r"the process of n\d ended by itself: .*ZeroDivisionError"):
        run_processes(scenario(protocol=BROKEN), BROKEN, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (scenario(Crash(node="n9", at_ms=1)), r"fault\[0\].node: unknown node 'n9'"),
        (scenario(Pause(node="n1", at_ms=500, until_ms=200)), r"fault\[0\].until_ms"),
        (
            scenario(Crash(node="n1", at_ms=1, recover_ms=50), Crash(node="n1", at_ms=20)),
            r"fault\[1\].at_ms: an earlier fault of the same kind at n1",
        ),
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
