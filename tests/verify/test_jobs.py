"""The judge on Spark says what the judge in one process says, whether a run is one task or its rows stay apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from ordercast.trace.schema import COLUMNS
from ordercast.trace.synthetic import TraceShape, write_synthetic
from ordercast.trace.writer import RunWriter
from ordercast.verify.distributed.setup import TaskCut
from ordercast.verify.judge import judge_path
from ordercast.verify.spark.distributed import verify_places
from ordercast.verify.spark.jobs import verify_runs
from tests.support.random_traces import draw
from tests.support.trace_builder import manifest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ordercast.verify.verdict import Verdict

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


def as_local(verdicts: list[Verdict]) -> list[Verdict]:
    return [msgspec.structs.replace(verdict, engine="local") for verdict in verdicts]


def test_many_runs_are_judged_as_in_one_process(spark: SparkSession, runs: Path) -> None:
    members = {"red": ["n0", "n1"]}
    for asked in ({}, {"complete": True}, {"members": members, "own_deliveries": False}):
        judged = verify_runs(spark, [runs], witnesses=3, **asked)
        assert judged == (judge_path(runs, witnesses=3, **asked), [])


def test_a_run_whose_rows_stay_apart_is_judged_as_in_one_process(spark: SparkSession, tmp_path: Path) -> None:
    wanted = (("fifo", 1), ("causal", 1), ("total", 2), ("duplicate", 1), ("lost", 1), ("invented", 1))
    run = write_synthetic(tmp_path / "run", TraceShape(8, 4, 4000, 4, "total", violations=wanted))
    verdicts = verify_places(spark, str(run), cut=TaskCut(buckets=3, parts=2, key_blocks=2, stretch_bytes=1000))
    assert {verdict.engine for verdict in verdicts} == {"distributed"}
    assert as_local(verdicts) == judge_path(run)


def test_runs_that_cannot_be_read_are_named_and_the_others_judged(spark: SparkSession, runs: Path) -> None:
    (part,) = (runs / "run-2" / "events").iterdir()
    part.write_bytes(b"PAR1 no longer")
    some = [runs / f"run-{seed}" for seed in (1, 2, 3)]
    verdicts, (problem,) = verify_runs(spark, some)
    assert verdicts == [*judge_path(some[0]), *judge_path(some[2])]
    assert "run-2" in problem
    assert "part-00000.parquet: unreadable Parquet" in problem
