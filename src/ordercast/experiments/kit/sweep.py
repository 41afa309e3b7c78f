"""Configurations as Spark tasks: each result comes as soon as it is there, and a dead worker takes only its own.

One Spark job with a task per configuration would show nothing until the last task is done, and the death of one worker
would lose them all. So every task is a job of its own, a few of them under way at a time; short configurations share a
task. They use the DataFrame API alone, so that a master of any kind can run them.
"""

from __future__ import annotations

import time
import traceback
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from ordercast.experiments.kit.study import Row
from ordercast.verify.spark.java import EnvironmentLacks

if TYPE_CHECKING:
    from pyspark.sql import Row as SparkRow
    from pyspark.sql import SparkSession

TASK_S = 1.0
"""Configurations share a task until it is expected to take this long: starting one costs some hundredths of it."""

_SCHEMA = "position bigint, result string, error string, trace string, seconds double"
_COLUMNS: dict[str, pa.DataType] = {
    "position": pa.int64(),
    "result": pa.string(),
    "error": pa.string(),
    "trace": pa.string(),
    "seconds": pa.float64(),
}
_ARROW_SCHEMA = pa.schema(_COLUMNS)
_ENOUGH_ROWS_FOR_EVERY_SLOT = 1 << 16
_CANCEL_AGAIN_S = 0.2


class SweepOutcome(msgspec.Struct, frozen=True):
    """The outcome of the configuration at `position` of the sweep: a result, or an error in one line."""

    position: int
    result: Row | None = None
    error: str = ""
    trace: str = ""
    """The Python traceback of the error, where there is one."""
    seconds: float = 0.0


def slots(spark: SparkSession) -> int:
    """How many tasks Spark runs at a time: what it splits a table into that nobody told it how to split."""
    spark.range(0, 1, 1, 1).mapInArrow(_one_row, "one bigint").collect()  # A cluster has a size once it runs something.
    return len(spark.range(_ENOUGH_ROWS_FOR_EVERY_SLOT).mapInArrow(_one_row, "one bigint").collect())


