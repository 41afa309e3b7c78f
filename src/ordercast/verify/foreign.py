"""Traces that others wrote as text: JSON lines, JSON arrays, CSV and TSV, compressed or not.

A bad line is named by its number, an event of an array by its place.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import zlib
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from ordercast.trace.store import NOT_DECODABLE, TraceError
from ordercast.verify.arrow import first_false, first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO

_COLUMNS = ("run", "node", "seq", "kind", "time_ns", "msg", "topic", "keys", "guarantee", "dst")
_NUMBERS = ("seq", "time_ns")


T = TypeVar("T")

_Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]


class _Event(msgspec.Struct):
    """A line of JSON. Ids may be numbers: people number their nodes and messages."""

    run: str | int | None = None
    node: str | int | None = None
    seq: _Int64 | None = None
    kind: str | None = None
    time_ns: _Int64 | None = None
    msg: str | int | None = None
    topic: str | int | None = None
    keys: list[str | int] | str | None = None
    guarantee: str | None = None
    dst: list[str | int] | str | None = None
    info: Any = None


GZIP = ".gz"
_UNREADABLE = (OSError, EOFError, zlib.error)
"""What reading a file raises: the system's errors, and those of a compressed file that is cut or damaged."""


def opened(path: Path) -> BinaryIO:
    """The bytes of a text file, which may be compressed."""
    return gzip.open(path, "rb") if path.suffix.lower() == GZIP else path.open("rb")  # type: ignore[return-value]


def unreadable(path: Path, error: Exception) -> TraceError:
    return TraceError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or first_line(error)}")


def read_json(path: Path) -> pa.Table:
    """One event a line, or all in one array. A column that no event has is absent, as from a Parquet file."""
    try:
        with opened(path) as file:
            events = list(_json_events(file, path))
    except _UNREADABLE as error:
        raise unreadable(path, error) from None
    if not events:
        raise TraceError(f"{path}: no event in this file")
    columns: dict[str, pa.Array[Any]] = {}
    for name in _COLUMNS:
        values = [getattr(event, name) for event in events]
        if any(value is not None for value in values):
            columns[name] = pa.array([_plain(name, value) for value in values], type=_type_of(name))
    if any(isinstance(event.info, dict) for event in events):
        columns["info"] = pa.array([_texts(event.info) for event in events], type=pa.map_(pa.string(), pa.string()))
    return pa.table(columns)


def _json_events(file: BinaryIO, path: Path) -> Iterator[_Event]:
    first = file.readline().removeprefix(codecs.BOM_UTF8)
    if first.lstrip()[:1] == b"[":
        yield from _decoded(msgspec.json.Decoder(list[_Event]).decode, first + file.read(), str(path))
        return
    decode = msgspec.json.Decoder(_Event).decode
    for number, line in enumerate((first, *file) if first else (), 1):
        if line and not line.isspace():
            yield _decoded(decode, line, f"{path}:{number}")


def _texts(info: Any) -> list[tuple[str, str]] | None:
    """The entries of an info that are text, as ours are; others keep anything there."""
    if not isinstance(info, dict):
        return None
    return [(name, value) for name, value in info.items() if isinstance(value, str)]


def _decoded(decode: Callable[[bytes], T], text: bytes, where: str) -> T:
    try:
        return decode(text)
    except NOT_DECODABLE as error:
        raise TraceError(f"{where}: {error}") from None


def read_csv(path: Path) -> pa.Table:
    """One event a line below a header; lists are separated by semicolons; an empty field is no value."""
    return _read_separated(path, ",")


def read_tsv(path: Path) -> pa.Table:
    """As `read_csv`, with tabs between the fields."""
    return _read_separated(path, "\t")


def _read_separated(path: Path, delimiter: str) -> pa.Table:
    try:
        with opened(path) as file:
            text = file.readline().decode("utf-8-sig")
            header = next(csv.reader([text], delimiter=delimiter), None)
            if not header:
                raise TraceError(f"{path}: empty file: the first line must name the columns")
            wanted = [name for name in _COLUMNS if name in header]
            if not wanted:
                raise TraceError(f"{path}: no column node: the first line must name the columns")
            convert = arrow_csv.ConvertOptions(
                include_columns=wanted,
                column_types=dict.fromkeys(wanted, pa.string()),
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
                null_values=[""],
            )
            file.seek(0)
            parse = arrow_csv.ParseOptions(delimiter=delimiter)
            table = arrow_csv.read_csv(file, convert_options=convert, parse_options=parse)
    except (pa.ArrowException, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: {first_line(error)}") from None
    except _UNREADABLE as error:
        raise unreadable(path, error) from None
    for name in _NUMBERS:
        if name in wanted:
            table = table.set_column(table.column_names.index(name), name, _numbers(table.column(name), name, path))
    return table


def _numbers(column: pa.ChunkedArray[Any], name: str, path: Path) -> pa.ChunkedArray[Any]:
    fits: Any = pc.match_substring_regex(column, r"^-?\d{1,18}$")
    wrong = first_false(fits.fill_null(True))
    if wrong >= 0:
        # The header is line 1, so row 0 is line 2.
        raise TraceError(f"{path}:{wrong + 2}: {name} is {column[wrong].as_py()!r}, not a whole number")
    return column.cast(pa.int64())


def _plain(name: str, value: Any) -> Any:
    """Numbers that stand for ids become text; a list written as one string is cut at its semicolons."""
    if value is None or name in _NUMBERS:
        return value
    if name in ("keys", "dst"):
        return value.split(";") if isinstance(value, str) else [str(item) for item in value]
    return str(value)


def _type_of(name: str) -> pa.DataType:
    if name in _NUMBERS:
        return pa.int64()
    return pa.list_(pa.string()) if name in ("keys", "dst") else pa.string()
