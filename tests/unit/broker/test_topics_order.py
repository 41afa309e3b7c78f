"""Order of publications at brokers that are driven by hand: BRK-P1 to BRK-P5, BRK-L1 to BRK-L6, and F-TOT."""

from __future__ import annotations

import pytest

from ordercast.core.ids import Origin
from ordercast.core.messages import Guarantee
from ordercast.core.process import Rights
from ordercast.pubsub.client_packets import Entries, Refused
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.topic_packets import Prepare, TotalAck
from tests.support.topics_tree import T, Tree

E, F, C, TOTAL = Guarantee.EVENTUAL, Guarantee.FIFO, Guarantee.CAUSAL, Guarantee.TOTAL


def publication(origin: str, number: int, guarantee: Guarantee, *keys: str) -> Publication:
    return Publication(Origin(origin), number, T, b"", guarantee, keys)


@pytest.mark.parametrize(
    ("scope", "guarantee", "keys", "held", "pending", "waits"),
    [
        ("key", C, ("a",), [], [], False),
        ("key", C, ("a",), [("x", C, "a")], [], True),
        ("key", C, ("a",), [("x", C, "b")], [], False),
        ("key", E, ("a",), [], [("y", "a")], True),
        ("key", F, ("a",), [], [("y", "a")], True),
        ("key", C, ("a", "b"), [], [("y", "b")], True),
        ("key", C, ("a",), [], [("x", "b")], False),
        ("key", TOTAL, ("a",), [], [("y", "a")], False),
        ("key", TOTAL, ("a",), [("x", C, "a")], [], True),
        ("key", TOTAL, ("a",), [("x", C, "b")], [("x", "c")], False),
        ("session", C, ("a",), [("x", C, "b")], [], True),
        ("session", F, ("a",), [("x", TOTAL, "b")], [], True),
        ("session", TOTAL, ("a",), [("x", C, "b")], [], True),
        ("session", C, ("a",), [], [("x", "b")], True),
        ("session", F, ("a",), [], [("x", "b")], True),
        ("session", E, ("a",), [], [("x", "b")], True),
        ("session", C, ("a",), [], [("y", "b")], False),
        ("session", TOTAL, ("a",), [], [("x", "b"), ("y", "a")], False),
    ],
)
def test_what_is_held_and_what_is_not(
    scope: str, guarantee: Guarantee, keys: tuple[str, ...], held: list[tuple[str, Guarantee, str]],
    pending: list[tuple[str, str]], waits: bool,
) -> None:  # fmt: skip
    """BRK-P2, for both scopes; the client that publishes is x."""
    tree = Tree({}, order_scope=scope)
    broker = tree.brokers["b0"]
    node = broker.channels.node(T)
    for i, (origin, key) in enumerate(pending):
        node.add_pending(publication(origin, 50 + i, TOTAL, key))
    for i, (origin, kind, key) in enumerate(held):
        node.hold.add(publication(origin, 10 + i, kind, key))

    assert broker.ordering.must_hold(node, publication("x", 99, guarantee, *keys)) is waits


def test_a_lock_never_stops_what_another_broker_has_admitted() -> None:
    """F-TOT-1: y's E is at its own broker before the lock, x's total M is not: E comes first everywhere."""
    tree = Tree({"b1": "b0", "b4": "b1", "b5": "b1"})
    x, y = tree.member("x", "b4"), tree.member("y", "b5")
    y.publish("k")
    tree.carry("y", "b5")
    x.publish("k", guarantee="total")
    tree.carry("x", "b4")
    tree.carry("b4", "b1")
    assert "k" in tree.brokers["b1"].nodes[T].pending.locks
    tree.run()

    assert x.delivered == y.delivered == ["y1", "x1"]


def test_a_new_publication_of_a_local_client_waits_for_the_lock() -> None:
    # BRK-P1, BRK-P5
    tree = Tree({"b1": "b0", "b2": "b0"})
    x, y = tree.member("x", "b1"), tree.member("y", "b2")
    tree.freeze("b1", "b0")
    x.publish("k", guarantee="total")
    tree.run()
    y.publish("k", guarantee="total")
    tree.run()
    y.publish("k")
    y.publish("free")
    tree.run()
    assert y.delivered == ["y3"]
    tree.thaw("b1", "b0")
    tree.run()

    assert x.delivered == y.delivered
    assert y.delivered.index("y1") < y.delivered.index("y2")


