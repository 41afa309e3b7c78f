"""Stability, flow, copies and acknowledgements at brokers that are driven by hand (BRK-ST1 to BRK-ST4)."""

from __future__ import annotations

from ordercast.core.ids import Origin, Topic
from ordercast.core.messages import Guarantee
from ordercast.pubsub.client_packets import Entries, Flow, Granted, StableUpdate, TopicState
from ordercast.pubsub.closed import ClosedSessions
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.topic_packets import BaseUpdate, Held, Keep
from tests.support.topics_tree import Somebody, T, Tree


def many(x: Somebody, count: int) -> None:
    entries = [
        Publication(x.origin, x.number + i, T, b"", Guarantee.CAUSAL, ("k",)) for i in range(1, count + 1)
    ]  # fmt: skip
    x.number += count
    x.say(Entries(T, tuple(entries)))


def test_what_every_member_has_is_forgotten_everywhere() -> None:
    # BRK-ST1 to BRK-ST3
    tree = Tree({"b1": "b0", "b2": "b1"})
    x, y = tree.member("x", "b0"), tree.member("y", "b2")
    many(x, 10)
    tree.run()
    x.report()
    tree.run()
    tree.pass_time(500)
    assert len(tree.log_of("b0")) == 10
    y.report()
    tree.run()
    tree.pass_time(500)

    assert [tree.log_of(name) for name in ("b0", "b1", "b2")] == [[], [], []]
    assert y.of(StableUpdate)[-1].base == {"x": 10}
    many(x, 1)
    tree.run()
    assert y.delivered[-1] == "x11"


def test_an_absent_member_is_waited_for() -> None:
    """BRK-ST2: nothing that it may lack is forgotten."""
    tree = Tree({"b1": "b0"}, partitions="primary")
    x, y = tree.member("x", "b0"), tree.member("y", "b1")
    y.report()
    tree.hang_up("y", gone=True)
    many(x, 5)
    tree.run()
    x.report()
    tree.run()
    tree.pass_time(2000)
    assert len(tree.log_of("b0")) == 5
    tree.move("y", "b0")
    y.subscribe()
    tree.run()

    assert len(y.delivered) == 5


def test_a_base_that_a_relay_learns_late_is_passed_on_up_and_down() -> None:
    # F-SYN-9, BRK-ST3
    tree = Tree({"b1": "b0", "b2": "b1"})
    for name, at in (("x", "b0"), ("z", "b1"), ("y", "b2")):
        tree.member(name, at)
    many(tree.clients["x"], 3)
    tree.run()
    broker = tree.brokers["b1"]
    broker.stability.merge_base(broker.nodes[T], {Origin("x"): 2}, None)
    tree.run()

    assert [tree.log_of(name) for name in ("b0", "b1", "b2")] == [["x3"]] * 3


def test_a_base_of_an_earlier_term_is_ignored() -> None:
    # BRK-PC5
    tree = Tree({"b1": "b0"})
    x = tree.member("x", "b0")
    tree.member("y", "b1")
    many(x, 3)
    tree.run()
    parent = tree.overlays["b1"].parent or 0
    tree.brokers["b1"].receive(parent, BaseUpdate(T, (0, tree.overlays["b0"].node), {Origin("x"): 3}))

    assert len(tree.log_of("b1")) == 3


def test_a_member_that_is_gone_holds_no_stability_up() -> None:
    tree = Tree({"b1": "b0"})
    x = tree.member("x", "b0")
    tree.member("y", "b1")
    many(x, 4)
    tree.run()
    x.report()
    tree.run()
    tree.pass_time(500)
    assert len(tree.log_of("b0")) == 4
    tree.hang_up("y", gone=True)
    tree.run()
    tree.pass_time(500)

    assert tree.log_of("b0") == []


def test_a_branch_that_has_moved_is_not_counted_where_it_was() -> None:
    """Its former parent has nobody else who reports, and would repeat for ever what it said last."""
    tree = Tree({"b1": "b0", "b2": "b1"})
    x, y = tree.member("x", "b0"), tree.member("y", "b2")
    tree.member("p", "b1", receives=False)
    for turn in (1, 2):
        x.publish("k")
        tree.run()
        x.report()
        y.report()
        tree.pass_time(500)
        assert tree.log_of("b0") == []
        if turn == 1:
            tree.cut("b2", "b1")
            tree.attach("b2", "b0")
            tree.run()


