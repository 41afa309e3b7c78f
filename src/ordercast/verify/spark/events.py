"""Traces as one DataFrame: run directories, read by Spark where they lie, and event files that others wrote."""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ordercast.trace.collect import describe_run, has_journals, journal_tables
from ordercast.trace.schema import COLUMNS, EVENTS
from ordercast.trace.store import EVENT_SCHEMA, Manifest, TraceError, event_files, read_manifest
from ordercast.verify.load import REQUIRED, find_runs, load_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

_SQL_TYPES = {
    "string": "string",
    "int64": "bigint",
    "int32": "int",
    "list<string>": "array<string>",
    "map<string, string>": "map<string, string>",
}
SCHEMA = ", ".join(f"`{name}` {_SQL_TYPES[type_]}" for name, type_, _ in COLUMNS)


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
        """What tells this trace's rows from others'. Not the run id: nobody promises that two traces' ids differ."""
        place = str(self.path.resolve())
        return place if self.table is None else f"{place}#{self.manifest.run_id}"


def open_sources(path: Path) -> list[Source]:
    """The traces at `path`, looked at far enough to name a file that is missing, truncated or lacks a column."""
    return [source for found in find_runs(path) for source in _sources_of(found)]


def read_events(spark: SparkSession, sources: Sequence[Source]) -> DataFrame:
    """All rows of all sources in the columns of the trace format, but `run` tells the source; see source_key."""
    from pyspark.sql import functions as sql

    frames = []
    files = [_literal_path(file) for source in sources for file in source.files]
    if files:
        run_directory = sql.regexp_replace(sql.col("_metadata.file_path"), f"/{EVENTS}/[^/]*$", "")
        frames.append(spark.read.schema(SCHEMA).parquet(*files).withColumn("run", run_directory))
    for source in sources:
        if source.table is not None:
            foreign = spark.createDataFrame(_plain(source.table), SCHEMA)
            frames.append(foreign.withColumn("run", sql.lit(source.key)))
    return reduce(lambda left, right: left.unionByName(right), frames)


def source_key(run: str) -> str:
    """The source's key for a value of the column `run` that read_events made; Spark writes files as encoded URIs."""
    return unquote(urlsplit(run).path) if run.startswith("file:") else run


@contextmanager
def naming_unreadable_files() -> Iterator[None]:
    """Turn Spark's failure to read a file into a TraceError that names the file."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        file = re.search(r"file[: ]+[`'\"]?(file:/[^\s`'\",]+)", str(error))
        if file is None:
            raise
        path = unquote(urlsplit(file[1]).path.rstrip("."))
        raise TraceError(f"{path}: unreadable: damaged, or not in the format of a trace") from None


def _sources_of(path: Path) -> list[Source]:
    if not path.is_dir():
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


def _plain(table: pa.Table) -> pa.Table:
    """The table in the types of the trace format; columns that it lacks are null."""
    present = set(table.column_names)
    return pa.table(
        [
            table.column(field.name).cast(field.type)
            if field.name in present
            else pa.nulls(table.num_rows, type=field.type)
            for field in EVENT_SCHEMA
        ],
        schema=EVENT_SCHEMA,
    )


def _literal_path(file: Path) -> str:
    """The path as Spark reads it: absolute, and with the characters escaped that it would take for a pattern."""
    return re.sub(r"([\\*?{}\[\]])", r"\\\1", str(file.resolve()))
