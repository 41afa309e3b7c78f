"""Members at brokers that are driven by hand: attach, grant, join, fence, leave, watch (BRK-M1 to BRK-M11)."""

from __future__ import annotations

import pytest

from ordercast.core.errors import PeerError
from ordercast.core.ids import Origin, Topic
from ordercast.core.process import Rights
from ordercast.pubsub.client_packets import (
    Denied,
    Entries,
    Granted,
    Left,
    Live,
    Resume,
    Subscribe,
    Unsubscribe,
)
from ordercast.pubsub.settings import BrokerSettings
from ordercast.pubsub.topic_packets import Absent, AttachGranted, RosterSync
from tests.support.overlay_lab import Lab
from tests.support.topics_tree import T, Tree


def test_a_member_is_granted_then_gets_what_it_lacks_then_is_live() -> None:
    # BRK-M6
    tree = Tree({"b1": "b0"})
    x = tree.member("x", "b0")
    for _ in range(3):
        x.publish("k")
    tree.run()
    y = tree.member("y", "b1")

    kinds = [type(packet) for packet in y.told if type(packet) in (Granted, Entries, Live)]
    assert kinds == [Granted, Entries, Live]
    assert y.delivered == ["x1", "x2", "x3"]
    assert y.of(Granted)[0].new


def test_a_topic_exists_as_soon_as_its_first_member_has_joined() -> None:
    """BRK-M4, BRK-M9: and every broker records the member before it is granted."""
    tree = Tree({"b1": "b0", "b2": "b1", "b3": "b0"})
    x = tree.client("x", "b2")
    x.subscribe()
    tree.freeze("b3", "b0")
    tree.run()
    assert not x.live
    assert tree.brokers["b3"].book.live(T) == {"x"}
    tree.thaw("b3", "b0")
    tree.run()

    assert x.live
    assert not tree.brokers["b3"].has(T)


def test_a_lost_child_does_not_hold_a_join_up() -> None:
    # BRK-M9.2
    tree = Tree({"b1": "b0", "b3": "b0"})
    tree.freeze("b3", "b0")
    x = tree.client("x", "b1")
    x.subscribe()
    tree.run()
    tree.crash("b3")
    tree.run()

    assert x.live


def test_where_partitions_are_possible_a_join_needs_a_majority_that_knows_it() -> None:
    """BRK-M9, PC: or a later root would not wait for the member."""
    tree = Tree({"b1": "b0", "b2": "b1"}, partitions="primary")
    tree.crash("b1")
    x = tree.client("x", "b0")
    x.subscribe()
    tree.run()
    tree.pass_time(5000)
    assert not x.live
    tree.attach("b2", "b0")
    tree.pass_time(1000)

    assert x.live


def test_a_client_that_moves_is_served_only_after_the_root_has_confirmed_it() -> None:
    """F-TOT-8: its new broker does not know the total that its old one had locked for it."""
    tree = Tree({"b1": "b0", "b2": "b0", "b3": "b0"})
    x, y = tree.member("x", "b1"), tree.member("y", "b2")
    tree.freeze("b2", "b0")
    y.publish("k", guarantee="total")
    tree.run()
    tree.thaw("b2", "b0")
    tree.freeze("b0", "b3")
    tree.carry("b2", "b0")
    tree.hang_up("x", gone=False)
    tree.move("x", "b3")
    x.subscribe()
    x.publish("k")
    tree.run()
    assert not x.live
    assert x.delivered == []
    tree.thaw("b0", "b3")
    tree.run()
    x.number = 0
    x.publish("k")
    tree.run()

    assert x.delivered == y.delivered


def test_a_new_root_grants_nothing_before_every_member_has_reported() -> None:
    # F-TOT-9, BRK-M7
    tree = Tree({"b1": "b0", "b2": "b0", "b3": "b0"})
    x, y = tree.member("x", "b1"), tree.member("y", "b2")
    tree.crash("b0")
    tree.crown("b3", 2)
    tree.attach("b1", "b3")
    z = tree.client("z", "b3")
    z.subscribe()
    tree.run()
    assert not z.live
    tree.attach("b2", "b3")
    tree.run()

    assert z.live
    y.publish("k", guarantee="total")
    tree.run()
    assert x.delivered == y.delivered == z.delivered == ["y1"]


