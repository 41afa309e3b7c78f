"""Run directories: written whole or not at all, read with every field checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from ordercast.trace.arrow_schema import EVENT_SCHEMA
from ordercast.trace.schema import COLUMNS, FORMAT, KINDS
from ordercast.trace.store import Manifest, TraceError, crc32_of, event_files, is_run, read_manifest
from ordercast.trace.writer import RunWriter

MANIFEST = Manifest(run_id="r", protocol="flood", guarantee="eventual")


def _row(seq: int, **values: Any) -> tuple[Any, ...]:
    named: dict[str, Any] = {"run": "r", "node": "n0", "seq": seq, "kind": "publish", "time_ns": 5 * seq, **values}
    return tuple(named.get(name) for name in EVENT_SCHEMA.names)


def test_the_columns_are_those_of_the_published_format() -> None:
    assert [(name, type_) for name, type_, _ in COLUMNS] == [
        ("run", "string"),
        ("node", "string"),
        ("seq", "int64"),
        ("kind", "string"),
        ("time_ns", "int64"),
        ("msg", "string"),
        ("topic", "string"),
        ("keys", "list<string>"),
        ("guarantee", "string"),
        ("dst", "list<string>"),
        ("peer", "string"),
        ("payload_bytes", "int32"),
        ("header_bytes", "int32"),
        ("info", "map<string, string>"),
    ]
    assert " ".join(KINDS) == (
        "publish deliver send receive subscribe unsubscribe join leave crash recover suspect "
        "link repair_start repair_end drop"
    )
    assert FORMAT == 1


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run")
    full = _row(0, msg="n0#1", topic="t", keys=["a"], guarantee="fifo", dst=["n1"], peer="n1", info=[("k", "v")])
    writer.write([full, _row(1)])
    writer.write([])
    writer.write([_row(2, payload_bytes=7, header_bytes=3)])
    assert writer.finish(MANIFEST) == tmp_path / "run"
    (file,) = event_files(tmp_path / "run")
    table = pq.read_table(file)
    assert table.schema.equals(EVENT_SCHEMA)
    assert table["seq"].to_pylist() == [0, 1, 2]
    assert table.to_pylist()[0]["info"] == [("k", "v")]
    read = read_manifest(tmp_path / "run")
    assert msgspec.structs.replace(read, crc32={}) == MANIFEST
    assert read.crc32 == {file.name: crc32_of(file) for file in event_files(tmp_path / "run")}


def test_nothing_is_visible_under_the_real_name_until_the_run_is_sealed(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run")
    writer.write([_row(0)])
    assert not (tmp_path / "run").exists()
    writer.finish(MANIFEST)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_an_aborted_run_leaves_nothing_and_an_earlier_one_alone(tmp_path: Path) -> None:
    first = RunWriter(tmp_path / "run")
    first.finish(MANIFEST)
    second = RunWriter(tmp_path / "run")
    second.write([_row(0)])
    second.abort()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    read = read_manifest(tmp_path / "run")
    assert msgspec.structs.replace(read, crc32={}) == MANIFEST
    assert read.crc32 == {file.name: crc32_of(file) for file in event_files(tmp_path / "run")}


def test_a_run_replaces_an_earlier_run_or_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    RunWriter(tmp_path / "run").finish(MANIFEST)
    again = msgspec.structs.replace(MANIFEST, run_id="again")
    RunWriter(tmp_path / "run").finish(again)
    assert read_manifest(tmp_path / "run").run_id == "again"


def test_what_is_not_a_run_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "thing").write_text("precious")
    for name in ("file", "directory"):
        with pytest.raises(TraceError, match=f"{name}: exists and is not a run directory; it is left alone"):
            RunWriter(tmp_path / name)
    assert (tmp_path / "file").read_text() == (tmp_path / "directory" / "thing").read_text() == "precious"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceError, match="run: cannot be written"):
        RunWriter(tmp_path / "file" / "run")


def test_a_run_without_events_still_has_a_readable_file(tmp_path: Path) -> None:
    RunWriter(tmp_path / "run").finish(MANIFEST)
    (file,) = event_files(tmp_path / "run")
    assert pq.read_table(file).num_rows == 0


def test_a_long_run_is_cut_into_several_files_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ordercast.trace.writer.FILE_ROWS", 10)
    writer = RunWriter(tmp_path / "run")
    for start in range(0, 35, 5):
        writer.write([_row(start + i) for i in range(5)])
    writer.finish(MANIFEST)
    files = event_files(tmp_path / "run")
    assert [pq.read_table(file).num_rows for file in files] == [10, 10, 10, 5]
    assert [seq for file in files for seq in pq.read_table(file)["seq"].to_pylist()] == list(range(35))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "unreadable manifest: "),
        ("[]", "no format number"),
        ("{}", "no format number"),
        ('{"format": "1"}', "no format number"),
        ('{"format": 2}', "format 2 is newer than 1"),
        ('{"format": 1, "run_id": "r", "protocol": "p"}', "Object missing required field `guarantee`"),
        (
            json.dumps({"format": 1, "run_id": 5, "protocol": "p", "guarantee": "fifo"}),
            "Expected `str`, got `int` - at `$.run_id`",
        ),
    ],
)
def test_a_bad_manifest_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(TraceError) as caught:
        read_manifest(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'run.json'}: {complaint}")


def test_what_is_no_run_directory_is_named(tmp_path: Path) -> None:
    assert not is_run(tmp_path)
    with pytest.raises(TraceError, match=r"not a run directory \(no run.json\)"):
        read_manifest(tmp_path)
    with pytest.raises(TraceError, match=r"events: no \*.parquet file"):
        event_files(tmp_path)


def test_fields_of_a_manifest_that_this_program_does_not_know_are_ignored(tmp_path: Path) -> None:
    known = msgspec.to_builtins(MANIFEST)
    (tmp_path / "run.json").write_text(json.dumps({**known, "weather": "fine"}))
    assert read_manifest(tmp_path) == MANIFEST
