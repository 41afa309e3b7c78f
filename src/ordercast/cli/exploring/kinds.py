"""The kinds of exploration: machines on fixed links, trees of brokers, overlays whose links change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ordercast.cli.exploring.given import Given
from ordercast.cli.options import progress_bar
from ordercast.core.errors import UsageError

if TYPE_CHECKING:
    from ordercast.explore import BrokerScope, Exploration

_OF_MACHINES = ("idle_at_once", "ascending", "twins_in_order", "real_time", "scenario")
"""Options that only machines on fixed links know."""


def explore_machines(given: Given) -> Exploration:
    """Protocol machines on links that stay."""
    from ordercast.explore import explore

    given.refuse("clients", "crash", "cut", "early", "cuts", "joins")
    count = given.count()
    parsed = _parsed(given, count)
    with progress_bar(f"exploring {given.protocol}") as progress:
        return explore(
            str(given.protocol), nodes=count, messages=given.messages, sizes_from=given.sizes_from,
            total_destinations=given.total_destinations, options=given.chosen(), overlay=given.overlay,
            edges=given.lines(), fifo=not given.overtaking, idle_at_once=given.idle_at_once,
            ascending=given.ascending, twins_in_order=given.twins_in_order, real_time=given.real_time,
            keep_going=given.every, limit_states=given.limit_states, limit_seconds=given.limit_seconds,
            progress=progress, **parsed,
        )  # fmt: skip


def _parsed(given: Given, count: int) -> dict[str, Any]:
    from ordercast.explore import Faults
    from ordercast.explore.scope.configurations import parse_destinations
    from ordercast.explore.scope.faults import parse_toggle
    from ordercast.explore.scope.publications import parse_groups, parse_publication

    publish = None if given.publish is None else given.publish.split(",")
    toggles = tuple(parse_toggle(toggle, count) for toggle in given.toggles or [])
    return {
        "destinations": None if given.destinations is None else parse_destinations(given.destinations, count),
        "publishers": _nodes(given.publishers, count),
        "groups": None if given.groups is None else parse_groups(given.groups, count),
        "publications": None if publish is None else [parse_publication(one, count) for one in publish],
        "faults": Faults(given.losses, given.suspicions, toggles, tuple(given.without or [])),
    }


def _nodes(text: str | None, count: int) -> list[int] | None:
    from ordercast.explore.scope.configurations import parse_node

    return None if text is None else [parse_node(word, count, "publishers") for word in text.split(",")]


def explore_moving_overlay(given: Given) -> Exploration:
    """A machine that opens and closes links itself."""
    from ordercast.explore import explore_overlay
    from ordercast.explore.overlays.scope import overlay_scope, overlay_trouble

    given.refuse(
        "destinations", "groups", "publish", "total_destinations", "overtaking", "suspicions", "toggles", "without",
        "clients", "cut", *_OF_MACHINES,
    )  # fmt: skip
    count = given.count()
    publishers = _nodes(given.publishers, count)
    scope = overlay_scope(
        str(given.protocol), count, given.overlay or "line", given.lines(), given.messages, given.chosen(),
        publishers=None if publishers is None else tuple(publishers),
        joins=tuple(_nodes(given.joins, count) or ()),
        trouble=overlay_trouble(given.crash, given.cuts, given.losses, given.early, given.timer),
    )  # fmt: skip
    with progress_bar(f"exploring {given.protocol}") as progress:
        return explore_overlay(
            scope, keep_going=given.every, limit_states=given.limit_states, limit_seconds=given.limit_seconds,
            progress=progress,
        )  # fmt: skip


def explore_broker_tree(given: Given) -> Exploration:
    """Brokers and their clients."""
    from ordercast.explore import explore_brokers

    given.refuse(
        "destinations", "publishers", "groups", "total_destinations", "cuts", "joins", "overtaking", "losses",
        "suspicions", "toggles", "without", *_OF_MACHINES,
    )  # fmt: skip
    scope = _with_trouble(_broker_scope(given), given)
    with progress_bar("exploring broker") as progress:
        return explore_brokers(
            scope, keep_going=given.every, limit_states=given.limit_states, limit_seconds=given.limit_seconds,
            progress=progress,
        )  # fmt: skip


def _broker_scope(given: Given) -> BrokerScope:
    from ordercast.core.errors import unknown_name
    from ordercast.core.messages import GUARANTEES
    from ordercast.explore.brokers import scope as of

    if given.guarantee not in GUARANTEES:
        raise UsageError(f"--guarantee: {unknown_name('guarantee', given.guarantee, GUARANTEES)}")
    talks = None
    if given.publish is not None:
        talks = tuple(of.parse_talk(text, GUARANTEES[given.guarantee]) for text in given.publish.split(","))
    brokers = given.count(unless_said=2)
    return of.BrokerScope(
        brokers=brokers,
        members=of.parse_members(given.clients or f"0:a;{brokers - 1}:a"),
        parents=of.tree_of(given.overlay or "line", brokers, given.lines()),
        messages=given.messages,
        talks=talks,
        guarantee=GUARANTEES[given.guarantee],
        settings=of.settings_of(given.chosen()),
    )


def _with_trouble(scope: BrokerScope, given: Given) -> BrokerScope:
    from ordercast.explore.brokers.scope import Trouble, parse_crash, parse_number

    broker, returns = (None, False) if given.crash is None else parse_crash(given.crash)
    client = None if given.cut is None else parse_number(given.cut, "cut")
    return msgspec.structs.replace(
        scope, trouble=Trouble(broker, returns, client, given.early, given.timer or "stability")
    )