def _one_row(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row per task."""
    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"one": pa.array([1], pa.int64())})


class Sweep:
    """Runs `run` on every configuration, the heaviest first, at most `at_once` tasks under way."""

    def __init__(
        self,
        spark: SparkSession,
        run: Callable[[Row], Row],
        configurations: Sequence[Row],
        *,
        weights: Sequence[float],
        at_once: int,
    ) -> None:
        self._spark = spark
        self._run = run
        self._configurations = configurations
        self._weights = weights
        self._at_once = at_once
        self._waiting = deque(sorted(range(len(configurations)), key=lambda position: -weights[position]))
        self._suspects: set[int] = set()
        """Their worker died while several configurations shared it: each runs alone now, to find the one to blame."""
        self._seconds = 0.0
        self._weight = 0.0
        self._closed = False
        self._name = f"ordercast-{uuid.uuid4()}"

    def outcomes(self) -> Generator[SweepOutcome]:
        """Each configuration's outcome as it arrives. Closing the iterator cancels what is under way."""
        running: dict[Future[list[SweepOutcome]], list[int]] = {}
        with ThreadPoolExecutor(self._at_once) as pool:
            try:
                while self._waiting or running:
                    while self._waiting and len(running) < self._at_once:
                        batch = self._next_batch()
                        running[pool.submit(self._run_job, batch)] = batch
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        yield from self._settle(running.pop(future), future)
            finally:
                self._closed = True
                while wait(running, timeout=_CANCEL_AGAIN_S).not_done:
                    # Again and again: a job may have been about to start. A Spark that is gone has nothing to cancel.
                    with suppress(Exception):
                        _cancel(self._spark, self._name)

    def _next_batch(self) -> list[int]:
        """Configurations for one task: as many as fill it, but no more than leave work for the other slots."""
        most = -(-len(self._waiting) // self._at_once)
        batch = [self._waiting.popleft()]
        while self._waiting and len(batch) < most and self._has_room(batch):
            batch.append(self._waiting.popleft())
        return batch

    def _has_room(self, batch: list[int]) -> bool:
        if not self._weight or not self._suspects.isdisjoint([*batch, self._waiting[0]]):
            return False
        pace = self._seconds / self._weight
        return pace * sum(self._weights[position] for position in [*batch, self._waiting[0]]) <= TASK_S

    def _run_job(self, batch: list[int]) -> list[SweepOutcome]:
        """One Spark job of one task. Runs in a thread of its own, which waits for Spark."""
        if self._closed:
            return []
        _name_jobs(self._spark, self._name)
        task = _task(self._run, {position: self._configurations[position] for position in batch})
        rows = self._spark.range(0, 1, 1, 1).mapInArrow(task, _SCHEMA).collect()
        return [outcome_of(row) for row in rows]

    def _settle(self, batch: list[int], job: Future[list[SweepOutcome]]) -> Iterator[SweepOutcome]:
        """The outcomes of a finished job; of one whose worker died, the name of the culprit or another try for each."""
        death = job.exception()
        if death is None:
            outcomes = job.result()
            self._seconds += sum(outcome.seconds for outcome in outcomes)
            self._weight += sum(self._weights[position] for position in batch)
            yield from outcomes
            return
        self._expect_spark_lives(death)
        if len(batch) > 1:
            self._suspects.update(batch)
            self._waiting.extendleft(reversed(batch))
        else:
            yield SweepOutcome(batch[0], error=f"its worker died: {_cause(death)}")

    def _expect_spark_lives(self, death: BaseException) -> None:
        try:
            self._spark.range(1).count()
        except Exception:  # noqa: BLE001 - whatever Spark raises here, it runs nothing any more
            raise EnvironmentLacks(f"Spark stopped during the sweep: {_cause(death)}") from None


def _name_jobs(spark: SparkSession, name: str) -> None:
    """Give the jobs of this thread a name to cancel them by. Classic Spark does not find them by a session's tag."""
    if _is_remote(spark):
        spark.addTag(name)
    else:
        spark.sparkContext.setJobGroup(name, "experiment", interruptOnCancel=True)


def _cancel(spark: SparkSession, name: str) -> None:
    if _is_remote(spark):
        spark.interruptTag(name)
    else:
        spark.sparkContext.cancelJobGroup(name)


def _is_remote(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _task(
    run: Callable[[Row], Row], configurations: dict[int, Row]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Run every configuration that a worker was given, one after the other."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            for position, parameters in configurations.items():
                yield pa.RecordBatch.from_pylist([attempt(run, position, parameters)], schema=_ARROW_SCHEMA)

    return work


def attempt(run: Callable[[Row], Row], position: int, parameters: Row) -> dict[str, Any]:
    """One configuration, its exception included: an exception that got out would fail the others in its task."""
    start = time.perf_counter()
    result = error = trace = None
    try:
        result = msgspec.json.encode(run(dict(parameters))).decode()
    except Exception as failure:  # noqa: BLE001 - a study may fail in any way; the failure is its result
        error = "".join(traceback.format_exception_only(failure)).strip().splitlines()[0]
        trace = traceback.format_exc()
    seconds = time.perf_counter() - start
    return {"position": position, "result": result, "error": error, "trace": trace, "seconds": seconds}


def outcome_of(row: SparkRow | dict[str, Any]) -> SweepOutcome:
    """The outcome in a row that `attempt` made."""
    if row["error"] is not None:
        return SweepOutcome(row["position"], error=row["error"], trace=row["trace"], seconds=row["seconds"])
    return SweepOutcome(row["position"], msgspec.json.decode(row["result"], type=Row), seconds=row["seconds"])


def _cause(death: BaseException) -> str:
    """The telling line of what Spark says about a dead worker, which is otherwise pages of Java."""
    lines = [line.strip() for line in str(death).splitlines() if line.strip()]
    for sign in ("Fatal Python error", "Python worker exited unexpectedly", "ExecutorLostFailure"):
        for line in lines:
            if sign in line:
                return line[line.index(sign) :]
    return lines[0] if lines else type(death).__name__
