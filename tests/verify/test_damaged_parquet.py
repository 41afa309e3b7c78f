"""A Parquet file that anybody may have damaged: one line names it, and whoever reads it lives on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ordercast.trace.store import TraceError, event_files
from ordercast.verify import parquet
from ordercast.verify.judge import judge_path
from ordercast.verify.metrics.local import measure
from ordercast.verify.parquet import Reader, Wanted, read_parquet
from tests.fuzz.engine import CORPUS
from tests.spark.traces import Trace

_DIES_OF_BAD_ONES = """
import os
from ordercast.verify import parquet_reader
sound = parquet_reader.read_pieces
def read_pieces(wanted):
    for piece in sound(wanted):
        yield piece
        if "bad" in wanted.path:
            os.abort()
parquet_reader.read_pieces = read_pieces
parquet_reader.main()
"""


@pytest.fixture
def mortal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    """A reader that some files end in the middle of its answer, as damaged ones may."""
    reader = Reader("-c", _DIES_OF_BAD_ONES)
    monkeypatch.setattr(parquet, "_READER", reader)
    yield reader
    reader.stop()


def events(count: int = 60) -> pa.Table:
    return pa.table(
        {
            "node": [f"n{number % 3}" for number in range(count)],
            "seq": [number // 3 for number in range(count)],
            "kind": ["publish" if number % 3 == 0 else "deliver" for number in range(count)],
            "msg": [f"m{number // 3}" for number in range(count)],
            "keys": [["a", "b"] for _ in range(count)],
        }
    )


def written(path: Path, compression: Any = "snappy") -> Path:
    pq.write_table(events(), path, compression=compression)
    return path


def damaged(sound: bytes, seed: int) -> bytes:
    chance = random.Random(seed)
    data = bytearray(sound)
    for _ in range(chance.choice((1, 1, 2, 8))):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_every_damage_is_a_verdict_or_one_line_that_names_the_file(tmp_path: Path, compression: str) -> None:
    file = written(tmp_path / "events.parquet", compression)
    sound = file.read_bytes()
    lines = []
    for seed in range(80):
        file.write_bytes(damaged(sound, seed))
        for read in (judge_path, lambda path: measure([path])):
            try:
                read(file)
            except TraceError as error:
                lines.append(str(error))
    assert len(lines) > 40
    assert all(line.startswith(f"{file}: ") and "\n" not in line for line in lines)


def test_a_file_that_ends_its_reader_is_named_and_the_next_one_is_read(tmp_path: Path, mortal: Reader) -> None:
    bad, good = written(tmp_path / "bad.parquet"), written(tmp_path / "good.parquet")
    for _ in range(2):
        with pytest.raises(TraceError) as raised:
            judge_path(bad)
        assert str(raised.value) == (f"{bad}: unreadable Parquet: damaged so that reading it ends the reader (SIGABRT)")
        assert read_parquet(Wanted(str(good))).equals(events())


@pytest.mark.parametrize("kept", ["type-of-a-column", "histogram-of-levels"])
def test_a_real_file_of_which_the_library_aborts_is_named(tmp_path: Path, kept: str) -> None:
    bad = tmp_path / f"{kept}.parquet"
    bad.write_bytes((CORPUS / "parquet" / f"{kept}.bin").read_bytes())
    for read in (judge_path, lambda path: measure([path])):
        with pytest.raises(TraceError, match=f"^{bad}: unreadable Parquet: .+"):
            read(bad)


def test_what_a_manifest_vouches_for_needs_no_child_and_what_was_changed_does(tmp_path: Path, mortal: Reader) -> None:
    trace = Trace().add(0, "ann", "publish", "m", topic="t", guarantee="fifo").add(1, "ann", "deliver", "m")
    run = trace.write(tmp_path / "bad")
    assert judge_path(run)
    assert measure([run])

    (file,) = event_files(run)
    pq.write_table(pq.read_table(file), file, compression="none")
    for read in (judge_path, lambda path: measure([path])):
        with pytest.raises(TraceError, match=f"{file}: .*SIGABRT"):
            read(run)


def test_a_file_without_rows_has_its_columns(tmp_path: Path) -> None:
    file = tmp_path / "none.parquet"
    pq.ParquetWriter(file, events().schema).close()
    read = read_parquet(Wanted(str(file), words=("node",)))
    assert (read.num_rows, read.column_names) == (0, events().column_names)


def test_columns_of_nothing_are_left_out_only_where_they_are_optional(tmp_path: Path) -> None:
    file = tmp_path / "nulls.parquet"
    pq.write_table(pa.table({"node": ["a"], "topic": pa.nulls(1, pa.string()), "msg": pa.nulls(1, pa.string())}), file)
    wanted = Wanted(str(file), ("node", "topic", "msg"), optional=("topic",))
    assert read_parquet(wanted).column_names == ["node", "msg"]