def test_a_grant_is_ignored_while_the_channel_is_not_synchronised() -> None:
    """F-TOT-14: it was asked for before the channel was opened again; it is asked for once more."""
    tree = Tree({"b1": "b0"})
    tree.member("y", "b1")
    x = tree.client("x", "b1")
    x.subscribe()
    tree.freeze("b0", "b1")
    tree.run()
    tree.carry("b0", "b1")  # The roster with the new member.
    tree.run()
    assert AttachGranted in [type(packet) for _, packet in tree.queues["b0", "b1"]]
    tree.brokers["b1"].channels.open(tree.brokers["b1"].nodes[T])
    tree.carry("b0", "b1")
    tree.run()
    assert not x.live
    tree.thaw("b0", "b1")
    tree.run()
    tree.pass_time(1000)

    assert x.live


def test_a_vanished_client_is_fenced_at_once_where_no_partitions_are() -> None:
    # BRK-M8
    tree = Tree({"b1": "b0"})
    x, y = tree.member("x", "b0"), tree.member("y", "b1")
    tree.hang_up("y", gone=True)
    tree.run()
    assert tree.brokers["b0"].book.live(T) == {"x"}
    x.publish("k", guarantee="total")
    tree.run()
    assert x.delivered == ["x1"]
    tree.move("y", "b1")
    y.subscribe()
    tree.run()

    assert y.of(Denied)[0].reason == "fenced"


def test_where_partitions_are_possible_a_vanished_client_may_come_back_in_time() -> None:
    """BRK-M8, BRK-M10 with BRK-PC6: a cut connection is not a dead client."""
    tree = Tree({"b1": "b0", "b2": "b0"}, partitions="primary", absent_member="wait", member_timeout_ms=5000.0)
    x, y = tree.member("x", "b0"), tree.member("y", "b1")
    tree.hang_up("y", gone=True)
    tree.run()
    x.publish("k", guarantee="total")
    tree.pass_time(3000)
    assert x.delivered == []
    tree.move("y", "b2")
    y.subscribe()
    tree.run()
    assert x.delivered == y.delivered == ["x1"]
    tree.hang_up("y", gone=True)
    tree.run()
    tree.pass_time(6000)
    assert tree.brokers["b2"].book.live(T) == {"x"}
    tree.move("y", "b2")
    y.subscribe()
    tree.run()

    assert y.of(Denied)[0].reason == "fenced"


def test_a_new_root_goes_on_counting_how_long_a_member_has_been_absent() -> None:
    """BRK-M10: otherwise every change of the root adds `member_timeout_ms` to the wait."""
    tree = Tree({"b1": "b0", "b2": "b1"}, partitions="primary", absent_member="wait", member_timeout_ms=20_000.0)
    x = tree.member("x", "b2")
    tree.member("y", "b1")
    tree.hang_up("y", gone=True)
    tree.run()
    x.publish("k", guarantee="total")
    tree.pass_time(15_000)
    tree.crash("b0")
    tree.crown("b1", 2)
    tree.run()
    tree.pass_time(3000)
    assert x.delivered == [], "a root that is new hears first who is there"
    tree.pass_time(3500)
    assert x.delivered == ["x1"]


def test_a_root_learns_of_absences_from_those_who_were_told_later_than_itself() -> None:
    # BRK-M10
    tree = Tree({"b1": "b0", "b2": "b1"}, partitions="primary", absent_member="wait", member_timeout_ms=20_000.0)
    tree.member("x", "b2")
    tree.member("y", "b1")
    tree.hang_up("y", gone=True)
    tree.pass_time(15_000)
    told = tree.brokers["b2"].absent()
    assert told is not None
    assert 10_000 < told[T][Origin("y")] <= 15_000

    newcomer = tree.brokers["b1"].absence
    known = {topic: dict(since) for topic, since in newcomer.since.items()}
    newcomer.learn(tree.brokers["b1"].tree.term[0], {})
    assert newcomer.since == known, "it was told by the same root"
    newcomer.learn(9, {T: {Origin("y"): 7}, Topic("other"): {}})
    assert newcomer.since == {T: {Origin("y"): 7}}


