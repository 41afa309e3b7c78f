"""Budgets in bytes (BRK-ST4): publishers pause, who goes on regardless is cut off, who takes nothing is fenced."""

from __future__ import annotations

import pytest

from ordercast.core.errors import PeerError
from ordercast.core.ids import Topic
from ordercast.pubsub.client_packets import FENCED, Denied, Flow, Live, StableReport, StableUpdate, Watch
from ordercast.pubsub.publications import Publication
from tests.support.topics_tree import Somebody, T, Tree

LARGE = bytes(1000)


def pour(client: Somebody, count: int, guarantee: str = "causal") -> None:
    for _ in range(count):
        client.publish("k", payload=LARGE, guarantee=guarantee)
    client.tree.run()


@pytest.mark.parametrize("guarantee", ["causal", "total"])
def test_publishers_pause_when_a_topic_holds_too_many_bytes_and_go_on_when_it_does_not(guarantee: str) -> None:
    tree = Tree({"b1": "b0"}, buffer_soft_bytes=5000)
    x, y = tree.member("x", "b0"), tree.member("y", "b1")
    pour(x, 3, guarantee)
    assert x.of(Flow) == []
    pour(x, 1, guarantee)
    assert x.of(Flow) == y.of(Flow) == [Flow(T, open=False)]
    assert tree.wires("b0").counts["paused_by_buffer_soft_bytes"] == 1
    for client in (x, y):
        client.report()
    tree.run()
    tree.pass_time(500)
    assert x.of(Flow)[-1] == Flow(T, open=True)
    assert tree.brokers["b0"].totals()["bytes"] == 0


def test_publishers_go_on_only_when_half_of_the_room_is_free() -> None:
    tree = Tree({}, buffer_soft_bytes=5000)
    x = tree.member("x", "b0")
    pour(x, 4)
    for taken, told in ((1, [False]), (2, [False]), (3, [False, True])):
        x.say(StableReport(T, {x.origin: taken}))
        tree.run()
        tree.pass_time(500)
        assert [flow.open for flow in x.of(Flow)] == told


@pytest.mark.parametrize(("payload", "after_ms"), [(bytes(1 << 20), 5), (b"", 50)])
def test_a_topic_that_holds_much_is_voted_on_ten_times_as_often(payload: bytes, after_ms: float) -> None:
    """BRK-ST1: what is stable is forgotten, and a publisher goes on in the memory that it took."""
    tree = Tree({}, stability_ms=100)
    x = tree.member("x", "b0")
    tree.pass_time(500)
    for _ in range(2):
        x.publish("k", payload=payload)
        tree.run()
        x.report()
        tree.run()
    assert x.of(StableUpdate)[-1].base == {x.origin: 1}
    tree.pass_time(after_ms - 1)
    assert x.of(StableUpdate)[-1].base == {x.origin: 1}
    tree.pass_time(1)
    assert x.of(StableUpdate)[-1].base == {x.origin: 2}


def test_what_is_held_for_a_locked_key_weighs_too() -> None:
    tree = Tree({"b1": "b0"}, buffer_soft_bytes=5000)
    x = tree.member("x", "b1")
    tree.freeze("b0", "b1")
    x.publish("k", guarantee="total")
    pour(x, 5)
    assert tree.brokers["b1"].totals()["held"] == 5
    assert x.of(Flow) == [Flow(T, open=False)]


def test_whoever_is_granted_is_told_to_wait_before_it_may_publish() -> None:
    """It would send its whole outbox otherwise."""
    tree = Tree({}, buffer_soft_bytes=5000)
    pour(tree.member("x", "b0"), 5)
    z = tree.member("z", "b0")
    told = [type(packet) for packet in z.told]
    assert told.index(Flow) < told.index(Live)


def test_a_publisher_that_goes_on_regardless_is_cut_off_by_the_name_of_the_limit() -> None:
    tree = Tree({}, buffer_soft_bytes=5000)
    x = tree.member("x", "b0")
    pour(x, 16)
    with pytest.raises(PeerError, match=r"told to wait: 20096 bytes are held, 4 times 5000 may be \(buffer_soft_bytes"):
        pour(x, 1)
    assert tree.brokers["b0"].totals()["log"] == 16
    assert tree.wires("b0").counts["publishers_cut_off"] == 1


def test_when_all_topics_hold_too_much_the_heaviest_pause_until_they_do_not() -> None:
    tree = Tree({}, memory_soft_bytes=6000)
    x = tree.member("x", "b0")
    light = tree.brokers["b0"].channels.node(Topic("light"))
    light.have.add(x.origin, 1)
    light.append([Publication(x.origin, 1, light.topic, b"")])
    tree.brokers["b0"].touch(light)
    pour(x, 6)
    tree.brokers["b0"].touch(light)
    tree.brokers["b0"].turn_end()
    assert x.of(Flow) == [Flow(T, open=False)]
    assert light.flow_open
    assert tree.wires("b0").counts["paused_by_memory_soft_bytes"] == 1
    x.report()
    tree.run()
    tree.pass_time(500)
    assert x.of(Flow)[-1] == Flow(T, open=True)


