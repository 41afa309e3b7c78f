"""`ordercast synth` writes traces of the size that was asked for, with violations that the judge finds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ordercast.trace.store import event_files, read_manifest
from ordercast.verify.judge import judge_path
from tests.support.commands import Command


def kinds(run: Path) -> Counter[str]:
    """How many rows of each kind there are."""
    return sum((Counter(map(str, pq.read_table(file)["kind"].to_pylist())) for file in event_files(run)), Counter())


def injected(run: Path) -> Counter[str]:
    return Counter(kind for kind, *_ in read_manifest(run).options["injected"])


def failed(run: Path) -> set[str]:
    return {result.check for verdict in judge_path(run) for result in verdict.results if result.verdict == "fail"}


def test_as_many_messages_as_asked_for_are_delivered_by_every_node(command: Command, tmp_path: Path) -> None:
    code, out, _ = command("synth", "--nodes", 5, "--messages", 200, "--out", tmp_path / "run")
    assert (code, out.strip()) == (0, str(tmp_path / "run"))
    assert kinds(tmp_path / "run") == Counter(publish=200, deliver=1000)
    assert not failed(tmp_path / "run")


def test_a_number_of_violations_is_shared_out_among_the_kinds(command: Command, tmp_path: Path) -> None:
    command("synth", "--nodes", 30, "--messages", 1000, "--violations", 7, "--out", tmp_path / "run")
    assert injected(tmp_path / "run") == Counter(causal=2, fifo=2, lost=1, duplicate=1, invented=1)
    assert failed(tmp_path / "run") == {"integrity", "agreement", "fifo", "causal", "optimistic-causal"}


def test_one_violation_of_a_trace_of_totals_is_one_of_total_order(command: Command, tmp_path: Path) -> None:
    command("synth", "--nodes", 4, "--messages", 100, "--guarantee", "total", "--violations", 1, "-o", tmp_path / "run")
    assert injected(tmp_path / "run") == Counter(total=1)
    assert "total" in failed(tmp_path / "run")


@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        (("--messages", 10, "--deliveries", 10), "--messages and --deliveries"),
        (("--violations", "causal:many"), "'causal:many' is not KIND:COUNT"),
        (("--violations", "upside-down:1"), "unknown violation 'upside-down'"),
        (("--nodes", 3, "--messages", 10, "--violations", 99), "no room for 99 violations"),
        (("--nodes", 3, "--publishers", 4), "as many nodes as publishers"),
    ],
)
def test_what_cannot_be_made_is_said_in_one_line(
    command: Command, tmp_path: Path, options: tuple[object, ...], culprit: str
) -> None:
    code, out, error = command("synth", "--out", tmp_path / "run", *options)
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert culprit in error
    assert not (tmp_path / "run").exists()
