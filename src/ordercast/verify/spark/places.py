"""Traces at any place that Spark can read: found and opened with Spark's own readers, never through this machine's."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql

from ordercast.trace.schema import EVENTS, MANIFEST
from ordercast.trace.store import Manifest, TraceError, manifest_from
from ordercast.verify.distributed.files import MOST_FILE_BYTES, plain_path
from ordercast.verify.load import REQUIRED
from ordercast.verify.spark.events import COLUMN_TYPES, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ELSEWHERE = re.compile(r"([a-z][a-z0-9+.-]+):", re.IGNORECASE)
_TEXTS = {"jsonl": "json", "ndjson": "json", "json": "json", "csv": "csv", "tsv": "csv"}


@dataclass(frozen=True)
class TracePlace:
    """A run: where its rows are, and what it says of itself."""

    path: str
    manifest: Manifest | None
    events: DataFrame
    """In the columns of the trace format."""
    files: DataFrame | None = None
    """The same as files: `path` and `content`. None where the columns are not ours, or a file is too large for it."""


def is_elsewhere(path: str) -> bool:
    """Whether a path names the file system that it is in, as in `hdfs://host/runs` or `file:/runs`."""
    return _ELSEWHERE.match(path) is not None


def _absolute(path: str) -> str:
    """A path that Spark finds even where its Java was started elsewhere, and that it does not take for a pattern."""
    return path if is_elsewhere(path) else re.sub(r"([\\*?{}\[\]])", r"\\\1", str(Path(path).absolute()))


def open_places(spark: SparkSession, path: str) -> list[TracePlace]:
    """The runs at a path: a run directory, a directory of them, or a file (or a directory of files) of events."""
    try:
        return _runs(spark, path) or [_foreign(spark, path)]
    except (PySparkException, Py4JError) as error:
        raise TraceError(f"{path}: {_said(error)}") from None


def runs_of(place: TracePlace) -> list[tuple[str, TracePlace]]:
    """The runs of a place: one if it has a manifest, else one for each value in its column `run`."""
    if place.manifest is not None:
        return [(place.manifest.run_id, place)]
    names = sorted(row["run"] or "" for row in place.events.select("run").distinct().collect())
    if names == [""] or not names:
        return [(re.sub(r"\.[^./]*$", "", place.path.rstrip("/").rsplit("/", 1)[-1]), place)]
    if "" in names:
        raise TraceError(f"{place.path}: a row has no run, others have")
    if len(names) == 1:
        return [(names[0], place)]
    return [(name, replace(place, events=place.events.where(sql.col("run") == name))) for name in names]


def _runs(spark: SparkSession, path: str) -> list[TracePlace]:
    """The run directories at or below a path, by their manifests."""
    if path.rsplit(".", 1)[-1].lower() in {*_TEXTS, "gz", "parquet"}:
        return []
    reader = spark.read.format("binaryFile").option("pathGlobFilter", MANIFEST).option("recursiveFileLookup", "true")
    found = reader.load(_absolute(path)).select("path", "content").collect()
    return [_run(spark, path, row["path"].removesuffix(f"/{MANIFEST}"), bytes(row["content"])) for row in sorted(found)]


def _run(spark: SparkSession, asked: str, found: str, content: bytes) -> TracePlace:
    path = found if is_elsewhere(asked) else plain_path(found)
    manifest = manifest_from(content, f"{path}/{MANIFEST}")
    events = f"{found if is_elsewhere(asked) else _absolute(path)}/{EVENTS}"
    return TracePlace(path, manifest, spark.read.schema(SCHEMA).parquet(events), _files(spark, events))


def _files(spark: SparkSession, events: str) -> DataFrame | None:
    files = spark.read.format("binaryFile").load(events)
    largest = files.agg(sql.max("length")).collect()[0][0]
    return files.select("path", "content") if largest is not None and largest <= MOST_FILE_BYTES else None


def _foreign(spark: SparkSession, path: str) -> TracePlace:
    kind = path.lower().removesuffix(".gz").rsplit(".", 1)[-1]
    if kind in _TEXTS:
        frame = _text(spark, _absolute(path), _TEXTS[kind], separator="\t" if kind == "tsv" else ",")
    else:
        frame = spark.read.parquet(_absolute(path))
    for name in REQUIRED:
        if name not in frame.columns:
            raise TraceError(f"{path}: no column {name}")
    return TracePlace(path, None, frame.select(*(_column(frame, name) for name in COLUMN_TYPES)))


def _text(spark: SparkSession, path: str, format_: str, *, separator: str) -> DataFrame:
    if format_ == "json":
        # Without a schema, Spark reads everything once to guess one.
        return spark.read.schema(SCHEMA).option("mode", "FAILFAST").json(path)
    options = {"header": "true", "sep": separator, "mode": "FAILFAST"}
    return spark.read.options(**options).csv(path)


def _column(frame: DataFrame, name: str) -> Column:
    """A column in its type; lists that were written as one word are cut at their semicolons."""
    if name not in frame.columns:
        return sql.lit(None).cast(COLUMN_TYPES[name]).alias(name)
    found = dict(frame.dtypes)[name]
    if COLUMN_TYPES[name].startswith("array") and found == "string":
        return sql.split(name, ";").alias(name)
    if name == "info" and not found.startswith("map"):
        return sql.lit(None).cast(COLUMN_TYPES[name]).alias(name)
    return sql.col(name).cast(COLUMN_TYPES[name]).alias(name)


def _said(error: PySparkException | Py4JError) -> str:
    """The first sentence of what Spark says."""
    if isinstance(error, PySparkException) and error.getCondition() == "PATH_NOT_FOUND":
        return "no such file or directory"
    lines = [line for line in str(error).strip().splitlines() if not line.startswith("An error occurred")]
    return re.sub(r"^(\[[A-Z_.]+\]|: )", "", lines[0]).strip() if lines else type(error).__name__
