"""Cuts that are closed across topics (ARC-C1 to ARC-C4): no answer without its question, whatever is on its way."""

from __future__ import annotations

from typing import Any

import pytest

from ordercast.broker.topics.cuts import Cuts
from ordercast.broker.topics.topics import Topics
from ordercast.core.ids import Topic
from ordercast.core.messages import Guarantee
from ordercast.core.process import Rights
from ordercast.pubsub.client_packets import MOST_CUT, MOST_FILTERS_OF_A_CUT, AskCut, CutTold, Entries
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector
from ordercast.pubsub.topic_packets import FoldRound
from tests.support.topics_tree import Somebody, T, Tree

U = Topic("u")


def grown() -> Tree:
    return Tree({"b1": "b0", "b2": "b0"}, partitions="primary", order_scope="session", member_timeout_ms=60_000)


def speak(somebody: Somebody, topic: Topic, number: int, guarantee: Guarantee = Guarantee.CAUSAL) -> None:
    publication = Publication(somebody.origin, number, topic, b"x", guarantee, ("k",))
    somebody.say(Entries(topic, (publication,)))


def in_both(tree: Tree, name: str, at: str) -> Somebody:
    somebody = tree.member(name, at)
    somebody.subscribe(U)
    tree.run()
    return somebody


def ask(tree: Tree, reader: Somebody, number: int = 1) -> list[CutTold]:
    reader.say(AskCut(number, (T, U)))
    tree.run()
    return [told for told in reader.of(CutTold) if told.number == number]


def cut_of(told: list[CutTold]) -> dict[Topic, Vector]:
    (only,) = told
    assert not only.why_not, only.why_not
    return only.cuts


def test_a_cut_has_what_was_published_before_it_was_asked_for() -> None:
    tree = grown()
    x = in_both(tree, "x", "b1")
    reader = tree.client("r", "b2")
    speak(x, T, 1)
    speak(x, U, 1)
    speak(x, U, 2)
    tree.run()
    assert cut_of(ask(tree, reader)) == {T: {"x": 1}, U: {"x": 2}}


def test_what_waits_for_its_commit_is_in_a_cut_that_has_what_followed_it() -> None:
    """x was told that its total had arrived, and went on on another topic."""
    tree = grown()
    x = in_both(tree, "x", "b1")
    in_both(tree, "y", "b2")
    reader = tree.client("r", "b0")
    tree.freeze("b0", "b1")
    assert ask(tree, reader) == []
    tree.carry("b0", "b1")
    tree.run()  # The second round waits before b1.
    speak(x, T, 1, Guarantee.TOTAL)
    tree.run()
    assert x.acked[0] == 1
    assert x.delivered == []
    speak(x, U, 1)
    tree.run()
    tree.thaw("b0", "b1")
    tree.run()
    assert cut_of(reader.of(CutTold)) == {T: {"x": 1}, U: {"x": 1}}


def test_what_comes_behind_the_round_is_not_in_it() -> None:
    """The question reaches nobody before the round does, so no answer to it can be in it either."""
    tree = grown()
    x, y = in_both(tree, "x", "b1"), in_both(tree, "y", "b2")
    reader = tree.client("r", "b0")
    reader.say(AskCut(1, (T, U)))
    tree.freeze("b2", "b0")
    tree.run()  # b1 has answered, b2's answer is on its way.
    speak(x, T, 1)
    tree.run()
    assert y.delivered == ["x1"]
    speak(y, U, 1)
    tree.freeze("b0", "b1")
    tree.thaw("b2", "b0")
    tree.run()  # The second round: b0 has noted both, b1 has not heard of it.
    tree.thaw("b0", "b1")
    tree.run()
    cuts = cut_of(reader.of(CutTold))
    assert cuts[U].get(y.origin, 0) <= cuts[T].get(x.origin, 0)


def test_there_is_no_cut_while_somebody_is_away_with_what_only_it_has() -> None:
    """x's answer has passed its broker, the question that it answers has not, and the broker is dead."""
    tree = grown()
    x, z = in_both(tree, "x", "b1"), in_both(tree, "z", "b1")
    reader = tree.client("r", "b0")
    tree.freeze("b1", "b0")
    speak(z, T, 1)
    tree.run()
    assert x.delivered == ["z1"]
    tree.queues["b1", "b0"].clear()  # As if the channel of that topic were not open yet.
    speak(x, U, 1)
    tree.run()
    tree.carry("b1", "b0")
    tree.crash("b1")
    tree.thaw("b1", "b0")
    tree.start("b1", life=1)
    tree.attach("b1", "b0")
    tree.run()
    assert ask(tree, reader) == []
    tree.pass_time(5000)
    assert {told.why_not for told in reader.of(CutTold)} == {"x is away, and so is its last broker"}
    for somebody in (x, z):
        tree.move(somebody.peer.name, "b2")
        somebody.subscribe(T)
        somebody.subscribe(U)
        tree.run()
    tree.pass_time(3000)
    assert cut_of(ask(tree, reader, 2)) == {T: {"z": 1}, U: {"x": 1}}


