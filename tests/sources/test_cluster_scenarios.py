"""The scenarios of causal cluster consistency, step by step; ids as in docs/protocols/cluster.md."""

from __future__ import annotations

from ordercast.protocols.cluster.packets import Recover, Recovered, Update
from tests.support.cluster_lab import CLUSTER, OneMember, asked_range, event, value

A1, A2, A3 = event("a1", "1 0 0"), event("a2", "2 0 0"), event("a3", "3 0 0")
B1, C1 = event("b1", "1 1 0"), event("c1", "1 1 1")


def test_in_order_nothing_waits_and_nothing_is_asked_for() -> None:
    """S1."""
    one = OneMember()
    assert one.gossip(A1) == ["a1"]
    assert one.gossip(A2, B1) == ["a2", "b1"]
    one.until(20)
    assert one.asked() == []
    assert one.delivered == ["a1", "a2", "b1"]


def test_a_gap_is_asked_for_after_the_first_patience_and_filled_by_the_answer() -> None:
    """S2."""
    one = OneMember()
    assert one.gossip(A2) == []
    one.until(5.9)
    assert one.asked() == []
    one.until(6)
    assert one.asked() == [asked_range("a", "0", "1")]
    one.until(7)
    assert one.recovered(A1) == ["a1", "a2"]


def test_without_an_answer_the_wait_ends_and_what_comes_later_is_dropped_but_kept_for_others() -> None:
    """S3."""
    one = OneMember()
    one.gossip(A2)
    assert one.until(9.9) == []
    assert one.until(10) == ["a2"]
    assert one.wires.counts["ranges_skipped"] == 1
    one.until(11)
    assert one.gossip(A1) == []
    assert one.delivered == ["a2"]
    one.told(Recovered)
    one.cast(Recover(CLUSTER, (asked_range("a", "0", "2"),)))
    assert one.told(Recovered) == [("other", Recovered(CLUSTER, (A1, A2)))]


def test_two_that_wait_for_the_same_gap_ask_once() -> None:
    """S4, C8."""
    one = OneMember()
    one.gossip(A2)
    one.until(1)
    one.gossip(event("b1", "1 1 0"))
    one.until(9)
    assert one.asked() == [asked_range("a", "0", "1")]


def test_a_chain_that_comes_backwards_is_delivered_forwards() -> None:
    """S5."""
    one = OneMember()
    assert one.gossip(C1) == []
    assert one.gossip(B1) == []
    assert one.gossip(A1) == ["a1", "b1", "c1"]


def test_concurrent_updates_may_come_in_any_order() -> None:
    """S6."""
    alone = event("b1", "0 1 0")
    assert OneMember().gossip(A1, alone) == ["a1", "b1"]
    assert OneMember().gossip(alone, A1) == ["b1", "a1"]


def test_two_own_updates_of_one_round_have_different_numbers_and_peers_deliver_them_in_order() -> None:
    """S7, C12."""
    one = OneMember(coordinators=("me",))
    one.publish("first", number=1)
    one.publish("second", number=2)
    one.until(1)
    events = one.told(Update)[0][1].events
    assert [made.message.payload for made in events] == [b"first", b"second"]
    assert events[1].value == events[0].value + 1
    peer = OneMember()
    assert peer.gossip(events[1]) == []
    assert peer.gossip(events[0]) == ["first", "second"]


def test_an_observer_without_order_delivers_as_it_comes_and_never_twice() -> None:
    """S8, C13: a history of one place forgets at once, the window does not."""
    one = OneMember(observers=("me",), history=1, rounds=1)
    assert one.gossip(C1) == ["c1"]
    assert one.gossip(B1) == ["b1"]
    one.until(3)
    assert one.gossip(C1, B1) == []
    assert one.gossip(A1) == ["a1"]
    assert one.asked() == []


def test_the_first_update_of_a_new_owner_waits_for_the_last_one_of_the_owner_before() -> None:
    """S9."""
    first = event("a1@2", "1@2 0 0", prev="3")
    one = OneMember()
    one.gossip(A1, A2)
    assert one.gossip(first) == []
    one.until(6)
    assert one.asked() == [asked_range("a", "2", "3")]
    assert one.recovered(A3) == ["a3", "a1@2"]


def test_the_last_update_before_a_silence_is_noticed_by_a_digest() -> None:
    """S10, C5."""
    one = OneMember(digest_every=1)
    alone = event("b1", "0 1 0")
    one.gossip(digest="0 1 0")
    one.until(5.9)
    assert one.asked() == []
    one.until(7.1)
    assert one.asked() == [asked_range("b", "0", "1")]
    assert one.recovered(alone) == ["b1"]


def test_a_digest_whose_update_comes_in_time_asks_for_nothing() -> None:
    one = OneMember(digest_every=1)
    one.gossip(digest="1 0 0")
    one.gossip(A1)
    one.until(12)
    assert one.asked() == []


def test_what_a_digest_told_is_asked_for_again_if_nobody_answered() -> None:
    one = OneMember(digest_every=1)
    one.gossip(digest="1 0 0")
    one.until(8)
    assert one.asked() == [asked_range("a", "0", "1")]
    one.gossip(digest="1 0 0")
    one.until(16)
    assert one.asked() == [asked_range("a", "0", "1")]


def test_a_buffer_of_three_keeps_an_update_as_long_as_two_others_come() -> None:
    """S11: lost exactly when as many others come as there are places."""
    one = OneMember(recovery_buffer=3)
    one.gossip(A1, A2, A3)
    one.recovered(A1)  # A second insertion shortens nobody's life (C9).
    kept = one.member.delivery.buffer
    assert kept.inside([asked_range("a", "0", "3")]) == [A1, A2, A3]
    one.gossip(event("a4", "4 0 0"))
    assert A1.key not in kept.events
    assert A2.key in kept.events


def test_by_age_the_oldest_update_is_replaced_not_the_one_that_came_first() -> None:
    one = OneMember(recovery_buffer=2, replacement="age")
    one.gossip(A2, age=0)
    one.gossip(A1, age=5)
    one.gossip(A3, age=0)
    assert set(one.member.delivery.buffer.events) == {A2.key, A3.key}


def test_a_value_is_its_epoch_above_its_number() -> None:
    assert value("1@2") > value("9") > value("0") == 0
