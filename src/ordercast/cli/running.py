"""Commands that run scenarios: simulate and shrink under virtual time, run with real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ordercast.cli.options import Json, Protocol, Seed, Sets, print_json, progress_bar

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
    from ordercast.scenario.load import load_scenario
    from ordercast.sim import simulate as run
    from ordercast.sim.catalogue import lookup

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


def run(
    scenario: Scenario,
    out: Annotated[Path, typer.Option(help="Directory to write the run to.")],
    protocol: Protocol = None,
    seed: Seed = None,
    overrides: Sets = None,
    processes: Annotated[
        int | None, typer.Option(help="Processes that share the nodes without faults; one for each node if not given.")
    ] = None,
    durable: Annotated[
        bool, typer.Option(help="All nodes keep their state; a process that you kill is started again with it.")
    ] = False,
    json: Json = False,
) -> None:
    """Run SCENARIO with real processes over TCP on this machine and write its trace. Prints the run's path.

    Example: ordercast run scenarios/calm.toml --protocol locamu --set overlay.kind=tree --out runs/real
    """
    from ordercast.net.supervise.cluster import run_processes
    from ordercast.scenario.load import load_scenario

    value = load_scenario(scenario, overrides or [])
    outcome = run_processes(value, protocol, seed=seed, out=out, processes=processes, durable=durable)
    if json:
        print_json(outcome)
        return
    typer.echo(out)
    rest = "" if outcome.manifest.drained else "; it did not come to rest within drain_ms"
    typer.echo(
        f"{outcome.manifest.protocol} on {len(outcome.manifest.nodes)} nodes: {outcome.published} messages, "
        f"{outcome.delivered} deliveries in {outcome.wall_ns / 1e9:.3f} s{rest}",
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
    small = msgspec.structs.replace(small, protocol=protocol or value.protocol)
    out.write_text(dump_scenario(small), encoding="utf-8")
    typer.echo(out)
    typer.echo(f"still fails {failing}; replay: ordercast simulate {out} --out RUN && ordercast verify RUN", err=True)
