"""Commands that run scenarios: simulate and shrink under virtual time, run with real processes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from ordercast.cli.options import Json, Protocol, Seed, Sets, print_json, progress_bar
from ordercast.core.errors import UsageError

if TYPE_CHECKING:
    from ordercast.net.supervise.cluster import ClusterOutcome
    from ordercast.sim.run import Simulation

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
    from ordercast.scenario.choosing import protocol_of
    from ordercast.scenario.load import load_scenario
    from ordercast.sim import simulate as run
    from ordercast.sim.catalogue import lookup

    value = load_scenario(scenario, overrides or [])
    info = lookup(protocol_of(value, protocol))
    with progress_bar(f"simulating {value.name}") as progress:
        outcome = run(value, info, seed=seed, out=out, progress=progress)
    took = f"deliveries, {outcome.hops} hops in {outcome.virtual_ns / 1e9:.3f} s of virtual time"
    _tell(outcome, out, took, json=json)


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
    if (protocol or value.protocol) == "broker":
        raise UsageError("protocol 'broker': real brokers run from a cluster file; see `ordercast up --help`")
    outcome = run_processes(value, protocol, seed=seed, out=out, processes=processes, durable=durable)
    _tell(outcome, out, f"deliveries in {outcome.wall_ns / 1e9:.3f} s", json=json)


def _tell(outcome: Simulation | ClusterOutcome, out: Path, took: str, *, json: bool) -> None:
    """The path of the run for the next command; what happened for people, or all of it as JSON."""
    if json:
        print_json(outcome)
        return
    typer.echo(out)
    manifest = outcome.manifest
    rest = "" if manifest.drained else "; it did not come to rest within drain_ms"
    told = f"{manifest.protocol} on {len(manifest.nodes)} nodes: {outcome.published} messages, {outcome.delivered} "
    typer.echo(f"{told}{took}{rest}", err=True)


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
    from ordercast.core.registry import is_code
    from ordercast.runs import shrink_failing
    from ordercast.scenario.choosing import protocol_of
    from ordercast.scenario.load import dump_scenario, load_scenario
    from ordercast.sim.catalogue import lookup

    value = load_scenario(scenario, overrides or [])
    name = protocol_of(value, protocol)
    info = lookup(name)
    with progress_bar("shrinking") as progress:
        small, failing = shrink_failing(value, info, seed=seed, check=check, progress=progress)
    out.write_text(dump_scenario(msgspec.structs.replace(small, protocol=name)), encoding="utf-8")
    typer.echo(out)
    code = f" --protocol {name}" if is_code(name) else ""
    again = f"ordercast simulate {out}{code} --out RUN && ordercast verify RUN"
    typer.echo(f"still fails {failing}; replay: {again}", err=True)


def new_protocol(
    name: Annotated[str, typer.Argument(help="Name of the protocol, such as my-order: letters, digits and hyphens.")],
    out: Annotated[Path, typer.Option(help="Directory to write the two files to.")] = Path(),
) -> None:
    """Begin a protocol of your own: NAME.py, which works, and NAME.toml, a scenario to try it in.

    Example: ordercast new-protocol my-order && ordercast explore my_order.py
    """
    from importlib.resources import files

    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise UsageError(f"NAME: {name!r} is not like 'my-order': small letters, digits and single hyphens")
    words = name.split("-")
    paths = {suffix: out / f"{'_'.join(words)}{suffix}" for suffix in (".py", ".toml")}
    for path in paths.values():
        if path.exists():
            raise UsageError(f"{path}: is there already")
    out.mkdir(parents=True, exist_ok=True)
    for suffix, path in paths.items():
        text = (files("ordercast.cli.template") / f"own_protocol{suffix}").read_text(encoding="utf-8")
        text = text.replace("own-protocol", name).replace("OwnProtocol", "".join(word.title() for word in words))
        path.write_text(text, encoding="utf-8")
        typer.echo(path)
    file, scenario = paths[".py"], paths[".toml"]
    typer.echo(f"next: ordercast simulate {scenario} --protocol {file} --out RUN && ordercast verify RUN", err=True)
