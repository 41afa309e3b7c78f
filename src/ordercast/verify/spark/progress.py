"""A Spark action that tells people how far it is, and that Ctrl-C stops."""

from __future__ import annotations

import sys
import time
import uuid
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import SparkSession
    from pyspark.sql.connect.shell.progress import ProgressHandler, StageInfo
    from rich.progress import Progress

T = TypeVar("T")

QUIET_S = 2.0
"""Work shorter than this shows no bar: it would only flicker."""
PLAIN_EVERY_S = 5.0
"""How often work that nobody watches says how far it is."""
_POLL_S = 0.2


def run_action(spark: SparkSession, label: str, action: Callable[[], T]) -> T:
    """The result of `action`, with a bar on stderr if that is a terminal and the work takes over two seconds.

    Ctrl-C cancels the Spark jobs of this action, and only those, before KeyboardInterrupt goes on.
    """
    bar = _Bar(label)
    try:
        if type(spark).__module__.startswith("pyspark.sql.connect"):
            return _on_connect(spark, action, bar)
        return _on_classic(spark, label, action, bar)
    finally:
        bar.close()


class PlainProgress:
    """A line on stderr every few seconds, for logs and pipes: long work must not look like work that hangs."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._began = time.monotonic()
        self._next = self._began + PLAIN_EVERY_S

    def show(self, how_far: str) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + PLAIN_EVERY_S
            sys.stderr.write(f"ordercast: {self._label}: {how_far} ({now - self._began:.0f} s)\n")
            sys.stderr.flush()


class _Bar:
    """Done of total tasks. Draws nothing before QUIET_S have passed; where nobody looks, it writes plain lines."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._plain = PlainProgress(label)
        self._visible_from = time.monotonic() + QUIET_S
        self._progress: Progress | None = None

    def show(self, done: int, total: int) -> None:
        if not sys.stderr.isatty():
            self._plain.show(f"{done} of {total} tasks" if total else "beginning")
            return
        if time.monotonic() < self._visible_from:
            return
        if self._progress is None:
            self._progress = self._start()
        self._progress.update(self._progress.task_ids[0], completed=done, total=total or None)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()

    def _start(self) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("tasks"),
            console=Console(stderr=True),
            transient=True,
        )
        progress.add_task(self._label, total=None)
        progress.start()
        return progress


def _on_classic(spark: SparkSession, label: str, action: Callable[[], T], bar: _Bar) -> T:
    """Run `action` beside us: the thread that waits for Spark can neither look at its tasks nor cancel them."""
    from pyspark import InheritableThread

    context = spark.sparkContext
    group = f"ordercast-{uuid.uuid4()}"
    result: list[T] = []
    failure: list[BaseException] = []

    def work() -> None:
        context.setJobGroup(group, label, interruptOnCancel=True)
        try:
            result.append(action())
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
            failure.append(error)

    thread = InheritableThread(target=work, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_POLL_S)
            bar.show(*_tasks_of(context.statusTracker(), group))
    except KeyboardInterrupt:
        context.cancelJobGroup(group)
        thread.join()
        raise
    if failure:
        raise failure[0]
    return result[0]


def _tasks_of(tracker: Any, group: str) -> tuple[int, int]:
    """Tasks done and known of a job group; stages that Spark has not planned yet are not known."""
    done = total = 0
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    for stage_id in {stage_id for job in jobs if job is not None for stage_id in job.stageIds}:
        stage = tracker.getStageInfo(stage_id)
        if stage is not None:
            done += stage.numCompletedTasks
            total += stage.numTasks
    return done, total


def _on_connect(spark: SparkSession, action: Callable[[], T], bar: _Bar) -> T:
    """The client tells us about tasks while it waits; a tag names what Ctrl-C has to interrupt."""
    tag = f"ordercast-{uuid.uuid4()}"

    def show(stages: Iterable[StageInfo] | None, **_also: object) -> None:
        known = list(stages or [])
        bar.show(sum(stage.num_completed_tasks for stage in known), sum(stage.num_tasks for stage in known))

    handler = cast("ProgressHandler", show)  # Spark types a callback as a class to inherit from, but only calls it
    spark.registerProgressHandler(handler)
    spark.addTag(tag)
    try:
        return action()
    except KeyboardInterrupt:
        spark.interruptTag(tag)
        raise
    finally:
        spark.removeTag(tag)
        spark.removeProgressHandler(handler)
