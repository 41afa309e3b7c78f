"""`ordercast explore`: its options, and which kind of exploration they ask for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Never

import typer

from ordercast.cli.exits import HELD, UNDECIDED, VIOLATED
from ordercast.cli.exploring.clusters import explore_clusters
from ordercast.cli.exploring.given import Given
from ordercast.cli.exploring.kinds import explore_broker_tree, explore_machines, explore_moving_overlay
from ordercast.cli.exploring.shown import show, show_replay, write_scenario
from ordercast.cli.options import Json
from ordercast.core.errors import UsageError

if TYPE_CHECKING:
    from ordercast.explore import Exploration

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
Crash = Annotated[
    str | None,
    typer.Option(help="broker, overlays: 1: b1, or n1, may crash at any moment. '1 returns': and come back (broker)."),
]
Joins = Annotated[str | None, typer.Option("--join", help="overlays: 2,3: n2 and n3 join at any moment.")]


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
    losses: Annotated[
        int,
        typer.Option(help="So many packets may be lost, where packets may overtake; overlays: so many Acks."),
    ] = 0,
    suspicions: Annotated[int, typer.Option(help="So often anybody may suspect or trust anybody linked.")] = 0,
    toggles: Toggles = None,
    without: Without = None,
    clients: Clients = None,
    guarantee: Annotated[str, typer.Option(help="broker: of publications that do not say it themselves.")] = "causal",
    crash: Crash = None,
    cut: Annotated[str | None, typer.Option(help="broker: 0: the connection of c0 may break at any moment.")] = None,
    cuts: Annotated[int, typer.Option(help="overlays: so often any connection may break.")] = 0,
    joins: Joins = None,
    early: Annotated[int, typer.Option(help="broker, overlays: so often a timer may run out early.")] = 0,
    timer: Annotated[
        str | None, typer.Option(help="Which timers, by a word in their names; stability, of overlays ack.")
    ] = None,
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

    Example: ordercast explore cluster --nodes 3 --messages 3 --set restarts=1

    Example: ordercast explore preventive --losses 1 --set 'script=["n0 opens n2 at 0 via n1", "n0 closes n2 at 1"]'
    """
    given = Given(**locals())
    if given.replay is not None:
        _perform(given.replay, given)
    if given.protocol is None:
        raise UsageError("PROTOCOL: name one, or give a schedule with --replay")
    if given.protocol == "cluster":
        raise typer.Exit(explore_clusters(given))
    found = _kind_of(given.protocol)(given)
    show(found, given.out, json=given.json)
    if found.counterexample is not None and given.scenario is not None:
        write_scenario(found.counterexample, given.scenario)
    raise typer.Exit(_CODES[found.verdict])


def _kind_of(protocol: str) -> Callable[[Given], Exploration]:
    from ordercast.protocols import OVERLAYS

    if protocol == "broker":
        return explore_broker_tree
    return explore_moving_overlay if protocol in OVERLAYS else explore_machines


def _perform(schedule: Path, given: Given) -> Never:
    from ordercast.explore import replay

    done = replay(schedule, given.protocol, trust=given.trust)
    show_replay(done, json=given.json)
    raise typer.Exit(HELD if done.violation is None else VIOLATED)
