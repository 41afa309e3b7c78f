"""Common parts of the importers: rows as they happened at each node, and text that anybody may have written."""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from ordercast.trace.arrow_schema import EVENT_SCHEMA
from ordercast.trace.store import NOT_DECODABLE, TraceError
from ordercast.verify.load import LoadedTrace, normalised

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PACKED = b"\x1f\x8b"
"""How a file begins that gzip has written."""
UNSAID = "link"
"""The kind of events that mean nothing to the judge, and count in a node's history all the same."""


class ImportedRows:
    """Rows of one trace; those of a node are numbered as they are added."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: list[dict[str, Any]] = []
        self._next: Counter[str] = Counter()

    def add(self, node: str, kind: str, msg: str | None = None, **more: Any) -> None:
        self._rows.append({"node": node, "seq": self._next[node], "kind": kind, "msg": msg, **more})
        self._next[node] += 1

    def trace(self, assumed: str = "") -> LoadedTrace:
        """The trace, or a TraceError if nothing in it was published or delivered."""
        if not any(row["kind"] in ("publish", "deliver") for row in self._rows):
            raise TraceError(f"{self.path}: nothing was published or delivered in it")
        named = {field.name: [row.get(field.name) for row in self._rows] for field in EVENT_SCHEMA}
        try:
            columns = {field.name: pa.array(named[field.name], type=field.type) for field in EVENT_SCHEMA}
            table = normalised(pa.table(columns), str(self.path))
        except (pa.ArrowException, OverflowError) as error:
            raise TraceError(f"{self.path}: {error}") from None
        return LoadedTrace(str(self.path), self.path.stem, None, table, assumed)


def text_of(path: Path) -> str:
    """The text of a file, which may be packed by gzip, whatever its name says."""
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if data.startswith(_PACKED) else data).decode("utf-8-sig")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"{path}: not what gzip writes: {error}") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: not text: byte {error.start}") from None


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON lines, with the number of their lines."""
    for number, line in enumerate(text_of(path).splitlines(), 1):
        if line.strip():
            yield number, decoded(line, f"{path}: line {number}")


def decoded(text: str, where: str) -> dict[str, Any]:
    """A JSON object."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except NOT_DECODABLE as error:
        raise TraceError(f"{where}: {error}") from None


def word(value: Any, where: str) -> str:
    """A name: text that is not empty."""
    if not isinstance(value, str) or not value:
        raise TraceError(f"{where}: {value!r} is no name")
    return value
