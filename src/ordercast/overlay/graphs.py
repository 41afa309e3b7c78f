"""Overlays as undirected, connected graphs: the shapes a scenario can ask for, and any other from a file."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise
from pathlib import Path
from typing import assert_never

from ordercast.core.chance import mix, salt, shuffled
from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.ids import NodeId, valid_node
from ordercast.scenario.brokers import BrokerTree
from ordercast.scenario.model import Clique, Edges, LineGraph, Overlay, RandomTree, Regular, Ring, Servers, Star, Tree

Edge = tuple[NodeId, NodeId]

_REGULAR_TRIES = 200


class Graph:
    """An undirected, connected graph: nodes in one agreed order, and the neighbours of each in that order."""

    def __init__(self, nodes: Iterable[NodeId], edges: Iterable[Edge], clients: Iterable[NodeId] = ()) -> None:
        self.nodes: tuple[NodeId, ...] = tuple(nodes)
        self.clients: tuple[NodeId, ...] = tuple(clients)
        """Nodes that only publish."""
        rank = {node: i for i, node in enumerate(self.nodes)}
        adjacent: dict[NodeId, set[NodeId]] = {node: set() for node in self.nodes}
        for a, b in edges:
            adjacent[a].add(b)
            adjacent[b].add(a)
        self.neighbours: dict[NodeId, tuple[NodeId, ...]] = {
            node: tuple(sorted(others, key=rank.__getitem__)) for node, others in adjacent.items()
        }

    @property
    def edges(self) -> list[Edge]:
        """Each edge once, lower node first."""
        rank = {node: i for i, node in enumerate(self.nodes)}
        return [(a, b) for a in self.nodes for b in self.neighbours[a] if rank[a] < rank[b]]

    @property
    def servers(self) -> tuple[NodeId, ...]:
        """All nodes but the clients."""
        return tuple(node for node in self.nodes if node not in self.clients)

    @property
    def is_tree(self) -> bool:
        return sum(map(len, self.neighbours.values())) == 2 * (len(self.nodes) - 1)

    def reachable(self, start: NodeId, without: Iterable[NodeId] = ()) -> set[NodeId]:
        """Every node connected to `start` when some nodes are gone."""
        seen = {start, *without}
        todo = [start]
        while todo:
            for node in self.neighbours[todo.pop()]:
                if node not in seen:
                    seen.add(node)
                    todo.append(node)
        return seen - set(without)

    def children(self, root: NodeId) -> dict[NodeId, list[NodeId]]:
        """The tree seen from `root`: who hangs on whom."""
        below: dict[NodeId, list[NodeId]] = {node: [] for node in self.nodes}
        seen = {root}
        todo = [root]
        for parent in todo:
            for child in self.neighbours[parent]:
                if child not in seen:
                    seen.add(child)
                    below[parent].append(child)
                    todo.append(child)
        return below


def build_graph(overlay: Overlay, seed: int) -> Graph:
    """The graph a scenario asks for; random shapes belong to the seed."""
    if isinstance(overlay, BrokerTree):
        raise UsageError("overlay.kind: 'broker-tree' is for protocol 'broker'")
    if isinstance(overlay, Edges):
        return _given_graph(overlay)
    if isinstance(overlay, Servers):
        return _servers(overlay)
    names = _names(overlay.nodes)
    match overlay:
        case Clique():
            edges = [(a, b) for i, a in enumerate(names) for b in names[:i]]
        case LineGraph():
            edges = list(pairwise(names))
        case Ring():
            edges = list(zip(names, names[1:] + names[:1], strict=True)) if len(names) > 2 else [(names[0], names[-1])]
        case Star():
            edges = [(names[0], node) for node in names[1:]]
        case Tree(branching=branching):
            if branching < 1:
                raise UsageError(f"overlay.branching: {branching} is not at least 1")
            edges = [(names[(i - 1) // branching], names[i]) for i in range(1, len(names))]
        case RandomTree(degree=degree):
            edges = _random_tree(names, degree, seed)
        case Regular(degree=degree):
            edges = _regular(names, degree, seed)
        case _:
            assert_never(overlay)
    return Graph(names, [(a, b) for a, b in edges if a != b])


def whom_each_knows(
    overlay: Overlay, joiners: Collection[NodeId], seed: int
) -> tuple[Graph, dict[NodeId, tuple[NodeId, ...]]]:
    """For overlays that change: everybody who will ever be there, and whom each knows first.

    Of those that the network begins with, only each other; whoever joins later knows all its neighbours on the graph.
    """
    graph = build_graph(overlay, seed)
    late = set(joiners)
    for name in sorted(late):
        if name not in graph.neighbours:
            raise UsageError(f"fault: {unknown_name('node', name, graph.nodes)} to join")
    start = [node for node in graph.nodes if node not in late]
    if not start:
        raise UsageError("fault: everybody joins later, so there is nobody to join")
    within = graph.reachable(start[0], without=late)
    apart = [node for node in start if node not in within]
    if apart:
        raise UsageError(f"overlay: without those that join later, {apart[0]} cannot be reached from {start[0]}")
    near = graph.neighbours
    return graph, {
        node: near[node] if node in late else tuple(peer for peer in near[node] if peer not in late)
        for node in graph.nodes
    }


def _names(count: int) -> list[NodeId]:
    if count < 1:
        raise UsageError(f"overlay.nodes: {count} is not at least 1")
    return [NodeId(f"n{i}") for i in range(count)]


def _servers(overlay: Servers) -> Graph:
    if overlay.clients < 0:
        raise UsageError(f"overlay.clients: {overlay.clients} is negative")
    servers = _names(overlay.nodes)
    clients = [NodeId(f"c{i}") for i in range(overlay.clients)]
    between = [(a, b) for i, a in enumerate(servers) for b in servers[:i]]
    return Graph([*servers, *clients], between + [(client, a) for client in clients for a in servers], clients)


def _random_tree(names: list[NodeId], degree: int, seed: int) -> list[Edge]:
    if degree < 0 or (degree == 1 and len(names) > 2):
        raise UsageError(f"overlay.degree: no tree of {len(names)} nodes has at most {degree} neighbours a node")
    used = dict.fromkeys(names, 0)
    edges: list[Edge] = []
    salted = salt(seed, "random-tree")
    for i in range(1, len(names)):
        room = [node for node in names[:i] if not degree or used[node] < degree]
        parent = room[mix(salted, i) % len(room)]
        used[parent] += 1
        used[names[i]] += 1
        edges.append((parent, names[i]))
    return edges


def _regular(names: list[NodeId], degree: int, seed: int) -> list[Edge]:
    """Random pairing of stubs; bad pairs are re-paired with random good ones, and the whole retried if it is stuck."""
    if degree < 1 or degree >= len(names) or (degree * len(names)) % 2:
        raise UsageError(
            f"overlay.degree: no graph of {len(names)} nodes has {degree} neighbours at each; "
            "the degree must be below the number of nodes and their product even"
        )
    for attempt in range(_REGULAR_TRIES):
        edges = _pair_stubs(names, degree, seed, attempt)
        if edges is not None and len(Graph(names, edges).reachable(names[0])) == len(names):
            return edges
    raise UsageError(f"overlay.degree: found no connected graph of {len(names)} nodes with degree {degree}")


def _pair_stubs(names: list[NodeId], degree: int, seed: int, attempt: int) -> list[Edge] | None:
    stubs = shuffled([(node, k) for node in names for k in range(degree)], seed, "regular", attempt)
    edges: set[Edge] = set()
    for round_ in range(50):
        left: list[tuple[NodeId, int]] = []
        for (a, i), (b, j) in zip(stubs[::2], stubs[1::2], strict=True):
            edge = (min(a, b), max(a, b))
            if a == b or edge in edges:
                left += [(a, i), (b, j)]
            else:
                edges.add(edge)
        if not left:
            return sorted(edges)
        stubs = shuffled(left, seed, "regular", attempt, round_)
    return None


def _given_graph(overlay: Edges) -> Graph:
    if bool(overlay.edges) == bool(overlay.file):
        raise UsageError("overlay: give either edges or a file")
    where = overlay.file or "overlay.edges"
    numbered = _read_edges(Path(overlay.file)) if overlay.file else list(enumerate(overlay.edges, start=1))
    if not numbered:
        raise UsageError(f"{where}: no edge")
    parent: dict[NodeId, NodeId] = {}
    edges: list[Edge] = []
    for number, (left, right) in numbered:
        a, b = NodeId(left), NodeId(right)
        for node in (a, b):
            if not valid_node(node):
                raise UsageError(f"{where}:{number}: {node!r} cannot be a node's name")
            parent.setdefault(node, node)
        root_a, root_b = _root(parent, a), _root(parent, b)
        if a == b:
            raise UsageError(f"{where}:{number}: edge {a} - {b} is a loop")
        if root_a == root_b and overlay.tree:
            raise UsageError(f"{where}:{number}: edge {a} - {b} closes a cycle, so this is not a tree")
        parent[root_a] = root_b
        edges.append((a, b))
    graph = Graph(parent, edges)
    within = graph.reachable(graph.nodes[0])
    apart = [node for node in graph.nodes if node not in within]
    if apart:
        raise UsageError(f"{where}: not connected: {apart[0]} cannot be reached from {graph.nodes[0]}")
    return graph


def _root(parent: dict[NodeId, NodeId], node: NodeId) -> NodeId:
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


def _read_edges(path: Path) -> list[tuple[int, tuple[str, str]]]:
    """One edge a line: two names; `#` starts a comment."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    edges: list[tuple[int, tuple[str, str]]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2:
            raise UsageError(f"{path}:{number}: expected two node names, found {len(words)}")
        edges.append((number, (words[0], words[1])))
    return edges
