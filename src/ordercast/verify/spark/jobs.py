"""The judge on Spark: a run of ordinary size is one task, and the rows of a larger one stay where they are.

A run that fits is judged by one task that reads it by itself (the local engine); its files must be readable where the
task runs. One that does not, or whose path names a file system of its own, is judged by the distributed engine.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ordercast.trace.store import TraceError
from ordercast.verify.judge import WITNESSES, judge_trace
from ordercast.verify.load import find_runs, load_run
from ordercast.verify.spark.run_tasks import events_in, on_spark
from ordercast.verify.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

DISTRIBUTED_FROM = 20_000_000
"""From this many events on, a run is not read whole by a task on another machine: it would take gigabytes there."""
_BYTES_AN_EVENT = 200
"""What the local engine takes, about."""


class JudgedRuns(NamedTuple):
    """The verdicts of all runs that could be read, in their order, and one line about each that could not."""

    verdicts: list[Verdict]
    problems: list[str]


def verify_runs(
    spark: SparkSession,
    paths: Sequence[Path | str],
    *,
    witnesses: int = WITNESSES,
    engine: str = "auto",
    distributed_from: int | None = None,
    **asked: Any,
) -> JudgedRuns:
    """A verdict for every run in `paths`, in their order: the same as `judge_path` gives."""
    from ordercast.verify.spark.places import is_elsewhere

    runs: list[Path | str] = []
    problems: list[str] = []
    for path in paths:
        try:
            runs += [str(path)] if is_elsewhere(str(path)) else find_runs(Path(path))
        except TraceError as error:
            problems.append(str(error))
    least = what_fits(spark) if distributed_from is None else distributed_from
    whole = [run for run in runs if isinstance(run, Path) and not is_distributed(run, engine, least)]
    judged = _whole_runs(spark, whole, {"witnesses": witnesses, **asked})
    for run in runs:
        if run not in judged:
            judged[run] = _where_it_lies(spark, str(run), witnesses, asked)
    told = [judged[run] for run in runs]
    problems += [found for found in told if isinstance(found, str)]
    return JudgedRuns([verdict for found in told if not isinstance(found, str) for verdict in found], problems)


def what_fits(spark: SparkSession) -> int:
    """So many events are judged in one process: on this machine, what half of its memory holds."""
    if not (spark.sparkContext.master or "").startswith("local"):
        return DISTRIBUTED_FROM
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(DISTRIBUTED_FROM, memory // 2 // _BYTES_AN_EVENT)


def is_distributed(run: Path, engine: str, least: int) -> bool:
    """Whether the rows of a run stay where they are."""
    return engine == "distributed" or (engine == "auto" and events_in(run) >= least)


def _whole_runs(
    spark: SparkSession, runs: list[Path], settings: dict[str, Any]
) -> dict[Path | str, list[Verdict] | str]:
    """Verdicts of runs, or what is wrong with them: a task each."""
    if not runs:
        return {}
    found = on_spark(spark, "judging runs", [str(run) for run in runs], _JudgeRun(settings, Path.cwd()))
    return {
        run: msgspec.json.decode(result, type=list[Verdict]) if problem is None else problem
        for run, (result, problem) in zip(runs, found, strict=True)
    }


def _where_it_lies(spark: SparkSession, path: str, witnesses: int, asked: dict[str, Any]) -> list[Verdict] | str:
    from ordercast.verify.spark.distributed import verify_places

    try:
        return verify_places(spark, path, witnesses=witnesses, **asked)
    except TraceError as error:
        return str(error)


class _JudgeRun:
    """Judges one run where the task runs. A relative path counts from where the command was given."""

    def __init__(self, settings: dict[str, Any], here: Path) -> None:
        self.settings = settings
        self.here = here

    def __call__(self, path: str) -> bytes:
        traces = load_run(self.here / path)
        verdicts = [judge_trace(dataclasses.replace(trace, path=path), **self.settings) for trace in traces]
        return msgspec.json.encode(verdicts)
