"""The f-redundant extended graph of a tree: links to everybody near, and which way the members of a group lie.

Spec: docs/protocols/locamu.md (G1 to G4). `Routes` is one object for all nodes of a run, so that a machine need only
keep what lies around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.ids import NodeId, Topic
from ordercast.core.machine import Place
from ordercast.core.registry import ProtocolInfo
from ordercast.overlay.graphs import Edge, Graph

Ball = dict[int, tuple[int, int]]
"""Nodes around one, by rank: the distance, and the neighbour through which the way there leads."""


class Routes:
    """A tree with its groups. Nodes are known by rank: their place in the one order that everybody agrees on."""

    def __init__(self, tree: Graph, groups: Mapping[Topic, tuple[NodeId, ...]] | None) -> None:
        self.nodes = tree.nodes
        self.rank = {node: i for i, node in enumerate(tree.nodes)}
        self.near: list[tuple[int, ...]] = [tuple(self.rank[n] for n in tree.neighbours[node]) for node in tree.nodes]
        self._parent, self._depth = self._rooted()
        self._below: dict[Topic, dict[int, int]] | None = None
        self._sizes: dict[Topic, int] = {}
        self._members: dict[Topic, frozenset[int]] = {}
        if groups is not None:
            self._below = {topic: self._count(topic, members) for topic, members in groups.items()}

    def _rooted(self) -> tuple[list[int], list[int]]:
        parent, depth = [-1] * len(self.nodes), [0] * len(self.nodes)
        todo = [0]
        for node in todo:
            for child in self.near[node]:
                if child != parent[node]:
                    parent[child] = node
                    depth[child] = depth[node] + 1
                    todo.append(child)
        return parent, depth

    def _count(self, topic: Topic, members: Iterable[NodeId]) -> dict[int, int]:
        """How many members each node with any has at or below it, seen from the root."""
        ranks = frozenset(self.rank[member] for member in members)
        below: dict[int, int] = {}
        for member in ranks:
            node = member
            while node >= 0:
                below[node] = below.get(node, 0) + 1
                node = self._parent[node]
        self._sizes[topic] = len(ranks)
        self._members[topic] = ranks
        return below

    def check_topic(self, topic: Topic) -> None:
        if self._below is not None and topic not in self._below:
            raise unknown_name("group", topic, self._below)

    def knows(self, topic: Topic) -> bool:
        return self._below is None or topic in self._below

    def is_member(self, node: int, topic: Topic) -> bool:
        return self._below is None or node in self._members[topic]

    def leads(self, here: int, there: int, topic: Topic) -> bool:
        """G3: whether a member lies at or beyond `there`, seen from its neighbour `here`."""
        if self._below is None:
            return True
        below = self._below[topic]
        if self._parent[there] == here:
            return there in below
        return self._sizes[topic] > below.get(here, 0)

    def distance(self, a: int, b: int) -> int:
        parent, depth = self._parent, self._depth
        steps = 0
        while a != b:
            if depth[a] >= depth[b]:
                a = parent[a]
            else:
                b = parent[b]
            steps += 1
        return steps

    def step(self, here: int, there: int) -> int:
        """The neighbour of `here` on the way to `there`."""
        parent, depth = self._parent, self._depth
        while depth[there] > depth[here]:
            above = parent[there]
            if above == here:
                return there
            there = above
        return parent[here]

    def ball(self, centre: int, radius: int) -> Ball:
        """G2: everybody within `radius` of a node, nearest first; the node itself with distance 0."""
        ball: Ball = {centre: (0, centre)}
        rim = [centre]
        for distance in range(1, radius + 1):
            outer = []
            for node in rim:
                for other in self.near[node]:
                    if other not in ball:
                        ball[other] = (distance, other if node == centre else ball[node][1])
                        outer.append(other)
            rim = outer
        return ball

    def depth_beyond(self, start: int, there: int, topic: Topic, depth: int) -> int:
        """G4: how far off the route of a message `there` is, if `start` is `depth` off it and nearer to its origin."""
        here = start
        while here != there:
            after = self.step(here, there)
            depth = 0 if self.leads(here, after, topic) else depth + 1
            here = after
        return depth

    def targets(
        self, node: int, came: int, topic: Topic, depth: int, radius: int, shadow: int
    ) -> list[tuple[int, int, int]]:
        """G3, G4: whom a message goes on to: rank, distance and depth of each, in order of distance."""
        found: list[tuple[int, int, int]] = []
        rim = [(node, came, depth)]
        for distance in range(1, radius + 1):
            outer = []
            for here, before, off in rim:
                for there in self.near[here]:
                    if there == before:
                        continue
                    its_depth = 0 if self.leads(here, there, topic) else off + 1
                    if its_depth <= shadow:
                        found.append((there, distance, its_depth))
                        outer.append((there, here, its_depth))
            rim = outer
        return found

    def diameter(self) -> int:
        """Hops of the longest path."""
        end = max(range(len(self.nodes)), key=lambda node: self._depth[node])
        return max(self.ball(end, len(self.nodes)).values())[0]


class TreePlace(Place, frozen=True):
    """A place on an extended graph: `neighbours` are all linked nodes, `routes` knows the tree beneath."""

    routes: Routes | None = None


class Overlay:
    """The graph on which a protocol runs, and the places on it."""

    def __init__(self, base: Graph, groups: Mapping[Topic, tuple[NodeId, ...]], info: ProtocolInfo, options: Any):
        self._groups = groups
        self._routes: Routes | None = None
        self.graph = base
        if info.reach is not None:
            reach = info.reach(options)
            check_tree(base, info.name)
            self._routes = Routes(base, groups)
            check_reach(self._routes, reach, info.name)
            self.graph = extended(self._routes, reach)

    def place(self, node: NodeId, incarnation: int) -> Place:
        graph = self.graph
        near = graph.neighbours[node]
        if self._routes is None:
            return Place(node, near, graph.nodes, self._groups, incarnation, graph.clients)
        return TreePlace(node, near, graph.nodes, self._groups, incarnation, graph.clients, self._routes)


def extended(routes: Routes, reach: int) -> Graph:
    """G1: a link between every two nodes that are at most `reach` hops apart."""
    nodes = routes.nodes
    edges: list[Edge] = []
    for node in range(len(nodes)):
        edges += [(nodes[node], nodes[other]) for other in routes.ball(node, reach) if other > node]
    return Graph(nodes, edges)


def check_tree(graph: Graph, name: str) -> None:
    """Only a tree has one way between every two nodes."""
    if len(set(graph.nodes)) < len(graph.nodes):
        twice = next(node for i, node in enumerate(graph.nodes) if node in graph.nodes[:i])
        raise UsageError(f"overlay: node {twice} is there twice")
    if graph.clients:
        raise UsageError(f"overlay: {name} runs on a tree of nodes; {graph.clients[0]} is only a client")
    reached = graph.reachable(graph.nodes[0])
    apart = [node for node in graph.nodes if node not in reached]
    if apart:
        raise UsageError(f"overlay: not connected: {apart[0]} cannot be reached from {graph.nodes[0]}")
    if not graph.is_tree:
        raise UsageError(f"overlay: {name} needs a tree, and this graph has a cycle; try kind = 'tree' or 'line'")


def check_reach(routes: Routes, reach: int, name: str) -> None:
    """More redundancy than the longest path has nodes to skip would promise what nobody can keep."""
    longest = routes.diameter()
    if reach > longest and len(routes.nodes) > 1:
        raise UsageError(
            f"options.f: {reach - 1} is too large for {name} on this tree: its longest path has {longest} hops, "
            f"and links of f + 1 = {reach} must fit in"
        )
