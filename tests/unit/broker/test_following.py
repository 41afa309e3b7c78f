"""Clients that follow filters are members of the filter, and in advance of every topic of it that begins (BRK-W1)."""

from __future__ import annotations

import pytest

from ordercast.core.ids import Origin, Topic
from ordercast.core.process import Rights
from ordercast.pubsub.client_packets import (
    FENCED,
    Denied,
    Entries,
    Live,
    Refused,
    TopicsFound,
    Unwatch,
    Watch,
)
from ordercast.pubsub.filters import following
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.topic_packets import RosterAck, RosterUpdate
from tests.support.topics_tree import Somebody, T, Tree


def follower(tree: Tree, name: str, at: str, pattern: str = "*", rights: Rights | None = None) -> Somebody:
    """A client whose filter is confirmed."""
    somebody = tree.client(name, at, rights=rights)
    somebody.say(Watch(pattern))
    tree.run()
    assert somebody.of(TopicsFound), f"{name} was not confirmed"
    return somebody


def speak(tree: Tree, who: Somebody) -> None:
    """Publish, and let it become stable if nobody objects."""
    who.publish("k")
    tree.run()
    who.report()
    tree.pass_time(3000)


def test_followers_are_told_of_topics_that_are_there_and_that_come() -> None:
    tree = Tree({"b1": "b0"})
    tree.member("x", "b0")
    w = follower(tree, "w", "b1", ">", Rights(subscribe=("t", "orders.>")))
    assert w.of(TopicsFound) == [TopicsFound(">", (T,), narrowed=True)]
    for topic in ("orders.pt", "secret"):
        tree.clients["x"].subscribe(Topic(topic))
    tree.run()

    assert w.of(TopicsFound)[1:] == [TopicsFound(">", (Topic("orders.pt"),))]
    w.say(Unwatch(">"))
    tree.clients["x"].subscribe(Topic("orders.es"))
    tree.run()
    assert len(w.of(TopicsFound)) == 2
    assert tree.clients["x"].of(Live)


