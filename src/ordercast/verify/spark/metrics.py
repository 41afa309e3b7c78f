"""Metrics of traces on Spark: runs as tasks, and huge ones as jobs over their rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ordercast.trace.store import TraceError
from ordercast.verify.load import find_runs
from ordercast.verify.metrics import local
from ordercast.verify.metrics.compose import BUCKETS, MARKS, TOLD, Measured, Row, metrics_of
from ordercast.verify.metrics.sources import Source, open_sources
from ordercast.verify.metrics.values import RunMetrics
from ordercast.verify.spark.events import naming_unreadable_files, read_events, source_key
from ordercast.verify.spark.progress import run_action
from ordercast.verify.spark.run_tasks import HUGE_ROWS, events_in, on_spark

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession


def measure(spark: SparkSession, paths: Sequence[Path], *, huge_rows: int = HUGE_ROWS) -> list[RunMetrics]:
    """The metrics of every run in `paths`, in the order given: the same as without Spark.

    A run of ordinary size is one task. The rows of huge ones are aggregated by Spark where they lie; of more than
    ten thousand values, the ranks of percentiles are then off by at most one in ten thousand.
    """
    runs = [run for path in paths for run in find_runs(path)]
    huge = [run for run in dict.fromkeys(runs) if events_in(run) >= huge_rows]
    measured = _whole_runs(spark, [run for run in dict.fromkeys(runs) if run not in huge])
    measured.update(_row_by_row(spark, huge))
    return [metrics for run in runs for metrics in measured[run]]


def _whole_runs(spark: SparkSession, runs: Sequence[Path]) -> dict[Path, list[RunMetrics]]:
    if not runs:
        return {}
    found = on_spark(spark, "metrics", [str(run) for run in runs], _MeasureRun(Path.cwd()))
    for _, problem in found:
        if problem is not None:
            raise TraceError(problem)
    decoded = (msgspec.json.decode(result, type=list[RunMetrics]) for result, _ in found)
    return dict(zip(runs, decoded, strict=True))


class _MeasureRun:
    """Measures one run where the task runs. A relative path counts from where the command was given."""

    def __init__(self, here: Path) -> None:
        self.here = here

    def __call__(self, path: str) -> bytes:
        measured = local.measure([self.here / path])
        return msgspec.json.encode([msgspec.structs.replace(metrics, path=path) for metrics in measured])


def _row_by_row(spark: SparkSession, runs: Sequence[Path]) -> dict[Path, list[RunMetrics]]:
    """All runs in the same Spark jobs over their rows."""
    sources = {run: open_sources(run) for run in runs}
    if not sources:
        return {}
    with naming_unreadable_files():
        events = read_events(spark, _distinct([source for found in sources.values() for source in found]))
        measured = run_action(spark, "metrics", lambda: _collect(spark, events))
    return {
        run: [metrics_of(source, measured.get(source.key, Measured())) for source in found]
        for run, found in sources.items()
    }


def _distinct(sources: Sequence[Source]) -> list[Source]:
    return list({source.key: source for source in sources}.values())


def _collect(spark: SparkSession, events: DataFrame) -> dict[str, Measured]:
    """Run the jobs; what they say, by the key of the source."""
    from ordercast.verify.spark import frames

    found: dict[str, Measured] = {}

    def rows_of(frame: DataFrame) -> Iterator[tuple[Measured, Row]]:
        for row in frame.collect():
            yield found.setdefault(source_key(row["run"]), Measured()), row.asDict(recursive=True)

    latencies = frames.latencies(events)
    for run, row in rows_of(frames.totals(events)):
        run.totals = row
    for run, row in rows_of(frames.packet_headers(events)):
        run.packets[row["packet"]] = row["headers"]
    for run, row in rows_of(frames.deliveries_by_node(events).sort("run", "node")):
        run.nodes[row["node"]] = row["count"]
    for run, row in rows_of(frames.latency_by_guarantee(latencies)):
        run.latency[row["guarantee"]] = row["latency"]
    for run, row in rows_of(frames.hold_back_summary(frames.hold_backs(events))):
        run.held = row
    lists = {
        "faults": frames.faults(events, MARKS).sort("run", "rank"),
        "told": frames.told(events, TOLD).sort("run", "node", "seq"),
        "slices": frames.timeline(latencies, _spans(spark, found.values()), BUCKETS),
    }
    for name, frame in lists.items():
        for run, row in rows_of(frame):
            getattr(run, name).append(row)
    summaries = {
        "headers": frames.message_headers(events),
        "repair": frames.summary(frames.repairs(events), "repair_ns"),
        "detection": frames.summary(frames.detections(events), "detection_ns"),
    }
    for name, frame in summaries.items():
        for run, row in rows_of(frame):
            setattr(run, name, row["values"])
    return found


def _spans(spark: SparkSession, runs: Iterable[Measured]) -> DataFrame:
    """First and last time of each run that has times."""
    totals = [run.totals for run in runs if run.totals is not None and run.totals["first_ns"] is not None]
    spans = [(row["run"], row["first_ns"], row["last_ns"]) for row in totals]
    return spark.createDataFrame(spans, "run string, first_ns bigint, last_ns bigint")
