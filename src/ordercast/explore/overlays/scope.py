"""The scope of an exploration of a changing overlay: who is there, joins and publishes, and what may go wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import combinations, combinations_with_replacement
from typing import Any

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.core.registry import ProtocolInfo
from ordercast.explore.scope.publications import Edges
from ordercast.protocols import lookup

_MOST = 5
"""Processes: more have more interleavings than anybody can wait for."""


class OverlayTrouble(msgspec.Struct, frozen=True):
    """The faults that may happen, each at any moment and once, or as often as it says."""

    crash: int | None = None
    """This process dies for good, and what it had sent and nobody has received yet is lost."""
    cuts: int = 0
    """So often a connection breaks, and what is under way on it is lost."""
    losses: int = 0
    """So often an acknowledgement is lost."""
    early: int = 0
    """So often a timer runs out although something is on its way."""
    timer: str = "ack"
    """Which timers may: those with this word in their names."""


class Post(msgspec.Struct, frozen=True):
    """One publication by a process."""

    client: int

    def __str__(self) -> str:
        return f"n{self.client}"


class OverlayScope(msgspec.Struct, frozen=True, kw_only=True):
    """All publications by processes that know each other along `edges`, or exactly those of `publishers`."""

    info: ProtocolInfo
    nodes: int
    edges: Edges
    joins: tuple[int, ...] = ()
    """Processes that are not there from the beginning, and join at any moment."""
    messages: int = 2
    publishers: tuple[int, ...] | None = None
    trouble: OverlayTrouble = OverlayTrouble()
    options: Any = None

    def sizes(self) -> list[int]:
        return [len(self.publishers)] if self.publishers is not None else list(range(1, self.messages + 1))

    def configurations(self, messages: int) -> Iterator[tuple[Post, ...]]:
        """Who publishes how often, in all ways."""
        if self.publishers is not None:
            yield tuple(map(Post, self.publishers))
            return
        for nodes in combinations_with_replacement(range(self.nodes), messages):
            yield tuple(map(Post, nodes))

    def neighbours(self, node: int) -> tuple[str, ...]:
        """The addresses that a process knows at first."""
        near = {b for a, b in self.edges if a == node} | {a for a, b in self.edges if b == node}
        return tuple(node_name(other) for other in sorted(near))

    # How the world of brokers sees it: processes are its clients, and nobody is a broker.

    @property
    def brokers(self) -> int:
        return 0

    @property
    def members(self) -> range:
        return range(self.nodes)


def check_overlay_scope(scope: OverlayScope) -> None:
    """Refuse what makes no sense."""
    if not 2 <= scope.nodes <= _MOST:
        raise UsageError(f"nodes: {scope.nodes} is not from 2 to {_MOST}")
    named = {"join": scope.joins, "publishers": scope.publishers or ()}
    if scope.trouble.crash is not None:
        named["crash"] = (scope.trouble.crash,)
    for where, numbers in named.items():
        for number in numbers:
            if not 0 <= number < scope.nodes:
                raise UsageError(f"{where}: there is no process n{number}")
    if len(scope.joins) >= scope.nodes:
        raise UsageError("join: somebody must be there from the beginning")


def overlay_scope(
    protocol: str, nodes: int, overlay: str, edges: Edges, messages: int, options: Mapping[str, Any], **rest: Any
) -> OverlayScope:
    """A scope by words. Unless a script is given, the ends of the line come to open a link to each other."""
    info = lookup(protocol)
    chosen = dict(options)
    if "script" in info.options.__struct_fields__ and "script" not in chosen and nodes > 2:
        chosen["script"] = (f"n0 opens n{nodes - 1} at 0 via n1",)
    return OverlayScope(
        info=info, nodes=nodes, edges=edges or edges_of(overlay, nodes), messages=messages,
        options=info.parse_options(chosen), **rest,
    )  # fmt: skip


def overlay_trouble(crash: str | None, cuts: int, losses: int, early: int, timer: str | None) -> OverlayTrouble:
    """Troubles by words: `1` is the process that may crash."""
    if crash is not None and not re.fullmatch(r"n?\d{1,3}", crash.strip()):
        raise UsageError(f"crash: {crash.strip()!r} is not like '1'")
    victim = None if crash is None else int(crash.strip().removeprefix("n"))
    return OverlayTrouble(victim, cuts, losses, early, timer or OverlayTrouble().timer)


def edges_of(overlay: str, nodes: int) -> Edges:
    """The processes that know each other at first."""
    line = [(i, i + 1) for i in range(nodes - 1)]
    match overlay:
        case "line":
            return tuple(line)
        case "ring":
            return (*line, (0, nodes - 1))
        case "star":
            return tuple((0, i) for i in range(1, nodes))
        case "clique":
            return tuple(combinations(range(nodes), 2))
        case _:
            raise UsageError(f"overlay: {overlay!r} is not a line, ring, star or clique")


def node_name(number: int) -> NodeId:
    return NodeId(f"n{number}")
