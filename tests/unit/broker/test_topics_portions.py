"""BRK-L7: what concerns all topics is done in portions, so that nothing else on the links waits behind all of them."""

from __future__ import annotations

from itertools import groupby

import pytest

from ordercast.broker.topics.topics import Topics
from ordercast.core.ids import Topic
from ordercast.pubsub.client_packets import Denied, Ping
from ordercast.pubsub.topic_packets import Keep, MemberReport, OpenTopic
from tests.support.topics_tree import Somebody, Tree

TOPICS = [Topic(f"t{number:02}") for number in range(20)]
PORTION = 6


class FewTopics(Topics):
    portion = PORTION


class FewTree(Tree):
    topics_type = FewTopics


def member_of_many(tree: Tree, at: str) -> Somebody:
    somebody = tree.client("x", at)
    for topic in TOPICS:
        somebody.subscribe(topic)
    tree.run()
    assert {packet.topic for packet in tree.sent(OpenTopic, "b1")} == {*TOPICS}
    return somebody


def runs_of(tree: Tree, sender: str, kind: type) -> list[int]:
    """How many packets of the kind left between two Pings."""
    kinds = [type(packet) for one, _, packet in tree.log if one == sender]
    return [list(run).count(kind) for is_ping, run in groupby(kinds, lambda each: each is Ping) if not is_ping]


def all_live(tree: Tree, broker: str) -> bool:
    nodes = tree.brokers[broker].nodes
    return nodes.keys() == {*TOPICS} and all(node.up_live for node in nodes.values())


def test_a_new_parent_is_told_of_the_next_topics_when_it_has_taken_in_the_last() -> None:
    tree = FewTree({"b1": "b0"})
    member_of_many(tree, "b1")
    tree.cut("b1", "b0")
    tree.pass_time(1)
    tree.log.clear()
    tree.attach("b1", "b0")

    assert len(tree.sent(OpenTopic, "b1")) == PORTION
    tree.carry("b1", "b0")
    assert len(tree.sent(OpenTopic, "b1")) == PORTION, "the answer is still under way"
    tree.run()
    assert all_live(tree, "b1")
    assert len(tree.sent(OpenTopic, "b1")) == len(TOPICS)
    assert max(runs_of(tree, "b1", OpenTopic)) <= PORTION


def test_a_new_child_is_asked_to_hold_a_portion_of_the_topics_at_a_time() -> None:
    tree = FewTree({"b1": "b0"}, safe_copies=2)
    somebody = tree.client("x", "b0")
    tree.cut("b1", "b0")
    for topic in TOPICS:
        somebody.subscribe(topic)
    tree.run()
    tree.log.clear()
    tree.attach("b1", "b0")
    tree.run()

    asked = runs_of(tree, "b0", Keep)
    assert sum(asked) == len(TOPICS)
    assert max(asked) <= PORTION
    assert all_live(tree, "b1")


def test_what_happens_in_a_topic_does_not_wait_for_its_portion() -> None:
    tree = FewTree({"b1": "b0", "b2": "b0"})
    member_of_many(tree, "b1")
    tree.freeze("b2", "b0")  # It never answers.
    tree.cut("b1", "b0")
    tree.attach("b1", "b0")
    tree.run()
    y = tree.client("y", "b0")
    y.subscribe(TOPICS[-1])
    tree.run()
    tree.thaw("b2", "b0")
    tree.run()

    assert y.live


@pytest.mark.parametrize("neighbour", ["crashes", "is cut off"])
def test_the_next_portion_does_not_wait_for_a_neighbour_that_is_gone(neighbour: str) -> None:
    tree = FewTree({"b1": "b0", "b2": "b0"})
    member_of_many(tree, "b1")
    tree.freeze("b0", "b2")
    tree.cut("b1", "b0")
    tree.pass_time(1)
    tree.attach("b1", "b0")
    tree.run()
    assert tree.brokers["b0"].unseen
    if neighbour == "crashes":
        tree.crash("b2")
    else:
        tree.cut("b2", "b0")
    tree.run()

    assert not tree.brokers["b0"].unseen
    assert all_live(tree, "b1")


def test_a_root_without_neighbours_goes_on_by_itself() -> None:
    tree = FewTree({})
    somebody = tree.client("x", "b0")
    for topic in TOPICS:
        somebody.subscribe(topic)
    tree.run()
    tree.crown("b0", 2)
    assert tree.brokers["b0"].unseen
    tree.pass_time(1)

    assert not tree.brokers["b0"].unseen


def test_in_another_term_members_are_reported_in_portions() -> None:
    tree = FewTree({"b1": "b0"})
    member_of_many(tree, "b1")
    tree.log.clear()
    tree.crown("b0", 2)
    tree.run()

    reported = runs_of(tree, "b1", MemberReport)
    assert sum(reported) >= len(TOPICS)
    assert max(reported) <= 2 * PORTION


def test_a_session_that_comes_back_topic_by_topic_is_not_given_up() -> None:
    """BRK-M10: with very many topics that takes longer than `member_timeout_ms`."""
    tree = Tree({"b1": "b0"}, partitions="primary", member_timeout_ms=1000.0)
    x = member_of_many(tree, "b1")
    tree.hang_up("x", gone=True)
    tree.run()
    tree.move("x", "b0")
    for topic in TOPICS[:8]:
        tree.pass_time(600)
        x.subscribe(topic)
        tree.run()
    assert not x.of(Denied)
    assert tree.brokers["b0"].book.topics_of(x.origin) == TOPICS
    tree.pass_time(3000)

    assert x.of(Denied), "it stopped coming"


def test_whoever_comes_back_too_slowly_is_given_up_all_the_same() -> None:
    tree = Tree({"b1": "b0"}, partitions="primary", member_timeout_ms=1000.0)
    x = member_of_many(tree, "b1")
    tree.hang_up("x", gone=True)
    tree.run()
    tree.move("x", "b0")
    for topic in TOPICS:
        tree.pass_time(900)
        x.subscribe(topic)
        tree.run()

    assert x.of(Denied), "ten times the patience is enough for everybody"
