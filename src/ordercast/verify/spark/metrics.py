"""Metrics of traces on Spark: a run of ordinary size is one task, and the rows of a larger one stay where they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ordercast.trace.store import Manifest, TraceError
from ordercast.verify.load import find_runs
from ordercast.verify.metrics import local
from ordercast.verify.metrics.compose import metrics_of
from ordercast.verify.metrics.values import RunMetrics
from ordercast.verify.spark.jobs import is_distributed, what_fits
from ordercast.verify.spark.run_tasks import on_spark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from ordercast.verify.spark.places import TracePlace


def measure(
    spark: SparkSession, paths: Sequence[Path | str], *, engine: str = "auto", distributed_from: int | None = None
) -> list[RunMetrics]:
    """The metrics of every run in `paths`, in the order given: the same as without Spark."""
    from ordercast.verify.spark.places import is_elsewhere

    runs: list[Path | str] = []
    for path in paths:
        runs += [str(path)] if is_elsewhere(str(path)) else find_runs(Path(path))
    least = what_fits(spark) if distributed_from is None else distributed_from
    different = list(dict.fromkeys(runs))
    whole = [run for run in different if isinstance(run, Path) and not is_distributed(run, engine, least)]
    measured = _whole_runs(spark, whole)
    measured |= {run: _where_it_lies(spark, str(run)) for run in different if run not in measured}
    return [metrics for run in runs for metrics in measured[run]]


def _whole_runs(spark: SparkSession, runs: Sequence[Path]) -> dict[Path | str, list[RunMetrics]]:
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


def _where_it_lies(spark: SparkSession, path: str) -> list[RunMetrics]:
    from ordercast.verify.spark.places import open_places, runs_of

    return [_measured(spark, run, one) for place in open_places(spark, path) for run, one in runs_of(place)]


def _measured(spark: SparkSession, run: str, place: TracePlace) -> RunMetrics:
    from ordercast.verify.distributed.measure import measured_apart
    from ordercast.verify.distributed.setup import TaskCut
    from ordercast.verify.distributed.tables import tables_in_files, tables_of_rows
    from ordercast.verify.spark.distributed import cores_of, naming_what_is_wrong, task_bytes
    from ordercast.verify.spark.flow import SparkFlow

    def buckets_for(rows: int) -> int:
        return TaskCut.for_size(rows, 1, 0, cores=cores_of(spark), task_bytes=task_bytes()).buckets

    manifest = place.manifest or Manifest(run_id=run, protocol="unstated", guarantee="unstated")
    flow = SparkFlow(spark, f"measuring {run}")
    try:
        with naming_what_is_wrong(place.path):
            if place.files is not None:
                found = measured_apart(flow, place.files, tables_in_files, place.path, buckets_for)
            else:
                rows = place.events.select(*local.NEEDED)
                found = measured_apart(flow, rows, tables_of_rows, place.path, buckets_for)
    finally:
        flow.close()
    return metrics_of(place.path, manifest, found)
