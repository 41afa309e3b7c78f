"""A run directory on disk: written in bounded memory under a temporary name, read with every field checked."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ordercast.trace.schema import COLUMNS, EVENTS, FORMAT, MANIFEST

ROW_GROUP = 1 << 17
FILE_ROWS = 1 << 22

_ARROW_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "int64": pa.int64(),
    "int32": pa.int32(),
    "list<string>": pa.list_(pa.string()),
    "map<string, string>": pa.map_(pa.string(), pa.string()),
}
EVENT_SCHEMA = pa.schema([(name, _ARROW_TYPES[type_]) for name, type_, _ in COLUMNS])


NOT_DECODABLE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
"""What decoders raise about bytes that anybody may have written: their own errors, those of text, numbers, nesting."""


class TraceError(Exception):
    """A trace that cannot be read or written as it should be; the message names the file and what is wrong."""


class Manifest(msgspec.Struct, kw_only=True):
    """run.json: what the run was and what it claims."""

    format: int = FORMAT
    run_id: str
    protocol: str
    guarantee: str
    """What the run claims: a guarantee's name, or `mixed`."""
    scope: str = "global"
    """Of causal order: `topic` or `global`."""
    order_scope: str = "session"
    """Of program order: all that one publisher published (`session`), or only what shares a key (`key`)."""
    seed: int = 0
    scenario: str = ""
    nodes: list[str] = []
    groups: dict[str, list[str]] | None = None
    """Topic to members, where static. None: membership is in the events."""
    version: str = ""
    clock: str = "local"
    """`global`: all time_ns come from one clock (virtual, or one machine's), so a subscription can be dated by it."""
    drained: bool | None = None
    """Whether the run ended with a fault-free drain that came to rest. None: nobody says."""
    genuine: bool = False
    """Whether it claims that only the publisher and the destinations of a message take part."""
    claims: list[str] = []
    """Checks that the run claims beyond what its guarantees oblige it to, such as `total-topic`."""
    records: str = "all"
    """`all` events, or only those of the application (`app`: no send, receive, drop)."""
    faults: dict[str, int] = {}
    """Faults that fired, by kind."""
    totals: dict[str, int] = {}
    """Counters of the whole run (hops, bytes, ...), also where `records` left the rows out."""
    options: dict[str, Any] = {}


def is_run(path: Path) -> bool:
    return (path / MANIFEST).is_file()


def read_manifest(run: Path) -> Manifest:
    """The manifest of `run`, or a TraceError that says what is wrong with it."""
    path = run / MANIFEST
    try:
        raw = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        raise TraceError(f"{run}: not a run directory (no {MANIFEST})") from None
    except (OSError, *NOT_DECODABLE) as error:
        raise TraceError(f"{path}: unreadable manifest: {error}") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("format"), int):
        raise TraceError(f"{path}: no format number")
    if raw["format"] > FORMAT:
        raise TraceError(f"{path}: format {raw['format']} is newer than {FORMAT}, the newest this program reads")
    try:
        return msgspec.convert(raw, Manifest)
    except msgspec.ValidationError as error:
        raise TraceError(f"{path}: {error}") from None


def event_files(run: Path) -> list[Path]:
    """The event files of `run` in name order."""
    files = sorted((run / EVENTS).glob("*.parquet"))
    if not files:
        raise TraceError(f"{run / EVENTS}: no *.parquet file")
    return files


class RunWriter:
    """Writes a run directory. Everything goes to a temporary sibling that `finish` renames; `abort` leaves nothing."""

    def __init__(self, out: Path) -> None:
        if out.exists() and not _may_replace(out):
            raise TraceError(f"{out}: exists and is not a run directory; it is left alone")
        self.out = out
        self._tmp = out.parent / f".{out.name}.{os.getpid()}.tmp"
        shutil.rmtree(self._tmp, ignore_errors=True)
        try:
            (self._tmp / EVENTS).mkdir(parents=True)
        except OSError as error:
            raise TraceError(f"{out}: cannot be written: {error.strerror}") from None
        self._file: pq.ParquetWriter | None = None
        self._files = 0
        self._rows_in_file = 0

    def write(self, rows: list[tuple[Any, ...]]) -> None:
        """Append rows, each with its values in the order of COLUMNS."""
        if not rows:
            return
        columns = [
            pa.array(values, type=field.type)
            for values, field in zip(zip(*rows, strict=True), EVENT_SCHEMA, strict=True)
        ]
        self._open_file().write_table(pa.Table.from_arrays(columns, schema=EVENT_SCHEMA), row_group_size=ROW_GROUP)
        self._rows_in_file += len(rows)
        if self._rows_in_file >= FILE_ROWS:
            self._close_file()

    def finish(self, manifest: Manifest) -> Path:
        """Seal the run under its real name."""
        if self._files == 0:
            self._open_file()
        self._close_file()
        (self._tmp / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
        old = self._tmp.with_suffix(".old")
        if self.out.exists():
            self.out.replace(old)  # Aside, not away: until the new run has its name, one of the two is whole.
        self._tmp.replace(self.out)
        shutil.rmtree(old, ignore_errors=True)
        return self.out

    def abort(self) -> None:
        """Drop what was written so far."""
        self._close_file()
        shutil.rmtree(self._tmp, ignore_errors=True)

    def _open_file(self) -> pq.ParquetWriter:
        if self._file is None:
            path = self._tmp / EVENTS / f"part-{self._files:05d}.parquet"
            self._file = pq.ParquetWriter(path, EVENT_SCHEMA, compression="zstd")
            self._files += 1
            self._rows_in_file = 0
        return self._file

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _may_replace(path: Path) -> bool:
    """Only an earlier run or an empty directory gives way."""
    return path.is_dir() and (is_run(path) or not any(path.iterdir()))
