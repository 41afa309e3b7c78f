"""Moves tables between the stages of the distributed judge in this process, and takes the first look at a trace."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ordercast.verify.distributed.engine import judge
from ordercast.verify.distributed.files import LOOKED, look_at_files, look_from, scan_files
from ordercast.verify.distributed.files import hash_of as file_hashes
from ordercast.verify.distributed.look import NodeLook, setup_of
from ordercast.verify.distributed.scan import ABOUT_PUBLICATION, LISTS
from ordercast.verify.distributed.setup import RARE, TaskCut
from ordercast.verify.distributed.wire import values
from ordercast.verify.rows import KIND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ordercast.verify.asked import JudgeOptions
    from ordercast.verify.load import LoadedTrace
    from ordercast.verify.verdict import Verdict


class InProcess:
    """A frame is a table; its pieces are stretches of few rows, so that nothing happens to be together."""

    rows_a_piece = 3

    def mapped(self, frame: pa.Table, stage: Callable[..., Iterator[pa.RecordBatch]], schema: pa.Schema) -> pa.Table:
        size = self.rows_a_piece
        pieces = [frame.slice(at, size).combine_chunks().to_batches() for at in range(0, frame.num_rows, size)]
        return pa.Table.from_batches([batch for piece in reversed(pieces) for batch in stage(piece)], schema)

    def grouped(
        self, frame: pa.Table, by: str, stage: Callable[..., Any], schema: pa.Schema, *, values: range
    ) -> pa.Table:
        found = [batch for value in values for batch in stage(value, self.where(frame, by, value, value))]
        return pa.Table.from_batches(found, schema)

    def beside(
        self,
        frame: pa.Table,
        by: str,
        everywhere: pa.Table,
        stage: Callable[..., Any],
        schema: pa.Schema,
        *,
        values: range,
    ) -> pa.Table:
        return self.grouped(frame, by, lambda value, rows: stage(value, rows, everywhere), schema, values=values)

    def where(self, frame: pa.Table, column: str, least: int, most: int) -> pa.Table:
        return frame.filter((pc.field(column) >= least) & (pc.field(column) <= most))

    def kept(self, frame: pa.Table) -> pa.Table:
        return frame

    def collected(self, frame: pa.Table) -> pa.Table:
        return frame


def hash_of(name: str | None) -> int | None:
    if name is None:
        return None
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little", signed=True)


def scanned(table: pa.Table) -> pa.Table:
    """The rows of a loaded trace as the first stage reads them."""
    plain = table.to_pylist()
    published = [row["kind"] == "publish" for row in plain]
    columns: dict[str, Any] = {
        "node": pa.array([hash_of(row["node"]) for row in plain], pa.int64()),
        "seq": table.column("seq"),
        "kind": pa.array([KIND[row["kind"]] for row in plain], pa.int8()),
        "message": pa.array([hash_of(row["msg"]) for row in plain], pa.int64()),
        "time_ns": table.column("time_ns"),
    }
    for name in ABOUT_PUBLICATION:
        values = [row[name] if is_one else None for row, is_one in zip(plain, published, strict=True)]
        if name in LISTS:
            values = [None if value is None else json.dumps(value) for value in values]
        columns[name] = pa.array(values, pa.string())
    return pa.table(columns)


def in_files(table: pa.Table) -> pa.Table:
    """The rows of a loaded trace as files of five rows each, in row groups of two."""
    found = []
    for at in range(0, table.num_rows, 5):
        sink = pa.BufferOutputStream()
        pq.write_table(table.slice(at, 5), sink, row_group_size=2)
        found.append(sink.getvalue().to_pybytes())
    names = [f"part-{i}" for i in range(len(found))]
    return pa.table({"path": names, "content": pa.array(found, pa.binary())})


def judge_apart(
    trace: LoadedTrace,
    asked: JudgeOptions,
    cut: TaskCut,
    *,
    witnesses: int = 5,
    as_files: bool = False,
    flow: InProcess | None = None,
) -> Verdict:
    """The verdict of the distributed judge, with every stage run here; `as_files`: the rows come as Parquet files."""
    rows = trace.table.to_pylist()
    at = {(row["node"], row["seq"]): row["msg"] for row in rows}
    counts = {"events": len(rows), "deliveries": sum(1 for row in rows if row["kind"] == "deliver")}
    flow = flow or InProcess()
    files = in_files(trace.table) if as_files else None
    looks, rare, named = _seen_in_rows(rows) if files is None else _seen_in_files(flow, files)
    setup = setup_of(trace, asked, looks, rare, named, cut, witnesses)

    def names_at(places: list[int]) -> list[str]:
        return [at[setup.nodes.names[place >> 32], place & 0xFFFFFFFF] for place in places]

    if files is not None:
        return judge(flow, files, setup, counts, names_at, scan_files)
    return judge(flow, scanned(trace.table), setup, counts, names_at)


Seen = tuple[list[NodeLook], list[dict[str, Any]], set[str]]


def _seen_in_rows(rows: list[dict[str, Any]]) -> Seen:
    looks: dict[str, NodeLook] = {}
    for row in rows:
        look = looks.setdefault(row["node"], NodeLook(row["node"], hash_of(row["node"]) or 0, 0, 0, 0))
        until = row["seq"] + 1 if row["kind"] == "publish" else 0
        looks[row["node"]] = look._replace(
            rows=look.rows + 1, end=max(look.end, row["seq"] + 1), until=max(look.until, until)
        )
    rare = [row for row in rows if row["kind"] in RARE or "digest" in dict(row["info"] or ())]
    named = {name for row in rows if row["kind"] == "publish" for name in row["dst"] or ()}
    return list(looks.values()), rare, named


def _seen_in_files(flow: InProcess, files: pa.Table) -> Seen:
    found = look_from(values(flow.mapped(files, look_at_files, LOOKED), "data"))
    assert not found.wrong
    looks = [
        NodeLook(name, int(file_hashes(pa.array([name]))[0]), tally.rows, tally.last + 1, tally.until)
        for name, tally in sorted(found.nodes.items())
    ]
    return looks, found.rare, found.destinations