def test_members_that_only_publish_hold_no_stability_up() -> None:
    tree = Tree({"b1": "b0"})
    p, q = tree.member("p", "b1", receives=False), tree.member("q", "b0", receives=False)
    many(p, 4)
    tree.run()
    tree.pass_time(500)

    assert tree.log_of("b0") == tree.log_of("b1") == []
    assert p.of(StableUpdate)[-1].base == {"p": 4}
    assert q.of(StableUpdate) == [], "whoever only publishes hears of its own publications"


def test_clients_pause_above_the_limit_and_nothing_is_evicted() -> None:
    """BRK-ST4, with buffer_soft_limit = 5."""
    tree = Tree({"b1": "b0"}, buffer_soft_limit=5)
    x, y = tree.member("x", "b0"), tree.member("y", "b1")
    many(x, 6)
    tree.run()
    assert x.of(Flow) == y.of(Flow) == [Flow(T, open=False)]
    z = tree.member("z", "b1")
    assert z.of(Flow) == [Flow(T, open=False)]
    many(x, 20)
    tree.run()
    assert len(tree.log_of("b0")) == 26
    for client in (x, y, z):
        client.report()
    tree.run()
    tree.pass_time(500)

    assert [packet.open for packet in x.of(Flow)] == [False, True]
    assert len(z.delivered) == 26


def test_stable_entries_behind_an_unstable_one_leave_too() -> None:
    tree = Tree({})
    node = tree.brokers["b0"].channels.node(T)
    for origin, count in (("slow", 1), ("fast", 2000)):
        entries = [Publication(Origin(origin), i, T, b"", Guarantee.CAUSAL, ("k",)) for i in range(1, count + 1)]
        node.append([e for e in entries if node.have.add(e.origin, e.number)])
    node.raise_base({Origin("fast"): 2000}, ClosedSessions())

    assert [e.origin for e in node.log] == ["slow"]
    node.check()


def test_safe_means_held_by_so_many_brokers_on_a_chain() -> None:
    tree = Tree({"b1": "b0", "b2": "b1", "b3": "b2"}, safe_copies=3)
    p = tree.member("p", "b3")
    tree.freeze("b2", "b1")
    p.publish("k")
    tree.run()
    assert p.acked == (1, 0)
    tree.freeze("b1", "b2")
    tree.thaw("b2", "b1")
    tree.run()
    assert p.acked == (1, 0)
    tree.thaw("b1", "b2")
    tree.run()

    assert p.acked == (1, 1)
    assert {packet.level for packet in tree.sent(Held)} == {1, 2}


def test_safe_adds_up_over_the_branches_of_a_star() -> None:
    tree = Tree({"b1": "b0", "b2": "b0", "b3": "b0"}, safe_copies=3)
    p = tree.member("p", "b0", receives=False)
    for name, at in (("x", "b1"), ("y", "b2"), ("z", "b3")):
        tree.member(name, at)
    tree.freeze("b2", "b0")
    tree.freeze("b3", "b0")
    p.publish("k")
    tree.run()
    assert p.acked == (1, 0)
    tree.thaw("b3", "b0")
    tree.run()

    assert p.acked == (1, 1)


def test_a_held_publication_is_at_the_edge_and_a_prepared_total_may_be_safe() -> None:
    tree = Tree({"b1": "b0", "b2": "b0"}, safe_copies=2)
    x = tree.member("x", "b1")
    tree.member("y", "b2")
    tree.freeze("b2", "b0")
    x.publish("k", guarantee="total")
    x.publish("k")
    tree.run()

    assert x.delivered == []
    assert x.acked == (2, 1)


