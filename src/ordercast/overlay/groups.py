"""Groups: the members of each topic at the start of a run."""

from __future__ import annotations

from typing import assert_never

from ordercast.core.chance import shuffled
from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.ids import NodeId, Topic
from ordercast.overlay.graphs import Graph
from ordercast.scenario.model import Everyone, Explicit, Groups, Subtrees, Zipf

Membership = dict[Topic, tuple[NodeId, ...]]


def build_groups(groups: Groups, graph: Graph, seed: int) -> Membership:
    """Members of each topic, in the graph's order of nodes."""
    match groups:
        case Everyone(topics=count):
            if count < 1:
                raise UsageError(f"groups.topics: {count} is not at least 1")
            return {Topic(f"t{i}"): graph.nodes for i in range(count)}
        case Explicit(members=members):
            return {Topic(topic): _known(names, graph, f"groups.members.{topic}") for topic, names in members.items()}
        case Subtrees():
            return _subtrees(graph)
        case Zipf():
            return _zipf(groups, graph, seed)
        case _:
            assert_never(groups)


def _known(names: list[str], graph: Graph, where: str) -> tuple[NodeId, ...]:
    for name in names:
        if name not in graph.neighbours:
            raise UsageError(f"{where}: {unknown_name('node', name, graph.nodes)}")
    wanted = set(names)
    return tuple(node for node in graph.nodes if node in wanted)


def _subtrees(graph: Graph) -> Membership:
    if not graph.is_tree:
        raise UsageError("groups.kind: subtrees need an overlay that is a tree")
    children = graph.children(graph.nodes[0])
    below: dict[NodeId, set[NodeId]] = {}
    for node in reversed(_breadth_first(children, graph.nodes[0])):
        below[node] = {node}.union(*(below[child] for child in children[node]))
    place = {node: i for i, node in enumerate(graph.nodes)}
    return {
        Topic(f"below-{node}"): tuple(sorted(below[node], key=place.__getitem__))
        for node in graph.nodes
        if children[node]
    }


def _breadth_first(children: dict[NodeId, list[NodeId]], root: NodeId) -> list[NodeId]:
    order = [root]
    for node in order:
        order += children[node]
    return order


def _zipf(groups: Zipf, graph: Graph, seed: int) -> Membership:
    if groups.count < 1 or groups.exponent < 0 or not 1 <= groups.smallest <= len(graph.nodes):
        raise UsageError("groups: zipf needs count >= 1, exponent >= 0 and 1 <= smallest <= number of nodes")
    membership: Membership = {}
    for k in range(groups.count):
        size = max(groups.smallest, round(len(graph.nodes) * (k + 1) ** -groups.exponent))
        chosen = set(shuffled(graph.nodes, seed, "zipf-group", k)[:size])
        membership[Topic(f"g{k}")] = tuple(node for node in graph.nodes if node in chosen)
    return membership
