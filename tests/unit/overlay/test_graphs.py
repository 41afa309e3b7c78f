"""Overlays: shapes, and graphs from files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.overlay.graphs import Graph, build_graph
from ordercast.scenario.model import Clique, Edges, LineGraph, Overlay, RandomTree, Regular, Ring, Servers, Star, Tree


def _degrees(graph: Graph) -> list[int]:
    return sorted(map(len, graph.neighbours.values()))


@pytest.mark.parametrize(
    ("overlay", "edges", "degrees"),
    [
        (Clique(nodes=6), 15, [5] * 6),
        (LineGraph(nodes=6), 5, [1, 1, 2, 2, 2, 2]),
        (Ring(nodes=6), 6, [2] * 6),
        (Ring(nodes=2), 1, [1, 1]),
        (Star(nodes=6), 5, [1, 1, 1, 1, 1, 5]),
        (Tree(nodes=7), 6, [1, 1, 1, 1, 2, 3, 3]),
        (Tree(nodes=13, branching=3), 12, [1] * 9 + [3] + [4] * 3),
        (RandomTree(nodes=20), 19, None),
        (Regular(nodes=20, degree=3), 30, [3] * 20),
        (Regular(nodes=10, degree=9), 45, [9] * 10),
        (Clique(nodes=1), 0, [0]),
        (Ring(nodes=1), 0, [0]),
    ],
)
def test_each_shape_has_its_nodes_and_edges(overlay: Overlay, edges: int, degrees: list[int] | None) -> None:
    graph = build_graph(overlay, seed=3)
    assert len(graph.edges) == edges
    assert graph.nodes == tuple(f"n{i}" for i in range(overlay.nodes))  # type: ignore[union-attr]
    if degrees is not None:
        assert _degrees(graph) == degrees


shapes = st.one_of(
    st.builds(Clique, nodes=st.integers(1, 12)),
    st.builds(LineGraph, nodes=st.integers(1, 30)),
    st.builds(Ring, nodes=st.integers(1, 30)),
    st.builds(Star, nodes=st.integers(1, 30)),
    st.builds(Tree, nodes=st.integers(1, 40), branching=st.integers(1, 5)),
    st.builds(RandomTree, nodes=st.integers(1, 40), degree=st.sampled_from([0, 2, 3])),
    st.builds(Regular, nodes=st.integers(4, 20).map(lambda n: 2 * n), degree=st.integers(2, 5)),
)


@given(shapes, st.integers(0, 1000))
def test_every_shape_is_connected_symmetric_and_belongs_to_its_seed(overlay: Overlay, seed: int) -> None:
    graph = build_graph(overlay, seed)
    assert graph.reachable(graph.nodes[0]) == set(graph.nodes)
    for node, others in graph.neighbours.items():
        assert node not in others
        assert len(set(others)) == len(others)
        assert all(node in graph.neighbours[other] for other in others)
    assert build_graph(overlay, seed).edges == graph.edges


@given(st.integers(3, 40), st.sampled_from([2, 3, 4]), st.integers(0, 1000))
def test_a_random_tree_is_a_tree_within_its_degree(nodes: int, degree: int, seed: int) -> None:
    graph = build_graph(RandomTree(nodes=nodes, degree=degree), seed)
    assert graph.is_tree
    assert max(_degrees(graph)) <= degree


def test_clients_are_connected_to_every_server_and_to_nobody_else() -> None:
    graph = build_graph(Servers(nodes=3, clients=2), 0)
    assert (graph.servers, graph.clients) == (("n0", "n1", "n2"), ("c0", "c1"))
    assert graph.neighbours["c0"] == ("n0", "n1", "n2")  # type: ignore[index]
    assert len(graph.edges) == 3 + 6


def test_random_shapes_differ_between_seeds() -> None:
    for overlay in (RandomTree(nodes=20), Regular(nodes=20, degree=3)):
        assert build_graph(overlay, 1).edges != build_graph(overlay, 2).edges


def test_only_trees_count_as_trees() -> None:
    assert build_graph(Tree(nodes=9), 0).is_tree
    assert build_graph(LineGraph(nodes=9), 0).is_tree
    assert not build_graph(Ring(nodes=9), 0).is_tree


def test_reachability_can_do_without_some_nodes() -> None:
    line = build_graph(LineGraph(nodes=5), 0)
    assert line.reachable(NodeId("n0"), without=[NodeId("n2")]) == {"n0", "n1"}


def test_children_are_seen_from_the_root() -> None:
    line = build_graph(LineGraph(nodes=3), 0)
    assert line.children(NodeId("n1")) == {"n0": [], "n1": ["n0", "n2"], "n2": []}


# --- edge by edge ---


def test_a_graph_can_be_given_edge_by_edge() -> None:
    graph = build_graph(Edges(edges=[("a", "b"), ("b", "c"), ("c", "a")]), 0)
    assert graph.nodes == ("a", "b", "c")
    assert graph.neighbours["a"] == ("b", "c")


def test_a_graph_can_come_from_a_file_with_comments(tmp_path: Path) -> None:
    file = tmp_path / "graph.txt"
    file.write_text("# brokers of the south\nlisbon faro\n\nfaro  evora # by road\n")
    graph = build_graph(Edges(file=str(file), tree=True), 0)
    assert graph.edges == [("lisbon", "faro"), ("faro", "evora")]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a b\nb c\n\nc a\n", "4: edge c - a closes a cycle, so this is not a tree"),
        ("a b\na b\n", "2: edge a - b closes a cycle, so this is not a tree"),
        ("a b\nc\n", "2: expected two node names, found 1"),
        ("a b\nb c d\n", "2: expected two node names, found 3"),
        ("a a\n", "1: edge a - a is a loop"),
        ("a b#c\na b~1\n", "2: 'b~1' cannot be a node's name"),
        ("a b\nc d\n", " not connected: c cannot be reached from a"),
        ("# nothing\n", " no edge"),
    ],
)
def test_a_bad_graph_file_is_named_with_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "graph.txt"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        build_graph(Edges(file=str(file), tree=True), 0)
    assert str(caught.value) == f"{file}:{complaint}"


def test_a_missing_or_binary_graph_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("missing", "binary"):
        with pytest.raises(UsageError, match=f"{name}: cannot be read"):
            build_graph(Edges(file=str(tmp_path / name)), 0)


@pytest.mark.parametrize(
    ("overlay", "complaint"),
    [
        (Clique(nodes=0), "overlay.nodes: 0 is not at least 1"),
        (Tree(nodes=3, branching=0), "overlay.branching: 0 is not at least 1"),
        (RandomTree(nodes=3, degree=1), "overlay.degree: no tree of 3 nodes has at most 1 neighbours a node"),
        (Regular(nodes=5, degree=3), "overlay.degree: no graph of 5 nodes has 3 neighbours at each"),
        (Regular(nodes=4, degree=4), "overlay.degree: no graph of 4 nodes has 4 neighbours at each"),
        (Regular(nodes=4, degree=1), "overlay.degree: found no connected graph of 4 nodes with degree 1"),
        (Edges(), "overlay: give either edges or a file"),
        (Edges(edges=[("a", "b")], file="x"), "overlay: give either edges or a file"),
        (Edges(edges=[("a", "b"), ("b", "b")]), "overlay.edges:2: edge b - b is a loop"),
        (Edges(edges=[("a", "b"), ("c", "d")]), "overlay.edges: not connected: c cannot be reached from a"),
    ],
)
def test_an_impossible_overlay_is_named(overlay: Overlay, complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        build_graph(overlay, 0)
    assert str(caught.value).startswith(complaint)