def test_only_whoever_all_electors_of_the_latest_term_believe_absent_counts_as_that() -> None:
    """BRK-M10: one of them may have been cut off before it was told that the member is back."""
    (overlay,) = Lab({"b0": None}, BrokerSettings()).living().values()
    claim = overlay.election.claim
    x, y = Origin("x"), Origin("y")
    claim.hears_of_absent(3, {T: {x: 9000, y: 9000}})
    claim.hears_of_absent(2, {})
    claim.hears_of_absent(3, {T: {x: 4000}, Topic("other"): {y: 5000}})
    now = overlay.wires.now_ns
    assert (claim.absent_of, claim.absent) == (3, {T: {x: now - 4_000_000_000}})
    claim.hears_of_absent(4, {})
    assert (claim.absent_of, claim.absent) == (4, {})


def test_a_member_that_is_back_is_not_counted_as_absent_by_a_later_root() -> None:
    tree = Tree({"b1": "b0", "b2": "b1"}, partitions="primary", member_timeout_ms=20_000.0)
    tree.member("x", "b2")
    y = tree.member("y", "b1")
    tree.hang_up("y", gone=True)
    tree.run()
    tree.pass_time(15_000)
    tree.move("y", "b2")
    y.subscribe()
    tree.run()
    tree.hang_up("y", gone=True)
    tree.run()
    tree.crash("b0")
    tree.crown("b1", 2)
    tree.run()
    tree.pass_time(15_000)
    assert tree.brokers["b1"].book.live(T) == {"x", "y"}


def test_a_client_that_closes_without_taking_leave_is_absent_not_gone() -> None:
    tree = Tree({"b1": "b0"})
    tree.member("x", "b0")
    y = tree.member("y", "b1")
    tree.hang_up("y", gone=False)
    tree.run()
    assert tree.brokers["b0"].book.live(T) == {"x", "y"}
    tree.clients["x"].publish("k")
    tree.run()
    tree.move("y", "b0")
    y.subscribe()
    tree.run()

    assert y.delivered == ["x1"]


def test_a_member_that_leaves_is_waited_for_no_more_and_may_return() -> None:
    # BRK-M11
    tree = Tree({"b1": "b0", "b2": "b0"})
    x, y = tree.member("x", "b0"), tree.member("y", "b1")
    y.say(Unsubscribe(T))
    tree.run()
    assert y.of(Left)
    assert tree.brokers["b2"].book.live(T) == {"x"}
    x.publish("k", guarantee="total")
    tree.run()
    assert x.delivered == ["x1"]
    x.report()
    tree.run()
    tree.pass_time(1000)
    y.told.clear()
    y.subscribe()
    tree.run()

    assert y.live
    assert y.of(Granted)[0] == Granted(T, {"x": 1}, new=True)


def test_a_leave_waits_until_what_the_client_published_is_admitted() -> None:
    tree = Tree({"b1": "b0", "b2": "b0"})
    x, y = tree.member("x", "b1"), tree.member("y", "b2")
    tree.freeze("b2", "b0")
    y.publish("k", guarantee="total")
    tree.run()
    tree.thaw("b2", "b0")
    tree.freeze("b0", "b1")
    tree.carry("b2", "b0")
    tree.carry("b0", "b1", 1)
    x.publish("k")
    x.say(Unsubscribe(T))
    tree.run()
    assert not x.of(Left)
    tree.thaw("b0", "b1")
    tree.run()

    assert x.of(Left)
    assert y.delivered == ["y1", "x1"]