def test_a_dead_subscriber_whose_broker_lives_keeps_nobody_from_a_cut() -> None:
    tree = grown()
    x = in_both(tree, "x", "b1")
    in_both(tree, "y", "b2")
    reader = tree.client("r", "b0")
    tree.hang_up("y", gone=True)
    speak(x, T, 1)
    tree.run()
    assert cut_of(ask(tree, reader))[T] == {"x": 1}


def test_a_broker_that_is_away_is_named() -> None:
    tree = grown()
    reader = tree.client("r", "b0")
    tree.crash("b2")
    assert ask(tree, reader) == []
    tree.pass_time(5000)
    assert {told.why_not for told in reader.of(CutTold)} == {"b2 is away"}


def test_a_cut_needs_the_right_to_subscribe() -> None:
    tree = grown()
    reader = tree.client("r", "b1", rights=Rights(publish=(">",), subscribe=("t",)))
    assert [told.why_not for told in ask(tree, reader)] == ["no right to subscribe to u"]


def test_one_client_cannot_keep_the_whole_tree_busy() -> None:
    """It waits for so many cuts at a time, and rounds for cuts have pauses between them."""
    tree = grown()
    reader = tree.client("r", "b1")
    for number in range(1, 101):
        reader.say(AskCut(number, (T, U)))
    tree.run()
    refused = [told for told in reader.of(CutTold) if told.why_not]
    assert {told.why_not for told in refused} == {"16 others are asked for"}
    assert len(reader.of(CutTold)) - len(refused) <= 16
    tree.pass_time(1000)
    before = len(tree.sent(FoldRound, "b0"))
    for number in range(101, 201):
        ask(tree, reader, number)
    tree.pass_time(1000)
    assert len(tree.sent(FoldRound, "b0")) - before <= 2 * 2 * 25  # Two children, two rounds, every 50 ms.


def test_who_asks_for_very_many_filters_is_refused_at_once() -> None:
    """Each of them would be looked for among all topics, in one turn of every broker."""
    tree = grown()
    reader = tree.client("r", "b1")
    reader.say(AskCut(1, tuple(f"a{number}.*" for number in range(MOST_FILTERS_OF_A_CUT + 1))))
    tree.run()
    assert [told.why_not for told in reader.of(CutTold)] == ["101 filters, and more than 100 are not allowed"]
    assert not tree.sent(FoldRound, "b0")


def test_filters_are_asked_for_as_far_as_the_client_may_read() -> None:
    tree = grown()
    reader = tree.client("r", "b1", rights=Rights(publish=(), subscribe=("mine.>",)))
    reader.say(AskCut(1, ("other.>",)))
    reader.say(AskCut(2, (">",)))
    tree.run()
    assert {name for sent in tree.sent(FoldRound, "b0") for name in sent.cut} == {"mine.>"}


def test_a_question_that_is_repeated_is_one_question() -> None:
    tree = grown()
    reader = tree.client("r", "b1")
    tree.freeze("b0", "b2")
    for _ in range(100):
        reader.say(AskCut(1, (T, U)))
        tree.run()
    assert len(tree.brokers["b0"].cuts.requests) == 1


def test_a_round_is_about_no_more_than_it_can_do() -> None:
    """Many clients that each ask for as much as one may do not make one turn of the root as long as all of it takes."""
    tree = grown()
    readers = [tree.client(f"r{number}", "b1") for number in range(5)]
    for who, reader in enumerate(readers):
        reader.say(AskCut(1, tuple(f"t{who}.{number}" for number in range(MOST_CUT // 2))))
    tree.run()
    assert max(len(sent.cut) for sent in tree.sent(FoldRound, "b0")) <= MOST_CUT
    tree.pass_time(2000)
    assert [len(told.cuts) for reader in readers for told in reader.of(CutTold)] == [MOST_CUT // 2] * 5


class OnlyTheLog(Cuts):
    """What is pending or held is left out."""

    def _here(self, topic: Topic) -> Vector:
        node = self.nodes.get(topic)
        return node.have.vector() if node is not None else {}


class NobodyIsMissed(Cuts):
    def _somebody_is_away(self, topics: list[Topic], known: dict[Topic, str]) -> str:
        return ""


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (OnlyTheLog, test_what_waits_for_its_commit_is_in_a_cut_that_has_what_followed_it),
        (NobodyIsMissed, test_there_is_no_cut_while_somebody_is_away_with_what_only_it_has),
    ],
)
def test_without_the_rule_its_scenario_goes_wrong(
    broken: type[Cuts], promise: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tree, "topics_type", type("BrokenTopics", (Topics,), {"cuts_type": broken}))
    with pytest.raises(AssertionError):
        promise()
