"""A member whose connection has ended: its edge answers for it, and nobody waits (BRK-M14)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ordercast.broker.topics.authority import Authority
from ordercast.broker.topics.channels import Channels
from ordercast.broker.topics.membership.leaving import Leaving
from ordercast.broker.topics.ordering import Ordering
from ordercast.broker.topics.stability import StabilityVotes
from ordercast.broker.topics.state.clients import AttachedClient
from ordercast.broker.topics.state.member import Coverage, Vote, WaitingMember
from ordercast.broker.topics.state.topic import TopicNode
from ordercast.broker.topics.topics import Topics
from ordercast.core.ids import Origin
from ordercast.pubsub.client_packets import Denied, Left, Watch
from tests.support.topics_tree import Somebody, T, Tree

PATIENCE_MS = 20_000.0


def grown(**settings: Any) -> Tree:
    return Tree({"b1": "b0", "b2": "b0"}, partitions="primary", member_timeout_ms=PATIENCE_MS, **settings)


def with_one_away(tree: Tree) -> tuple[Somebody, Somebody]:
    """x is at the root; y was at b1, and its connection has broken."""
    x, y = tree.member("x", "b0"), tree.member("y", "b1")
    tree.hang_up("y", gone=True)
    tree.run()
    return x, y


def come_back(tree: Tree, somebody: Somebody, at: str) -> None:
    tree.move(somebody.peer.name, at)
    somebody.subscribe()
    tree.run()


@pytest.mark.parametrize("back_at", ["b1", "b2"])
def test_nobody_waits_for_a_member_that_is_away_and_it_misses_nothing(back_at: str) -> None:
    tree = grown()
    x, y = with_one_away(tree)
    for guarantee in ("total", "causal", "total"):
        x.publish("k", guarantee=guarantee)
        tree.run()
    x.report()
    tree.pass_time(3000)
    assert x.delivered == ["x1", "x2", "x3"]
    come_back(tree, y, back_at)

    assert y.live
    assert y.delivered == x.delivered
    y.publish("k", guarantee="total")
    tree.run()
    assert x.delivered == y.delivered == ["x1", "x2", "x3", "y1"]


def test_totals_wait_for_it_where_the_settings_say_so() -> None:
    tree = grown(absent_member="wait")
    x, y = with_one_away(tree)
    x.publish("k", guarantee="total")
    tree.pass_time(PATIENCE_MS / 2)
    assert x.delivered == []
    come_back(tree, y, "b1")
    assert x.delivered == y.delivered == ["x1"]


def test_it_is_fenced_all_the_same_and_its_edge_lets_the_topic_go() -> None:
    """BRK-M10: being answered for is not being there, or what it lacks would be kept for ever."""
    tree = grown()
    x, y = with_one_away(tree)
    x.publish("k")
    tree.run()
    x.report()
    tree.pass_time(PATIENCE_MS + 1000)
    assert tree.brokers["b0"].book.live(T) == {"x"}
    assert not tree.brokers["b1"].has(T)
    assert tree.log_of("b0") == []
    come_back(tree, y, "b1")
    assert y.of(Denied)[0].reason == "fenced"


def test_nobody_answers_for_a_member_whose_edge_has_died() -> None:
    """What y delivered last, the broker had from y alone and took with it."""
    tree = grown()
    x, y = tree.member("x", "b0"), tree.member("y", "b1")
    tree.freeze("b1", "b0")
    y.publish("k")
    tree.run()
    assert y.delivered == ["y1"]
    tree.hang_up("y", gone=True)
    tree.crash("b1")
    tree.thaw("b1", "b0")
    x.publish("k", guarantee="total")
    tree.run()
    assert x.delivered == []
    come_back(tree, y, "b2")
    assert x.delivered == y.delivered == ["y1", "x1"]


def test_what_it_was_given_last_comes_before_the_totals_that_do_not_wait_for_it() -> None:
    """BRK-G4: its edge is locked, and has sent up what it had, before it answers."""
    tree = grown()
    x, y = tree.member("x", "b0"), tree.member("y", "b1")
    tree.freeze("b1", "b0")
    y.publish("k")
    tree.run()
    tree.hang_up("y", gone=True)
    x.publish("k", guarantee="total")
    tree.run()
    assert x.delivered == []
    tree.thaw("b1", "b0")
    tree.run()
    assert x.delivered == ["y1", "x1"]
    come_back(tree, y, "b2")
    assert y.delivered == x.delivered


def test_a_new_root_takes_the_word_of_its_edge() -> None:
    """BRK-M7: its log is in, so the topic is open."""
    tree = grown()
    x, y = tree.member("x", "b2"), tree.member("y", "b1")
    tree.hang_up("y", gone=True)
    tree.run()
    tree.crash("b0")
    tree.crown("b2", 2)
    tree.attach("b1", "b2")
    tree.run()
    z = tree.member("z", "b2")
    x.publish("k", guarantee="total")
    tree.run()
    assert x.delivered == z.delivered == ["x1"]
    come_back(tree, y, "b2")
    assert y.delivered == ["x1"]


def test_the_word_of_an_edge_that_it_has_left_counts_no_more() -> None:
    """BRK-M9: y is back, elsewhere, and its old edge has not heard of it."""
    tree = grown()
    x, y = with_one_away(tree)
    come_back(tree, y, "b2")
    assert not tree.brokers["b1"].has(T)
    tree.freeze("b2", "b0")
    y.publish("k")
    x.publish("k", guarantee="total")
    tree.run()
    assert x.delivered == []
    tree.thaw("b2", "b0")
    tree.run()
    assert x.delivered == y.delivered == ["y1", "x1"]


def test_it_publishes_nothing_before_it_is_confirmed_again() -> None:
    """BRK-P1: also where the broker that answers for it is asked."""
    tree = grown()
    x, y = with_one_away(tree)
    tree.move("y", "b1")
    y.publish("k")
    tree.run()
    assert x.delivered == []
    y.number = 0
    y.subscribe()
    tree.run()
    y.publish("k")
    tree.run()
    assert x.delivered == ["y1"]


def test_it_may_come_back_to_take_leave() -> None:
    tree = grown()
    x, y = with_one_away(tree)
    tree.move("y", "b1")
    y.leave()
    tree.run()
    assert y.of(Left)
    assert tree.brokers["b0"].book.live(T) == {"x"}
    assert x.live


def test_a_later_root_counts_its_absence_from_where_the_last_one_was() -> None:
    tree = grown()
    with_one_away(tree)
    tree.pass_time(15_000)
    tree.crash("b0")
    tree.crown("b2", 2)
    tree.attach("b1", "b2")
    tree.pass_time(8000)
    assert "y" not in tree.brokers["b2"].book.live(T)


def test_a_follower_that_only_published_is_owed_what_comes_after_it_was_cut_off() -> None:
    """BRK-W1: it was about to receive."""
    tree = grown()
    x, w = tree.member("x", "b0"), tree.client("w", "b1")
    w.say(Watch("*"))
    tree.run()
    w.subscribe(receives=False)
    tree.run()
    tree.hang_up("w", gone=True)
    x.publish("k")
    tree.run()
    x.report()
    tree.pass_time(1000)
    assert tree.log_of("b0") == ["x1"]
    come_back(tree, w, "b2")
    assert w.delivered == ["x1"]


def test_nobody_waits_for_a_follower_that_has_not_come_yet_and_it_misses_nothing() -> None:
    """BRK-W2: it has delivered nothing of the topic that begins, and publishes nothing before it is confirmed."""
    tree = grown()
    w = tree.client("w", "b1")
    w.say(Watch("*"))
    tree.run()
    tree.hang_up("w", gone=True)
    x = tree.member("x", "b0")
    assert tree.brokers["b0"].book.live(T) == {"w", "x"}
    x.publish("k", guarantee="total")
    x.publish("k")
    tree.run()
    x.report()
    tree.pass_time(1000)
    assert x.delivered == ["x1", "x2"]
    come_back(tree, w, "b2")
    assert w.delivered == ["x1", "x2"]


# Each part of the rule is needed


def gone_while_it_comes_back(*, follows: bool = False) -> None:
    """The root has recorded y at b2, so its edge before that, b1, answers for it no more; y never hears of it."""
    tree = grown()
    x, y = tree.member("x", "b0"), tree.member("y", "b1")
    if follows:
        y.say(Watch("*"))
    x.publish("k")
    tree.run()
    tree.hang_up("y", gone=True)
    tree.run()
    tree.move("y", "b2")
    tree.freeze("b0", "b2")
    y.subscribe()
    tree.run()
    tree.hang_up("y", gone=True)
    tree.run()
    tree.thaw("b0", "b2")
    x.publish("k", guarantee="total")
    tree.run()
    assert x.delivered == ["x1", "x2"]
    come_back(tree, y, "b2")
    assert y.delivered == x.delivered


@pytest.mark.parametrize("follows", [False, True])
def test_nobody_waits_for_a_member_that_goes_again_before_it_is_confirmed(follows: bool) -> None:
    gone_while_it_comes_back(follows=follows)


def gone_with_history_that_the_root_lacks() -> None:
    """What y delivered at b1 died there. b2 heard of it, from y alone, and then had to begin the topic anew."""
    tree = grown()
    x, y = tree.member("x", "b0"), tree.member("y", "b1")
    tree.freeze("b1", "b0")
    y.publish("k")
    tree.run()
    assert y.delivered == ["y1"]
    tree.crash("b1")
    tree.move("y", "b2")
    tree.freeze("b2", "b0")
    y.subscribe()
    tree.run()
    tree.hang_up("y", gone=True)
    tree.cut("b2", "b0")
    tree.thaw("b2", "b0")
    tree.attach("b2", "b0")
    x.publish("k", guarantee="total")
    tree.pass_time(3000)
    assert x.delivered == []
    come_back(tree, y, "b2")
    assert x.delivered == y.delivered == ["y1", "x1"]


def test_it_is_confirmed_in_its_absence_only_with_all_that_it_had() -> None:
    gone_with_history_that_the_root_lacks()


def test_a_newcomer_that_is_gone_again_is_no_member_even_if_its_root_never_heard_of_that() -> None:
    tree = grown()
    x, y = tree.member("x", "b0"), tree.client("y", "b1")
    tree.freeze("b1", "b0")
    y.subscribe()
    tree.run()
    tree.hang_up("y", gone=True)
    tree.cut("b1", "b0")
    tree.thaw("b1", "b0")
    tree.attach("b1", "b0")
    tree.pass_time(3000)
    assert tree.brokers["b0"].book.live(T) == {"x"}
    assert not tree.brokers["b1"].has(T)
    x.publish("k", guarantee="total")
    tree.run()
    assert x.delivered == ["x1"]


def test_a_broker_that_hears_nothing_of_the_root_asks_only_for_a_while_in_place_of_the_absent() -> None:
    tree = grown()
    tree.member("x", "b0")
    y = tree.client("y", "b1")
    tree.freeze("b1", "b0")
    y.subscribe()
    tree.run()
    tree.hang_up("y", gone=True)
    tree.pass_time(PATIENCE_MS - 1000)
    assert tree.brokers["b1"].has(T)
    tree.pass_time(3000)
    assert not tree.brokers["b1"].has(T)


class AnswersForMembersOnly(Leaving):
    def _unheard(self, node: TopicNode, client: AttachedClient, waiting: WaitingMember, *, dead: bool) -> None:
        node.stop_waiting(client.origin)


class TakenAsComplete(Channels):
    def _ask_again(self, node: TopicNode) -> None:
        """Nobody who waits is away, it thinks."""


class TakenForPresent(Authority):
    """Being answered for is being there."""

    def _present(self, node: TopicNode | None) -> set[Origin]:
        return self._answered_for(node) if node is not None else set()


class NobodyWaits(Ordering):
    """Totals do not wait for those that no broker answers for."""

    def covers_all(self, node: TopicNode, covered: Coverage) -> bool:
        roll = node.roll()
        return {member for member, _ in roll.here | roll.away} <= {member for member, _ in covered}


class OnlyThosePresent(Authority):
    """A new root waits for everybody who is away before it opens a topic."""

    def _answered_for(self, node: TopicNode) -> set[Origin]:
        return self._latest(node, node.roll().here)


class StableWithout(StabilityVotes):
    """What one that is away lacks is not kept for it."""

    def _minimum(self, node: TopicNode) -> Vote:
        away = {origin: member for origin, member in node.members.items() if member.away}
        for member in away.values():
            member.receives = False
        return super()._minimum(node)


class NotGrounded(Channels):
    """A broker that only answers for somebody begins the topic anew."""

    def ground(self, node: TopicNode) -> None:
        if node.members and all(member.away for member in node.members.values()) and not self.tree.is_root:
            node.members.clear()
        super().ground(node)


def back_elsewhere() -> None:
    test_nobody_waits_for_a_member_that_is_away_and_it_misses_nothing("b2")


@pytest.mark.parametrize(
    ("part", "broken", "promise"),
    [
        ("authority_type", TakenForPresent, test_it_is_fenced_all_the_same_and_its_edge_lets_the_topic_go),
        ("ordering_type", NobodyWaits, test_nobody_answers_for_a_member_whose_edge_has_died),
        ("authority_type", OnlyThosePresent, test_a_new_root_takes_the_word_of_its_edge),
        ("stability_type", StableWithout, back_elsewhere),
        ("channels_type", NotGrounded, back_elsewhere),
        ("leaving_type", AnswersForMembersOnly, gone_while_it_comes_back),
        ("channels_type", TakenAsComplete, gone_with_history_that_the_root_lacks),
    ],
)
def test_without_the_rule_its_scenario_goes_wrong(
    part: str, broken: type[Any], promise: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tree, "topics_type", type("BrokenTopics", (Topics,), {part: broken}))
    with pytest.raises(AssertionError):
        promise()
