"""Exploring causal clusters: the order of updates, and the managers of an entry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from ordercast.cli.exits import HELD, UNDECIDED, VIOLATED
from ordercast.cli.exploring.given import Given
from ordercast.cli.options import print_json
from ordercast.core.errors import UsageError

if TYPE_CHECKING:
    from ordercast.explore.clusters.order import OrderScope
    from ordercast.explore.clusters.tickets import TicketScope


class ClusterChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings that `--set` can change for `explore cluster`."""

    part: str = "order"
    """`order`: the optimistic layer; `tickets`: the managers of one entry."""
    restarts: Annotated[int, msgspec.Meta(ge=0)] = 0
    """How often a process may lose its memory: a coordinator, or a manager."""
    halves: Annotated[int, msgspec.Meta(ge=0)] = 0
    """tickets: so many halves of a lease may pass."""


def explore_clusters(given: Given) -> int:
    """Explore one scope, print what came of it, and say how to exit."""
    given.refuse(
        "destinations", "publishers", "groups", "publish", "edges", "clients", "crash", "cut", "cuts", "joins", "early",
        "total_destinations", "overtaking", "losses", "suspicions", "toggles", "without", "idle_at_once", "ascending",
        "twins_in_order", "real_time", "scenario", "out", "limit_seconds",
    )  # fmt: skip
    found = _scope(given).explore(given.limit_states)
    verdict = "violated" if found.violation else "holds" if found.complete else "undecided"
    if given.json:
        print_json({"verdict": verdict, **msgspec.to_builtins(found)})
    else:
        for i, step in enumerate(found.story, start=1):
            typer.echo(f"{i:3} {step}")
        typer.echo(f"{verdict}: {found.states} states, {found.transitions} transitions {found.violation}".rstrip())
    return {"violated": VIOLATED, "holds": HELD, "undecided": UNDECIDED}[verdict]


def _scope(given: Given) -> OrderScope | TicketScope:
    from ordercast.explore.clusters.order import OrderScope
    from ordercast.explore.clusters.tickets import TicketScope

    nodes, messages = given.count(), given.messages
    try:
        choice = msgspec.convert(given.chosen(), ClusterChoice)
    except msgspec.ValidationError as error:
        raise UsageError(f"--set: {error}") from None
    if choice.part not in ("order", "tickets"):
        raise UsageError(f"--set part: {choice.part!r}; there are order and tickets")
    if not 1 <= nodes <= 6 or messages < 1:
        raise UsageError(f"--nodes {nodes} --messages {messages}: 1 to 6 nodes, and at least 1 message")
    if choice.part == "order":
        return OrderScope(nodes, messages, choice.restarts)
    return TicketScope(nodes, messages, choice.halves, choice.restarts)
