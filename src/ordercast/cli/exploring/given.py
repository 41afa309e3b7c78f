"""The options of `ordercast explore` as one value, and what every kind of exploration reads from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ordercast.core.errors import UsageError

if TYPE_CHECKING:
    from ordercast.explore.scope.publications import Edges

_OPTION = {"joins": "join", "toggles": "toggle"}
"""Options that are called otherwise than their field, because they can be repeated or are a word of Python."""


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """The options that the user gave; `explore` describes them."""

    protocol: str | None
    nodes: int | None
    messages: int
    destinations: str | None
    publishers: str | None
    groups: str | None
    publish: str | None
    sizes_from: int
    total_destinations: int | None
    options: list[str] | None
    overlay: str | None
    edges: str | None
    overtaking: bool
    losses: int
    suspicions: int
    toggles: list[str] | None
    without: list[str] | None
    clients: str | None
    guarantee: str
    crash: str | None
    cut: str | None
    cuts: int
    joins: str | None
    early: int
    timer: str | None
    idle_at_once: bool
    ascending: bool
    twins_in_order: bool
    real_time: bool
    every: bool
    limit_states: int
    limit_seconds: float | None
    replay: Path | None
    trust: bool
    out: Path | None
    scenario: Path | None
    json: bool

    def refuse(self, *names: str) -> None:
        """Options that mean nothing to the protocol: one that was given is a mistake."""
        for name in names:
            if getattr(self, name):
                option = _OPTION.get(name, name).replace("_", "-")
                raise UsageError(f"--{option}: not for protocol {self.protocol}")

    def chosen(self) -> dict[str, Any]:
        """The options of the protocol, as `--set` gives them."""
        from ordercast.scenario.load import apply_override

        chosen: dict[str, Any] = {}
        for option in self.options or []:
            apply_override(chosen, option)
        return chosen

    def lines(self) -> Edges:
        """The overlay edge by edge; empty if it was not given so."""
        from ordercast.explore.scope.publications import parse_edges

        return () if self.edges is None else parse_edges(self.edges)

    def count(self, unless_said: int = 3) -> int:
        """How many nodes: as many as were asked for, or as the edges have."""
        from ordercast.explore.scope.publications import nodes_of

        if self.nodes is not None:
            return self.nodes
        return nodes_of(self.lines()) if self.lines() else unless_said