def test_a_topic_that_paused_because_of_another_goes_on_when_that_one_is_empty() -> None:
    """Nothing happens on the topic itself then."""
    tree = Tree({}, memory_soft_bytes=6000)
    x = tree.member("x", "b0")
    other = tree.brokers["b0"].channels.node(Topic("other"))
    for number in range(1, 5):
        other.have.add(x.origin, number)
    other.append([Publication(x.origin, number, other.topic, LARGE) for number in range(1, 5)])
    tree.brokers["b0"].touch(other)
    pour(x, 3)
    assert x.of(Flow) == [Flow(T, open=False)]
    other.clear()
    tree.brokers["b0"].touch(other)
    tree.brokers["b0"].turn_end()
    tree.run()
    assert x.of(Flow)[-1] == Flow(T, open=True)


def test_a_publisher_that_goes_on_although_all_topics_hold_too_much_is_cut_off() -> None:
    tree = Tree({}, memory_soft_bytes=2000)
    x = tree.member("x", "b0")
    with pytest.raises(PeerError, match=r"4 times 2000 may be \(memory_soft_bytes"):
        pour(x, 8)
    assert tree.brokers["b0"].totals()["log"] == 7


def test_a_member_that_takes_nothing_for_long_is_fenced_and_the_others_go_on() -> None:
    tree = Tree({"b1": "b0"}, buffer_soft_bytes=5000, slow_member_ms=4000.0)
    x, y, deaf = tree.member("x", "b0"), tree.member("y", "b1"), tree.member("deaf", "b1")
    pour(x, 5)
    for _ in range(3):
        tree.pass_time(1000)
        for client in (x, y):
            client.report()
        tree.run()
    assert x.of(Flow) == [Flow(T, open=False)]
    assert deaf.of(Denied) == []
    tree.pass_time(3000)
    assert deaf.of(Denied) == [Denied(T, FENCED)]
    assert tree.wires("b1").counts["slow_members_fenced"] >= 1
    tree.pass_time(500)
    assert x.of(Flow)[-1] == Flow(T, open=True)
    assert y.of(Denied) == x.of(Denied) == []


def test_a_follower_that_publishes_and_never_receives_is_fenced_like_one_that_takes_nothing() -> None:
    """Everybody waits for it to receive what its filter takes in (BRK-W1)."""
    tree = Tree({}, buffer_soft_bytes=5000, slow_member_ms=1000.0)
    w = tree.client("w", "b0")
    w.say(Watch("*"))
    tree.run()
    w.subscribe(receives=False)
    x = tree.member("x", "b0")
    pour(x, 5)
    x.report()
    tree.pass_time(3000)
    assert Denied(T, FENCED) in w.of(Denied)
    assert x.of(Flow)[-1] == Flow(T, open=True)


def test_a_slow_member_that_gets_on_is_waited_for() -> None:
    tree = Tree({}, buffer_soft_bytes=50_000, slow_member_ms=2000.0)
    x, slow = tree.member("x", "b0", receives=False), tree.member("slow", "b0")
    pour(x, 50)
    for taken in range(1, 11):
        slow.say(StableReport(T, {x.origin: taken}))
        tree.run()
        tree.pass_time(1500)
    assert slow.of(Denied) == []
    tree.pass_time(5000)
    assert slow.of(Denied) == [Denied(T, FENCED)]


def test_to_say_less_than_before_is_not_to_get_on() -> None:
    tree = Tree({}, buffer_soft_bytes=50_000, slow_member_ms=2000.0)
    x, slow = tree.member("x", "b0", receives=False), tree.member("slow", "b0")
    pour(x, 50)
    for turn in range(4):
        slow.say(StableReport(T, {x.origin: 5 - turn}))
        tree.run()
        tree.pass_time(1500)
    assert slow.of(Denied) == [Denied(T, FENCED)]


def test_a_member_that_lacks_a_little_of_a_topic_with_room_is_left_alone() -> None:
    """Its topic was crowded once, and it has taken nothing since then."""
    tree = Tree({}, buffer_soft_bytes=5000, slow_member_ms=1000.0)
    x, slow = tree.member("x", "b0", receives=False), tree.member("slow", "b0")
    pour(x, 4)
    slow.say(StableReport(T, {x.origin: 3}))
    tree.run()
    tree.pass_time(10_000)
    assert tree.log_of("b0") == ["x4"]
    assert slow.of(Denied) == []


def test_a_member_may_hold_its_topic_up_for_good_where_that_is_wanted() -> None:
    tree = Tree({}, buffer_soft_bytes=5000, slow_member_ms=1000.0, slow_member="wait")
    x, deaf = tree.member("x", "b0", receives=False), tree.member("deaf", "b0")
    pour(x, 5)
    tree.pass_time(20_000)
    assert deaf.of(Denied) == []
    assert x.of(Flow) == [Flow(T, open=False)]
