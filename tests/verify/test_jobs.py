"""The judge on Spark says what the judge in one process says, for many runs and for one huge one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ordercast.trace.schema import COLUMNS
from ordercast.trace.store import RunWriter, TraceError
from ordercast.verify.judge import judge_path
from ordercast.verify.spark.jobs import verify_runs
from tests.support.random_traces import draw
from tests.support.trace_builder import manifest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SEEDS = tuple(range(1, 61))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A few random runs, good and bad, below one directory."""
    for seed in SEEDS:
        made, about = draw(seed)
        writer = RunWriter(tmp_path / "runs" / f"run-{seed}")
        writer.write([tuple(row.get(name) for name, _, _ in COLUMNS) for row in made])
        writer.finish(about or manifest())
    return tmp_path / "runs"


def test_many_runs_are_judged_as_in_one_process(spark: SparkSession, runs: Path) -> None:
    members = {"red": ["n0", "n1"]}
    for asked in ({}, {"complete": True}, {"members": members, "own_deliveries": False}):
        assert verify_runs(spark, [runs], witnesses=3, **asked) == judge_path(runs, witnesses=3, **asked)


def test_a_huge_run_is_cut_into_tasks_that_find_the_same(spark: SparkSession, runs: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    run = runs / "run-3"
    assert verify_runs(spark, [run], huge_rows=1, work=work) == judge_path(run)
    assert verify_runs(spark, [run], huge_rows=1, checks=["fifo", "causal"], scope="topic") == judge_path(
        run, checks=["fifo", "causal"], scope="topic"
    )
    assert list(work.iterdir()) == []
    assert len(list(runs.iterdir())) == len(SEEDS)


def test_cut_runs_have_the_same_counts_and_stories(spark: SparkSession, runs: Path) -> None:
    some = [runs / f"run-{seed}" for seed in SEEDS[:6]]
    local = [verdict for run in some for verdict in judge_path(run, witnesses=2)]
    assert verify_runs(spark, some, huge_rows=1, witnesses=2) == local


def test_a_run_that_cannot_be_read_is_named(spark: SparkSession, runs: Path) -> None:
    (part,) = (runs / "run-2" / "events").iterdir()
    part.write_bytes(b"PAR1 no longer")
    with pytest.raises(TraceError, match=r"run-2.*part-00000\.parquet: unreadable Parquet"):
        verify_runs(spark, [runs])
