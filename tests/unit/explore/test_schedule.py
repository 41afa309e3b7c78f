"""A counterexample can be kept in a file, and the file shows the same violation again."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.core.errors import UsageError
from ordercast.explore import SteppedRun, explore, read_schedule, replay, write_schedule
from ordercast.explore.stage.schedule import NodeStep, parse_step


def test_a_written_counterexample_replays_to_the_same_violation(tmp_path: Path) -> None:
    found = explore("daisy-chain-published", nodes=4, destinations=[[0, 2], [0, 2], [0, 3], [2, 3]]).counterexample
    assert found is not None
    path = tmp_path / "cycle.schedule.toml"

    write_schedule(path, found.schedule, found.story)
    again = replay(path)

    assert read_schedule(path) == found.schedule
    assert again.violation == found.violation
    assert again.story == found.story
    assert again.orders == found.orders


def test_options_and_broadcasts_survive_the_file(tmp_path: Path) -> None:
    path = tmp_path / "b.schedule.toml"
    schedule = SteppedRun(
        protocol="sequencer",
        nodes=2,
        overlay="line",
        options={"f": 0, "batch_ms": 1.5, "sequencer": "n1"},
        publishers=["n0"],
        steps=["n0 publishes", "n0 -> n1", "n1 timer batch"],
    )

    write_schedule(path, schedule, ["a", "b", "c"])

    assert read_schedule(path) == schedule
    assert replay(path).orders == ["n0:", "n1: m1"]


@pytest.mark.parametrize(
    "step",
    [
        NodeStep("n2", "n0"),
        NodeStep("n2", "c1"),
        NodeStep("n2", "n0", position=3),
        NodeStep("n1"),
        NodeStep("n0", timer="('resend', 2)"),
        NodeStep("n2", "n0", lost=True),
        NodeStep("n2", "n0", position=3, lost=True),
        NodeStep("n0", about=("n1", "n2"), suspects=True),
        NodeStep("n0", about=("n1",)),
        NodeStep(""),
    ],
)
def test_a_step_is_read_as_it_was_written(step: NodeStep) -> None:
    assert parse_step(str(step)) == step


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("steps = [", "TOML"),
        ('protocol = "skeen"\nnodes = 2\nsteps = []', "destinations or publishers"),
        ('protocol = "skeen"\nnodes = 2\nsteps = ["jump"]\ndestinations = [["n0"]]', r"steps\[0\].*'jump'"),
        ('protocol = "skin"\nnodes = 2\nsteps = []\ndestinations = [["n0"]]', "did you mean 'skeen'"),
        ('protocol = "skeen"\nnodes = 2\nsteps = ["n1 -> n0"]\ndestinations = [["n0"]]', "nothing is on its way"),
        ('protocol = "skeen"\nnodes = 2\nsteps = ["c9 -> n0"]\ndestinations = [["n0"]]', "'c9'"),
        ('protocol = "skeen"\nnodes = 2\nsteps = ["n0 timer x"]\ndestinations = [["n0"]]', "not armed"),
        ('protocol = "skeen"\nnodes = 2\nsteps = []\ndestinations = [["n7"]]', "'n7'"),
        ('protocol = "skeen"\nnodes = 2\nsteps = []\ndestinations = [["n0"]]\nformat = 2', "format"),
        ('protocol = "skeen"\nnodes = 2\nsteps = []\ndestinations = [["n0"]]\ncolour = 2', "colour"),
        ('protocol = "skeen"\nnodes = 2\nsteps = ["everyone settles"]\ndestinations = [["n0"]]', "only in schedules"),
        ('protocol = "locamu"\nnodes = 3\nsteps = []\npublications = ["n0>a"]\ngroups = {b = ["n1"]}', "group 'a'"),
        ('protocol = "locamu"\nnodes = 3\nsteps = []\npublications = ["n0>a"]\ngroups = {a = ["n7"]}', "'n7'"),
        ('protocol = "locamu"\nnodes = 3\nsteps = []\npublications = ["n0>a"]\ngroups = {a = ["n1"]}', "a tree"),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong_in_it(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "bad.schedule.toml"
    path.write_text(text)

    with pytest.raises(UsageError, match=problem) as error:
        replay(path)
    assert str(path) in str(error.value)


def test_faults_survive_the_file(tmp_path: Path) -> None:
    path = tmp_path / "f.schedule.toml"
    schedule = SteppedRun(
        protocol="locamu",
        nodes=3,
        edges=["n0-n1", "n1-n2"],
        groups={"a": ["n1", "n2"], "b": ["n2"]},
        publications=["n0>a", "n1>b after m1"],
        without=["Ack"],
        steps=["n0 suspects n1", "n0 publishes", "n0 -> n2", "n0 trusts n1", "n0 -> n1 is lost", "everyone settles"],
    )

    write_schedule(path, schedule, ["."] * 6)
    done = replay(path)

    assert read_schedule(path) == schedule
    assert done.violation is None
    assert done.orders == ["n0:", "n1: m1", "n2: m1 m2"]
    assert done.story[0] == "n0 suspects n1; nothing comes of it yet"
    assert done.story[4] == "n0 -> n1: Data(m1) is lost"
    assert done.story[5] == "nothing goes wrong any more, and time passes: n1 delivers m1, n2 delivers m2"


def test_a_schedule_that_stops_half_way_proves_nothing() -> None:
    done = replay(SteppedRun(protocol="skeen", nodes=2, destinations=[["n0", "n1"]], steps=["c1 -> n0"]))

    assert done.violation is None
    assert done.orders == ["n0:", "n1:"]
