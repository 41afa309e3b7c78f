"""The command that runs every interleaving: explore."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from ordercast.cli.exits import HELD, UNDECIDED, VIOLATED
from ordercast.cli.options import Json, print_json, progress_bar
from ordercast.core.errors import UsageError
from ordercast.core.registry import is_code

if TYPE_CHECKING:
    from ordercast.explore import BrokerScope, Counterexample, Exploration, Replay
    from ordercast.explore.scope.publications import Edges as Edges_

_CODES = {"holds": HELD, "violated": VIOLATED, "undecided": UNDECIDED}

Protocol = Annotated[str | None, typer.Argument(help="Protocol by name, or your own as FILE.py or FILE.py:NAME.")]
Destinations = Annotated[
    str | None, typer.Option(help="Only these destination sets, one per message: 0,1;1,2 sends m1 to n0, n1.")
]
Publishers = Annotated[str | None, typer.Option(help="Only these publishers, one per message, for broadcasts: 0,0,1.")]
Edges = Annotated[str | None, typer.Option(help="The overlay edge by edge, instead of --nodes: 0-1,1-2,2-3.")]
Groups = Annotated[str | None, typer.Option(help="Groups to publish to: a:1,2,3;b:3,4.")]
Publish = Annotated[
    str | None, typer.Option(help="Only these publications to groups: 0>a,4>b after m1. Without: all there are.")
]
Toggles = Annotated[
    list[str] | None,
    typer.Option("--toggle", help="0:1,2: n0 may suspect n1 and n2, then trust them. 0:1 stays: no more. Repeatable."),
]
Without = Annotated[
    list[str] | None, typer.Option(help="Packets of this type arrive only when everyone settles: Ack. Repeatable.")
]
Options = Annotated[
    list[str] | None, typer.Option("--set", help="Option of the protocol: rule=strict, delivery=end. Repeatable.")
]
Clients = Annotated[
    str | None, typer.Option(help="broker: who subscribes to what: 0:a;1:a+b.> is c0 at b0 and c1 at b1. Two on a.")
]
Crash = Annotated[str | None, typer.Option(help="broker: 1: b1 may crash at any moment. '1 returns': and come back.")]


def explore(
    protocol: Protocol = None,
    nodes: Annotated[int | None, typer.Option(help="Number of nodes; 3 unless said otherwise.")] = None,
    messages: Annotated[int, typer.Option(help="Explore up to so many messages, fewest first.")] = 2,
    destinations: Destinations = None,
    publishers: Publishers = None,
    groups: Groups = None,
    publish: Publish = None,
    sizes_from: Annotated[int, typer.Option(help="Smallest destination set.")] = 2,
    total_destinations: Annotated[
        int | None, typer.Option(help="Leave out configurations with more destinations in total.")
    ] = None,
    options: Options = None,
    overlay: Annotated[
        str | None, typer.Option(help="clique, line, ring, star or tree. For protocols on trees line, else clique.")
    ] = None,
    edges: Edges = None,
    overtaking: Annotated[bool, typer.Option("--overtaking", help="Packets of a channel may overtake.")] = False,
    losses: Annotated[int, typer.Option(help="So many packets may be lost, where packets may overtake.")] = 0,
    suspicions: Annotated[int, typer.Option(help="So often anybody may suspect or trust anybody linked.")] = 0,
    toggles: Toggles = None,
    without: Without = None,
    clients: Clients = None,
    guarantee: Annotated[str, typer.Option(help="broker: of publications that do not say it themselves.")] = "causal",
    crash: Crash = None,
    cut: Annotated[str | None, typer.Option(help="broker: 0: the connection of c0 may break at any moment.")] = None,
    early: Annotated[int, typer.Option(help="broker: so often a timer may run out early.")] = 0,
    timer: Annotated[str, typer.Option(help="broker: which timers, by a word in their names.")] = "stability",
    idle_at_once: Annotated[
        bool, typer.Option("--idle-at-once", help="Packets that would change nothing are handled at once.")
    ] = False,
    ascending: Annotated[
        bool, typer.Option("--ascending", help="Node by node: much faster, if packets only go to higher nodes.")
    ] = False,
    twins_in_order: Annotated[
        bool, typer.Option("--twins-in-order", help="Messages with equal destinations enter in order of their names.")
    ] = False,
    real_time: Annotated[
        bool, typer.Option("--real-time", help="Ask also for real-time order: none before one answered earlier.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="List every configuration that can go wrong.")] = False,
    limit_states: Annotated[int, typer.Option(help="Stop undecided after so many states.")] = 20_000_000,
    limit_seconds: Annotated[float | None, typer.Option(help="Stop undecided after so much time.")] = None,
    replay: Annotated[Path | None, typer.Option(help="Perform the schedule in this file instead.")] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Let the schedule load the protocol file that it names.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write a counterexample's schedule here.")] = None,
    scenario: Annotated[
        Path | None, typer.Option(help="Write the counterexample here as a scenario for ordercast simulate.")
    ] = None,
    json: Json = False,
) -> None:
    """Run every interleaving of every small configuration. Exit 0 holds, 1 counterexample, 4 limit reached.

    Example: ordercast explore daisy-chain-published --nodes 4 --messages 4 --ascending -o cycle.schedule.toml

    Example: ordercast explore locamu --nodes 4 --publish "0>t0,1>t0 after m1" --overtaking --losses 1 --toggle 0:1

    Example: ordercast explore broker --nodes 2 --clients "0:a;1:a" --publish "0>a,1>a total" --cut 1
    """
    from ordercast.explore import Faults, explore_brokers
    from ordercast.explore import explore as run
    from ordercast.explore import replay as perform
    from ordercast.explore.scope.configurations import parse_destinations
    from ordercast.explore.scope.faults import parse_toggle
    from ordercast.explore.scope.publications import nodes_of, parse_edges, parse_groups, parse_publication
    from ordercast.scenario.load import apply_override

    if replay is not None:
        _show_replay(perform(replay, protocol, trust=trust), json=json)
        return
    if protocol is None:
        raise UsageError("PROTOCOL: name one, or give a schedule with --replay")
    chosen: dict[str, Any] = {}
    for option in options or []:
        apply_override(chosen, option)
    lines = () if edges is None else parse_edges(edges)
    count = (nodes_of(lines) if lines else 2 if protocol == "broker" else 3) if nodes is None else nodes
    if protocol == "broker":
        _refuse(
            "protocol broker",
            destinations=destinations, publishers=publishers, groups=groups, total_destinations=total_destinations,
            overtaking=overtaking, losses=losses, suspicions=suspicions, toggle=toggles, without=without,
            idle_at_once=idle_at_once, ascending=ascending, twins_in_order=twins_in_order, real_time=real_time,
            scenario=scenario,
        )  # fmt: skip
        scope = _broker_scope(count, overlay or "line", lines, clients, messages, publish, guarantee, chosen)
        scope = _with_trouble(scope, crash, cut, early, timer)
        with progress_bar("exploring broker") as progress:
            found = explore_brokers(
                scope, keep_going=every, limit_states=limit_states, limit_seconds=limit_seconds, progress=progress
            )
        _show(found, out, json=json)
        raise typer.Exit(_CODES[found.verdict])
    _refuse(f"protocol {protocol}", clients=clients, crash=crash, cut=cut, early=early)
    faults = Faults(
        losses, suspicions, tuple(parse_toggle(toggle, count) for toggle in toggles or []), tuple(without or [])
    )
    with progress_bar(f"exploring {protocol}") as progress:
        found = run(
            protocol,
            nodes=count,
            messages=messages,
            destinations=None if destinations is None else parse_destinations(destinations, count),
            publishers=None if publishers is None else _parse_publishers(publishers, count),
            groups=None if groups is None else parse_groups(groups, count),
            publications=None if publish is None else [parse_publication(p, count) for p in publish.split(",")],
            sizes_from=sizes_from,
            total_destinations=total_destinations,
            options=chosen,
            overlay=overlay,
            edges=lines,
            fifo=not overtaking,
            faults=faults,
            idle_at_once=idle_at_once,
            ascending=ascending,
            twins_in_order=twins_in_order,
            real_time=real_time,
            keep_going=every,
            limit_states=limit_states,
            limit_seconds=limit_seconds,
            progress=progress,
        )
    _show(found, out, json=json)
    if found.counterexample is not None and scenario is not None:
        _write_scenario(found.counterexample, scenario)
    raise typer.Exit(_CODES[found.verdict])


def _refuse(where: str, **given: object) -> None:
    """Options that mean nothing there."""
    for name, value in given.items():
        if value:
            raise UsageError(f"--{name.replace('_', '-')}: not for {where}")


def _broker_scope(
    brokers: int, overlay: str, edges: Edges_, clients: str | None, messages: int, publish: str | None,
    guarantee: str, options: dict[str, Any],
) -> BrokerScope:  # fmt: skip
    from ordercast.core.errors import unknown_name
    from ordercast.core.messages import GUARANTEES
    from ordercast.explore.brokers import scope as of

    if guarantee not in GUARANTEES:
        raise UsageError(f"--guarantee: {unknown_name('guarantee', guarantee, GUARANTEES)}")
    talks = None
    if publish is not None:
        talks = tuple(of.parse_talk(text, GUARANTEES[guarantee]) for text in publish.split(","))
    return of.BrokerScope(
        brokers=brokers,
        members=of.parse_members(clients or f"0:a;{brokers - 1}:a"),
        parents=of.tree_of(overlay, brokers, edges),
        messages=messages,
        talks=talks,
        guarantee=GUARANTEES[guarantee],
        settings=of.settings_of(options),
    )


def _with_trouble(scope: BrokerScope, crash: str | None, cut: str | None, early: int, timer: str) -> BrokerScope:
    from ordercast.explore.brokers.scope import Trouble, parse_crash, parse_number

    broker, returns = (None, False) if crash is None else parse_crash(crash)
    client = None if cut is None else parse_number(cut, "cut")
    return msgspec.structs.replace(scope, trouble=Trouble(broker, returns, client, early, timer))


def _parse_publishers(text: str, nodes: int) -> list[int]:
    from ordercast.explore.scope.configurations import parse_node

    return [parse_node(word, nodes, "publishers") for word in text.split(",")]


def _show(found: Exploration, out: Path | None, *, json: bool) -> None:
    from ordercast.explore import write_schedule

    counterexample = found.counterexample
    if counterexample is not None and out is not None:
        write_schedule(out, counterexample.schedule, counterexample.story)
    if json:
        print_json({"verdict": found.verdict, "result": found})
        return
    typer.echo(f"{'messages':>8} {'configurations':>14} {'states':>12} {'transitions':>12} {'outcomes':>9}")
    for size in found.sizes:
        part = size.configurations if size.explored == size.configurations else f"{size.explored}/{size.configurations}"
        typer.echo(f"{size.messages:>8} {part!s:>14} {size.states:>12} {size.transitions:>12} {size.outcomes:>9}")
    memory = f"{found.bytes_per_state:,.0f} bytes per state, " if found.bytes_per_state else ""
    typer.echo(
        f"{found.seconds:.1f} s, {found.transitions_per_second:,.0f} transitions per second, {memory}"
        f"{found.machine_steps} distinct steps of machines",
        err=True,
    )
    if counterexample is not None:
        _show_counterexample(counterexample, found.violating, out)
    elif found.decided:
        typer.echo(f"{found.protocol}: holds in this scope")
    else:
        typer.echo(
            f"{found.protocol}: not decided within the limit; {found.configurations} of {found.scope} configurations "
            f"explored, and the whole scope has at least about {found.estimated_states():,} states"
        )


def _show_counterexample(counterexample: Counterexample, violating: list[str], out: Path | None) -> None:
    violation = counterexample.violation
    typer.echo(f"violated: {violation.check}: {violation.detail}")
    typer.echo(f"smallest configuration: {counterexample.configuration}")
    _show_story(counterexample.story, counterexample.orders)
    if len(violating) > 1:
        typer.echo(f"{len(violating)} configurations can go wrong:")
        for configuration in violating:
            typer.echo(f"  {configuration}")
    if out is not None:
        trust = " --trust" if is_code(counterexample.schedule.protocol) else ""
        typer.echo(f"replay: ordercast explore --replay {out}{trust}", err=True)


def _write_scenario(counterexample: Counterexample, path: Path) -> None:
    from ordercast.explore import scenario_of
    from ordercast.protocols import lookup
    from ordercast.scenario.load import dump_scenario

    schedule = counterexample.schedule
    try:
        value = scenario_of(schedule, lookup(schedule.protocol))
    except UsageError as reason:
        typer.echo(f"no scenario: {reason}", err=True)  # The violation is what the exit code must tell.
        return
    if value is None:
        typer.echo("no scenario: its packets would need more than one latency on a link", err=True)
        return
    path.write_text(dump_scenario(value), encoding="utf-8")
    code = f" --protocol {schedule.protocol}" if is_code(schedule.protocol) else ""
    typer.echo(f"simulate: ordercast simulate {path}{code} --out RUN && ordercast verify RUN", err=True)


def _show_story(story: list[str], orders: list[str]) -> None:
    for number, line in enumerate(story, 1):
        typer.echo(f"  {number:>3}. {line}")
    typer.echo("delivered: " + "; ".join(orders))


def _show_replay(done: Replay, *, json: bool) -> None:
    if json:
        print_json(done)
    else:
        _show_story(done.story, done.orders)
        violation = done.violation
        typer.echo("no violation" if violation is None else f"violated: {violation.check}: {violation.detail}")
        if done.recorded is not None and done.recorded != violation:
            typer.echo(f"the schedule was recorded with another end: {done.recorded.detail}", err=True)
    raise typer.Exit(HELD if done.violation is None else VIOLATED)
