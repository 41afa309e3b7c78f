"""Who is a member of which topic."""

from __future__ import annotations

import pytest

from ordercast.core.errors import UsageError
from ordercast.overlay.graphs import build_graph
from ordercast.overlay.groups import build_groups
from ordercast.scenario.model import Everyone, Explicit, Groups, Ring, Subtrees, Tree, Zipf

TREE = build_graph(Tree(nodes=7), 0)


def test_everyone_is_a_member_of_everything() -> None:
    assert build_groups(Everyone(topics=2), TREE, 0) == {"t0": TREE.nodes, "t1": TREE.nodes}


def test_explicit_members_are_kept_in_the_order_of_the_overlay() -> None:
    assert build_groups(Explicit(members={"news": ["n5", "n2"]}), TREE, 0) == {"news": ("n2", "n5")}


def test_there_is_one_group_below_each_interior_node() -> None:
    assert build_groups(Subtrees(), TREE, 0) == {
        "below-n0": TREE.nodes,
        "below-n1": ("n1", "n3", "n4"),
        "below-n2": ("n2", "n5", "n6"),
    }


def test_zipf_groups_shrink_by_rank_down_to_the_smallest() -> None:
    graph = build_graph(Tree(nodes=60), 0)
    sizes = [len(members) for members in build_groups(Zipf(count=6, exponent=1.0, smallest=15), graph, 0).values()]
    assert sizes == [60, 30, 20, 15, 15, 15]


def test_zipf_groups_belong_to_the_seed() -> None:
    graph = build_graph(Tree(nodes=60), 0)
    zipf = Zipf(count=6)
    assert build_groups(zipf, graph, 1) == build_groups(zipf, graph, 1) != build_groups(zipf, graph, 2)


def test_a_steep_zipf_leaves_all_but_the_first_at_the_smallest() -> None:
    assert [len(m) for m in build_groups(Zipf(count=3, exponent=5000.0), TREE, 0).values()] == [7, 2, 2]


@pytest.mark.parametrize(
    ("groups", "complaint"),
    [
        (Everyone(topics=0), "groups.topics: 0 is not at least 1"),
        (Explicit(members={"news": ["n1", "n55"]}), "groups.members.news: unknown node 'n55'; did you mean 'n5'?"),
        (Zipf(count=0), "groups: zipf needs count >= 1"),
        (Zipf(count=1, smallest=8), "groups: zipf needs count >= 1"),
        (Zipf(count=1, exponent=-1), "groups: zipf needs count >= 1"),
    ],
)
def test_impossible_groups_are_named(groups: Groups, complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        build_groups(groups, TREE, 0)
    assert str(caught.value).startswith(complaint)


def test_subtrees_need_a_tree() -> None:
    with pytest.raises(UsageError, match=r"groups\.kind: subtrees need an overlay that is a tree"):
        build_groups(Subtrees(), build_graph(Ring(nodes=5), 0), 0)
