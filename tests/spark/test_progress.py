"""A Spark action shows its progress only to people who wait, and hands on results, errors and Ctrl-C."""

from __future__ import annotations

import io
import threading
from typing import TYPE_CHECKING

import pytest

from ordercast.verify.spark import progress
from ordercast.verify.spark.progress import run_action

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_results_and_errors_come_back_unchanged(spark: SparkSession) -> None:
    assert run_action(spark, "count", lambda: spark.range(7).count()) == 7
    with pytest.raises(ZeroDivisionError):
        run_action(spark, "fail", lambda: 1 // 0)


def test_tasks_are_counted_for_a_person_at_a_terminal(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(progress, "QUIET_S", 0.0)
    monkeypatch.setenv("TERM", "xterm")

    run_action(spark, "counting sheep", lambda: spark.range(0, 8, 1, 3).count())

    assert "counting sheep" in terminal.getvalue()
    assert "tasks" in terminal.getvalue()


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_short_work_and_pipes_see_no_bar(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO]
) -> None:
    err = stream()
    monkeypatch.setattr("sys.stderr", err)
    monkeypatch.setattr(progress, "QUIET_S", 600.0 if stream is Terminal else 0.0)

    run_action(spark, "count", lambda: spark.range(8).count())

    assert err.getvalue() == ""


def test_ctrl_c_cancels_the_jobs_and_leaves_the_session_usable(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = spark.range(0, 1 << 60, 1, 2).where("hash(id) = hash(id + 1) and id < 0")
    finished = threading.Event()

    def action() -> None:
        try:
            endless.count()
        finally:
            finished.set()

    def press_ctrl_c(bar: object, done: int, total: int) -> None:
        if total:
            raise KeyboardInterrupt

    monkeypatch.setattr(progress._Bar, "show", press_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        run_action(spark, "for ever", action)

    assert finished.is_set()
    assert spark.range(3).count() == 3