def test_acknowledgements_are_sent_once_a_turn_and_only_when_they_change() -> None:
    tree = Tree({"b1": "b0"}, safe_copies=2)
    x = tree.member("x", "b1")
    many(x, 1000)
    tree.run()

    assert x.acked == (1000, 1000)
    assert len(tree.sent(Held, "b0")) == 1


def test_a_client_that_moves_learns_how_far_its_publications_have_come() -> None:
    tree = Tree({"b1": "b0", "b2": "b0"}, safe_copies=2, partitions="primary")
    x = tree.member("x", "b1")
    tree.member("y", "b2")
    x.publish("k")
    tree.run()
    tree.hang_up("x", gone=False)
    tree.move("x", "b2")
    x.subscribe()
    tree.run()

    assert x.acked == (1, 1)


def test_a_lone_broker_is_all_there_is() -> None:
    """`excluded`: safe means held by all that are left; a broker that seeks does not know who is left."""
    tree = Tree({"b1": "b0"}, safe_copies=2)
    x = tree.member("x", "b1")
    tree.crash("b0")
    x.publish("k")
    tree.run()
    assert x.acked == (1, 0)
    tree.crown("b1", 2)
    tree.run()

    assert x.acked == (1, 1)


def test_where_partitions_are_possible_a_part_does_not_take_itself_for_all() -> None:
    tree = Tree({"b1": "b0", "b2": "b0"}, safe_copies=2, partitions="primary")
    x = tree.member("x", "b0")
    tree.crash("b1")
    tree.crash("b2")
    x.publish("k")
    tree.run()

    assert x.acked == (1, 0)


def test_a_topic_at_the_root_alone_gets_a_keeper() -> None:
    tree = Tree({"b1": "b0", "b2": "b0"}, safe_copies=2)
    x = tree.member("x", "b0")
    x.publish("k")
    tree.run()

    assert x.acked == (1, 1)
    assert len(tree.sent(Keep)) == 1
    assert sum(broker.has(T) for broker in tree.brokers.values()) == 2
    x.publish("k", guarantee="total")
    tree.run()
    assert x.delivered == ["x1", "x2"]


def test_keepers_are_found_further_below_where_the_root_has_one_child() -> None:
    tree = Tree({"b1": "b0", "b2": "b1"}, safe_copies=3)
    x = tree.member("x", "b0")
    x.publish("k")
    tree.run()

    assert x.acked == (1, 1)
    assert tree.log_of("b2") == ["x1"]


def test_a_keeper_that_dies_is_replaced() -> None:
    tree = Tree({"b1": "b0", "b2": "b0"}, safe_copies=2)
    x = tree.member("x", "b0")
    tree.run()
    (keeper,) = [name for name in ("b1", "b2") if tree.brokers[name].has(T)]
    tree.crash(keeper)
    x.publish("k")
    tree.run()

    assert x.acked == (1, 1)


def test_the_status_names_the_busiest_topics_and_sums_up_all() -> None:
    tree = Tree({})
    x = tree.client("x", "b0")
    for number in range(20):
        x.subscribe(Topic(f"a.quiet.{number}"))
    x.subscribe()
    tree.run()
    x.publish("k")
    tree.run()
    broker = tree.brokers["b0"]
    assert list(broker.status(1)) == [T]
    assert len(broker.status(5)) == 5
    assert broker.totals() == {"topics": 21, "log": 1, "pending": 0, "held": 0, "bytes": 257}


def test_who_only_publishes_hears_of_no_other_publisher() -> None:
    """What a short session costs does not depend on how many there were before."""
    tree = Tree({"b1": "b0"})
    reader = tree.member("reader", "b0")
    for n in range(20):
        writer = tree.member(f"w{n}", "b1", receives=False)
        writer.publish()
        tree.run()
        reader.report()
        tree.run()
        tree.pass_time(500)
        assert [len(state.have) + len(state.base) for state in writer.of(TopicState)] == [0]
        assert [len(granted.base) for granted in writer.of(Granted)] == [0]
    assert len(reader.delivered) == 20

    tree.move("w3", "b0")
    tree.clients["w3"].subscribe(receives=False)
    tree.run()
    assert tree.clients["w3"].of(Granted)[-1].base == {"w3": 1}
