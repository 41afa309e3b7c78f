"""Traces as one DataFrame: run directories, read by Spark where they lie, and event files that others wrote."""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from ordercast.trace.schema import COLUMNS, EVENTS
from ordercast.trace.store import TraceError
from ordercast.verify.metrics.sources import in_our_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from ordercast.verify.metrics.sources import Source

_SQL_TYPES = {
    "string": "string",
    "int64": "bigint",
    "int32": "int",
    "list<string>": "array<string>",
    "map<string, string>": "map<string, string>",
}
COLUMN_TYPES = {name: _SQL_TYPES[type_] for name, type_, _ in COLUMNS}
SCHEMA = ", ".join(f"`{name}` {type_}" for name, type_ in COLUMN_TYPES.items())


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
            foreign = spark.createDataFrame(in_our_columns(source.table), SCHEMA)
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


def _literal_path(file: Path) -> str:
    """The path as Spark reads it: absolute, and with the characters escaped that it would take for a pattern."""
    return re.sub(r"([\\*?{}\[\]])", r"\\\1", str(file.resolve()))
