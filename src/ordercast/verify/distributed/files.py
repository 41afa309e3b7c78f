"""Runs in our own format: Parquet files as bytes, which tasks read by columns.

Spark's readers bring the bytes from wherever they lie; what they would do next, turn columns into rows and rows into
columns again for Python, costs more than all the judging. A file is in memory whole while it is read, and of what it
says one row group at a time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ordercast.trace.schema import INFO_DIGEST
from ordercast.trace.store import TraceError
from ordercast.verify.arrow import coded, filled, first_line, taken, whole
from ordercast.verify.distributed.scan import ABOUT_PUBLICATION, LISTS, NO_TIME, Dealt, dealt
from ordercast.verify.distributed.setup import RARE
from ordercast.verify.distributed.wire import schema_of
from ordercast.verify.kernels.lookup import hashes
from ordercast.verify.load import OPTIONAL
from ordercast.verify.parquet import empty_columns
from ordercast.verify.rows import KIND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ordercast.verify.distributed.setup import Setup

LOOKED = schema_of(data=pa.binary())
MOST_FILE_BYTES = 256 << 20
"""Larger files are left to Spark's own reader of Parquet."""
MOST_RARE = 5_000_000
REPEATING_WORDS = ("node", "kind", "msg", "topic", "guarantee")
_LOOK = ("node", "seq", "kind", "dst", "info")
_SCAN = ("node", "seq", "kind", "msg", "time_ns")
_text = msgspec.json.Encoder()


class NodeTally(msgspec.Struct):
    """Sums over the rows of one node, as far as they were seen."""

    rows: int = 0
    last: int = -1
    """The largest seq."""
    until: int = 0
    """The seq of its last publication and one; 0 for none."""
    deliveries: int = 0
    publications: int = 0


class FileLook(msgspec.Struct):
    """The outcome of a first look at some files."""

    nodes: dict[str, NodeTally] = {}
    wrong: bool = False
    """Something is missing in a row, or makes no sense; what it is, whoever reads row by row can say."""
    rare: list[dict[str, Any]] = []
    destinations: set[str] = set()

    def add(self, other: FileLook) -> None:
        for name, tally in other.nodes.items():
            mine = self.nodes.setdefault(name, NodeTally())
            mine.rows += tally.rows
            mine.last = max(mine.last, tally.last)
            mine.until = max(mine.until, tally.until)
            mine.deliveries += tally.deliveries
            mine.publications += tally.publications
        self.wrong = self.wrong or other.wrong or len(self.rare) > MOST_RARE
        self.rare += other.rare
        self.destinations |= other.destinations


def hash_of(words: Any) -> np.ndarray[Any, Any]:
    """64 bits for each word, the same everywhere."""
    if not len(words):
        return np.empty(0, np.int64)
    wide = words.cast(pa.large_string())
    _, offsets, data = wide.buffers()
    begins = np.frombuffer(offsets, np.int64)[wide.offset : wide.offset + len(wide) + 1]
    return hashes(np.frombuffer(data or b"", np.uint8), begins)


def look_at_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The nodes and members in the files of one task, in one row. Columns: path, content."""
    found = FileLook()
    for group in row_groups(batches, REPEATING_WORDS):
        found.add(_look(group))
        if found.wrong:
            break
    data = msgspec.msgpack.encode(found)
    yield pa.RecordBatch.from_pydict({"data": [data]}, schema=LOOKED)


def look_from(rows: Iterable[bytes]) -> FileLook:
    """The looks of all tasks together."""
    whole_look = FileLook()
    for data in rows:
        whole_look.add(msgspec.msgpack.decode(data, type=FileLook))
    return whole_look


def scan_files(setup: Setup, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of files dealt out by message, as `scan` does it with rows. Columns: path, content."""
    number = {name: i for i, name in enumerate(setup.nodes.names)}
    for group in row_groups(batches, REPEATING_WORDS):
        table = _wanted(group, _SCAN if setup.dated else _SCAN[:-1])
        words, codes = coded(table.column("node"))
        numbers = np.array([number[name] for name in words.to_pylist()], np.int32)
        msg, said = coded(table.column("msg"))
        of_word = np.append(hash_of(msg), 0)
        rows = Dealt(
            node=numbers[codes],
            seq=_numbers(table, "seq", 0).astype(np.int32),
            kind=_kinds(table),
            message=of_word[said],
            named=said >= 0,
            times=_numbers(table, "time_ns", NO_TIME) if setup.dated else None,
        )
        yield from dealt(setup, rows, partial(_about, cache(partial(_wanted, group, ABOUT_PUBLICATION))))


def _about(read: Callable[[], pa.Table], publications: np.ndarray[Any, Any]) -> pa.Table:
    """What is to be known of publications, lists as text. It is read only where there are any."""
    chosen = taken(read(), publications)
    columns = {}
    for name in ABOUT_PUBLICATION:
        column = chosen.column(name)
        if name in LISTS:
            texts = [None if words is None else _text.encode(words).decode() for words in column.to_pylist()]
            columns[name] = pa.array(texts, pa.string())
        else:
            columns[name] = whole(column).cast(pa.string())
    return pa.table(columns)


def _wanted(group: RowGroup, columns: tuple[str, ...]) -> pa.Table:
    """These columns, all of them, with texts as dictionaries, whichever way the file has them."""
    lacking = set(columns) - set(group.names)
    if lacking:
        raise TraceError(f"no column {min(lacking)}")
    table = group.read(columns)
    for i, field in enumerate(table.schema):
        if field.name in REPEATING_WORDS and not pa.types.is_dictionary(field.type):
            words: Any = table.column(i).cast(pa.string())
            table = table.set_column(i, field.name, words.dictionary_encode())
    return table


