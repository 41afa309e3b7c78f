"""Topics, filters and sessions that nobody takes part in any more leave nothing behind (BRK-S9, BRK-F9)."""

from __future__ import annotations

from typing import Any

import pytest

from ordercast.broker.topics.sessions import folding
from ordercast.core.ids import Origin, Topic
from ordercast.pubsub.client_packets import FENCED, WANTED, Denied, Goodbye, Subscribe, Unsubscribe, Unwatch, Watch
from ordercast.pubsub.filters import following, is_following
from ordercast.pubsub.topic_packets import FoldRound
from tests.support.topics_tree import Somebody, T, Tree

FOLD_MS = 100.0
TIMEOUT_MS = 200.0
LONG_MS = 10 * TIMEOUT_MS + 8 * FOLD_MS
BROKERS = ("b0", "b1", "b2")


def tree_of(**settings: Any) -> Tree:
    more = {"fold_ms": FOLD_MS, "retry_ms": 20, "stability_ms": 10, "member_timeout_ms": TIMEOUT_MS, **settings}
    return Tree({"b1": "b0", "b2": "b1"}, **more)


def publish_and_leave(tree: Tree, name: str, topic: Topic = T, *, at: str = "b2") -> Somebody:
    """It stays connected, and takes part in nothing."""
    one = tree.client(name, at, ticket=WANTED)
    one.subscribe(topic, receives=False)
    tree.run()
    one.publish(topic=topic)
    tree.run()
    one.say(Unsubscribe(topic))
    tree.run()
    return one


def pass_long(tree: Tree) -> None:
    """Long enough for everything; every broker has a turn now and then."""
    for _ in range(10):
        tree.pass_time(LONG_MS / 10)
        for topics in tree.brokers.values():
            topics.turn_end()
        tree.run()


def closed(tree: Tree, broker: str = "b0") -> dict[str, tuple[int, ...]]:
    return tree.brokers[broker].book.closed.summary()


def topics_known(tree: Tree) -> set[str]:
    """Names that any broker still has a word about."""
    found: set[str] = set()
    for name in BROKERS:
        topics = tree.brokers[name]
        authority = topics.authority
        found |= {*topics.nodes, *topics.book.joined, *topics.book._live, *authority.opened, *authority.asks}
        found |= {*authority.joining, *topics.weights, *topics.members.waited_for}
    return {topic for topic in found if not is_following(Topic(topic))}


@pytest.mark.parametrize("safe_copies", [1, 3])
def test_a_topic_whose_sessions_are_folded_is_known_to_nobody(safe_copies: int) -> None:
    """BRK-S9, also where other brokers hold every topic for safety's sake."""
    tree = tree_of(safe_copies=safe_copies)
    for number in range(20):
        one = publish_and_leave(tree, f"s{number}", Topic(f"t{number}"), at=BROKERS[number % 3])
        one.say(Goodbye())
        tree.run()
        tree.hang_up(f"s{number}", gone=False)
    pass_long(tree)

    assert topics_known(tree) == set()
    assert all(not tree.brokers[name].settled for name in BROKERS)


def test_a_topic_that_was_only_subscribed_to_is_known_to_nobody() -> None:
    """The session goes on: nothing of it is folded."""
    tree = tree_of()
    one = tree.client("s", "b1", ticket=WANTED)
    for number in range(20):
        one.subscribe(Topic(f"t{number}"))
        tree.run()
        one.say(Unsubscribe(Topic(f"t{number}")))
        tree.run()
    pass_long(tree)

    assert topics_known(tree) == set()


def test_a_topic_with_a_member_is_kept_and_goes_on() -> None:
    tree = tree_of()
    reader = tree.member("r", "b1")
    one = publish_and_leave(tree, "s")
    reader.report()
    one.say(Goodbye())
    tree.run()
    tree.hang_up("s", gone=False)
    pass_long(tree)
    assert closed(tree) == {"0.b2": (1, 2)}

    again = publish_and_leave(tree, "again")
    assert reader.delivered == [f"{one.origin}1", f"{again.origin}1"]


def test_a_topic_that_is_ended_while_somebody_joins_it_begins_anew() -> None:
    """The request is on its way when the root ends the topic."""
    tree = tree_of(safe_copies=3)
    one = publish_and_leave(tree, "s")
    one.say(Goodbye())
    tree.run()
    tree.hang_up("s", gone=False)
    tree.freeze("b1", "b0")
    reader = tree.client("r", "b2")
    reader.subscribe()
    tree.run()
    tree.thaw("b1", "b0")
    pass_long(tree)
    assert reader.live

    other = publish_and_leave(tree, "other", at="b0")
    assert reader.delivered[-1] == f"{other.origin}1"


