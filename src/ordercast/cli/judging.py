"""Commands that look at traces: verify, metrics, report."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ordercast.cli.exits import BAD_INPUT, worst
from ordercast.cli.options import Json, Master, Traces, console, print_json, print_line
from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.extras import expect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from ordercast.trace.store import Manifest
    from ordercast.verify.metrics.values import RunMetrics
    from ordercast.verify.verdict import Verdict

_SMALL_BYTES = 64 << 20
_FILES = (".parquet", ".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".gz")

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
EngineName = Annotated[
    str, typer.Option("--engine", help="auto, local (a run is one task) or distributed (its rows stay where they are).")
]
FromFormat = Annotated[
    str | None, typer.Option(help="Traces of another tool: cs451, shiviz, libp2p, jepsen-kafka or otel.")
]
Parser = Annotated[
    str | None, typer.Option(help="Of a ShiViz log: a regular expression with the groups host, clock and event.")
]
Causes = Annotated[
    Path | None,
    typer.Option(help="Localized causal order: lines 'P A B', or JSON: what A and B publish affects what P does."),
]
OneClock = Annotated[bool, typer.Option("--one-clock", help="All times come from one clock: you vouch for it.")]
NoSpark = Annotated[bool, typer.Option("--no-spark", help="Work in this process, for a quick look.")]
Complete = Annotated[
    bool, typer.Option("--complete", help="Nothing was under way at the end: what is missing is a violation.")
]


def verify(
    paths: Traces,
    master: Master = None,
    checks: Checks = None,
    scope: Scope = None,
    order_scope: OrderScope = None,
    members: Members = None,
    own_deliveries: OwnDeliveries = None,
    complete: Complete = False,
    no_spark: NoSpark = False,
    engine: EngineName = "auto",
    from_format: FromFormat = None,
    parser: Parser = None,
    causes: Causes = None,
    one_clock: OneClock = False,
    json: Json = False,
) -> None:
    """Judge traces. Exit 0 held, 1 violated (with witness), 4 undecided.

    Example: ordercast verify runs/r7 --checks fifo,causal
    """
    _expect_something(paths)
    from ordercast.verify.asked import read_members

    own = _one_of("--own-deliveries", own_deliveries, ("yes", "no"))
    asked = {
        "checks": _known_checks(checks),
        "scope": _one_of("--scope", scope, ("topic", "global")),
        "order_scope": _one_of("--order-scope", order_scope, ("session", "key")),
        "members": None if members is None else read_members(members),
        "own_deliveries": None if own is None else own == "yes",
        "complete": complete,
        "one_clock": one_clock,
        "causes": None if causes is None else _causes(causes),
    }
    if from_format is not None:
        verdicts, problems = _judge_imported(paths, from_format, parser, **asked)
        _print_verdicts(verdicts, json=json)
        raise typer.Exit(_exit_code(verdicts, problems))
    given = _engine(engine)
    expect_master(master)
    spark = on_spark(no_spark=no_spark)
    verdicts, problems = _judge(paths, master=master, spark=spark, engine=given, **asked)
    _print_verdicts(verdicts, json=json)
    if not json:
        tell_where(spark=spark)
    raise typer.Exit(_exit_code(verdicts, problems))


def _print_verdicts(verdicts: list[Verdict], *, json: bool) -> None:
    if json:
        print_json(verdicts)
        return
    from ordercast.report.text import print_verdicts

    print_verdicts(verdicts, console())


def metrics(
    paths: Traces,
    master: Master = None,
    no_spark: NoSpark = False,
    engine: EngineName = "auto",
    json: Json = False,
) -> None:
    """Measure traces: throughput, latency per guarantee, header bytes, hold-back, repair.

    Example: ordercast metrics runs/r7 --json
    """
    given = _engine(engine)
    _expect_something(paths)
    expect_master(master)
    spark = on_spark(no_spark=no_spark)
    measured = _measure(paths, master, spark=spark, engine=given)
    if json:
        print_json(measured)
        return
    from ordercast.report.text import print_metrics

    print_metrics(measured, console())
    tell_where(spark=spark)


def report(
    paths: Traces,
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML file to write.")],
    master: Master = None,
    no_spark: NoSpark = False,
    engine: EngineName = "auto",
) -> None:
    """Judge and measure traces, and draw one self-contained page. Prints its path; exits as verify does.

    Example: ordercast report runs/r7 runs/r8 -o report.html
    """
    given = _engine(engine)
    _expect_something(paths)
    expect_master(master)
    _expect_place_for(out)
    spark = on_spark(no_spark=no_spark)
    expect("matplotlib")
    verdicts, problems = _judge(paths, master=master, spark=spark, engine=given)
    if problems:
        raise typer.Exit(BAD_INPUT)
    measured = _measure(paths, master, spark=spark, engine=given)
    write_page(out, verdicts, measured, _manifests_elsewhere(paths, master))
    typer.echo(out)
    tell_where(spark=spark, to_stderr=True)
    raise typer.Exit(_exit_code(verdicts, problems))


def _exit_code(verdicts: list[Verdict], problems: list[str]) -> int:
    return worst([verdict.exit_code() for verdict in verdicts] + [BAD_INPUT] * len(problems))


def tell_where(*, spark: bool, to_stderr: bool = False) -> None:
    """Part of the summary: the same kernels did the work, but not as tasks of Spark."""
    if not spark:
        said = "(worked out in this process, without Spark)"
        typer.echo(said, err=True) if to_stderr else print_line(said)


def _expect_place_for(out: Path) -> None:
    """A page that cannot be written is said before the work, not after it."""
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise UsageError(f"--out: {out} {'is a directory' if out.is_dir() else 'is in no directory that exists'}")


def expect_master(master: str | None) -> None:
    if master is not None:
        from ordercast.verify.spark.session import expect_master as expect

        expect(master)


def on_spark(*, no_spark: bool) -> bool:
    """Whether Spark does the work; where it is not installed it cannot, and one line says so.

    Where not even the judge is installed, that is the one line.
    """
    expect("numpy", "numba", "pyarrow")
    if no_spark:
        return False
    if importlib.util.find_spec("pyspark") is not None:
        return True
    typer.echo("ordercast: working without Spark, which is not installed (pip install 'ordercast[spark]')", err=True)
    return False


def judged_and_measured(
    run: Path, master: str | None, *, spark: bool, **asked: Any
) -> tuple[list[Verdict], list[RunMetrics]]:
    """One run that was just made; if it cannot be read, that was said."""
    names = [str(run)]
    verdicts, problems = _judge(names, master=master, spark=spark, **asked)
    if problems:
        raise typer.Exit(BAD_INPUT)
    return verdicts, _measure(names, master, spark=spark, engine="auto")


def _measure_on_spark(paths: Sequence[Path | str], master: str | None, engine: str = "auto") -> list[RunMetrics]:
    from ordercast.verify.spark.metrics import measure

    names = [str(path) for path in paths]
    return measure(_session(master, names, moves_only=_moves_only(names)), names, engine=engine)


def _measure(paths: list[str], master: str | None, *, spark: bool, engine: str) -> list[RunMetrics]:
    from ordercast.verify.load import find_runs

    for path in paths:
        if not (spark and _is_elsewhere(path)):
            find_runs(Path(path))  # What is missing is said before Spark starts.
    if spark:
        return _measure_on_spark(paths, master, engine)
    from ordercast.verify.metrics.local import measure

    return measure([Path(path) for path in paths])


def _manifests_elsewhere(paths: list[str], master: str | None) -> dict[str, Manifest]:
    """Manifests of the runs at paths that only Spark can read."""
    elsewhere = [path for path in paths if _is_elsewhere(path)]
    if not elsewhere:
        return {}
    from ordercast.verify.spark.places import open_places

    spark = _session(master, paths)
    places = [place for path in elsewhere for place in open_places(spark, path)]
    return {place.path: place.manifest for place in places if place.manifest is not None}


def write_page(
    out: Path,
    verdicts: list[Verdict],
    measured: list[RunMetrics],
    elsewhere: Mapping[str, Manifest] = MappingProxyType({}),
) -> None:
    """The report of several runs, each with its verdict and its metrics."""
    from ordercast.report.page import RunReport, write_report
    from ordercast.trace.collect import describe_run

    runs = []
    for verdict, numbers in zip(verdicts, measured, strict=True):
        path = Path(verdict.path)
        manifest = describe_run(path)[0] if path.is_dir() else elsewhere.get(verdict.path)
        runs.append(RunReport(manifest, verdict, numbers))
    write_report(out, runs)


def _judge(
    paths: list[str], *, master: str | None, spark: bool, engine: str = "auto", **asked: Any
) -> tuple[list[Verdict], list[str]]:
    """The verdicts of all runs that can be read, and a line about each that cannot."""
    if spark:
        from ordercast.verify.spark.jobs import verify_runs

        running = _session(master, paths, moves_only=_moves_only(paths))
        verdicts, problems = verify_runs(running, paths, engine=engine, **asked)
    else:
        verdicts, problems = _judge_here(paths, **asked)
    _complain(problems)
    return verdicts, problems


def _expect_something(paths: list[str]) -> None:
    """If there is nothing at any of the paths, that is said before anything is loaded that takes its time."""
    lacking = [path for path in paths if not _is_elsewhere(path) and not Path(path).exists()]
    if lacking == paths:
        _complain([f"{path}: no such file or directory" for path in lacking])
        raise typer.Exit(BAD_INPUT)


def _is_elsewhere(path: str) -> bool:
    """Whether a path names its file system, so that Spark alone can say what is there."""
    return "://" in path or path.startswith("file:")


def _moves_only(paths: list[str]) -> bool:
    """Whether Java only moves bytes: text, and files of others, it reads by itself."""
    return not any(path.endswith(_FILES) for path in paths)


def _engine(given: str) -> str:
    return _one_of("--engine", given, ("auto", "local", "distributed")) or "auto"


def _complain(problems: list[str]) -> None:
    for problem in problems:
        typer.echo(f"ordercast: {problem}", err=True)


def _judge_imported(
    paths: list[str], format_: str, parser: str | None, **asked: Any
) -> tuple[list[Verdict], list[str]]:
    """As _judge, for traces that another tool wrote."""
    from ordercast.trace.store import TraceError
    from ordercast.verify.importers.choose import FORMATS, PROMISED, import_trace
    from ordercast.verify.judge import judge_trace

    if format_ not in FORMATS:
        raise UsageError(f"--from-format: {unknown_name('format', format_, FORMATS)}")
    asked["checks"] = asked["checks"] or PROMISED.get(format_)
    verdicts: list[Verdict] = []
    problems: list[str] = []
    for path in paths:
        try:
            verdicts.append(judge_trace(import_trace(format_, Path(path), parser=parser), **asked))
        except TraceError as error:
            problems.append(str(error))
    _complain(problems)
    return verdicts, problems


def _causes(path: Path) -> dict[str, list[str]]:
    from ordercast.verify.asked import read_members
    from ordercast.verify.importers.cs451 import read_causes

    return read_members(path) if path.suffix == ".json" else read_causes(path)


def shiviz(
    path: Annotated[Path, typer.Argument(help="A run directory or trace file.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write.")],
) -> None:
    """Write a trace as a log for ShiViz, which draws it in a browser. Prints its path.

    Example: ordercast shiviz runs/r7 -o r7.log
    """
    from ordercast.trace.store import TraceError
    from ordercast.verify.importers.shiviz import log_of
    from ordercast.verify.load import load

    traces = list(load(path))
    if len(traces) != 1:
        raise TraceError(f"{path}: {len(traces)} runs; a log has one")
    with out.open("w", encoding="utf-8") as file:
        file.writelines(log_of(traces[0]))
    typer.echo(out)


def _judge_here(paths: list[str], **asked: Any) -> tuple[list[Verdict], list[str]]:
    from ordercast.trace.store import TraceError
    from ordercast.verify.judge import judge_path
    from ordercast.verify.load import find_runs

    verdicts: list[Verdict] = []
    problems: list[str] = []
    for path in paths:
        try:
            runs = find_runs(Path(path))
        except TraceError as error:
            problems.append(str(error))
            continue
        for run in runs:
            try:
                verdicts += judge_path(run, **asked)
            except TraceError as error:
                problems.append(str(error))
    return verdicts, problems


def _session(master: str | None, paths: list[str], *, moves_only: bool = False) -> SparkSession:
    """Small traces are done before Java's second compiler pays off: leave it out for them.

    So is all that Java does where it `moves_only` bytes to our kernels.
    """
    from ordercast.verify.spark.session import session

    given = [Path(path) for path in paths]
    files = [file for path in given for file in (path.rglob("*") if path.is_dir() else [path])]
    size = sum(file.stat().st_size for file in files if file.is_file())
    quick = moves_only or (size < _SMALL_BYTES and all(path.exists() for path in given))
    return session(master, quick=quick, warm=True)


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


def _one_of(option: str, given: str | None, known: tuple[str, ...]) -> str | None:
    if given is not None and given not in known:
        raise UsageError(f"{option}: {given!r} is neither {' nor '.join(map(repr, known))}")
    return given
