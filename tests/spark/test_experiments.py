"""Sweeps on Spark: resumable, independent of how they are split, and a failure is named without losing the rest."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ordercast.experiments import STUDIES, SourceClaim, Study, StudyResult, run_study
from ordercast.experiments.kit.study import Picture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ordercast.experiments.kit.study import Row

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

COUNT = 12


def judge(table: pa.Table) -> list[SourceClaim]:
    total = sum(row["square"] for row in table.to_pylist())
    return [SourceClaim(id="sum", source="toy", statement="The squares are squares.", measured=str(total), holds=True)]


def draw(table: pa.Table, directory: Path) -> list[Picture]:
    (directory / "rows.svg").write_text(f"<svg><!-- {table.num_rows} --></svg>")
    return [Picture(directory / "rows.svg", "Rows.")]


def squares(marks: Path, special: Callable[[int], None] | None = None, count: int = COUNT) -> Study:
    """Squares of numbers; each execution leaves a mark. Built inside, so that workers need not import this module."""

    def run(parameters: Row) -> Row:
        number = parameters["n"]
        assert isinstance(number, int)
        (marks / f"{number}-{os.urandom(4).hex()}").touch()
        if special is not None:
            special(number)
        return {"square": number * number}

    marks.mkdir(exist_ok=True)
    return Study(
        name="squares",
        version=1,
        title="Squares",
        source="toy",
        description="",
        scales={"quick": [{"n": n} for n in range(count)]},
        run=run,
        claims=judge,
        figures=draw,
        weigh=lambda parameters: 1.0 + float(parameters["n"] or 0),
    )


def executions(marks: Path) -> list[int]:
    return sorted(int(path.name.split("-")[0]) for path in marks.iterdir())


def quick(study: Study, out: Path, *, tasks: int | None = None, fresh: bool = False) -> StudyResult:
    return run_study(study, scale="quick", out=out, tasks=tasks, fresh=fresh)


def test_a_sweep_leaves_results_claims_and_figures(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    result = run_study(
        squares(tmp_path / "marks"),
        scale="quick",
        out=tmp_path / "out",
        progress=lambda done, total: told.append((done, total)),
    )
    table = pq.read_table(tmp_path / "out" / "results.parquet")
    assert sorted((row["n"], row["square"]) for row in table.to_pylist()) == [(n, n * n) for n in range(COUNT)]
    assert table["id"].to_pylist() == sorted(table["id"].to_pylist())
    claims = json.loads((tmp_path / "out" / "claims.json").read_bytes())
    assert claims["configurations"] == COUNT
    assert claims["claims"][0]["measured"] == str(sum(n * n for n in range(COUNT)))
    assert [one.file.relative_to(tmp_path / "out").as_posix() for one in result.figures] == ["figures/rows.svg"]
    assert f"{COUNT}" in result.figures[0].file.read_text()
    assert told == [(done, COUNT) for done in range(COUNT + 1)]
    assert (result.executed, result.failed) == (COUNT, [])


def test_a_second_run_executes_nothing_and_says_the_same(tmp_path: Path) -> None:
    study = squares(tmp_path / "marks")
    first = quick(study, tmp_path / "out")
    results = (tmp_path / "out" / "results.parquet").read_bytes()
    second = quick(study, tmp_path / "out")
    assert (first.executed, second.executed) == (COUNT, 0)
    assert executions(tmp_path / "marks") == list(range(COUNT))
    assert (tmp_path / "out" / "results.parquet").read_bytes() == results


def test_a_fresh_run_executes_everything_again(tmp_path: Path) -> None:
    study = squares(tmp_path / "marks")
    quick(study, tmp_path / "out")
    assert quick(study, tmp_path / "out", fresh=True).executed == COUNT


def test_a_new_configuration_is_run_and_the_old_ones_are_kept(tmp_path: Path) -> None:
    quick(squares(tmp_path / "marks"), tmp_path / "out")
    more = quick(squares(tmp_path / "marks", count=COUNT + 2), tmp_path / "out")
    assert (more.executed, more.table.num_rows) == (2, COUNT + 2)


def test_results_do_not_depend_on_the_number_of_tasks(tmp_path: Path) -> None:
    written = []
    for tasks in (1, 4):
        out = tmp_path / f"out{tasks}"
        quick(squares(tmp_path / f"marks{tasks}"), out, tasks=tasks)
        written.append([(out / name).read_bytes() for name in ("results.parquet", "claims.json", "figures/rows.svg")])
    assert written[0] == written[1]


def test_a_configuration_that_fails_is_named_and_the_rest_is_kept_and_it_is_tried_again(tmp_path: Path) -> None:
    def refuse_seven(number: int) -> None:
        if number == 7:
            raise ValueError("seven is not welcome")

    result = quick(squares(tmp_path / "marks", refuse_seven), tmp_path / "out")
    (failure,) = result.failed
    assert (failure.parameters, failure.error) == ({"n": 7}, "ValueError: seven is not welcome")
    assert "refuse_seven" in failure.trace
    assert result.table.num_rows == COUNT - 1
    (written,) = json.loads((tmp_path / "out" / "failed.json").read_bytes())
    assert (written["id"], written["parameters"], written["error"]) == (failure.id, {"n": 7}, failure.error)
    assert json.loads((tmp_path / "out" / "claims.json").read_bytes())["failed"] == 1

    mended = quick(squares(tmp_path / "marks"), tmp_path / "out")
    assert (mended.executed, mended.failed, mended.table.num_rows) == (1, [], COUNT)
    assert not (tmp_path / "out" / "failed.json").exists()


def test_a_result_that_is_no_data_is_a_failure_of_its_configuration(tmp_path: Path) -> None:
    study = squares(tmp_path / "marks", count=2)

    def run(parameters: Row) -> Row:
        return {"square": parameters["n"] or object()}  # type: ignore[dict-item]

    (failure,) = quick(_with_run(study, run), tmp_path / "out").failed
    assert failure.parameters == {"n": 0}
    assert failure.error.startswith("TypeError: ")


def test_a_killed_worker_is_named_by_its_configuration_and_the_rest_is_kept(tmp_path: Path) -> None:
    def kill_seven(number: int) -> None:
        if number == 7:
            os.kill(os.getpid(), signal.SIGKILL)

    result = quick(squares(tmp_path / "marks", kill_seven), tmp_path / "out")
    (failure,) = result.failed
    assert failure.parameters == {"n": 7}
    assert failure.error.startswith("its worker died: ")
    assert "\n" not in failure.error
    assert result.table.num_rows == COUNT - 1


def test_an_interrupted_sweep_stops_at_once_and_keeps_what_was_finished(tmp_path: Path) -> None:
    ended = tmp_path / "ended"

    def hang_on_zero(number: int) -> None:
        if number == 0:
            threading.Event().wait(120)
            ended.touch()

    def interrupt(done: int, _total: int) -> None:
        if done == COUNT - 1:
            raise KeyboardInterrupt

    study = squares(tmp_path / "marks", hang_on_zero)
    with pytest.raises(KeyboardInterrupt):
        run_study(study, scale="quick", out=tmp_path / "out", tasks=2, progress=interrupt)
    assert not ended.exists()

    rest = quick(squares(tmp_path / "marks"), tmp_path / "out")
    assert (rest.executed, rest.table.num_rows) == (1, COUNT)


def test_heavy_configurations_start_first_and_short_ones_share_a_task(tmp_path: Path) -> None:
    def run(_parameters: Row) -> Row:
        import time

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        return {"square": 0, "task": context.taskAttemptId(), "start": time.monotonic_ns()}

    study = _with_run(squares(tmp_path / "marks", count=40), run)
    rows = quick(study, tmp_path / "out", tasks=1).table.to_pylist()
    started = [row["n"] for row in sorted(rows, key=lambda row: int(row["start"]))]
    assert started == sorted(range(40), reverse=True)
    assert 1 < len({row["task"] for row in rows}) < 10


def test_a_shipped_study_runs_on_workers(tmp_path: Path) -> None:
    study = STUDIES["vector-overhead"]
    small = [row for row in study.scales["quick"] if row["nodes"] == 8 and row["duration_ms"] == 1000.0][:3]
    result = quick(_with_scale(study, small), tmp_path / "out")
    assert result.failed == []
    assert {row["judged"] for row in result.table.to_pylist()} == {"held"}


def test_slots_are_what_the_session_has(spark: SparkSession) -> None:
    from ordercast.experiments.kit.sweep import slots

    assert slots(spark) == 2


def _with_run(study: Study, run: Callable[[Row], Row]) -> Study:
    from msgspec.structs import replace

    return replace(study, run=run)


def _with_scale(study: Study, parameters: list[Row]) -> Study:
    from msgspec.structs import replace

    return replace(study, scales={"quick": parameters})
