"""Traces that others wrote as text: JSON lines and CSV. A bad line is named by its number."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from ordercast.trace.store import NOT_DECODABLE, TraceError
from ordercast.verify.arrow import first_false, first_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_COLUMNS = ("run", "node", "seq", "kind", "time_ns", "msg", "topic", "keys", "guarantee", "dst")
_NUMBERS = ("seq", "time_ns")


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


def read_json_lines(path: Path) -> pa.Table:
    """One event a line. A column that no line has is absent from the table, as it would be from a Parquet file."""
    events = []
    decode = msgspec.json.Decoder(_Event).decode
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.isspace():
                    events.append(_decoded(decode, line, f"{path}:{number}"))
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
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


def _texts(info: Any) -> list[tuple[str, str]] | None:
    """The entries of an info that are text, as ours are; others keep anything there."""
    if not isinstance(info, dict):
        return None
    return [(name, value) for name, value in info.items() if isinstance(value, str)]


def _decoded(decode: Callable[[bytes], _Event], line: bytes, where: str) -> _Event:
    try:
        return decode(line)
    except NOT_DECODABLE as error:
        raise TraceError(f"{where}: {error}") from None


def read_csv(path: Path) -> pa.Table:
    """One event a line below a header; lists are separated by semicolons; an empty field is no value."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header = next(csv.reader(file), None)
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
        table = arrow_csv.read_csv(path, convert_options=convert)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: {first_line(error)}") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
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