def test_whoever_left_everything_and_vanished_is_given_up_and_folds() -> None:
    """BRK-F9"""
    tree = tree_of(partitions="primary")
    reader = tree.member("r", "b0")
    one = publish_and_leave(tree, "s")
    reader.report()
    tree.run()
    tree.hang_up("s", gone=True)
    tree.pass_time(5 * TIMEOUT_MS)
    assert closed(tree) == {}, "it may come back"

    pass_long(tree)
    assert closed(tree) == {"0.b2": (1, 2)}
    assert all(one.origin not in tree.brokers[name].nodes[T].base for name in BROKERS if T in tree.brokers[name].nodes)

    tree.move("s", "b1")
    one.subscribe()
    tree.run()
    assert one.of(Denied) == [Denied(T, FENCED)]


def test_whoever_takes_part_in_nothing_and_is_connected_is_not_given_up() -> None:
    """BRK-F9: it may take part again at any time, though it was a member of nothing for long."""
    tree = tree_of()
    reader = tree.member("r", "b0")
    one = publish_and_leave(tree, "s")
    reader.report()
    pass_long(tree)
    pass_long(tree)
    assert any(packet.strays == (one.origin,) for packet in tree.sent(FoldRound, "b0")), "it was asked for"

    one.subscribe(receives=False)
    tree.run()
    one.publish()
    tree.run()
    assert len(reader.delivered) == 2
    assert not one.of(Denied)


def test_one_broken_connection_at_the_wrong_time_ends_no_session() -> None:
    """BRK-F9: it must be away in two rounds."""
    tree = tree_of(partitions="primary")
    tree.member("r", "b0")
    one = publish_and_leave(tree, "s")
    tree.clients["r"].report()
    pass_long(tree)
    for _ in range(6):
        tree.hang_up("s", gone=True)
        rounds = len(tree.sent(FoldRound, "b0"))
        while len(tree.sent(FoldRound, "b0")) == rounds:
            tree.pass_time(FOLD_MS / 10)
        tree.move("s", "b1")
        tree.run()
        tree.pass_time(2 * FOLD_MS)
    one.subscribe()
    tree.run()
    assert not one.of(Denied)


def test_sessions_that_cannot_be_folded_do_not_hold_up_those_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member of one topic is away: as many ended sessions of it as a round is about wait in front of the others."""
    monkeypatch.setattr(folding, "_MOST", 3)
    tree = tree_of(partitions="primary", member_timeout_ms=1_000_000)
    tree.member("away", "b1")
    stuck = [publish_and_leave(tree, f"stuck{number}") for number in range(4)]
    tree.hang_up("away", gone=True)
    others = [publish_and_leave(tree, f"s{number}", Topic("u")) for number in range(10)]
    for one in (*stuck, *others):
        one.say(Goodbye())
        tree.run()
    tree.pass_time(20 * FOLD_MS)

    book = tree.brokers["b0"].book
    assert [one.origin in book.closed for one in stuck] == [False] * 4
    assert all(one.origin in book.closed for one in others)


def test_many_sessions_that_end_at_once_do_not_wait_for_a_round_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds follow each other while there is more than one of them is about."""
    monkeypatch.setattr(folding, "_MOST", 5)
    tree = tree_of()
    for number in range(50):
        publish_and_leave(tree, f"s{number}", Topic("u")).say(Goodbye())
        tree.run()
    tree.pass_time(6 * FOLD_MS)

    assert closed(tree) == {"0.b2": (1, 51)}


def test_filters_that_nobody_follows_any_more_are_forgotten() -> None:
    tree = tree_of()
    one = tree.client("s", "b1", ticket=WANTED)
    for number in range(20):
        one.say(Watch(f"a.{number}.>"))
        tree.run()
        one.say(Unwatch(f"a.{number}.>"))
        tree.run()
    pass_long(tree)

    for name in BROKERS:
        book = tree.brokers[name].book
        assert not [topic for topic in book.joined if is_following(topic)]
        assert not list(book._filters.matching(Topic("a.3.x")))
        assert following("a.3.>") not in tree.brokers[name].nodes


def test_asking_for_ever_new_topics_takes_no_memory() -> None:
    """A Subscribe alone begins nothing, and answers about rights are remembered for so many topics only."""
    tree = tree_of()
    one = tree.client("s", "b1", ticket=WANTED)
    topics = tree.brokers["b1"]
    (client,) = topics.clients.values()
    for number in range(25_000):
        topics.members.subscribe(client, Subscribe(Topic(f"t{number}"), receives=False))
    assert len(client._may_publish) <= 10_000
    assert not topics.nodes
    assert Origin(one.origin) not in topics.book._topics
