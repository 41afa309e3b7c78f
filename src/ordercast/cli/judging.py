"""Commands that look at traces: verify, metrics, report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ordercast.cli.exits import worst
from ordercast.cli.options import Json, Master, Paths, console, print_json
from ordercast.core.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ordercast.verify.spark.run_metrics import RunMetrics
    from ordercast.verify.verdict import Verdict

_SMALL_BYTES = 64 << 20

Checks = Annotated[str | None, typer.Option(help="Only these checks, separated by commas.")]
Scope = Annotated[str | None, typer.Option(help="Scope of causal order: topic or global; the run's own if not given.")]
OrderScope = Annotated[
    str | None, typer.Option(help="Scope of a publisher's own order: session or key; the run's own if not given.")
]
Members = Annotated[
    Path | None, typer.Option(help="JSON file, topic to list of nodes: who was a member from the beginning.")
]
OwnDeliveries = Annotated[
    str | None, typer.Option(help="Do nodes have to deliver their own messages, yes or no? As it looks if not given.")
]
Complete = Annotated[
    bool, typer.Option("--complete", help="Nothing was under way at the end: what is missing is a violation.")
]


def verify(
    paths: Paths,
    master: Master = None,
    checks: Checks = None,
    scope: Scope = None,
    order_scope: OrderScope = None,
    members: Members = None,
    own_deliveries: OwnDeliveries = None,
    complete: Complete = False,
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Judge in this process, for a quick look.")] = False,
    json: Json = False,
) -> None:
    """Judge traces. Exit 0 held, 1 violated (with witness), 4 undecided.

    Example: ordercast verify runs/r7 --checks fifo,causal
    """
    from ordercast.verify.asked import read_members

    own = _one_of("--own-deliveries", own_deliveries, ("yes", "no"))
    asked = {
        "checks": _known_checks(checks),
        "scope": _one_of("--scope", scope, ("topic", "global")),
        "order_scope": _one_of("--order-scope", order_scope, ("session", "key")),
        "members": None if members is None else read_members(members),
        "own_deliveries": None if own is None else own == "yes",
        "complete": complete,
    }
    verdicts = _judge(paths, master=master, spark=not no_spark, **asked)
    if json:
        print_json(verdicts)
    else:
        from ordercast.report.text import print_verdicts

        print_verdicts(verdicts, console())
    raise typer.Exit(worst([verdict.exit_code() for verdict in verdicts]))


def metrics(paths: Paths, master: Master = None, json: Json = False) -> None:
    """Measure traces: throughput, latency per guarantee, header bytes, hold-back, repair.

    Example: ordercast metrics runs/r7 --json
    """
    measured = measure_on_spark(paths, master)
    if json:
        print_json(measured)
        return
    from ordercast.report.text import print_metrics

    print_metrics(measured, console())


def report(
    paths: Paths,
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML file to write.")],
    master: Master = None,
) -> None:
    """Judge and measure traces, and draw one self-contained page. Prints its path; exits as verify does.

    Example: ordercast report runs/r7 runs/r8 -o report.html
    """
    verdicts = _judge(paths, master=master, spark=True)
    write_page(out, verdicts, measure_on_spark(paths, master))
    typer.echo(out)
    raise typer.Exit(worst([verdict.exit_code() for verdict in verdicts]))


def judge_on_spark(paths: list[Path], master: str | None, *, witnesses: int, complete: bool) -> list[Verdict]:
    from ordercast.verify.spark.jobs import verify_runs

    return verify_runs(_session(master, paths), paths, witnesses=witnesses, complete=complete)


def measure_on_spark(paths: list[Path], master: str | None) -> list[RunMetrics]:
    from ordercast.verify.spark.metrics import measure

    return measure(_session(master, paths), paths)


def write_page(out: Path, verdicts: list[Verdict], measured: list[RunMetrics]) -> None:
    """The report of several runs, each with its verdict and its metrics."""
    from ordercast.report.page import RunReport, write_report
    from ordercast.trace.collect import describe_run

    runs = []
    for verdict, numbers in zip(verdicts, measured, strict=True):
        path = Path(verdict.path)
        manifest = describe_run(path)[0] if path.is_dir() else None
        runs.append(RunReport(manifest, verdict, numbers))
    write_report(out, runs)


def _judge(paths: list[Path], *, master: str | None, spark: bool, **asked: Any) -> list[Verdict]:
    if not spark:
        from ordercast.verify.judge import judge_path

        return [verdict for path in paths for verdict in judge_path(path, **asked)]
    from ordercast.verify.spark.jobs import verify_runs

    return verify_runs(_session(master, paths), paths, **asked)


def _session(master: str | None, paths: list[Path]) -> SparkSession:
    """Small traces are done before Java's second compiler pays off: leave it out for them."""
    from ordercast.verify.spark.session import session

    files = [file for path in paths for file in (path.rglob("*") if path.is_dir() else [path])]
    size = sum(file.stat().st_size for file in files if file.is_file())
    return session(master, quick=size < _SMALL_BYTES)


def _known_checks(given: str | None) -> list[str] | None:
    from ordercast.verify.verdict import CHECKS

    if given is None:
        return None
    names = [name.strip() for name in given.split(",") if name.strip()]
    for name in names:
        if name not in CHECKS:
            raise UsageError(f"--checks: {unknown_name('check', name, CHECKS)}")
    if not names:
        raise UsageError("--checks: names no check")
    return names


def _one_of(option: str, given: str | None, known: tuple[str, str]) -> str | None:
    if given is not None and given not in known:
        raise UsageError(f"{option}: {given!r} is neither {known[0]!r} nor {known[1]!r}")
    return given
