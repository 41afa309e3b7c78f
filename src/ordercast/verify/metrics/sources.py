"""Traces to be measured: run directories and event files that others wrote, looked at but not yet read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ordercast.trace.arrow_schema import EVENT_SCHEMA
from ordercast.trace.collect import describe_run, has_journals, journal_tables
from ordercast.trace.store import Manifest, TraceError, event_files, is_run, read_manifest
from ordercast.verify.load import REQUIRED, find_runs, load_run

if TYPE_CHECKING:
    from pathlib import Path

_WORD = pa.dictionary(pa.int32(), pa.string())


class Source(msgspec.Struct):
    """One trace to read: where it is and what it says about itself."""

    path: Path
    manifest: Manifest
    files: list[Path]
    """Event files of a run directory."""
    table: pa.Table | None = None
    """The events themselves, where they came from journals or from a file that others wrote."""

    @property
    def key(self) -> str:
        """A key that tells this trace's rows from others'. Not the run id: two traces' ids may be the same."""
        place = str(self.path.resolve())
        return place if self.table is None else f"{place}#{self.manifest.run_id}"


def open_sources(path: Path) -> list[Source]:
    """The traces at `path`, looked at far enough to name a file that is missing, truncated or lacks a column."""
    return [source for found in find_runs(path) for source in _sources_of(found)]


def _sources_of(path: Path) -> list[Source]:
    if not is_run(path) and not has_journals(path):
        return [
            Source(path, Manifest(run_id=trace.run, protocol="unstated", guarantee="unstated"), [], trace.table)
            for trace in load_run(path)
        ]
    if has_journals(path):
        manifest, _ = describe_run(path)
        return [Source(path, manifest, [], pa.concat_tables(journal_tables(path, manifest.run_id)))]
    files = event_files(path)
    for file in files:
        _check_parquet(file)
    return [Source(path, read_manifest(path), files)]


def _check_parquet(file: Path) -> None:
    try:
        columns = pq.read_schema(file).names
    except (OSError, pa.ArrowException) as error:
        raise TraceError(f"{file}: not a readable Parquet file: {str(error).splitlines()[0]}") from None
    for column in REQUIRED:
        if column not in columns:
            raise TraceError(f"{file}: no column {column}")


def in_our_columns(table: pa.Table, words: tuple[str, ...] = ()) -> pa.Table:
    """The table in the types of the trace format, `words` as dictionaries; columns that it lacks are null."""
    present = set(table.column_names)
    fields = [field.with_type(_WORD) if field.name in words else field for field in EVENT_SCHEMA]
    return pa.table(
        [
            table.column(field.name).cast(field.type)
            if field.name in present
            else pa.nulls(table.num_rows, type=field.type)
            for field in fields
        ],
        schema=pa.schema(fields),
    )
