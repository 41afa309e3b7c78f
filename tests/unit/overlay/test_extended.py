"""The extended graph: links within reach, ways to members, and no graph that is not a tree."""

from __future__ import annotations

import pytest

from ordercast.core.errors import InvariantError, UsageError
from ordercast.core.ids import NodeId, Topic
from ordercast.overlay.extended import Overlay, Routes, TreePlace, check_tree, extended
from ordercast.overlay.graphs import Graph
from ordercast.protocols import lookup
from tests.support.tree_group import graph_of

SPIDER = "01 12 23 34 25"


def routes(edges: str = SPIDER, **groups: str) -> Routes:
    return Routes(graph_of(edges), {Topic(topic): tuple(map(NodeId, members)) for topic, members in groups.items()})


def test_links_join_everybody_within_reach() -> None:
    linked = extended(routes(), 2)
    assert linked.neighbours[NodeId("2")] == tuple("01345")
    assert linked.neighbours[NodeId("4")] == tuple("23")


def test_distances_and_first_steps_are_those_of_the_tree() -> None:
    tree = routes()
    assert tree.distance(0, 4) == 4
    assert tree.distance(5, 4) == 3
    assert tree.step(0, 5) == 1
    assert tree.step(5, 0) == 2
    assert tree.step(2, 4) == 3
    assert tree.ball(5, 2) == {5: (0, 5), 2: (1, 2), 1: (2, 2), 3: (2, 2)}
    assert tree.diameter() == 4


def test_a_way_leads_to_a_group_if_a_member_lies_there() -> None:
    tree = routes(a="45", b="0")
    assert tree.leads(1, 2, Topic("a"))
    assert not tree.leads(1, 0, Topic("a"))
    assert tree.leads(2, 1, Topic("b"))
    assert not tree.leads(2, 5, Topic("b"))
    assert tree.is_member(4, Topic("a"))
    with pytest.raises(UsageError, match="unknown group 'c'"):
        tree.check_topic(Topic("c"))


def test_targets_lie_downstream_on_the_way_to_members() -> None:
    tree = routes(a="45")
    assert tree.targets(1, 0, tree.group(Topic("a")), 0, 2, 0) == [(2, 1, 0), (3, 2, 0), (5, 2, 0)]
    assert tree.targets(3, 2, tree.group(Topic("a")), 0, 2, 0) == [(4, 1, 0)]
    assert tree.targets(4, 3, tree.group(Topic("a")), 0, 2, 0) == []


def test_shadows_are_beside_the_route() -> None:
    tree = routes(a="4")
    assert tree.targets(1, 0, tree.group(Topic("a")), 0, 2, 1) == [(2, 1, 0), (3, 2, 0), (5, 2, 1)]
    assert tree.depth_beyond(1, 5, tree.group(Topic("a")), 0) == 1
    assert tree.depth_beyond(1, 4, tree.group(Topic("a")), 0) == 0


def test_a_protocol_without_reach_gets_the_graph_as_it_is() -> None:
    ring = graph_of("01 12 20")
    overlay = Overlay(ring, {}, lookup("flood"), lookup("flood").parse_options({}))
    assert overlay.graph is ring
    assert not isinstance(overlay.place(NodeId("0"), 0), TreePlace)


def test_a_protocol_for_trees_gets_places_that_know_the_tree() -> None:
    info = lookup("locamu")
    overlay = Overlay(graph_of(SPIDER), {}, info, info.parse_options({"f": 2}))
    place = overlay.place(NodeId("0"), 0)
    assert isinstance(place, TreePlace)
    assert place.neighbours == tuple("1235")


@pytest.mark.parametrize(
    ("bad", "options", "reason"),
    [
        (graph_of("01 12 20"), {}, "overlay: locamu needs a tree, and this graph has a cycle"),
        (graph_of("01 23"), {}, "overlay: not connected: 2 cannot be reached from 0"),
        (graph_of("01 12"), {"f": 2}, "options.f: 2 is too large for locamu on this tree: its longest path has 2 hops"),
        (Graph(map(NodeId, "01"), [(NodeId("0"), NodeId("1"))], [NodeId("1")]), {}, "1 is only a client"),
    ],
)
def test_what_is_no_tree_or_too_small_is_refused(bad: Graph, options: dict[str, int], reason: str) -> None:
    info = lookup("locamu")
    with pytest.raises(UsageError, match=reason):
        Overlay(bad, {}, info, info.parse_options(options))


def test_a_node_that_is_there_twice_is_refused() -> None:
    twice = graph_of("01 12")
    twice.nodes = (*twice.nodes, NodeId("1"))
    with pytest.raises(UsageError, match="node 1 is there twice"):
        check_tree(twice, "locamu")


def test_a_tree_with_one_more_leaf_is_another_tree_that_all_share() -> None:
    """G7."""
    tree = routes(a="45")
    grown = tree.with_leaf(NodeId("x"), NodeId("4"))
    assert grown is tree.with_leaf(NodeId("x"), NodeId("4"))
    assert (grown.rank[NodeId("x")], grown.near[4], grown.distance(0, 6)) == (6, (3, 6), 5)
    assert (len(tree.nodes), tree.near[4]) == (6, (3,))
    assert grown.group(Topic("a")).members == tree.group(Topic("a")).members == {4, 5}
    audience = grown.audience(frozenset({6}))
    assert audience is grown.audience(frozenset({6}))
    assert grown.targets(2, 1, audience, 0, 2, 0) == [(3, 1, 0), (4, 2, 0)]


def test_a_rank_is_never_used_again() -> None:
    tree = routes(a="45")
    shrunk = tree.without_leaf(NodeId("5"))
    assert shrunk is tree.without_leaf(NodeId("5"))
    assert (shrunk.present(), shrunk.near[2], shrunk.near[5]) == ([0, 1, 2, 3, 4], (1, 3), ())
    assert not shrunk.leads(2, 5, Topic("a"))
    assert shrunk.with_leaf(NodeId("y"), NodeId("2")).rank[NodeId("y")] == 6
    for leaf, under in (("5", "2"), ("4", "2"), ("z", "5"), ("z", "none")):
        with pytest.raises(InvariantError, match=f"{leaf} cannot become a leaf under {under}"):
            shrunk.with_leaf(NodeId(leaf), NodeId(under))
    for inner in ("2", "0", "none"):
        with pytest.raises(InvariantError, match=f"{inner} is no leaf of the tree"):
            shrunk.without_leaf(NodeId(inner))


def test_who_joins_later_is_linked_in_the_graph_and_not_on_the_tree() -> None:
    info = lookup("locamu")
    overlay = Overlay(graph_of(SPIDER), {}, info, info.parse_options({}), [NodeId("4"), NodeId("3")])
    early, late = overlay.place(NodeId("2"), 0), overlay.place(NodeId("4"), 0)
    assert isinstance(early, TreePlace)
    assert isinstance(late, TreePlace)
    assert early.neighbours == tuple("01345")
    assert early.routes is late.routes
    assert early.routes is not None
    assert early.routes.nodes == tuple("0125")
    assert (early.parent, late.parent) == (None, "3")
