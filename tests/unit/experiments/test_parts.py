"""What was finished is found again; what is damaged is run again; nothing is ever half written."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from ordercast.core.errors import UsageError
from ordercast.experiments.kit.parts import PARTS, StudyPart, StudyParts, replacing_directory, write_atomically
from ordercast.experiments.kit.study import SweepPoint

ONE = SweepPoint("1" * 16, {"n": 1})
TWO = SweepPoint("2" * 16, {"n": 2})


def part_of(configuration: SweepPoint) -> StudyPart:
    return StudyPart(id=configuration.id, parameters=configuration.parameters, result={"square": 1.5}, seconds=0.1)


def test_a_finished_configuration_is_found_again(tmp_path: Path) -> None:
    StudyParts(tmp_path).keep(part_of(ONE))
    assert StudyParts(tmp_path).finished([ONE, TWO]) == {ONE.id: part_of(ONE)}


def test_a_forgotten_one_is_not(tmp_path: Path) -> None:
    StudyParts(tmp_path).keep(part_of(ONE))
    StudyParts(tmp_path).forget()
    assert StudyParts(tmp_path).finished([ONE]) == {}


@pytest.mark.parametrize("content", [b"", b"{", b'{"id": 3}', b"\xff"])
def test_a_damaged_part_counts_as_not_finished(tmp_path: Path, content: bytes) -> None:
    parts = StudyParts(tmp_path)
    (tmp_path / PARTS / f"{ONE.id}.json").write_bytes(content)
    assert parts.finished([ONE]) == {}


def test_a_part_with_other_parameters_counts_as_not_finished(tmp_path: Path) -> None:
    parts = StudyParts(tmp_path)
    parts.keep(part_of(ONE))
    assert parts.finished([SweepPoint(ONE.id, {"n": 7})]) == {}


def test_a_part_of_another_release_counts_as_not_finished(tmp_path: Path) -> None:
    parts = StudyParts(tmp_path)
    parts.keep(replace(part_of(ONE), made_by="0.0.1"))
    assert parts.finished([ONE]) == {}


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"file: cannot be written: "):
        StudyParts(tmp_path / "file")


def test_a_write_that_fails_leaves_the_old_content_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "claims.json"
    target.write_bytes(b"old")

    def disk_full(_self: Path, _target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", disk_full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(target, b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["claims.json"]
    assert target.read_bytes() == b"old"


def draw_and_fail(directory: Path) -> None:
    (directory / "b.svg").write_text("2")
    raise ZeroDivisionError


def test_a_directory_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    figures = tmp_path / "figures"
    with replacing_directory(figures) as fresh:
        (fresh / "a.svg").write_text("1")
    with pytest.raises(ZeroDivisionError), replacing_directory(figures) as fresh:
        draw_and_fail(fresh)
    assert [path.name for path in figures.iterdir()] == ["a.svg"]
    with replacing_directory(figures) as fresh:
        (fresh / "c.svg").write_text("3")
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.svg")] == ["figures/c.svg"]
    assert [path.name for path in tmp_path.iterdir()] == ["figures"]
