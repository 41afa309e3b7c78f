"""The f-redundant extended graph of a tree: links to everybody near, and which way the members of a group lie.

Spec: docs/protocols/locamu.md (LCM-G1 to LCM-G4). `Routes` is one object for all nodes of a run, so that a machine need
only keep what lies around it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from copy import copy
from typing import Any
from weakref import WeakValueDictionary

from ordercast.core.errors import InvariantError, UsageError, unknown_name
from ordercast.core.ids import NodeId, Topic
from ordercast.core.machine import Place
from ordercast.core.registry import ProtocolInfo
from ordercast.overlay.graphs import Edge, Graph

Ball = dict[int, tuple[int, int]]
"""Nodes around one, by rank: the distance, and the neighbour through which the way there leads."""


class Audience:
    """Which way the members of one group lie on one tree. Never changes; shared by all nodes of a run."""

    __slots__ = ("__weakref__", "below", "members")

    def __init__(self, members: frozenset[int] | None, below: dict[int, int]) -> None:
        self.members = members
        """Ranks; None: everybody on the tree."""
        self.below = below
        """How many members each node with any has at or below it, seen from the root."""


class Routes:
    """A tree with its groups. Nodes are known by rank: their place in the one order that everybody agrees on.

    A tree never changes: `with_leaf` and `without_leaf` give another one (LCM-G7). No rank is ever used again.
    """

    def __init__(self, tree: Graph, groups: Mapping[Topic, tuple[NodeId, ...]] | None) -> None:
        self.nodes = tree.nodes
        self.rank = {node: i for i, node in enumerate(tree.nodes)}
        self.near: list[tuple[int, ...]] = [tuple(self.rank[n] for n in tree.neighbours[node]) for node in tree.nodes]
        self.gone: frozenset[int] = frozenset()
        """Ranks of nodes that have left."""
        self._parent, self._depth = self._rooted()
        self._lists: dict[Topic, frozenset[int]] | None = None
        """Members at the start."""
        if groups is not None:
            self._lists = {topic: frozenset(self.rank[node] for node in nodes) for topic, nodes in groups.items()}
        self._forget()

    def _forget(self) -> None:
        self._groups: dict[Topic, Audience] = {}
        self._everybody = Audience(None, {})
        self._audiences: WeakValueDictionary[frozenset[int], Audience] = WeakValueDictionary()
        self._others: WeakValueDictionary[tuple[NodeId, NodeId | None], Routes] = WeakValueDictionary()

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

    # Other trees

    def with_leaf(self, leaf: NodeId, under: NodeId) -> Routes:
        """LCM-G7: the tree with one more node. All who ask for the same get the same object."""
        known = self._others.get((leaf, under))
        if known is not None:
            return known
        if not self.can_change(leaf, under):
            raise InvariantError(f"{leaf} cannot become a leaf under {under}: one is there already, the other is not")
        parent = self.rank[under]
        grown, rank = copy(self), len(self.nodes)
        grown.nodes = (*self.nodes, leaf)
        grown.rank = {**self.rank, leaf: rank}
        grown.near = [*self.near, (parent,)]
        grown.near[parent] = (*self.near[parent], rank)
        grown._parent, grown._depth = [*self._parent, parent], [*self._depth, self._depth[parent] + 1]
        grown._forget()
        self._others[leaf, under] = grown
        return grown

    def without_leaf(self, leaf: NodeId) -> Routes:
        """LCM-G7: the tree without one of its leaves, whose rank stays taken."""
        known = self._others.get((leaf, None))
        if known is not None:
            return known
        if not self.can_change(leaf, None):
            raise InvariantError(f"{leaf} is no leaf of the tree")
        rank = self.rank[leaf]
        (parent,) = self.near[rank]
        shrunk = copy(self)
        shrunk.near = self.near.copy()
        shrunk.near[rank] = ()
        shrunk.near[parent] = tuple(node for node in self.near[parent] if node != rank)
        shrunk.gone = self.gone | {rank}
        shrunk._forget()
        self._others[leaf, None] = shrunk
        return shrunk

    def can_change(self, leaf: NodeId, under: NodeId | None) -> bool:
        """Whether a new leaf can come under that node or, without one, whether that leaf can go."""
        if under is None:
            rank = self.rank.get(leaf, 0)
            return rank != 0 and self.is_leaf(rank)
        return leaf not in self.rank and under in self.rank and self.rank[under] not in self.gone

    def is_leaf(self, node: int) -> bool:
        return len(self.near[node]) == 1

    def present(self) -> list[int]:
        """Everybody on the tree."""
        return [node for node in range(len(self.nodes)) if node not in self.gone]

    # Groups

    def audience(self, members: frozenset[int] | None) -> Audience:
        """The nodes of these members; None: everybody. All who ask for the same get the same object."""
        if members is None:
            return self._everybody
        known = self._audiences.get(members)
        if known is None:
            known = self._audiences[members] = Audience(members, self._count(members - self.gone))
        return known

    def _count(self, members: Iterable[int]) -> dict[int, int]:
        below: dict[int, int] = {}
        for member in members:
            node = member
            while node >= 0:
                below[node] = below.get(node, 0) + 1
                node = self._parent[node]
        return below

    def group(self, topic: Topic) -> Audience:
        """The nodes of the members at the start."""
        known = self._groups.get(topic)
        if known is None:
            known = self._groups[topic] = self.audience(None if self._lists is None else self._lists[topic])
        return known

    def initial(self, topic: Topic) -> frozenset[int] | None:
        """The members of a group at the start; None: nobody has heard of it."""
        if self._lists is None:
            return frozenset(range(len(self.nodes)))
        return self._lists.get(topic)

    def topics(self) -> list[Topic]:
        """The groups there are at the start."""
        return list(self._lists or ())

    def check_topic(self, topic: Topic) -> None:
        if self._lists is not None and topic not in self._lists:
            raise unknown_name("group", topic, self._lists)

    def knows(self, topic: Topic) -> bool:
        return self._lists is None or topic in self._lists

    def is_member(self, node: int, topic: Topic) -> bool:
        return self._lists is None or node in self._lists[topic]

    def leads(self, here: int, there: int, topic: Topic) -> bool:
        """LCM-G3: whether a member lies at or beyond `there`, seen from its neighbour `here`."""
        return self.leads_to(here, there, self._groups.get(topic) or self.group(topic))

    def leads_to(self, here: int, there: int, audience: Audience) -> bool:
        if audience.members is None:
            return True
        if self._parent[there] == here:
            return there in audience.below
        return audience.below.get(0, 0) > audience.below.get(here, 0)

    # Ways

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
        """LCM-G2: everybody within `radius` of a node, nearest first; the node itself with distance 0."""
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

    def depth_beyond(self, start: int, there: int, audience: Audience, depth: int) -> int:
        """LCM-G4: how far off the route of a message `there` is, if `start`, nearer to its origin, is `depth` off."""
        here = start
        while here != there:
            after = self.step(here, there)
            depth = 0 if self.leads_to(here, after, audience) else depth + 1
            here = after
        return depth

    def targets(
        self, node: int, came: int, audience: Audience, depth: int, radius: int, shadow: int
    ) -> list[tuple[int, int, int]]:
        """LCM-G3, LCM-G4: whom a message goes on to: rank, distance and depth of each, in order of distance."""
        found: list[tuple[int, int, int]] = []
        rim = [(node, came, depth)]
        for distance in range(1, radius + 1):
            outer = []
            for here, before, off in rim:
                for there in self.near[here]:
                    if there == before:
                        continue
                    its_depth = 0 if self.leads_to(here, there, audience) else off + 1
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
    """The tree at the start."""
    parent: NodeId | None = None
    """Of a node that is not on that tree and may join it: under whom."""


class Overlay:
    """The graph on which a protocol runs, and the places on it.

    `joiners` are nodes of the base graph that are not there at the start: leaves of the tree once they have joined.
    """

    def __init__(
        self,
        base: Graph,
        groups: Mapping[Topic, tuple[NodeId, ...]],
        info: ProtocolInfo,
        options: Any,
        joiners: Collection[NodeId] = (),
    ) -> None:
        self._groups = groups
        self._routes: Routes | None = None
        self._parents: dict[NodeId, NodeId] = {}
        self.graph = base
        if joiners and not info.admits:
            raise UsageError(f"fault: nodes cannot join or leave with protocol {info.name!r}")
        if info.reach is not None:
            reach = info.reach(options)
            check_tree(base, info.name)
            self._parents = parents_of(base, joiners)
            self._routes = Routes(at_start(base, joiners), groups)
            check_reach(self._routes, reach, info.name)
            self.graph = extended(Routes(base, None), reach)

    def place(self, node: NodeId, incarnation: int) -> Place:
        graph = self.graph
        near = graph.neighbours[node]
        if self._routes is None:
            return Place(node, near, graph.nodes, self._groups, incarnation, graph.clients)
        parent = self._parents.get(node)
        return TreePlace(node, near, graph.nodes, self._groups, incarnation, graph.clients, self._routes, parent)


def at_start(base: Graph, joiners: Collection[NodeId]) -> Graph:
    """The graph without the nodes that join later."""
    if not joiners:
        return base
    there = [node for node in base.nodes if node not in joiners]
    return Graph(there, [(a, b) for a, b in base.edges if a not in joiners and b not in joiners], base.clients)


def parents_of(tree: Graph, joiners: Collection[NodeId]) -> dict[NodeId, NodeId]:
    """Under whom each node that joins later will be: its neighbour on the way to the first node."""
    if not joiners:
        return {}
    if tree.nodes[0] in joiners:
        raise UsageError(f"fault: {tree.nodes[0]} cannot join later: it keeps the list of the nodes")
    below = tree.children(tree.nodes[0])
    for parent, children in below.items():
        early = [node for node in children if node not in joiners]
        if parent in joiners and early:
            raise UsageError(f"fault: {parent} cannot join later: {early[0]} is there from the start, and behind it")
    return {node: parent for parent, children in below.items() for node in children if node in joiners}


def extended(routes: Routes, reach: int) -> Graph:
    """LCM-G1: a link between every two nodes that are at most `reach` hops apart."""
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
