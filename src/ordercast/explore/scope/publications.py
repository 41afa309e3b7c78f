"""Parses who publishes to which group on which graph, as people write it on a command line or in a schedule."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from ordercast.core.errors import UsageError, unknown_name
from ordercast.explore.scope.configurations import Configuration, parse_node

Groups = Mapping[str, tuple[int, ...]]
"""Members by name."""
Edges = tuple[tuple[int, int], ...]

_PUBLICATION = re.compile(
    r"\s*(?P<node>\w+)\s*>\s*(?P<group>[\w.-]+)(\s+after\s+(?P<after>m\d{1,9}(\s*\+\s*m\d{1,9})*))?\s*"
)
_MOST_NODES = 64


class PlannedPublication(msgspec.Struct, frozen=True):
    """A node publishes to a group, perhaps not before it has certain messages."""

    publisher: int
    group: str
    after: tuple[int, ...] = ()
    """Messages, counted from 0, that the publisher must have delivered or published."""

    def __str__(self) -> str:
        after = f" after {' + '.join(f'm{i + 1}' for i in self.after)}" if self.after else ""
        return f"n{self.publisher}>{self.group}{after}"


def configuration_of(nodes: int, groups: Groups, publications: Sequence[PlannedPublication]) -> Configuration:
    """The publications as a configuration, if they make sense."""
    if not publications:
        raise UsageError("publications: nobody publishes anything")
    for i, publication in enumerate(publications):
        if publication.group not in groups:
            raise UsageError(f"publications: {unknown_name('group', publication.group, groups)}")
        _check_after(i, publication, groups, publications)
    return Configuration(
        nodes,
        tuple(groups[publication.group] for publication in publications),
        tuple(publication.publisher for publication in publications),
        tuple(publication.group for publication in publications),
        tuple(publication.after for publication in publications),
    )


def publications_of(configuration: Configuration) -> list[PlannedPublication]:
    """The text from which `configuration_of` makes this configuration."""
    facts = zip(configuration.publishers or (), configuration.groups, configuration.after, strict=True)
    return [PlannedPublication(publisher, group, after) for publisher, group, after in facts]


def _check_after(
    number: int, publication: PlannedPublication, groups: Groups, others: Sequence[PlannedPublication]
) -> None:
    for i in publication.after:
        if not 0 <= i < number:
            raise UsageError(f"publications: {publication}: m{i + 1} is not an earlier message than m{number + 1}")
        earlier = others[i]
        if publication.publisher not in (earlier.publisher, *groups[earlier.group]):
            raise UsageError(f"publications: {publication}: n{publication.publisher} never has m{i + 1}")


def parse_edges(text: str) -> Edges:
    """`0-1,1-2`."""
    edges = []
    for word in text.split(","):
        ends = word.split("-")
        if len(ends) != 2:
            raise UsageError(f"edges: {word.strip()!r} is not like '0-1'")
        edges.append((parse_node(ends[0], _MOST_NODES, "edges"), parse_node(ends[1], _MOST_NODES, "edges")))
    return tuple(edges)


def nodes_of(edges: Edges) -> int:
    """How many nodes edges are about: they are numbered without gaps."""
    named = {node for edge in edges for node in edge}
    loops = [a for a, b in edges if a == b]
    if loops:
        raise UsageError(f"edges: {loops[0]}-{loops[0]} leads nowhere")
    missing = set(range(len(named))) - named
    if missing:
        raise UsageError(f"edges: nodes are numbered from 0, and no edge leads to {min(missing)}")
    return len(named)


def parse_groups(text: str, nodes: int) -> dict[str, tuple[int, ...]]:
    """`a:1,2,3;b:3,4`."""
    groups = {}
    for part in text.split(";"):
        name, colon, members = part.partition(":")
        if not colon or not name.strip():
            raise UsageError(f"groups: {part.strip()!r} is not like 'a:1,2'")
        if name.strip() in groups:
            raise UsageError(f"groups: {name.strip()!r} is there twice")
        ranks = {parse_node(word, nodes, "groups") for word in members.split(",")}
        groups[name.strip()] = tuple(sorted(ranks))
    return groups


def parse_publication(text: str, nodes: int) -> PlannedPublication:
    """`4>c` or `4>c after m1 + m2`."""
    match = _PUBLICATION.fullmatch(text)
    if match is None:
        raise UsageError(f"publications: {text.strip()!r} is not like '0>a' or '0>a after m1'")
    after = tuple(int(word.strip()[1:]) - 1 for word in match["after"].split("+")) if match["after"] else ()
    return PlannedPublication(parse_node(match["node"], nodes, "publications"), match["group"], after)
