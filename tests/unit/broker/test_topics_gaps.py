"""Numbers that never come do not keep what follows them for ever (BRK-V1, BRK-V2)."""

from __future__ import annotations

from typing import Any

import pytest

from ordercast.broker.place import SavedBroker
from ordercast.broker.roster_book import adopter
from ordercast.broker.topics.gaps import Gaps
from ordercast.broker.topics.orphans import KeptEntries
from ordercast.broker.topics.topics import Topics
from ordercast.core.ids import NodeId, Origin
from ordercast.core.messages import Guarantee
from ordercast.pubsub.client_packets import Entries, Refused, StableUpdate
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Received
from tests.support.topics_tree import Somebody, T, Tree


def with_a_gap(tree: Tree) -> tuple[Somebody, Somebody]:
    """w published 1 on a locked key and 2 on a free one, and died with its edge: only 2 is there."""
    y, z, w = tree.member("y", "b0"), tree.member("z", "b2"), tree.member("w", "b1")
    tree.freeze("b2", "b0")
    y.publish("a", guarantee="total")
    tree.run()
    w.publish("a")
    w.publish("b")
    tree.run()
    tree.crash("b1")
    tree.thaw("b2", "b0")
    tree.run()
    return y, z


def settle(tree: Tree, *clients: Somebody) -> None:
    for _ in range(4):
        for client in clients:
            client.report()
        tree.run()
        tree.pass_time(200)


def test_what_follows_a_lost_number_of_a_fenced_session_becomes_stable() -> None:
    tree = Tree({"b1": "b0", "b2": "b0"})
    y, z = with_a_gap(tree)
    settle(tree, y, z)
    assert tree.log_of("b0") == tree.log_of("b2") == ["w2"]
    tree.pass_time(25_000)
    settle(tree, y, z)

    assert tree.log_of("b0") == tree.log_of("b2") == []
    assert y.of(StableUpdate)[-1].base["w"] == 2
    assert [e.is_void for e in y.history if e.id == "w/t#1"] == [True]
    assert tree.wires("b0").counts["voids"] == 1


def test_without_voids_it_stays_for_ever() -> None:
    class Open(Gaps):
        def close(self, node: Any) -> None:
            pass

    class NoVoids(Topics):
        gaps_type = Open

    class NoVoidsTree(Tree):
        topics_type = NoVoids

    tree = NoVoidsTree({"b1": "b0", "b2": "b0"})
    y, z = with_a_gap(tree)
    tree.pass_time(25_000)
    settle(tree, y, z)
    assert tree.log_of("b0") == ["w2"]


def test_a_gap_stays_while_a_member_is_away_that_may_have_the_number() -> None:
    tree = Tree({"b1": "b0", "b2": "b0"})
    y, z = with_a_gap(tree)
    settle(tree, y, z)
    tree.crash("b2")  # What z got from it may be nowhere else.
    tree.brokers["b0"].authority._fence(Origin("w"))
    settle(tree, y)
    assert tree.brokers["b0"].book.fenced(Origin("w"))
    assert "voids" not in tree.wires("b0").counts
    real = Publication(Origin("w"), 1, T, b"real", Guarantee.CAUSAL, ("a",))
    z.history.append(real)
    z.have.add(Origin("w"), 1)
    tree.move("z", "b0")
    z.subscribe()
    settle(tree, y, z)

    assert real in y.history
    assert tree.log_of("b0") == []


def test_a_gap_stays_while_orphans_are_published_and_a_late_one_finds_it_closed() -> None:
    real = Publication(Origin("w"), 1, T, b"real", Guarantee.CAUSAL, ("a",))
    for first in (True, False):
        tree = Tree({"b1": "b0", "b2": "b0"})
        y, z = with_a_gap(tree)
        if not first:
            tree.pass_time(25_000)
            settle(tree, y, z)
        tree.start("b1", life=1, saved=SavedBroker(entries={T: [real]}))
        tree.attach("b1", "b0")
        if first:
            while adopter(NodeId("b1"), 1, 0, T) not in tree.brokers["b0"].book.live(T):
                assert tree.carry("b1", "b0", 1) + tree.carry("b0", "b1", 1)
            tree.brokers["b0"].news.learn({}, {Origin("w"): 1 << 62})
            tree.brokers["b0"].turn_end()
        settle(tree, y, z)
        tree.pass_time(25_000)
        settle(tree, y, z)
        assert (real in y.history, real in z.history) == (first, first)
        assert tree.log_of("b0") == []


@pytest.mark.parametrize("kept", [True, False])
def test_where_partitions_are_possible_a_gap_stays_until_no_broker_can_bring_the_number(kept: bool) -> None:
    """The broker that is away may have what was called safe: it brings it, or the round over all brokers shows it."""
    real = Publication(Origin("w"), 1, T, b"real", Guarantee.CAUSAL, ("a",))
    tree = Tree({"b1": "b0", "b2": "b0"}, partitions="primary", fold_ms=100, member_timeout_ms=1000)
    y, z = with_a_gap(tree)
    settle(tree, y, z)
    tree.pass_time(25_000)
    settle(tree, y, z)
    assert tree.brokers["b0"].book.fenced(Origin("w"))
    assert tree.log_of("b0") == tree.log_of("b2") == ["w2"]

    tree.start("b1", life=1, saved=SavedBroker(entries={T: [real]} if kept else {}))
    tree.attach("b1", "b0")
    for _ in range(4):
        settle(tree, y, z)
    assert (real in y.history, real in z.history) == (kept, kept)
    assert tree.wires("b0").counts["voids"] == (0 if kept else 1)
    assert tree.log_of("b0") == tree.log_of("b2") == []


