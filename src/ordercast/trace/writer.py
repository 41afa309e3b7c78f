"""Writes a run directory: Parquet in bounded memory, under a temporary name until it is whole."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ordercast.trace.arrow_schema import EVENT_SCHEMA
from ordercast.trace.schema import EVENTS, MANIFEST
from ordercast.trace.store import Manifest, TraceError, crc32_of, event_files, is_run

ROW_GROUP = 1 << 17
FILE_ROWS = 1 << 22


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
        self.write_table(pa.Table.from_arrays(columns, schema=EVENT_SCHEMA))

    def write_table(self, table: pa.Table) -> None:
        """Append the rows of a table that has the columns of the trace."""
        self._open_file().write_table(table, row_group_size=ROW_GROUP)
        self._rows_in_file += table.num_rows
        if self._rows_in_file >= FILE_ROWS:
            self._close_file()

    def finish(self, manifest: Manifest) -> Path:
        """Seal the run under its real name."""
        if self._files == 0:
            self._open_file()
        self._close_file()
        written = {file.name: crc for file in event_files(self._tmp) if (crc := crc32_of(file)) is not None}
        manifest = msgspec.structs.replace(manifest, crc32=written)
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
