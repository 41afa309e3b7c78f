"""A plan of an exploration: what to explore and how, checked before anything begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.registry import ProtocolInfo
from ordercast.explore.machines.setting import Setting, is_addressed
from ordercast.explore.scope.configurations import Configuration, Scope, check_scope
from ordercast.explore.scope.faults import Faults
from ordercast.explore.scope.publications import Edges, Groups, PlannedPublication, configuration_of

EVERYONE = "t0"
"""The group of all nodes, where none is named."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan of an exploration; `explore` documents the fields."""

    protocol: str
    info: ProtocolInfo
    scope: Scope
    options: Mapping[str, Any]
    overlay: str
    edges: Edges
    faults: Faults
    fifo: bool
    idle_at_once: bool
    twins_in_order: bool
    ascending: bool
    real_time: bool
    keep_going: bool
    limit_states: int | None
    limit_seconds: float | None

    @property
    def faulty(self) -> bool:
        """Whether nodes publish to groups while things go wrong."""
        return self.scope.groups is not None

    def setting(self) -> Setting:
        scope = self.scope
        clients = 0 if scope.broadcast else scope.messages
        return Setting(
            self.info,
            self.options,
            scope.nodes,
            clients,
            self.overlay,
            edges=self.edges,
            groups=scope.groups,
            faults=self.faults,
        )


def check_plan(plan: Plan) -> None:
    """Refuse what does not go together."""
    if plan.real_time and (plan.ascending or plan.twins_in_order or plan.scope.broadcast):
        raise UsageError("real_time: needs clients, and goes neither with ascending nor with twins_in_order")
    if plan.faulty and (plan.ascending or plan.twins_in_order):
        raise UsageError("ascending, twins_in_order: are for messages with destinations of their own")
    if plan.idle_at_once and (plan.fifo or not plan.faulty):
        raise UsageError("idle_at_once: is for groups, and for packets that may overtake each other")
    if plan.faults.losses and plan.fifo:
        raise UsageError("losses: only where packets may overtake each other can they be lost without being missed")


def scope_of(
    info: ProtocolInfo,
    nodes: int,
    messages: int,
    *,
    destinations: Sequence[Sequence[int]] | None,
    publishers: Sequence[int] | None,
    groups: Groups | None,
    publications: Sequence[PlannedPublication] | None,
    faults: Faults,
    sizes_from: int,
    total_destinations: int | None,
) -> Scope:
    addressed = is_addressed(info)
    faulty = groups is not None or publications is not None or faults != Faults() or info.reach is not None
    if destinations is not None and not addressed:
        raise UsageError(f"destinations: messages of {info.name} go to everyone")
    if publishers is not None and addressed:
        raise UsageError(f"publishers: messages of {info.name} come from clients")
    if faulty and addressed:
        raise UsageError(f"groups, publications and faults: messages of {info.name} come from clients")
    given = None
    if faulty:
        groups = _checked_groups(groups, nodes)
        if publishers is not None and publications is None:
            publications = [PlannedPublication(publisher, next(iter(groups))) for publisher in publishers]
        if publications is not None:
            given = configuration_of(nodes, groups, publications)
    elif destinations is not None:
        given = Configuration(nodes, _checked_sets(destinations, nodes))
    elif publishers is not None:
        _checked_sets([publishers], nodes)
        given = Configuration(nodes, (tuple(range(nodes)),) * len(publishers), tuple(publishers))
    scope = Scope(
        nodes=nodes,
        messages=messages if given is None else given.messages,
        sizes_from=sizes_from,
        total_destinations=total_destinations,
        broadcast=not addressed,
        given=given,
        groups=groups,
    )
    check_scope(scope)
    return scope


def _checked_groups(groups: Groups | None, nodes: int) -> Groups:
    if groups is None:
        return {EVERYONE: tuple(range(nodes))}
    return dict(zip(groups, _checked_sets(list(groups.values()), nodes), strict=True))


def _checked_sets(sets: Sequence[Sequence[int]], nodes: int) -> tuple[tuple[int, ...], ...]:
    for members in sets:
        if not members or not all(0 <= node < nodes for node in members):
            raise UsageError(f"{list(members)} are not nodes from 0 to {nodes - 1}")
    return tuple(tuple(sorted(set(members))) for members in sets)
