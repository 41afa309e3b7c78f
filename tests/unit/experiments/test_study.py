"""A configuration is known by what it is, not by when, where or in which place of the list it runs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from ordercast.core.errors import InvariantError, UsageError
from ordercast.experiments import STUDIES, lookup
from ordercast.experiments.kit.study import Picture, Row, SourceClaim, Study


def no_claims(_table: pa.Table) -> list[SourceClaim]:
    return []


def no_figures(_table: pa.Table, _directory: Path) -> list[Picture]:
    return []


def a_study(*parameters: Row, version: int = 1, name: str = "toy") -> Study:
    return Study(
        name=name,
        version=version,
        title="",
        source="",
        description="",
        scales={"quick": parameters},
        run=lambda row: row,
        claims=no_claims,
        figures=no_figures,
    )


def ids(study: Study) -> list[str]:
    return [configuration.id for configuration in study.configurations("quick")]


def test_an_id_is_the_same_on_every_machine_and_in_every_release() -> None:
    assert ids(a_study({"n": 3, "seed": 1})) == ["5e8cc4e07d18c040"]


def test_an_id_does_not_depend_on_the_order_of_parameters_or_of_the_list() -> None:
    assert ids(a_study({"n": 3, "seed": 1})) == ids(a_study({"seed": 1, "n": 3}))
    assert ids(a_study({"n": 1}, {"n": 2})) == ids(a_study({"n": 2}, {"n": 1}))


@pytest.mark.parametrize(
    "other",
    [a_study({"n": 3, "seed": 2}), a_study({"n": 3, "seed": 1}, version=2), a_study({"n": 3, "seed": 1}, name="yot")],
    ids=["parameter", "version", "study"],
)
def test_whatever_changes_the_result_changes_the_id(other: Study) -> None:
    assert ids(other) != ids(a_study({"n": 3, "seed": 1}))


def test_a_scale_can_be_run_with_fewer_seeds() -> None:
    """And what is left has the ids that it has among all of them."""
    study = a_study({"n": 1, "seed": 5}, {"n": 1, "seed": 6}, {"n": 2, "seed": 7}, {"n": 3})
    assert len(ids(study)) == 4
    few = study.configurations("quick", seeds=1)
    assert sorted(map(str, (one.parameters for one in few))) == [
        "{'n': 1, 'seed': 5}", "{'n': 2, 'seed': 7}", "{'n': 3}",
    ]  # fmt: skip
    assert {one.id for one in few} < set(ids(study))


def test_an_unknown_scale_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown scale of toy 'quik'; did you mean 'quick'\?"):
        a_study({"n": 1}).configurations("quik")


def test_a_configuration_listed_twice_is_a_bug_of_the_study() -> None:
    with pytest.raises(InvariantError, match="twice"):
        a_study({"n": 1}, {"n": 1}).configurations("quick")


def test_an_unknown_study_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown study 'vector-overhed'; did you mean 'vector-overhead'\?"):
        lookup("vector-overhed")


@pytest.mark.parametrize("study", STUDIES.values(), ids=lambda study: str(study.name))
def test_every_study_has_both_scales_with_plain_parameters_and_quick_is_not_more_work(study: Study) -> None:
    quick, paper = study.configurations("quick"), study.configurations("paper")
    work = [sum(study.weigh(one.parameters) for one in scale) for scale in (quick, paper)]
    assert 0 < work[0] <= work[1]
    for configuration in paper:
        assert msgspec.json.decode(msgspec.json.encode(configuration.parameters)) == configuration.parameters
        assert study.weigh(configuration.parameters) > 0
