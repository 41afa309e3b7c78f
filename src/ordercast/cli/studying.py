"""Commands about what there is to run: protocols and experiments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from ordercast.cli.exits import HELD, UNDECIDED, VIOLATED
from ordercast.cli.judging import expect_master, on_spark
from ordercast.cli.options import Json, Master, console, print_json, progress_bar

if TYPE_CHECKING:
    from ordercast.experiments.kit.engine import StudyResult
    from ordercast.report.study import StudyReport

_PROTOCOL_LINES = (
    ("guarantee", "guarantee"),
    ("header bytes", "metadata"),
    ("genuine", "genuine"),
    ("overlay", "overlay"),
    ("faults", "faults"),
    ("source", "source"),
)
_HOLDS = {True: "yes", False: "no", None: "not decided"}

experiment = typer.Typer(help="Reproduce studies: simulations swept as Spark tasks.", no_args_is_help=True)

Scale = Annotated[str, typer.Option(help="quick (minutes on a laptop) or paper (the full study).")]


def protocols(json: Json = False) -> None:
    """List every protocol: source, guarantee, overlay, faults, header bytes as a formula, genuine or not.

    Example: ordercast protocols --json
    """
    from ordercast.sim.catalogue import SIMULATED

    rows = [
        {
            "name": info.name,
            "summary": info.summary,
            "source": info.source,
            "guarantee": info.guarantee.label,
            "scope": info.scope,
            "overlay": info.overlay,
            "faults": info.faults,
            "metadata": info.metadata,
            "genuine": info.genuine,
            "readmits": info.readmits,
            "options": list(info.options.__struct_fields__),
        }
        for info in SIMULATED.values()
    ]
    if json:
        print_json(rows)
        return
    for row in rows:
        typer.echo(f"{row['name']}: {row['summary']}")
        for label, field in _PROTOCOL_LINES:
            typer.echo(f"    {label:13} {'yes' if row[field] is True else 'no' if row[field] is False else row[field]}")
    typer.echo(
        "header bytes: N nodes in the group, o bytes of the publisher's id, t of the topic's name, d of the "
        "destinations; other letters are explained on the protocol's page"
    )


@experiment.command("list")
def list_studies(json: Json = False) -> None:
    """List the studies.

    Example: ordercast experiment list
    """
    from ordercast.experiments import STUDIES

    rows = [
        {"name": s.name, "title": s.title, "source": s.source, "scales": sorted(s.scales)} for s in STUDIES.values()
    ]
    if json:
        print_json(rows)
        return
    for row in rows:
        typer.echo(f"{row['name']:24} {row['title']}")


@experiment.command("run")
def run_study(
    name: Annotated[str, typer.Argument(help="The study, as `experiment list` names it.")],
    scale: Scale = "quick",
    out: Annotated[Path | None, typer.Option(help="Directory for the results; runs/NAME-SCALE if not given.")] = None,
    master: Master = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Only so many seeds of each point; all if not given.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget finished configurations of an earlier run.")] = False,
    known: Annotated[
        Path | None,
        typer.Option(help="The results.parquet of an earlier run, here or elsewhere: what it has is not run again."),
    ] = None,
    no_spark: Annotated[
        bool, typer.Option("--no-spark", help="Run it in processes of this machine, without Spark.")
    ] = False,
    json: Json = False,
) -> None:
    """Run a study: results.parquet, figures/, claims.json and report.html. Goes on where an earlier run stopped.

    Example: ordercast experiment run vector-overhead --scale quick --out runs/vector-overhead
    """
    from ordercast.experiments import lookup
    from ordercast.experiments import run_study as run
    from ordercast.report.study import write_study_report

    study = lookup(name)
    study.configurations(scale)  # A wrong scale is said before anything starts.
    expect_master(master)
    spark = on_spark(no_spark=no_spark)
    out = out or Path("runs") / f"{name}-{scale}"
    with progress_bar(f"{name}, {scale}") as progress:
        result = run(
            study,
            scale=scale,
            out=out,
            master=master,
            progress=lambda done, total: progress(done / total),
            fresh=fresh,
            seeds=seeds,
            spark=spark,
            known=known,
        )
    page = out / "report.html"
    write_study_report(page, study_report(result, seeds))
    if json:
        print_json({"out": str(out), "claims": result.claims, "failed": result.failed, "executed": result.executed,
                    "ran_on": result.ran_on or "Spark"})  # fmt: skip
    else:
        _print_result(result)
        typer.echo(f"report: {page}")
    raise typer.Exit(_exit_code(result))


def _exit_code(result: StudyResult) -> int:
    """A claim of a source that does not reproduce is a finding; a broken promise or a missing result is a failure."""
    from ordercast.experiments.kit.study import GUARANTEES_HOLD, ORDER_HOLDS

    promises = [claim.holds for claim in result.claims if claim.id in (GUARANTEES_HOLD, ORDER_HOLDS)]
    if False in promises or result.failed:
        return VIOLATED
    return UNDECIDED if None in promises else HELD


def study_report(result: StudyResult, seeds: int | None) -> StudyReport:
    """What the page of a study shows, of which so many seeds were run; all if None."""
    from ordercast.experiments.kit.words import words_of
    from ordercast.report.study import ResultTable, StudyReport

    some = f" --seeds {seeds}" if seeds else ""
    command = f"ordercast experiment run {result.study.name} --scale {result.scale}{some}"
    order = {one.id: place for place, one in enumerate(result.study.in_order(result.scale))}
    rows = sorted(result.table.to_pylist(), key=lambda row: order[row["id"]])
    parameters = list(dict.fromkeys(name for row in result.study.scales[result.scale] for name in row))
    headers = [*parameters, *(name for name in result.table.column_names if name not in (*parameters, "id")), "id"]
    claimed = [text for claim in result.claims for text in (claim.statement, claim.measured)]
    said = [result.runs, *claimed, *(figure.caption for figure in result.figures), *headers]
    return StudyReport(
        name=result.study.name,
        source=result.study.source,
        description=f"{result.study.title}\n\n{result.study.description}",
        words=words_of(result.study, said),
        scale=result.scale,
        runs=f"{len(rows)} configurations. {result.runs}",
        claims=[{**msgspec.to_builtins(claim), "of_source": claim.of_source} for claim in result.claims],
        figures=[(figure.file, figure.caption) for figure in result.figures],
        failed=[msgspec.to_builtins(failure) for failure in result.failed],
        table=ResultTable(headers, len(parameters), [[row[name] for name in headers] for row in rows]),
        command=command,
    )


def _print_result(result: StudyResult) -> None:
    from rich.table import Table

    table = Table("claim", "of", "statement", "measured", "holds", box=None, pad_edge=False)
    for claim in sorted(result.claims, key=lambda claim: not claim.of_source):
        whose = "the source" if claim.of_source else "our own"
        table.add_row(claim.id, whose, claim.statement, claim.measured, _HOLDS[claim.holds])
    screen = console()
    screen.print(table)
    where = f" {result.ran_on}" if result.ran_on else ""
    screen.print(f"{result.table.num_rows} configurations, {result.executed} of them run now{where}; {result.runs}")
    for failure in result.failed:
        screen.print(f"failed: {failure.id} {failure.parameters}: {failure.error}", style="red", markup=False)
