"""The command `ordercast demo`: the main job from end to end."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ordercast.cli.exits import VIOLATED, worst
from ordercast.cli.judging import NoSpark, expect_master, judged_and_measured, on_spark, tell_where, write_page
from ordercast.cli.options import Json, Master, console, print_json
from ordercast.core.errors import UsageError
from ordercast.core.extras import expect

if TYPE_CHECKING:
    from ordercast.experiments.demo.run import Ended
    from ordercast.experiments.demo.setting import Play
    from ordercast.services.bank_replica import Summary
    from ordercast.verify.metrics.values import RunMetrics
    from ordercast.verify.verdict import Verdict

_PARTS = ("run", "brokers", "replicas")
_PAGE = "report.html"


def demo(
    out: Annotated[Path, typer.Option(help="Directory for the run and the report.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Seed of the operations and of the moments of the crashes.")] = 0,
    master: Master = None,
    live: Annotated[bool, typer.Option("--live", help="Show it as a page with buttons that kill brokers.")] = False,
    minutes: Annotated[float, typer.Option(min=0.05, max=60, help="How long the bank works, with --live.")] = 3.0,
    no_spark: NoSpark = False,
    json: Json = False,
) -> None:
    """The main job, end to end: brokers are killed under a replicated bank, and the trace is judged on Spark.

    Eight brokers as processes on this machine, five bank replicas on them, the root and two more brokers killed while
    they work; then verify, metrics and report. Exit 0 only if everything held and no operation was lost.

    With --live it prints the address of a page, and nobody is killed but by you, there.

    Example: ordercast demo --out runs/demo --seed 1
    """
    say = _clock()
    expect_master(master)
    spark = on_spark(no_spark=no_spark)
    expect("matplotlib")
    from ordercast.experiments.demo.run import perform
    from ordercast.experiments.demo.setting import live_play, play

    _make_room(out)
    if spark:
        _start_spark(master, say)
    planned = live_play(seed, minutes) if live else play(seed)
    for words in planned.in_words():
        say(words)
    try:
        ended = _perform_live(planned, out, say) if live else perform(planned, out, say)
    except UsageError as error:
        say(f"could not go on: {error}")
        raise typer.Exit(VIOLATED) from None
    say(f"judging and measuring the trace {'on' if spark else 'without'} Spark")
    verdicts, measured = judged_and_measured(ended.run, master, spark=spark, witnesses=1, complete=True)
    write_page(out / _PAGE, verdicts, measured)
    if json:
        print_json({"verdict": verdicts[0], "metrics": measured[0], "replicas": ended.summaries,
                    "problems": ended.problems, "report": out / _PAGE})  # fmt: skip
    else:
        _print(ended, verdicts, measured)
        tell_where(spark=spark)
        typer.echo(out / _PAGE)
    code = worst([verdict.exit_code() for verdict in verdicts] + [VIOLATED] * bool(ended.problems))
    say("everything held" if code == 0 else "not everything held")
    raise typer.Exit(code)


def _start_spark(master: str | None, say: Callable[[str], None]) -> None:
    """First: without Java there is no need to begin."""
    from ordercast.verify.spark.session import session

    if sys.stderr.isatty():
        say("starting Spark")
    session(master, quick=True, warm=True)


def _perform_live(planned: Play, out: Path, say: Callable[[str], None]) -> Ended:
    from ordercast.experiments.demo.live import LiveControl
    from ordercast.experiments.demo.run import perform
    from ordercast.experiments.demo.stage import free_ports
    from ordercast.experiments.ginger.setting import BROKERS

    doors = {broker: f"127.0.0.1:{port}" for broker, port in free_ports(BROKERS).items()}
    with LiveControl(doors) as control:
        say(f"watch it, and kill brokers, at {control.origin}/")
        return perform(planned, out, say, control)


def _clock() -> Callable[[str], None]:
    """Says things on stderr, each with the seconds since now."""
    began = time.monotonic()
    return lambda words: typer.echo(f"{time.monotonic() - began:6.1f} s  {words}", err=True)


def _make_room(out: Path) -> None:
    """An earlier demo is replaced; anything else in the directory is somebody's."""
    strange = sorted(path.name for path in out.glob("*") if path.name not in (*_PARTS, _PAGE))
    if strange:
        raise UsageError(f"--out: {out} holds {strange[0]!r}, which is not of a demo; choose another directory")
    out.mkdir(parents=True, exist_ok=True)
    for part in _PARTS:
        if (out / part).exists():
            shutil.rmtree(out / part)
    (out / _PAGE).unlink(missing_ok=True)


def _print(ended: Ended, verdicts: list[Verdict], measured: list[RunMetrics]) -> None:
    from ordercast.report.text import print_metrics, print_verdicts

    screen = console()
    print_verdicts(verdicts, screen)
    print_metrics(measured, screen)
    _print_bank(ended, {one.node: one.topic for numbers in measured for one in numbers.digests}, screen.print)


def _print_bank(ended: Ended, topics: Mapping[str, str], show: Callable[..., None]) -> None:
    """The bank's own view: equal states, equal decisions, sums that add up, among the replicas of one topic."""
    from rich.table import Table

    table = Table("topic", "replica", "asked", "done", "refused", "cents in all", "digest", box=None)
    for summary in sorted(ended.summaries, key=lambda one: (topics.get(one.replica, ""), one.replica)):
        table.add_row(topics.get(summary.replica, ""), *_row(summary))
    show(table)
    for problem in ended.problems:
        show(f"problem: {problem}", markup=False, highlight=False)
    if not ended.problems:
        show("bank: same refusals, same balances, sums add up, at every pair of replicas of a topic", highlight=False)


def _row(summary: Summary) -> tuple[str, ...]:
    counts = (summary.asked, summary.applied, summary.refused, summary.total_cents)
    return summary.replica, *(f"{count:,}" for count in counts), summary.digest[:16]