@pytest.mark.parametrize("keys", [(("k",), ("k",)), (("a", "b"), ("b", "a"))])
def test_crossing_totals_never_block_each_other(keys: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
    """F-TOT-2 (one key from both ends), F-TOT-3 (two keys in opposite order)."""
    tree = Tree({"b1": "b0", "b3": "b0", "b4": "b1", "b5": "b1", "b7": "b3"})
    x, y, z = tree.member("x", "b4"), tree.member("y", "b7"), tree.member("z", "b5")
    for i in range(6):
        x.publish(*keys[i % 2], guarantee="total")
        y.publish(*keys[(i + 1) % 2], guarantee="total")
        tree.carry("x", "b4")
        tree.carry("y", "b7")
    tree.run()

    assert x.delivered == y.delivered == z.delivered
    assert len(x.delivered) == 12


def test_two_reports_of_one_child_are_one_report() -> None:
    """F-TOT-4: coverage is a set of members, replaced by each report, not a number of acknowledgements."""
    tree = Tree({"b1": "b0", "b2": "b0"})
    x, y = tree.member("x", "b1"), tree.member("y", "b2")
    tree.freeze("b2", "b0")
    x.publish("k", guarantee="total")
    tree.run()
    (ack,) = tree.sent(TotalAck, "b1")
    link = next(link for link, name in tree.overlays["b0"].children.items() if name == "b1")
    for _ in range(3):
        tree.brokers["b0"].receive(link, ack)
        tree.brokers["b0"].turn_end()
    assert x.delivered == []
    tree.thaw("b2", "b0")
    tree.run()

    assert x.delivered == y.delivered == ["x1"]


def test_two_pending_totals_of_one_key_are_told_apart() -> None:
    # F-TOT-5
    tree = Tree({"b1": "b0", "b2": "b0"})
    x, y = tree.member("x", "b1"), tree.member("y", "b2")
    x.publish("k", guarantee="total")
    y.publish("k", guarantee="total")
    tree.carry("x", "b1")
    tree.carry("y", "b2")
    assert tree.brokers["b1"].nodes[T].pending.locks == {"k": 1}
    tree.run()

    assert x.delivered == y.delivered
    assert sorted(x.delivered) == ["x1", "y1"]
    assert tree.brokers["b1"].nodes[T].pending.locks == {}


def test_a_commit_waits_for_a_member_whose_branch_is_cut_off() -> None:
    """F-TOT-6: a's E, delivered only at its stranded broker, comes before the total for everybody."""
    tree = Tree({"b1": "b0", "b3": "b1", "b2": "b0"})
    a, c = tree.member("a", "b3"), tree.member("c", "b2")
    tree.freeze("b3", "b1")
    a.publish("k")
    tree.run()
    assert a.delivered == ["a1"]
    tree.crash("b1")
    c.publish("k", guarantee="total")
    tree.run()
    assert c.delivered == []
    tree.attach("b3", "b0")
    tree.run()

    assert a.delivered == c.delivered == ["a1", "c1"]


def test_a_new_root_keeps_the_commits_that_somebody_has_seen() -> None:
    """F-TOT-7: the old root's commit reached one child only."""
    tree = Tree({"b1": "b0", "b2": "b0"})
    x, y = tree.member("x", "b1"), tree.member("y", "b2")
    tree.freeze("b0", "b2")
    x.publish("k", guarantee="total")
    tree.carry("x", "b1")
    tree.carry("b1", "b0")
    tree.carry("b0", "b2", 1)
    tree.carry("b2", "b0")
    tree.freeze("b2", "b0")
    y.publish("k", guarantee="total")
    tree.run()
    assert x.delivered == ["x1"]
    assert y.delivered == []
    tree.crash("b0")
    tree.crown("b2", 2)
    tree.run()
    assert y.delivered == []
    tree.attach("b1", "b2")
    tree.run()

    assert x.delivered == y.delivered == ["x1", "y1"]


def test_a_total_that_is_pending_at_a_survivor_completes_without_its_publisher() -> None:
    # F-TOT-12
    tree = Tree({"b1": "b0", "b2": "b0"})
    tree.member("x", "b1").publish("k", guarantee="total")
    y = tree.member("y", "b2")
    tree.freeze("b2", "b0")
    tree.clients["x"].publish("k", guarantee="total")
    tree.run()
    tree.crash("b1")
    tree.thaw("b2", "b0")
    tree.run()
    assert y.delivered == ["x1"]
    tree.pass_time(41_000)

    assert y.delivered == ["x1", "x2"]
    assert tree.brokers["b0"].book.live(T) == {"y"}


def test_totals_of_a_client_commit_in_its_order_and_all_in_one_order() -> None:
    """BRK-L4, BRK-G5: also on different keys."""
    tree = Tree({"b1": "b0", "b2": "b0"}, order_scope="session")
    x, y = tree.member("x", "b1"), tree.member("y", "b2")
    for i in range(5):
        x.publish(f"k{i}", guarantee="total")
        y.publish(f"q{i}", guarantee="total")
        tree.carry("x", "b1")
        tree.carry("b1", "b0", 1)
        tree.carry("y", "b2")
    tree.run()

    assert x.delivered == y.delivered
    assert [d for d in x.delivered if d[0] == "x"] == [f"x{i + 1}" for i in range(5)]


@pytest.mark.parametrize("guarantee", ["eventual", "fifo", "causal"])
def test_a_session_keeps_its_place_behind_its_own_total(guarantee: str) -> None:
    """BRK-P2, session: whatever the keys. Somebody may publish after an eventual one, so it waits too."""
    tree = Tree({"b1": "b0", "b2": "b0"}, order_scope="session")
    x, y = tree.member("x", "b1"), tree.member("y", "b2")
    tree.freeze("b2", "b0")
    x.publish("a", guarantee="total")
    x.publish("b", guarantee=guarantee)
    tree.run()
    assert x.delivered == []
    tree.thaw("b2", "b0")
    tree.run()

    assert x.delivered == y.delivered == ["x1", "x2"]


def test_a_batch_of_plain_publications_travels_as_the_packet_that_came() -> None:
    tree = Tree({"b1": "b0", "b2": "b1"})
    x, y = tree.member("x", "b0"), tree.member("y", "b2")
    packet = Entries(T, tuple(publication("x", i, C, "k") for i in range(1, 101)))
    x.say(packet)
    tree.run()

    assert len(y.delivered) == 100
    assert all(sent is packet for sent in tree.sent(Entries))


def test_prepares_acknowledgements_and_commits_are_batched() -> None:
    tree = Tree({"b1": "b0"})
    x = tree.member("x", "b1")
    x.say(Entries(T, tuple(publication("x", i, TOTAL, f"k{i}") for i in range(1, 51))))
    tree.run()

    assert len(x.delivered) == 50
    assert [len(packet.entries) for packet in tree.sent(Prepare)] == [50]
    assert [len(packet.ids) for packet in tree.sent(TotalAck)] == [50]
    assert [len(packet.entries) for packet in tree.sent(Entries, "b0")] == [50]


def test_what_cannot_be_admitted_is_refused_with_a_reason() -> None:
    tree = Tree({})
    x = tree.client("x", "b0", rights=Rights(publish=("other.>",), subscribe=(">",)))
    x.subscribe()
    tree.run()
    x.publish("k")
    y = tree.member("y", "b0")
    y.say(Entries(T, (publication("y", 1, C, "a", "a"), publication("z", 1, C, "a"), publication("y", 7, C, "a"))))
    tree.run()

    assert "no right to publish" in x.of(Refused)[0].reason
    assert [refused.number for refused in y.of(Refused)] == [1, 1, 7]
    assert "repeated" in y.of(Refused)[0].reason
    assert "the next one is 2" in y.of(Refused)[2].reason
    assert [entry.is_void for entry in y.history] == [True]


def test_the_same_publication_twice_is_one() -> None:
    # F-CLI-2, BRK-P1.2
    tree = Tree({"b1": "b0"})
    x = tree.member("x", "b1")
    for guarantee in ("causal", "total"):
        first = x.publish("k", guarantee=guarantee)
        x.say(Entries(T, (first,)))
    tree.run()

    assert x.delivered == ["x1", "x2"]


def test_a_publication_says_where_it_is_and_what_it_waits_for() -> None:
    tree = Tree({"b1": "b0", "b2": "b0"})
    x = tree.member("x", "b1")
    tree.member("y", "b2")
    x.publish("free")
    tree.run()
    tree.freeze("b2", "b0")
    x.publish("k", guarantee="total")
    tree.run()
    x.publish("k")
    tree.run()

    assert tree.brokers["b1"].explain("x/t#1")["state"] == "logged"
    pending = tree.brokers["b0"].explain("x/t#2")
    assert (pending["state"], pending["missing"], pending["silent_children"]) == ("pending", ["y"], ["b2"])
    assert tree.brokers["b1"].explain("x/t#3")["waits_for"] == ["x/t#2"]
    assert tree.brokers["b1"].explain("x/t#9")["state"] == "unknown"
