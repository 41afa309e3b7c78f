"""Parquet files that anybody may have written or damaged: whatever is in one, its reader gets a table or one line.

The library may end the process that reads a damaged file. A file whose bytes are those that its run's manifest vouches
for is read here; every other one by a child process, which hands the rows over only once they are whole and sound.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ordercast.trace.store import TraceError, crc32_of
from ordercast.verify.arrow import first_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Wanted(msgspec.Struct, frozen=True):
    """The columns and rows to read of one file."""

    path: str
    columns: tuple[str, ...] | None = None
    """Those of them that the file has; None for all."""
    words: tuple[str, ...] = ()
    """Columns of words that repeat: each comes as a dictionary."""
    optional: tuple[str, ...] = ()
    """Columns to leave out if they hold nothing but nulls, by the file's own statistics."""


def read_parquet(wanted: Wanted, crc32: int | None = None) -> pa.Table:
    """The wanted columns of a file. `crc32` is what its writer says of its bytes, if anybody does.

    Raises a TraceError that names the file, whatever is wrong with it.
    """
    if crc32 is None or crc32 != crc32_of(Path(wanted.path)):
        return _READER.read(wanted)
    try:
        return _read_here(wanted)
    except (pa.ArrowException, OSError) as error:
        raise TraceError(f"{wanted.path}: unreadable Parquet: {first_line(error)}") from None


def _read_here(wanted: Wanted) -> pa.Table:
    with _opened(wanted) as file:
        return file.read(columns=_columns(file, wanted))


def read_pieces(wanted: Wanted) -> Iterator[pa.Table]:
    """The same in pieces, at least one of them, each proven to be sound inside: no value lies outside of its column."""
    with _opened(wanted) as file:
        columns = _columns(file, wanted)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=columns)
            table.validate(full=True)
            yield table
        if not file.num_row_groups:
            yield file.read(columns=columns)


def _opened(wanted: Wanted) -> pq.ParquetFile:
    names = pq.read_schema(wanted.path).names
    return pq.ParquetFile(
        wanted.path, read_dictionary=[name for name in wanted.words if name in names], memory_map=True
    )


def _columns(file: pq.ParquetFile, wanted: Wanted) -> list[str]:
    left_out = empty_columns(file.metadata, wanted.optional)
    names = file.schema_arrow.names
    return [name for name in names if (wanted.columns is None or name in wanted.columns) and name not in left_out]


def empty_columns(metadata: pq.FileMetaData, optional: Iterable[str]) -> set[str]:
    """Optional columns that hold nothing but nulls, by the file's own statistics: reading them would cost the most."""
    empty = set(optional)
    for g in range(metadata.num_row_groups):
        group = metadata.row_group(g)
        for c in range(group.num_columns):
            chunk = group.column(c)
            nulls = chunk.statistics.null_count if chunk.statistics is not None else None
            if nulls is None or nulls < chunk.num_values:
                empty.discard(chunk.path_in_schema.split(".")[0])
    return empty


class Reader:
    """The child process that reads, started at the first need and again after its death; one for all files."""

    def __init__(self, *command: str) -> None:
        self._command = command
        self._child: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._turn = threading.Lock()

    def read(self, wanted: Wanted) -> pa.Table:
        """The wanted part of a file, or a TraceError that names it; the child's death is one."""
        with self._turn:
            child = self._running()
            try:
                table, problem = self._ask(child, wanted)
            except BaseException:
                self.stop()  # What is still in the pipe belongs to nobody.
                raise
        if problem == OUT_OF_MEMORY:
            raise MemoryError
        if table is None or problem:
            raise TraceError(f"{wanted.path}: unreadable Parquet: {problem}")
        return table

    def _ask(self, child: subprocess.Popen[bytes], wanted: Wanted) -> tuple[pa.Table | None, str]:
        """The rows, and what is wrong with them; empty: nothing."""
        asked, answers = _pipes(child)
        table = None
        try:
            asked.write(msgspec.json.encode(wanted) + b"\n")
            asked.flush()
            with pa.ipc.open_stream(answers) as stream:
                table = stream.read_all()
            last = answers.readline()
        except (pa.ArrowException, OSError):
            last = b""
        if last.endswith(b"\n"):
            return table, msgspec.json.decode(last, type=str)
        return None, self._death()

    def _death(self) -> str:
        """Why the child is no more, after the file that it was asked for."""
        child = self._child
        self.stop()
        code = child.returncode if child is not None else 0
        if code == -signal.SIGKILL:
            return OUT_OF_MEMORY  # Nobody else kills it.
        name = signal.Signals(-code).name if code < 0 else f"status {code}"
        return f"damaged so that reading it ends the reader ({name})"

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None or self._owner != os.getpid():
            self._child = subprocess.Popen(
                [sys.executable, "-P", *self._command],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            self._owner = os.getpid()
        return self._child

    def stop(self) -> None:
        """End the child, which ends when nobody can ask it any more."""
        child, self._child = self._child, None
        if child is None or self._owner != os.getpid():
            return
        for pipe in _pipes(child):
            with contextlib.suppress(OSError):  # What it did not take any more is of no use now.
                pipe.close()
        child.wait()


OUT_OF_MEMORY = "out of memory"
"""What the child says of a file that is not at fault."""


def _pipes(child: subprocess.Popen[bytes]) -> tuple[IO[bytes], Any]:
    if child.stdin is None or child.stdout is None:
        raise AssertionError("the reader was started without pipes")
    return child.stdin, child.stdout


_READER = Reader("-m", "ordercast.verify.parquet_reader")
atexit.register(_READER.stop)