@dataclass(frozen=True)
class RowGroup:
    """A row group of a file, of which columns are read as they are needed."""

    path: str
    file: pq.ParquetFile
    number: int
    empty: set[str]
    """Columns that hold nothing but nulls in all of the file."""

    @property
    def names(self) -> list[str]:
        names: list[str] = self.file.schema_arrow.names
        return names

    def read(self, columns: Iterable[str]) -> pa.Table:
        """These columns, as far as the file has them; a TraceError names the file that cannot be read.

        Columns without a value are not read: lists of nothing take longer than columns full of numbers.
        """
        there = [name for name in columns if name in self.names]
        filled = [name for name in there if name not in self.empty]
        try:
            table = self.file.read_row_group(self.number, columns=filled, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise TraceError(f"{self.path}: unreadable: {first_line(error)}") from None
        rows = self.file.metadata.row_group(self.number).num_rows
        for name in set(there) - set(filled):
            table = table.append_column(name, pa.nulls(rows, self.file.schema_arrow.field(name).type))
        return table.select(there)

    def lacks(self, name: str) -> bool:
        """Whether a column of words may have nulls here, as far as the file says."""
        group = self.file.metadata.row_group(self.number)
        columns = (group.column(i) for i in range(group.num_columns))
        said = next((column.statistics for column in columns if column.path_in_schema == name), None)
        return said is None or said.null_count is None or said.null_count > 0


def row_groups(batches: Iterable[pa.RecordBatch], words: Iterable[str]) -> Iterator[RowGroup]:
    """The row groups of files that have rows; `words` are read as dictionaries if they can. Columns: path, content."""
    for batch in batches:
        for path, content in zip(batch.column("path"), batch.column("content"), strict=True):
            name = plain_path(path.as_py())
            try:
                file = pq.ParquetFile(pa.BufferReader(content.as_buffer()), read_dictionary=list(words))
            except (pa.ArrowException, OSError) as error:
                raise TraceError(f"{name}: unreadable: {first_line(error)}") from None
            empty = empty_columns(file.metadata, OPTIONAL)
            for number in range(file.num_row_groups):
                if file.metadata.row_group(number).num_rows:
                    yield RowGroup(name, file, number, empty)


def plain_path(path: str) -> str:
    """A path as Spark tells it, which names its file system, as people write those on this machine."""
    return re.sub(r"^file:(//)?(?=/)", "", path)


def _kinds(table: pa.Table) -> np.ndarray[Any, Any]:
    """The kind of each row as KIND numbers it, -1 for none or one that nobody knows."""
    words, codes = coded(table.column("kind"))
    known: np.ndarray[Any, Any] = np.array([*(KIND.get(word, -1) for word in words.to_pylist()), -1], np.int8)
    return known.take(codes)


def _numbers(table: pa.Table, name: str, missing: int) -> Any:
    return np.asarray(filled(table.column(name), missing), dtype=np.int64)


def _look(group: RowGroup) -> FileLook:
    table = _wanted(group, _LOOK)
    names, node = coded(table.column("node"))
    kind = _kinds(table)
    seq = _numbers(table, "seq", -1)
    publishes, delivers = kind == KIND["publish"], kind == KIND["deliver"]
    if (node < 0).any() or (seq < 0).any() or (kind < 0).any() or _lacks_msg(group, publishes | delivers):
        return FileLook(wrong=True)
    count = len(names)
    last, until = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    np.maximum.at(last, node, seq)
    np.maximum.at(until, node[publishes], seq[publishes])
    masks = slice(None), delivers, publishes
    rows, deliveries, publications = (np.bincount(node[mask], minlength=count) for mask in masks)
    tallies = np.stack((rows, last, until + 1, deliveries, publications), axis=1).tolist()
    nodes = {name: NodeTally(*tally) for name, tally in zip(names.to_pylist(), tallies, strict=True) if tally[0]}
    dst = taken(table.column("dst"), np.flatnonzero(publishes)).drop_null()
    named = {name for listed in dst.to_pylist() for name in listed if name is not None}
    return FileLook(nodes, wrong=False, rare=_rare(group, table, kind), destinations=named)


def _lacks_msg(group: RowGroup, tagged: Any) -> bool:
    """Whether any of these rows has no message."""
    if not group.lacks("msg"):
        return False
    return bool((coded(_wanted(group, ("msg",)).column("msg"))[1][tagged] < 0).any())


def _rare(group: RowGroup, table: pa.Table, kind: Any) -> list[dict[str, Any]]:
    """Rows about members, crashes and digests."""
    chosen = np.isin(kind, [KIND[name] for name in RARE])
    info = whole(table.column("info"))
    if info.null_count < len(info):
        told = np.flatnonzero(np.asarray(info.is_valid()))
        digest: Any = pc.map_lookup(taken(info, told), pa.scalar(INFO_DIGEST), "first")
        chosen[told[np.asarray(digest.is_valid())]] = True
    places = np.flatnonzero(chosen)
    if not places.size:
        return []
    more = _wanted(group, ("time_ns", "topic"))
    columns = table.select(["node", "seq", "kind", "info"])
    for name in more.column_names:
        columns = columns.append_column(name, more.column(name))
    rows: list[dict[str, Any]] = taken(columns, places).to_pylist()
    return [{**row, "info": None if row["info"] is None else dict(row["info"])} for row in rows]
