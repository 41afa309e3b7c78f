"""Commands that run things: simulate, shrink, demo."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ordercast.cli.exits import HELD, VIOLATED, worst
from ordercast.cli.judging import judge_on_spark, measure_on_spark, write_page
from ordercast.cli.options import Json, Master, Protocol, Seed, Sets, console, print_json, progress_bar

_DEMO_PROTOCOLS = ("flood", "fifo", "vector", "sequencer")
_NEGATIVE_CONTROL = "unordered"

Scenario = Annotated[Path, typer.Argument(help="Scenario file (TOML).")]


def simulate(
    scenario: Scenario,
    out: Annotated[Path, typer.Option(help="Directory to write the run to.")],
    protocol: Protocol = None,
    seed: Seed = None,
    overrides: Sets = None,
    json: Json = False,
) -> None:
    """Run SCENARIO under virtual time and write its trace. Prints the run's path.

    Example: ordercast simulate scenarios/crash.toml --protocol vector --seed 7 --out runs/r7
    """
    from ordercast.protocols import lookup
    from ordercast.scenario.load import load_scenario
    from ordercast.sim import simulate as run

    value = load_scenario(scenario, overrides or [])
    info = lookup(protocol or value.protocol)
    with progress_bar(f"simulating {value.name}") as progress:
        outcome = run(value, info, seed=seed, out=out, progress=progress)
    if json:
        print_json(outcome)
        return
    typer.echo(out)
    rest = "" if outcome.manifest.drained else "; it did not come to rest within drain_ms"
    typer.echo(
        f"{info.name} on {len(outcome.manifest.nodes)} nodes: {outcome.published} messages, {outcome.delivered} "
        f"deliveries, {outcome.hops} hops in {outcome.virtual_ns / 1e9:.3f} s of virtual time{rest}",
        err=True,
    )


def shrink(
    scenario: Scenario,
    out: Annotated[Path, typer.Option("--out", "-o", help="Scenario file to write.")],
    protocol: Protocol = None,
    seed: Seed = None,
    check: Annotated[
        str | None, typer.Option(help="The check that must keep failing; the first failing one if not given.")
    ] = None,
    overrides: Sets = None,
) -> None:
    """Make a failing SCENARIO small: fewer messages, faults and nodes that still fail the same check.

    Example: ordercast shrink scenarios/reordering.toml --protocol unordered --check causal -o small.toml
    """
    from ordercast.protocols import lookup
    from ordercast.runs import shrink_failing
    from ordercast.scenario.load import dump_scenario, load_scenario

    value = load_scenario(scenario, overrides or [])
    info = lookup(protocol or value.protocol)
    with progress_bar("shrinking") as progress:
        small, failing = shrink_failing(value, info, seed=seed, check=check, progress=progress)
    if protocol is not None:
        small = msgspec.structs.replace(small, protocol=protocol)
    out.write_text(dump_scenario(small), encoding="utf-8")
    typer.echo(out)
    typer.echo(f"still fails {failing}; replay: ordercast simulate {out} --out RUN && ordercast verify RUN", err=True)


def demo(
    out: Annotated[Path, typer.Option(help="Directory for the runs and the report.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Seed of the runs.")] = 0,
    master: Master = None,
) -> None:
    """The whole line at once: simulate a run with crashes, verify and measure it on Spark, draw the report.

    Every protocol runs the same scenario. All must hold, except the deliberately weak one, which the judge must catch.
    Exit 0 only if it is so. Example: ordercast demo --out runs/demo --seed 1
    """
    from ordercast.report.text import print_metrics, print_verdicts

    runs = _demo_runs(out, seed)
    verdicts = judge_on_spark(runs, master, witnesses=1)
    measured = measure_on_spark(runs, master)
    screen = console()
    print_verdicts(verdicts, screen)
    print_metrics(measured, screen)
    page = out / "report.html"
    write_page(page, verdicts, measured)
    *held, caught = [verdict.exit_code() for verdict in verdicts]
    if worst(held) == HELD and caught == VIOLATED:
        typer.echo(f"\nevery protocol held, and the judge caught {_NEGATIVE_CONTROL!r}, which is broken on purpose")
        typer.echo(f"report: {page}")
        return
    typer.echo(f"report: {page}")
    raise typer.Exit(worst(held) or VIOLATED)


def _demo_runs(out: Path, seed: int) -> list[Path]:
    """One run of the demo's scenario per protocol, the negative control last."""
    from ordercast.protocols import lookup
    from ordercast.scenario.load import load_scenario
    from ordercast.sim import simulate as run

    with as_file(files("ordercast.cli") / "demo.toml") as path:
        scenario = load_scenario(path)
    out.mkdir(parents=True, exist_ok=True)
    runs = []
    for name in (*_DEMO_PROTOCOLS, _NEGATIVE_CONTROL):
        with progress_bar(f"simulating {name}") as progress:
            run(scenario, lookup(name), seed=seed, out=out / name, progress=progress)
        runs.append(out / name)
    return runs