def test_whoever_asks_again_while_it_leaves_and_then_goes_does_not_stop_its_broker() -> None:
    """No honest client does that. Nobody is at the other end when the root confirms it."""
    tree = Tree({"b1": "b0"})
    x = tree.member("x", "b1")
    assert x.connection is not None
    broker, (_, connection) = tree.brokers["b1"], tree.ends["x", x.connection]
    tree.freeze("b1", "b0")
    broker.receive(connection, Unsubscribe(T))
    broker.receive(connection, Resume(T, x.attach_no, {}, {}, (), receives=True, life=broker.nodes[T].life))
    broker.turn_end()
    assert "x" not in broker.nodes[T].members
    tree.hang_up("x", gone=False)
    tree.queues.pop(("b1", "x"))
    tree.thaw("b1", "b0")
    tree.pass_time(1000)
    assert [member.connection for member in broker.nodes[T].members.values()] == [None]


def test_a_removal_is_not_undone_by_a_broker_that_missed_it() -> None:
    """BRK-M9.4: rosters are merged, and departures with them."""
    tree = Tree({"b1": "b0", "b2": "b0"})
    tree.member("x", "b0")
    y = tree.member("y", "b1")
    tree.freeze("b0", "b2")
    y.say(Unsubscribe(T))
    tree.run()
    old = tree.brokers["b2"].roster()
    assert "y" in {entry.partition(" ")[0] for entry in old[T]}
    tree.brokers["b0"].merge_roster(old, {})

    assert tree.brokers["b0"].book.live(T) == {"x"}


def test_departures_are_forgotten_after_a_while_and_fences_are_not() -> None:
    """A roster does not grow with every client that ever came and went."""
    tree = Tree({"b1": "b0"}, member_timeout_ms=1000.0)
    tree.member("x", "b0")
    y, z = tree.member("y", "b1"), tree.member("z", "b1")
    y.say(Unsubscribe(T))
    tree.run()
    tree.hang_up("z", gone=True)
    tree.run()
    assert len(tree.brokers["b0"].fenced()) == len(tree.brokers["b1"].fenced()) == 2
    tree.pass_time(11_000)
    tree.member("w", "b1")

    for name in ("b0", "b1"):
        assert list(tree.brokers[name].fenced()) == [z.origin]
        assert set(tree.brokers[name].book.joined[T]) == {"x", "z", "w"}


def test_rights_are_needed_to_subscribe_and_to_publish_only() -> None:
    tree = Tree({})
    x = tree.client("x", "b0", rights=Rights(publish=("t",), subscribe=("u.*",)))
    x.subscribe()
    tree.run()
    assert "no right to subscribe" in x.of(Denied)[0].reason
    x.told.clear()
    x.subscribe(receives=False)
    tree.run()
    assert x.live
    x.subscribe(Topic("u.v"), receives=False)
    tree.run()

    assert "no right to publish" in x.of(Denied)[0].reason


def test_a_publish_only_member_gets_no_entries_but_its_locks() -> None:
    tree = Tree({"b1": "b0"})
    x, p = tree.member("x", "b0"), tree.member("p", "b1", receives=False)
    p.publish("k")
    p.publish("k", guarantee="total")
    x.publish("k", guarantee="total")
    tree.run()

    assert p.delivered == []
    assert sorted(x.delivered) == ["p1", "p2", "x1"]


def test_a_publish_only_member_becomes_a_receiving_one_without_a_gap() -> None:
    tree = Tree({"b1": "b0"})
    x, p = tree.member("x", "b0"), tree.member("p", "b1", receives=False)
    x.publish("k")
    tree.run()
    x.report()
    tree.pass_time(500)
    x.publish("k")
    tree.run()
    p.subscribe()
    tree.run()
    x.publish("k")
    tree.run()

    assert p.of(Granted)[-1].base == {"x": 1}
    assert p.delivered == ["x2", "x3"]


def test_a_client_cannot_speak_like_a_broker() -> None:
    tree = Tree({})
    x = tree.client("x", "b0")
    x.say(RosterSync({}, {"y": 1}))
    with pytest.raises(PeerError, match="x: must not send RosterSync"):
        tree.run()


def test_a_connection_that_is_neither_client_nor_link_changes_nothing() -> None:
    tree = Tree({"b1": "b0"})
    tree.member("x", "b0")
    tree.brokers["b0"].receive(999, RosterSync({}, {Origin("x"): 1 << 62}))
    assert tree.brokers["b0"].book.live(T) == {"x"}
    with pytest.raises(PeerError, match="must not send Subscribe"):
        tree.brokers["b0"].receive(999, Subscribe(T))