def test_many_filters_of_one_client_are_answered_in_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a look at all topics: in one turn they would keep everybody else waiting, and the root from its lease."""
    monkeypatch.setattr("ordercast.broker.topics.watching.LOOKS", 1)
    tree = Tree({"b1": "b0"})
    tree.member("x", "b0")
    w, patterns, edge = tree.client("w", "b1"), ["*", ">", "t", "none.*"], tree.brokers["b1"]
    for pattern in patterns:
        w.say(Watch(pattern))
    tree.run()
    tree.pass_time(10)
    told = w.of(TopicsFound)
    assert [(found.pattern, found.topics) for found in told] == [("*", (T,)), (">", (T,)), ("t", (T,)), ("none.*", ())]

    (client,) = edge.clients.values()
    for pattern in patterns:
        edge.watching.answer(client, pattern)
    edge.turn_end()
    tree.run()
    assert w.of(TopicsFound) == [*told, told[0]]
    tree.pass_time(10)
    assert w.of(TopicsFound) == [*told, *told]


def test_a_filter_is_confirmed_only_when_the_root_knows_of_it() -> None:
    tree = Tree({"b1": "b0"})
    tree.freeze("b1", "b0")
    w = tree.client("w", "b1")
    w.say(Watch("*"))
    tree.run()
    assert not w.of(TopicsFound)
    tree.thaw("b1", "b0")
    tree.run()

    assert w.of(TopicsFound) == [TopicsFound("*", ())]
    assert tree.brokers["b0"].book.live(following("*")) == {"w"}


def test_a_follower_does_not_miss_the_first_publication_of_a_new_topic() -> None:
    """Nobody waits for it to begin the topic, but nothing becomes stable without it."""
    tree = Tree({"b1": "b0", "b2": "b0"})
    w = follower(tree, "w", "b2")
    tree.freeze("b2", "w")
    x = tree.member("x", "b1")
    speak(tree, x)
    tree.thaw("b2", "w")
    tree.run()
    assert w.of(TopicsFound)[-1].topics == (T,)
    w.subscribe()
    tree.run()

    assert w.delivered == ["x1"]


def test_a_follower_without_an_edge_does_not_miss_the_first_publication_of_a_new_topic() -> None:
    tree = Tree({"b1": "b0", "b2": "b0"}, partitions="primary")
    w = follower(tree, "w", "b2")
    tree.hang_up("w", gone=False)
    speak(tree, tree.member("x", "b1"))
    tree.move("w", "b1")
    w.say(Watch("*"))
    tree.run()
    assert w.of(TopicsFound) == [TopicsFound("*", (T,))]
    w.subscribe()
    tree.run()

    assert w.delivered == ["x1"]


def test_a_follower_whose_edge_dies_with_the_root_does_not_miss_the_first_publication_of_a_new_topic() -> None:
    """A new root knows of the filter by those who recorded it."""
    tree = Tree({"b1": "b0", "b2": "b0", "b3": "b0", "b4": "b0"}, partitions="primary")
    w = follower(tree, "w", "b2")
    tree.crash("b2")
    tree.crash("b0")
    tree.crown("b1", 2)
    tree.attach("b3", "b1")
    tree.attach("b4", "b1")
    tree.run()
    speak(tree, tree.member("x", "b3"))
    tree.move("w", "b1")
    w.say(Watch("*"))
    w.subscribe()
    tree.run()

    assert w.delivered == ["x1"]


def test_members_in_advance_are_known_wherever_the_first_member_is() -> None:
    """A wave that reached too few is sent again, and with it all for whom the topic must count."""
    tree = Tree({"b1": "b0", "b2": "b0"}, partitions="primary")
    follower(tree, "w", "b2")
    tree.hang_up("w", gone=False)
    x = tree.client("x", "b0")
    tree.freeze("b0", "b1")
    tree.freeze("b0", "b2")
    x.subscribe()
    tree.run()
    assert tree.brokers["b0"].book.live(T) == {"w", "x"}
    for child in ("b1", "b2"):  # Both are lost, and come back, before the wave has reached them.
        tree.cut(child, "b0")
    tree.run()
    assert not x.live
    tree.thaw("b0", "b1")
    tree.thaw("b0", "b2")
    tree.attach("b1", "b0")
    tree.pass_time(1000)

    assert x.live
    (last,) = [update for update in tree.sent(RosterUpdate, "b0")[-1:] if update.topic == T]
    assert [entry.partition(" ")[0] for entry in last.followers] == ["w"]
    assert tree.sent(RosterAck, "b1")


def test_a_follower_that_only_publishes_on_a_new_topic_does_not_miss_what_others_say() -> None:
    tree = Tree({"b1": "b0", "b2": "b0"})
    w = follower(tree, "w", "b2")
    w.subscribe(receives=False)
    x = tree.member("x", "b1")
    speak(tree, x)
    w.subscribe()
    tree.run()

    assert w.delivered == ["x1"]


def test_a_follower_that_never_comes_is_given_up_like_any_absent_member() -> None:
    tree = Tree({"b1": "b0"}, member_timeout_ms=4000.0)
    w = follower(tree, "w", "b1")
    x = tree.member("x", "b0")
    speak(tree, x)
    assert tree.log_of("b0") == ["x1"]
    tree.pass_time(3000)

    assert [packet.reason for packet in w.of(Denied)] == [FENCED]
    assert tree.log_of("b0") == []


@pytest.mark.parametrize("how", ["gone", "unwatch"])
def test_nobody_waits_for_a_follower_that_is_dead_or_has_left_its_filter(how: str) -> None:
    tree = Tree({"b1": "b0"})
    w = follower(tree, "w", "b1")
    tree.freeze("b1", "w")
    tree.freeze("b1", "b0")
    x = tree.client("x", "b0")
    x.subscribe()
    tree.run()
    if how == "unwatch":
        w.say(Unwatch("*"))
    else:
        tree.hang_up("w", gone=True)
    tree.thaw("b1", "b0")
    tree.run()
    assert tree.brokers["b0"].book.live(T) == {"x"}
    speak(tree, x)

    assert tree.log_of("b0") == []


def test_a_filter_that_another_filter_of_the_client_covers_may_go() -> None:
    tree = Tree({"b1": "b0"})
    w = follower(tree, "w", "b1")
    w.say(Watch("t"))
    tree.run()
    tree.member("x", "b0")
    w.say(Unwatch("*"))
    tree.run()

    assert tree.brokers["b0"].book.live(T) == {"w", "x"}


def test_nobody_waits_for_a_follower_on_topics_that_it_has_no_right_to() -> None:
    tree = Tree({"b1": "b0"})
    follower(tree, "w", "b1", ">", Rights(subscribe=("orders.>",)))
    speak(tree, tree.member("x", "b0"))

    assert tree.brokers["b0"].book.live(T) == {"x"}
    assert tree.log_of("b0") == []


def test_a_topic_that_begins_anew_counts_for_its_followers_again() -> None:
    """Also for one that has left it: it follows the filter, not the topic."""
    tree = Tree({"b1": "b0"})
    w = follower(tree, "w", "b1")
    for turn in (1, 2):
        x = tree.client("x", "b0", session=turn)
        x.subscribe()
        tree.run()
        assert "w" in tree.brokers["b0"].book.live(T)
        w.subscribe()
        tree.run()
        assert tree.brokers["b0"].book.live(T) == {"w", x.origin}
        for one in (w, x):
            one.leave()
        tree.run()
        assert not tree.brokers["b0"].book.live(T)


def test_nobody_publishes_under_the_name_of_a_filter() -> None:
    tree = Tree({"b1": "b0"})
    w = follower(tree, "w", "b1")
    name = following("*")
    w.say(Entries(name, (Publication(Origin("w"), 1, name, b"x", keys=("k",)),)))
    tree.run()

    assert [packet.number for packet in w.of(Refused)] == [1]
    assert tree.log_of("b1", name) == []


def test_a_filter_is_followed_after_its_edge_had_to_begin_anew() -> None:
    tree = Tree({"b1": "b0", "b2": "b1"})
    tree.freeze("b0", "b1")
    w = tree.client("w", "b2")
    w.say(Watch("*"))
    tree.run()
    tree.cut("b1", "b0")
    tree.thaw("b0", "b1")
    tree.attach("b1", "b0")
    tree.pass_time(1000)

    assert w.of(TopicsFound) == [TopicsFound("*", ())]


def test_more_topics_than_fit_a_packet_are_told_in_pieces() -> None:
    tree = Tree({"b1": "b0"})
    x = tree.member("x", "b0")
    for number in range(1100):
        x.subscribe(Topic(f"many.{number}"))
    tree.run()
    w = follower(tree, "w", "b1", "many.*")
    pieces = w.of(TopicsFound)

    assert [(len(piece.topics), piece.more) for piece in pieces] == [(500, True), (500, True), (100, False)]
    assert len({topic for piece in pieces for topic in piece.topics}) == 1100


def test_a_client_that_follows_too_many_filters_is_told_the_limit() -> None:
    tree = Tree({"b1": "b0"}, filters_per_client=2)
    w = tree.client("w", "b1")
    for pattern in ("a.*", "b.*", "a.*", "c.*"):
        w.say(Watch(pattern))
    tree.run()
    assert [denied.reason for denied in w.of(Denied)] == [
        "w follows 2 filters, and more are not allowed (filters_per_client)"
    ]
    w.say(Unwatch("a.*"))
    w.say(Watch("c.*"))
    tree.run()
    assert w.of(TopicsFound)[-1].pattern == "c.*"


def test_the_clients_of_one_user_follow_so_many_filters_together() -> None:
    tree = Tree({"b1": "b0"}, filters_per_user=2)
    first, second = (tree.client(f"shop.{number}", "b1", user="shop") for number in range(2))
    other, nobody = tree.client("bank", "b1", user="bank"), tree.client("n", "b1")
    for client in (first, second, other, nobody):
        client.say(Watch("a.*"))
    tree.run()
    first.say(Watch("b.*"))
    first.say(Watch("a.*"))
    nobody.say(Watch("b.*"))
    nobody.say(Watch("c.*"))
    tree.run()

    (denied,) = first.of(Denied)
    assert denied.reason == "the clients of shop follow 2 filters, and more are not allowed (filters_per_user)"
    assert tree.wires("b1").counts["filters_refused"] == 1
    assert not any(client.of(Denied) for client in (second, other, nobody))

    second.say(Unwatch("a.*"))
    tree.run()
    first.say(Watch("b.*"))
    tree.run()
    assert first.of(TopicsFound)[-1].pattern == "b.*"
