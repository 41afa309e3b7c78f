"""What a study says about its own runs decides the exit code; what it says about a source does not."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

from ordercast.cli import main
from ordercast.experiments import SourceClaim, Study
from ordercast.experiments.kit.parts import StudyPart, StudyParts
from ordercast.experiments.kit.study import Row


def measure(_parameters: Row) -> Row:
    raise AssertionError("finished before")


def draw(_results: pa.Table, _directory: Path) -> list[Path]:
    return []


def study(verdicts: dict[str, bool | None]) -> Study:
    def claims(_results: pa.Table) -> list[SourceClaim]:
        return [
            SourceClaim(id=id_, source="x", statement="x", measured="x", holds=holds) for id_, holds in verdicts.items()
        ]

    return Study(
        name="tiny", version=1, title="Tiny", source="x", description="x", scales={"quick": [{"seed": 0}]},
        run=measure, claims=claims, figures=draw,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ({"guarantees-hold": True, "order-holds": True, "K1": True}, 0),
        ({"guarantees-hold": True, "K1": False, "K2": None}, 0),
        ({"guarantees-hold": False, "order-holds": True}, 1),
        ({"guarantees-hold": None, "order-holds": False}, 1),
        ({"guarantees-hold": None, "order-holds": True}, 4),
        ({"guarantees-hold": True, "order-holds": None}, 4),
    ],
)
def test_a_broken_promise_exits_1_and_an_undecided_one_4(
    verdicts: dict[str, bool | None], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = study(verdicts)
    for configuration in tiny.configurations("quick"):
        part = StudyPart(id=configuration.id, parameters=configuration.parameters, result={"value": 1}, seconds=0.0)
        StudyParts(tmp_path).keep(part)
    monkeypatch.setattr("ordercast.experiments.lookup", lambda _name: tiny)
    monkeypatch.setattr(sys, "argv", ["ordercast", "experiment", "run", "tiny", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == code
