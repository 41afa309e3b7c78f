"""A Spark that stays serves commands, does not outlive its order to end, and Ctrl-C leaves no Java behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ordercast.trace.synthetic import TraceShape, write_synthetic
from ordercast.verify.spark import class_archive, engine

pytestmark = pytest.mark.spark

COMMAND = [sys.executable, "-m", "ordercast"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own: no engine of the developer's is used, or ended."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("ORDERCAST_TEST_MARK", str(tmp_path))
    engine.cache_dir.cache_clear()
    yield tmp_path / "cache"
    engine.cache_dir.cache_clear()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_synthetic(tmp_path / "run", TraceShape(nodes=2, publishers=2, deliveries=8, window=2))


def ordercast(*args: object, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [*COMMAND, *map(str, args)]
    return subprocess.run(words, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=120)


def marked(mark: Path) -> list[str]:
    """The programs of the processes that this test has caused."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment, command = (process / "environ").read_bytes(), (process / "cmdline").read_bytes()
        except OSError:
            continue
        if f"ORDERCAST_TEST_MARK={mark}\0".encode() in environment:
            found.append(command.replace(b"\0", b" ").decode())
    return found


def none_left(mark: Path) -> bool:
    """Whether all of them are gone; the system may take a moment to clear away what has ended."""
    for _ in range(1000):
        if not marked(mark):
            return True
        time.sleep(0.02)
    return False


def test_a_warm_engine_judges_without_a_java_of_the_command_and_ends_when_told(
    cache: Path, run: Path, tmp_path: Path
) -> None:
    assert ordercast("engine", "status").returncode == 1
    started = ordercast("engine", "start", "--memory", "1g")
    assert started.returncode == 0, started.stderr
    state = cache / "ordercast" / "engine" / "state.json"
    assert state.stat().st_mode & 0o077 == 0  # The secret of the gateway is in it.

    # There is no Java that the command could start: only the engine can have judged.
    judged = ordercast("verify", os.path.relpath(run), JAVA_HOME="/nowhere", PATH="/nowhere")
    assert judged.returncode == 0, judged.stderr
    assert ordercast("verify", run, "--master", "local[1]", JAVA_HOME="/nowhere", PATH="/nowhere").returncode == 3
    assert ordercast("engine", "stop").stdout == "the engine has ended\n"

    assert none_left(tmp_path)
    assert not state.exists()


def test_an_engine_of_other_code_is_left_alone(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = engine.EngineState(1, "local[2]", 1, "secret", "digest of an older version", 0.0, 60.0)
    monkeypatch.setattr(engine, "running", lambda: state)

    assert engine.attach(None) is None
    assert "other code" in capsys.readouterr().err
    assert engine.attach("local[7]") is None
    assert capsys.readouterr().err == ""


def test_ctrl_c_while_spark_starts_leaves_no_java_and_no_trace(cache: Path, run: Path, tmp_path: Path) -> None:
    command = subprocess.Popen(
        [*COMMAND, "verify", str(run)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip  # What a shell starts in the background ignores Ctrl-C, and so would all that it starts.
    while command.poll() is None and not any("SparkSubmit" in other for other in marked(tmp_path)):
        time.sleep(0.02)  # There is no other sign of a process that does not know of us.

    os.killpg(command.pid, signal.SIGINT)  # As a terminal does: to everybody in the group.
    out, err = command.communicate(timeout=60)

    assert (command.returncode, out, err) == (130, "", "ordercast: interrupted\n")
    assert none_left(tmp_path)


def test_java_is_told_of_an_archive_only_if_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "classes.jsa"
    monkeypatch.setattr(class_archive, "archive_path", lambda: archive)
    assert class_archive.archive_options() == []

    archive.touch()
    assert class_archive.archive_options()[0] == f"-XX:SharedArchiveFile={archive}"