def test_members_that_come_back_one_by_one_are_told_one_by_one() -> None:
    """Otherwise a thousand that return would each be answered with the ages of all others."""
    tree = Tree({"b1": "b0"}, partitions="primary", member_timeout_ms=8000.0)
    names = [f"m{number}" for number in range(20)]
    for name in names:
        tree.member(name, "b1")
    for name in names:
        tree.hang_up(name, gone=False)
    tree.pass_time(3000)
    told = tree.brokers["b1"].absence.since[T]
    assert set(told) == set(names)
    sizes = []
    for name in names:
        tree.move(name, "b1")
        tree.clients[name].subscribe()
        tree.run()
        sizes.append(len(tree.brokers["b1"].absence.since.get(T, {})))
    assert sizes == list(range(19, -1, -1))
    packets = tree.sent(Absent, "b0")
    assert sum(len(ages) for packet in packets for ages in packet.members.values()) == 20
    assert sum(len(packet.back) for packet in packets) == 20


def test_a_client_takes_part_in_so_many_topics_and_is_told_which_setting_says_so() -> None:
    tree = Tree({"b1": "b0"}, topics_per_client=2)
    greedy, other = tree.client("g", "b1"), tree.client("o", "b1")
    for topic in ("t1", "t2", "t3", "t1"):
        greedy.subscribe(Topic(topic), receives=topic != "t2")
    other.subscribe(Topic("t3"))
    tree.run()
    (denied,) = greedy.of(Denied)
    assert denied.topic == "t3"
    assert denied.reason == "g takes part in 2 topics, and more are not allowed (topics_per_client)"
    assert tree.wires("b1").counts["topics_refused"] == 1
    assert not other.of(Denied)

    greedy.say(Unsubscribe(Topic("t1")))
    tree.run()
    greedy.subscribe(Topic("t3"))
    tree.run()
    assert len(greedy.of(Denied)) == 1, "it has left another"


def test_so_many_topics_can_be_begun_and_those_that_are_there_can_be_joined() -> None:
    tree = Tree({"b1": "b0"}, topics_limit=2)
    greedy = tree.client("g", "b1")
    for topic in ("t1", "t2"):
        greedy.subscribe(Topic(topic))
        tree.run()
    other = tree.client("o", "b0")
    other.subscribe(Topic("t3"))
    other.subscribe(Topic("t2"))
    tree.run()
    (denied,) = other.of(Denied)
    assert denied.reason == "t3 would be one topic more than 2, which is not allowed (topics_limit)"
    assert [packet.topic for packet in other.of(Live)] == ["t2"]
    assert tree.wires("b0").counts["topics_refused"] == 1


def test_the_clients_of_one_user_take_part_in_so_many_topics_together() -> None:
    tree = Tree({"b1": "b0"}, topics_per_user=2)
    first, second = (tree.client(f"shop.{number}", "b1", user="shop") for number in range(2))
    other, nobody = tree.client("bank", "b1", user="bank"), tree.client("n", "b1")
    elsewhere = tree.client("shop.2", "b0", user="shop")
    first.subscribe(Topic("t1"))
    second.subscribe(Topic("t2"), receives=False)
    tree.run()
    for client in (first, second, other, nobody, elsewhere):
        client.subscribe(Topic("t3"))
        client.subscribe(Topic("t1" if client is first else "t2"))
    tree.run()

    for greedy in (first, second):
        (denied,) = greedy.of(Denied)
        assert denied.topic == "t3"
        assert denied.reason == (
            "the clients of shop take part in 2 topics, and more are not allowed (topics_per_user)"
        )
    assert tree.wires("b1").counts["topics_refused"] == 2
    assert not any(client.of(Denied) for client in (other, nobody, elsewhere))

    tree.hang_up("shop.1", gone=False)
    first.subscribe(Topic("t3"))
    tree.run()
    assert len(first.of(Denied)) == 1
