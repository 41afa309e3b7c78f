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


def verify(
    paths: Paths,
    master: Master = None,
    checks: Checks = None,
    scope: Scope = None,
    order_scope: OrderScope = None,
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Judge in this process, for a quick look.")] = False,
    json: Json = False,
) -> None:
    """Judge traces. Exit 0 held, 1 violated (with witness), 4 undecided.

    Example: ordercast verify runs/r7 --checks fifo,causal
    """
    verdicts = _judge(
        paths,
        master=master,
        checks=_known_checks(checks),
        scope=_known_scope("--scope", scope, ("topic", "global")),
        order_scope=_known_scope("--order-scope", order_scope, ("session", "key")),
        spark=not no_spark,
    )
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
    verdicts = _judge(paths, master=master, checks=None, scope=None, order_scope=None, spark=True)
    write_page(out, verdicts, measure_on_spark(paths, master))
    typer.echo(out)
    raise typer.Exit(worst([verdict.exit_code() for verdict in verdicts]))


def judge_on_spark(paths: list[Path], master: str | None, *, witnesses: int) -> list[Verdict]:
    from ordercast.verify.spark.jobs import verify_runs

    return verify_runs(_session(master, paths), paths, witnesses=witnesses)


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


def _judge(
    paths: list[Path],
    *,
    master: str | None,
    checks: list[str] | None,
    scope: str | None,
    order_scope: str | None,
    spark: bool,
) -> list[Verdict]:
    wanted: dict[str, Any] = {"checks": checks, "scope": scope, "order_scope": order_scope}
    if not spark:
        from ordercast.verify.judge import judge_path

        return [verdict for path in paths for verdict in judge_path(path, **wanted)]
    from ordercast.verify.spark.jobs import verify_runs

    return verify_runs(_session(master, paths), paths, **wanted)


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


def _known_scope(option: str, given: str | None, known: tuple[str, str]) -> str | None:
    if given is not None and given not in known:
        raise UsageError(f"{option}: {given!r} is neither {known[0]!r} nor {known[1]!r}")
    return given
