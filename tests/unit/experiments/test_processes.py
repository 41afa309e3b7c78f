"""A study without Spark: processes of this machine give the same results, and a dead one takes only its own."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pyarrow as pa

from ordercast.experiments.kit.engine import run_study
from ordercast.experiments.kit.processes import ProcessSweep
from ordercast.experiments.kit.study import Picture, Row, SourceClaim, Study


def double(row: Row) -> Row:
    if row["n"] == 3:
        raise ValueError("three is too many")
    if row["n"] == 4:
        os._exit(9)
    return {"twice": int(row["n"] or 0) * 2}


def judge(table: pa.Table) -> list[SourceClaim]:
    return [SourceClaim(id="c", source="s", statement="t", measured=f"{table.num_rows} rows", holds=None)]


def draw(_table: pa.Table, _directory: Path) -> list[Picture]:
    return []


STUDY = Study(
    name="doubling", version=1, title="", source="", description="", scales={"quick": [{"n": n} for n in range(5)]},
    run=double, claims=judge, figures=draw,
)  # fmt: skip


def test_an_error_and_a_dead_process_are_named_and_the_rest_is_measured(tmp_path: Path) -> None:
    result = run_study(STUDY, scale="quick", out=tmp_path, spark=False, tasks=2)

    measured = {row["n"]: row["twice"] for row in result.table.to_pylist()}
    assert measured == {0: 0, 1: 2, 2: 4}
    failed = {failure.parameters["n"]: failure.error for failure in result.failed}
    assert failed == {3: "ValueError: three is too many", 4: "its process died"}
    assert result.ran_on == "without Spark, in 2 processes of this machine"


def test_the_heaviest_begins_first() -> None:
    sweep = ProcessSweep(double, [{"n": 0}, {"n": 1}, {"n": 2}], weights=[1.0, 3.0, 2.0], at_once=1)

    assert [msgspec.to_builtins(outcome)["position"] for outcome in sweep.outcomes()] == [1, 2, 0]
