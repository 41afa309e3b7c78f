"""Whole runs as Spark tasks: Spark schedules, retries and collects, and moves no row of a trace."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ordercast.trace.store import TraceError, event_files
from ordercast.verify.spark.progress import run_action

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

_SCHEMA = "id bigint, result binary, problem string"


def events_in(run: Path) -> int:
    """Rows of a run's Parquet files, from their footers; text files count as small."""
    try:
        files = event_files(run) if run.is_dir() else [run] if run.suffix.lower() == ".parquet" else []
        return sum(pq.read_metadata(file).num_rows for file in files)
    except (TraceError, OSError, pa.ArrowException):
        return 0  # Whoever loads it says what is wrong with it.


def on_spark(
    spark: SparkSession, label: str, inputs: list[str], do: Callable[[str], bytes]
) -> list[tuple[bytes, str | None]]:
    """`do` for every input, one task each, in their order. Bad input comes back as a problem beside no result.

    On a cluster the problem names the host: others may be able to read what it could not.
    """
    numbers = spark.range(0, len(inputs), 1, len(inputs))
    work = _each(inputs, do, tell_host=not (spark.conf.get("spark.master") or "").startswith("local"))
    rows = run_action(spark, label, numbers.mapInArrow(work, _SCHEMA).toArrow).to_pylist()
    return [(row["result"] or b"", row["problem"]) for row in sorted(rows, key=lambda row: row["id"])]


def _each(
    inputs: list[str], do: Callable[[str], bytes], *, tell_host: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers: list[Any] = batch.column(0).to_pylist()
            for number in numbers:
                result, problem = None, None
                try:
                    result = do(inputs[number])
                except TraceError as error:
                    problem = f"{error} (on host {socket.gethostname()})" if tell_host else str(error)
                yield pa.RecordBatch.from_pydict(
                    {
                        "id": pa.array([number], pa.int64()),
                        "result": pa.array([result], pa.binary()),
                        "problem": pa.array([problem], pa.string()),
                    }
                )

    return work
