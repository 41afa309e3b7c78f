"""Parts become a table, claims and figures; nothing is run that is finished. (With Spark: tests/spark.)"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ordercast.core.errors import InvariantError, UsageError
from ordercast.experiments.kit.engine import distinct, results_table, run_study
from ordercast.experiments.kit.parts import StudyPart, StudyParts
from ordercast.experiments.kit.study import Picture, Row, SourceClaim, Study
from ordercast.experiments.kit.sweep import Sweep, attempt
from ordercast.verify.spark.java import EnvironmentLacks


def part(id_: str, parameters: Row, result: Row) -> StudyPart:
    return StudyPart(id=id_, parameters=parameters, result=result, seconds=0.1)


def test_a_row_holds_id_parameters_and_measurements() -> None:
    table = results_table([part("a", {"n": 1}, {"x": 2}), part("b", {"n": 2}, {"x": 2.5})])
    assert table.to_pylist() == [{"id": "a", "n": 1, "x": 2.0}, {"id": "b", "n": 2, "x": 2.5}]


def test_a_missing_measurement_is_null_and_never_a_column_without_type() -> None:
    table = results_table([part("a", {"n": 1}, {"x": None, "y": 1}), part("b", {"n": 2}, {"x": None})])
    assert table.to_pylist() == [{"id": "a", "n": 1, "x": None, "y": 1}, {"id": "b", "n": 2, "x": None, "y": None}]
    assert table.schema.field("x").type == pa.float64()


def test_no_finished_configuration_gives_an_empty_table() -> None:
    assert results_table([]).num_rows == 0


@pytest.mark.parametrize("result", [{"n": 1}, {"id": 1}])
def test_a_column_with_two_meanings_is_a_bug_of_the_study(result: Row) -> None:
    with pytest.raises(InvariantError, match="two things"):
        results_table([part("a", {"n": 1}, result)])


def draw(_table: pa.Table, directory: Path) -> list[Picture]:
    (directory / "one.svg").write_text("<svg/>")
    return [Picture(directory / "one.svg", "One.")]


def judge(table: pa.Table) -> list[SourceClaim]:
    return [SourceClaim(id="c", source="s", statement="t", measured=f"{table.num_rows} rows", holds=None)]


STUDY = Study(
    name="toy",
    version=1,
    title="",
    source="",
    description="",
    scales={"quick": [{"n": 1}, {"n": 2}]},
    run=lambda row: row,
    claims=judge,
    figures=draw,
)


def test_a_finished_study_is_concluded_without_starting_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_spark(_master: str | None) -> None:
        raise AssertionError("Spark was started for nothing")

    monkeypatch.setattr("ordercast.verify.spark.session.session", no_spark)
    for configuration in STUDY.configurations("quick"):
        StudyParts(tmp_path).keep(part(configuration.id, configuration.parameters, {"x": 1}))
    told: list[tuple[int, int]] = []
    result = run_study(STUDY, scale="quick", out=tmp_path, progress=lambda done, all_: told.append((done, all_)))
    assert (result.executed, result.failed, told) == (0, [], [(2, 2)])
    assert pq.read_table(tmp_path / "results.parquet").equals(result.table)
    assert result.table.num_rows == 2
    assert result.figures == [Picture(tmp_path / "figures" / "one.svg", "One. n = 1 run a point.")]
    assert result.figures[0].file.is_file()
    written = json.loads((tmp_path / "claims.json").read_bytes())
    assert (written["study"], written["scale"], written["failed"]) == ("toy", "quick", 0)
    assert written["claims"] == [{"id": "c", "source": "s", "statement": "t", "measured": "2 rows", "holds": None}]
    assert not (tmp_path / "failed.json").exists()


def test_runs_that_came_out_the_same_under_several_seeds_are_counted_once(tmp_path: Path) -> None:
    """All of them are in the results; claims, figures and n see the different ones."""
    points: list[Row] = [{"n": n, "seed": seed} for n in (1, 2) for seed in range(3)]
    study = msgspec.structs.replace(STUDY, scales={"quick": points})
    for one in study.configurations("quick"):
        moved = 1 if one.parameters == {"n": 2, "seed": 2} else 0
        StudyParts(tmp_path).keep(part(one.id, one.parameters, {"x": 7 + moved}))
    result = run_study(study, scale="quick", out=tmp_path)
    assert result.table.num_rows == 6
    assert result.claims[0].measured == "3 rows"
    told = "n = 1 run at 1 point, 2 at 1. 3 runs came out as one with another seed did, and are not counted."
    assert result.runs == told
    assert result.figures[0].caption == f"One. {told}"


def test_the_same_result_at_two_points_is_two_observations() -> None:
    parts = [part("a", {"n": 1, "seed": 0}, {"x": 7}), part("b", {"n": 2, "seed": 0}, {"x": 7})]
    assert distinct(parts) == parts


def test_an_exception_becomes_one_line_and_its_traceback() -> None:
    def fails(_parameters: Row) -> Row:
        raise ValueError("first line\nsecond line")

    row = attempt(fails, 3, {"n": 1})
    assert (row["position"], row["result"], row["error"]) == (3, None, "ValueError: first line")
    assert "in fails" in str(row["trace"])


def test_a_run_cannot_change_the_parameters_it_was_given() -> None:
    def meddles(parameters: Row) -> Row:
        parameters["n"] = 2
        return {}

    parameters: Row = {"n": 1}
    attempt(meddles, 0, parameters)
    assert parameters == {"n": 1}


def test_a_spark_that_is_gone_ends_the_sweep_in_one_line() -> None:
    class Gone:
        def range(self, *_numbers: int) -> None:
            raise ConnectionError("connection refused\nand a page of Java")

    sweep = Sweep(Gone(), dict, [{"n": 1}, {"n": 2}], weights=[1, 1], at_once=2)  # type: ignore[arg-type]
    with pytest.raises(EnvironmentLacks, match=r"^Spark stopped during the sweep: [^\n]+$"):
        list(sweep.outcomes())


def test_what_the_results_of_an_earlier_run_have_is_not_run_again_and_comes_out_the_same(tmp_path: Path) -> None:
    for configuration, result in zip(STUDY.configurations("quick"), ({"x": 1.5}, {"y": None}), strict=True):
        StudyParts(tmp_path / "there").keep(part(configuration.id, configuration.parameters, result))
    run_study(STUDY, scale="quick", out=tmp_path / "there")
    known = tmp_path / "there" / "results.parquet"

    result = run_study(STUDY, scale="quick", out=tmp_path / "here", known=known)

    assert result.executed == 0
    assert (tmp_path / "here" / "results.parquet").read_bytes() == known.read_bytes()


def test_results_of_another_version_of_the_study_are_run_again(tmp_path: Path) -> None:
    for configuration in STUDY.configurations("quick"):
        StudyParts(tmp_path / "there").keep(part(configuration.id, configuration.parameters, {"x": 1}))
    run_study(STUDY, scale="quick", out=tmp_path / "there")
    later = msgspec.structs.replace(STUDY, version=2)

    parts = StudyParts(tmp_path / "here")
    parts.take_over(tmp_path / "there" / "results.parquet", later.configurations("quick"))

    assert parts.finished(later.configurations("quick")) == {}


@pytest.mark.parametrize("content", [b"", b"no table"])
def test_known_results_that_are_none_are_named_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "known.parquet").write_bytes(content)
    with pytest.raises(UsageError, match=r"known\.parquet: no results of a study"):
        run_study(STUDY, scale="quick", out=tmp_path, known=tmp_path / "known.parquet")
