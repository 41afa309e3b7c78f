"""The judge on Spark: many runs as one task each, or one huge run as many tasks over its shared columns.

Spark schedules, retries and collects; it never moves rows of a trace. Tasks are addressed by file and call the same
functions as the judge in one process, so the verdicts are the same. Files must be readable where the tasks run.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ordercast.trace.store import TraceError, event_files
from ordercast.verify.asked import Asked
from ordercast.verify.build import prepare
from ordercast.verify.columns import open_columns
from ordercast.verify.judge import WITNESSES, conclude, judge_trace
from ordercast.verify.load import find_runs, load_run
from ordercast.verify.spark.progress import run_action
from ordercast.verify.tasks import Partial, Task, plan, run_task
from ordercast.verify.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

T = TypeVar("T")

HUGE_ROWS = 2_000_000
"""From this many events on, a run is cut into tasks instead of being one."""
TASK_BLOCK = 32
"""Receivers or keys per task of a huge run: small enough that a few cores share the work of a hundred receivers."""

_SCHEMA = "id bigint, result binary, problem string"


def verify_runs(
    spark: SparkSession,
    paths: Sequence[Path | str],
    *,
    witnesses: int = WITNESSES,
    huge_rows: int = HUGE_ROWS,
    work: Path | None = None,
    **asked: Any,
) -> list[Verdict]:
    """A verdict for every run in `paths`, in their order: the same as `judge_path` gives.

    A run that cannot be read is raised as TraceError, but only after all others were judged, with how many there were.
    `work` is where the columns of a huge run go while it is judged; by default a temporary directory beside it.
    """
    runs = [run for path in paths for run in find_runs(Path(path))]
    huge = {run for run in runs if _events_in(run) >= huge_rows}
    small = [run for run in runs if run not in huge]
    judged: dict[Path, list[Verdict]] = {}
    problems: list[str] = []
    if small:
        settings = {"witnesses": witnesses, **asked}
        found = _on_spark(spark, "judging runs", [str(run) for run in small], _JudgeRun(settings))
        for run, (result, problem) in zip(small, found, strict=True):
            if problem is not None:
                problems.append(problem)
            else:
                judged[run] = msgspec.json.decode(result, type=list[Verdict])
    for run in sorted(huge):
        try:
            judged[run] = _judge_huge(spark, run, Asked(**asked), witnesses, work)
        except TraceError as error:
            problems.append(str(error))
    if problems:
        more = f" (and {len(problems) - 1} more of {len(runs)} runs cannot be read)" if len(problems) > 1 else ""
        raise TraceError(problems[0] + more)
    return [verdict for run in runs for verdict in judged[run]]


def _events_in(run: Path) -> int:
    """Rows of a run's Parquet files, from their footers; text files count as small."""
    try:
        files = event_files(run) if run.is_dir() else [run] if run.suffix.lower() == ".parquet" else []
        return sum(pq.read_metadata(file).num_rows for file in files)
    except (TraceError, OSError, pa.ArrowException):
        return 0  # Whoever loads it says what is wrong with it.


def _judge_huge(spark: SparkSession, run: Path, asked: Asked, witnesses: int, work: Path | None) -> list[Verdict]:
    """Prepare the columns once, here, and let tasks map them."""
    verdicts = []
    for trace in load_run(run):
        try:
            directory = Path(tempfile.mkdtemp(prefix=f".{run.name}-columns-", dir=work or run.parent))
        except OSError as error:
            raise TraceError(f"{work or run.parent}: no room for the columns of {run}: {error.strerror}") from None
        try:
            columns = prepare(trace, asked)
            del trace  # Its rows are the largest thing in memory, and the columns have all that matters of them.
            columns.save(directory)
            tasks = plan(columns, block=TASK_BLOCK)
            encoded = [msgspec.json.encode(task).decode() for task in tasks]
            found = _on_spark(spark, f"judging {run.name}", encoded, _RunTask(str(directory), witnesses))
            problem = next((problem for _, problem in found if problem is not None), None)
            if problem is not None:
                raise TraceError(problem)
            partials = [msgspec.json.decode(result, type=Partial) for result, _ in found]
            verdicts.append(conclude(columns, partials, witnesses=witnesses))
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    return verdicts


class _JudgeRun:
    """Judges one run where the task runs."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings

    def __call__(self, path: str) -> bytes:
        verdicts = [judge_trace(trace, **self.settings) for trace in load_run(Path(path))]
        return msgspec.json.encode(verdicts)


class _RunTask:
    """Does one task of a run whose columns are in `directory`."""

    def __init__(self, directory: str, cap: int) -> None:
        self.directory = directory
        self.cap = cap

    def __call__(self, task: str) -> bytes:
        columns = open_columns(Path(self.directory))
        return msgspec.json.encode(run_task(columns, msgspec.json.decode(task, type=Task), cap=self.cap))


def _on_spark(
    spark: SparkSession, label: str, inputs: list[str], do: Callable[[str], bytes]
) -> list[tuple[bytes, str | None]]:
    """`do` for every input, one task each, in their order. Bad input comes back as a problem beside no result."""
    numbers = spark.range(0, len(inputs), 1, len(inputs))
    rows = run_action(spark, label, numbers.mapInArrow(_each(inputs, do), _SCHEMA).toArrow).to_pylist()
    return [(row["result"] or b"", row["problem"]) for row in sorted(rows, key=lambda row: row["id"])]


def _each(
    inputs: list[str], do: Callable[[str], bytes]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers: list[Any] = batch.column(0).to_pylist()
            for number in numbers:
                result, problem = None, None
                try:
                    result = do(inputs[number])
                except TraceError as error:
                    problem = str(error)
                yield pa.RecordBatch.from_pydict(
                    {
                        "id": pa.array([number], pa.int64()),
                        "result": pa.array([result], pa.binary()),
                        "problem": pa.array([problem], pa.string()),
                    }
                )

    return work