def _quiet(tree: Tree) -> None:
    """Time passes in which no member has anything new to report."""
    for _ in range(10):
        tree.run()
        tree.pass_time(200)


def test_a_gap_that_comes_after_the_last_report_is_closed_too() -> None:
    """Reports end before the gap, so nobody ever reports anything new on account of what lies behind it."""
    tree = Tree({"b1": "b0", "b2": "b0"}, partitions="primary", fold_ms=100, member_timeout_ms=1000)
    y, z = tree.member("y", "b0"), tree.member("z", "b1")
    tree.brokers["b0"].news.learn({}, {Origin("w"): 1 << 62})
    settle(tree, y, z)
    late = Publication(Origin("w"), 2, T, b"late", Guarantee.CAUSAL, ("a",))
    tree.brokers["b1"].send_up(Entries(T, (late,)))  # It was under way when its session was fenced.
    _quiet(tree)

    assert [(e.id, e.is_void) for e in y.history] == [("w/t#2", False), ("w/t#1", True)]


def test_a_gap_that_one_round_leaves_open_is_closed_by_a_later_one() -> None:
    """What a broker keeps of the session until its parent says that it is safe elsewhere goes without any vote."""
    tree = Tree({"b1": "b0", "b2": "b0"}, partitions="primary", fold_ms=100, member_timeout_ms=1000)
    y, z = tree.member("y", "b0"), tree.member("z", "b1")
    tree.brokers["b0"].news.learn({}, {Origin("w"): 1 << 62})
    settle(tree, y, z)
    late = Publication(Origin("w"), 2, T, b"late", Guarantee.CAUSAL, ("a",))
    tree.brokers["b2"].orphans.closing[T] = {1: KeptEntries([late], Received())}
    tree.brokers["b1"].send_up(Entries(T, (late,)))
    _quiet(tree)
    assert "voids" not in tree.wires("b0").counts

    tree.brokers["b2"].orphans.closed(T, 1)
    _quiet(tree)
    assert tree.wires("b0").counts["voids"] == 1
    rounds = tree.brokers["b0"].folding.rounds
    _quiet(tree)
    assert tree.brokers["b0"].folding.rounds == rounds


def test_without_the_round_what_a_cut_off_broker_called_safe_would_be_lost() -> None:
    class Hasty(Gaps):
        def close(self, node: Any) -> None:
            if self._closable(node):
                self._fill(node, ())

    class HastyTree(Tree):
        topics_type = type("HastyTopics", (Topics,), {"gaps_type": Hasty})

    real = Publication(Origin("w"), 1, T, b"real", Guarantee.CAUSAL, ("a",))
    tree = HastyTree({"b1": "b0", "b2": "b0"}, partitions="primary", fold_ms=100, member_timeout_ms=1000)
    y, z = with_a_gap(tree)
    tree.pass_time(25_000)
    settle(tree, y, z)
    tree.start("b1", life=1, saved=SavedBroker(entries={T: [real]}))
    tree.attach("b1", "b0")
    settle(tree, y, z)
    assert real not in y.history


def test_a_fenced_session_has_nothing_held() -> None:
    """BRK-M8: nobody was told that it is safe."""
    tree = Tree({"b1": "b0", "b2": "b0"})
    y, _, w = tree.member("y", "b0"), tree.member("z", "b2"), tree.member("w", "b1")
    tree.member("v", "b1")
    tree.freeze("b2", "b0")
    y.publish("a", guarantee="total")
    tree.run()
    w.publish("a")
    tree.run()
    assert len(tree.brokers["b1"].nodes[T].hold) == 1
    tree.hang_up("w", gone=True)
    tree.run()
    assert len(tree.brokers["b1"].nodes[T].hold) == 0
    tree.thaw("b2", "b0")
    tree.run()
    assert y.delivered == ["y1"]


def test_a_refused_publication_takes_none_of_the_later_ones_with_it() -> None:
    tree = Tree({"b1": "b0"})
    x, y = tree.member("x", "b1"), tree.member("y", "b0")
    x.publish("a", "a")
    x.publish("b")
    tree.run()

    assert [packet.number for packet in x.of(Refused)] == [1]
    assert [(e.number, e.is_void) for e in y.history] == [(1, True), (2, False)]
    settle(tree, x, y)
    assert tree.log_of("b0") == tree.log_of("b1") == []
    x.say(Entries(T, (Publication(Origin("y"), 1, T, b""),)))
    tree.run()
    assert [e.id for e in y.history][2:] == []
