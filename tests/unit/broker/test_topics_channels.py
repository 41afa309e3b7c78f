"""Channels between brokers that are driven by hand: synchronisation, resets, closing, orphans (BRK-S1 to BRK-S8)."""

from __future__ import annotations

import pytest

from ordercast.broker.place import SavedBroker
from ordercast.broker.topics.state.topic import TopicNode
from ordercast.core.errors import InvariantError
from ordercast.core.ids import Origin
from ordercast.core.messages import Guarantee
from ordercast.pubsub.client_packets import Entries, Resume, Subscribe, TopicState, Unsubscribe
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.topic_packets import TopicBuffer, TopicClose, TopicClosed, TopicReset
from tests.support.topics_tree import T, Tree


def entry(origin: str, number: int, *keys: str, guarantee: Guarantee = Guarantee.CAUSAL) -> Publication:
    return Publication(Origin(origin), number, T, b"", guarantee, keys or ("k",))


def test_each_side_of_a_new_link_gets_exactly_what_it_lacks_in_order() -> None:
    """E10 of the source: the child missed (2,449) to (2,455), the parent missed (1,452)."""
    tree = Tree({"b1": "b0", "b2": "b0"})
    tree.member("x", "b1")
    tree.member("y", "b2")
    tree.crash("b0")
    shared = [entry("2", n) for n in range(1, 449)] + [entry("1", n) for n in range(1, 452)]
    missed = [entry("2", n) for n in range(449, 456)]
    for name, own in (("b2", missed), ("b1", [entry("1", 452)])):
        node = tree.brokers[name].nodes[T]
        node.append([e for e in [*shared, *own] if node.have.add(e.origin, e.number)])
    tree.crown("b2", 2)
    tree.log.clear()
    tree.attach("b1", "b2")
    tree.run()

    assert [e for packet in tree.sent(Entries, "b2")[:1] for e in packet.entries] == missed
    assert [e for packet in tree.sent(Entries, "b1")[:1] for e in packet.entries] == [entry("1", 452)]
    assert tree.brokers["b1"].nodes[T].have.summary() == tree.brokers["b2"].nodes[T].have.summary()


def test_the_difference_is_of_sets_not_of_last_numbers() -> None:
    """F-SYN-4, BRK-S4: 455 arrived, 454 did not."""
    node = TopicNode(T)
    node.append([e for e in (entry("1", n) for n in range(1, 7)) if node.have.add(e.origin, e.number)])

    assert [e.number for e in node.difference({Origin("1"): (3, (5,))}, {})] == [4, 6]
    assert [e.number for e in node.difference({}, {Origin("1"): 4})] == [5, 6]


def test_a_total_and_an_unknown_publisher_survive_a_new_link() -> None:
    """F-SYN-3: the child has nothing at all of one publisher, and a gap in another's numbers."""
    tree = Tree({"b1": "b0", "b2": "b0"})
    x = tree.member("x", "b1")
    y = tree.member("y", "b2")
    tree.freeze("b2", "b0")
    y.publish("k")
    y.publish("l")
    tree.run()
    tree.crash("b0")
    tree.frozen.clear()
    tree.crown("b2", 2)
    tree.attach("b1", "b2")
    tree.run()

    assert x.delivered == y.delivered == ["y1", "y2"]


def test_what_was_sent_before_a_channel_was_opened_again_is_ignored() -> None:
    # F-SYN-8, BRK-S3, BRK-S6
    tree = Tree({"b1": "b0"})
    x, y = tree.member("x", "b0"), tree.member("y", "b1")
    tree.freeze("b0", "b1")
    x.publish("k")
    tree.run()
    tree.brokers["b1"].channels.open(tree.brokers["b1"].nodes[T])
    tree.carry("b0", "b1")
    assert y.delivered == []
    stale = TopicBuffer(T, 1, {}, {})
    tree.brokers["b1"].receive(tree.overlays["b1"].parent or 0, stale)
    assert not tree.brokers["b1"].nodes[T].up_live
    tree.thaw("b0", "b1")
    tree.run()

    assert y.delivered == ["x1"]


def test_a_repair_ends_with_the_last_synchronised_topic() -> None:
    """From the loss of the parent to the last SyncEnd."""
    tree = Tree({"b1": "b0", "b2": "b0"})
    x = tree.member("x", "b1")
    y = tree.member("y", "b2")
    tree.freeze("b2", "b0")
    y.publish("k")
    tree.run()
    tree.crash("b0")
    tree.crown("b2", 2)
    tree.now_ns += 7_000_000
    tree.attach("b1", "b2")
    tree.run()

    assert x.delivered == ["y1"]
    assert ("repair_end", {"phase": "synchronised", "topics": "1", "received": "1", "ms": "7.000"}) in (
        tree.wires("b1").notes
    )


def test_a_broker_without_members_forgets_the_topic() -> None:
    """BRK-S7, and the parent answers once others hold what it had."""
    tree = Tree({"b1": "b0", "b2": "b1"})
    tree.member("x", "b0")
    y = tree.member("y", "b2")
    y.say(Unsubscribe(T))
    tree.run()

    assert [name for name, broker in tree.brokers.items() if broker.has(T)] == ["b0"]


def test_a_stale_log_is_no_reference_for_a_client_that_waits_there() -> None:
    """F-TOT-10: the member at the cut-off broker crashes while a joiner waits there."""
    tree = Tree({"b1": "b0", "b2": "b0"})
    x, d = tree.member("x", "b2"), tree.member("d", "b1")
    tree.freeze("b1", "b0")
    d.publish("k")
    tree.run()
    assert tree.log_of("b1") == ["d1"]
    tree.crash("b0")
    j = tree.client("j", "b1")
    j.subscribe()
    tree.run()
    tree.hang_up("d", gone=True)
    assert tree.log_of("b1") == []
    tree.crown("b2", 2)
    x.publish("k", guarantee="total")
    tree.run()
    tree.thaw("b1", "b0")
    tree.attach("b1", "b2")
    tree.run()
    tree.pass_time(2000)

    assert j.delivered == x.delivered
    assert sorted(x.delivered) == ["d1", "x1"]


def test_a_history_that_was_cut_for_a_log_that_is_gone_is_asked_for_again() -> None:
    """The client leaves out what is stable at its edge: a log that the edge has begun since must not take the rest."""
    tree = Tree({"b1": "b0", "b2": "b0"}, partitions="primary", absent_member="wait")
    x, y = tree.member("x", "b0"), tree.member("y", "b1")
    y.publish("k")
    tree.run()
    x.report()
    y.report()
    tree.pass_time(1000)
    y.publish("k")
    tree.run()
    assert tree.log_of("b1") == ["y2"]
    tree.crash("b0")
    tree.move("x", "b1")
    x.subscribe()
    tree.carry("x", "b1")
    tree.carry("b1", "x")  # It answers with what is not stable there; meanwhile the last member goes.
    tree.hang_up("y", gone=False)
    tree.run()
    assert tree.log_of("b1") == ["y1", "y2"]
    tree.crown("b1", 2)
    tree.attach("b2", "b1")
    tree.move("y", "b1")
    y.subscribe()
    tree.run()

    assert tree.member("late", "b1").delivered == ["y1", "y2"]


def test_a_piece_of_a_history_that_comes_after_a_reset_waits_for_the_pieces_before_it() -> None:
    tree = Tree({"b1": "b0"}, partitions="primary", absent_member="wait")
    x, y = tree.member("x", "b0"), tree.member("y", "b1")
    for _ in range(2):
        y.publish("k")
    tree.run()
    tree.crash("b0")
    tree.move("x", "b1")
    tree.freeze("b1", "x")
    x.say(Subscribe(T))
    tree.run()
    state = tree.sent(TopicState, "b1")[-1]
    for entry in x.history:
        x.say(Resume(T, x.attach_no, x.have.summary(), {}, (entry,), life=state.life))
    tree.carry("x", "b1", 1)
    tree.hang_up("y", gone=False)
    tree.carry("x", "b1", 1)
    assert tree.log_of("b1") == []
    tree.thaw("b1", "x")
    tree.run()

    assert tree.log_of("b1") == ["y1", "y2"]


def test_a_reset_reaches_the_children() -> None:
    """BRK-S7.2, BRK-S7.3: a child that waits only opens again."""
    tree = Tree({"b1": "b0", "b2": "b1"})
    tree.member("x", "b0")
    d = tree.member("d", "b1")
    j = tree.client("j", "b2")
    j.subscribe()
    tree.carry("j", "b2")
    tree.carry("b2", "j")
    tree.carry("j", "b2")
    tree.carry("b2", "b1")
    d.say(Unsubscribe(T))
    tree.run()

    assert tree.sent(TopicReset, "b1")
    assert j.live


def test_a_closing_broker_keeps_what_it_had_until_others_hold_it() -> None:
    """The close handshake: `safe_copies` brokers other than the child."""
    tree = Tree({"b1": "b0", "b2": "b0"}, safe_copies=2)
    tree.member("y", "b2")
    tree.member("x", "b0")
    p = tree.member("p", "b1", receives=False)
    tree.freeze("b2", "b0")
    tree.freeze("b0", "b2")
    p.publish("k")
    tree.run()
    p.say(Unsubscribe(T))
    tree.run()
    assert tree.sent(TopicClose, "b1")
    assert tree.brokers["b1"].explain("p/t#1")["state"] == "orphan"
    assert not tree.sent(TopicClosed)
    tree.thaw("b2", "b0")
    tree.thaw("b0", "b2")
    tree.run()

    assert tree.sent(TopicClosed, "b0")
    assert tree.brokers["b1"].orphans.closing == {}
    assert not tree.brokers["b1"].has(T)


def test_orphans_are_published_again_after_the_members_have_reported() -> None:
    """The only brokers that held p's publications besides the closing one die before they say so."""
    tree = Tree({"b1": "b0", "b2": "b0"}, safe_copies=3)
    x = tree.member("x", "b2")
    p = tree.member("p", "b1", receives=False)
    tree.freeze("b0", "b2")
    for key, guarantee in (("a", "causal"), ("b", "total"), ("c", "causal")):
        p.publish(key, guarantee=guarantee)
        tree.carry("p", "b1")
    tree.carry("b1", "b0")
    p.say(Unsubscribe(T))
    tree.carry("p", "b1")
    tree.carry("b1", "b0")
    tree.crash("b0")
    tree.frozen.clear()
    tree.crown("b2", 2)
    tree.attach("b1", "b2")
    tree.run()
    tree.pass_time(3000)

    assert x.delivered == ["p1", "p3", "p2"]
    assert tree.brokers["b1"].orphans.waiting == {}
    tree.pass_time(60_000)
    assert tree.brokers["b2"].book.live(T) == {"x"}


def test_orphans_wait_for_locks_like_any_publication() -> None:
    tree = Tree({"b1": "b0", "b2": "b0"}, safe_copies=1)
    x = tree.member("x", "b2")
    tree.freeze("b2", "b0")
    x.publish("k", guarantee="total")
    tree.run()
    tree.brokers["b1"].orphans.take_over(T, [entry("gone", 1, "k"), entry("gone", 2, "other")])
    tree.brokers["b1"].turn_end()
    tree.run()
    assert tree.log_of("b1") == []
    tree.thaw("b2", "b0")
    tree.run()

    assert x.delivered == ["x1", "gone1", "gone2"]


def test_a_known_orphan_is_not_published_twice() -> None:
    tree = Tree({"b1": "b0"})
    x = tree.member("x", "b0")
    x.publish("k")
    tree.run()
    tree.brokers["b1"].orphans.take_over(T, [entry("x", 1)])
    tree.brokers["b1"].turn_end()
    tree.run()

    assert x.delivered == ["x1"]
    assert not tree.brokers["b1"].has(T)


def test_what_a_broker_read_back_from_disk_is_published_again() -> None:
    """Saved: a single broker restarts and its client comes back."""
    tree = Tree({"b1": "b0"})
    x = tree.member("x", "b0")
    tree.crash("b1")
    tree.start(
        "b1", life=1, saved=SavedBroker(entries={T: [entry("old", 1), entry("old", 2)]}, base={T: {Origin("old"): 1}})
    )
    tree.attach("b1", "b0")
    tree.run()
    tree.pass_time(1000)

    assert x.delivered == ["old2"]


def test_a_former_life_of_this_broker_does_not_stay_a_member() -> None:
    tree = Tree({"b1": "b0"})
    tree.member("x", "b0")
    tree.brokers["b0"].merge_roster({T: (Origin("b1~0.0@t 1"),)}, {})
    tree.crash("b1")
    tree.start("b1", life=1)
    tree.attach("b1", "b0")
    tree.run()

    assert tree.brokers["b0"].book.live(T) == {"x"}


def test_a_keeper_that_loses_its_parent_publishes_what_it_holds() -> None:
    tree = Tree({"b1": "b0", "b2": "b0"}, safe_copies=2, partitions="primary", member_timeout_ms=3000.0)
    p = tree.member("p", "b0", receives=False)
    s = tree.member("s", "b0")
    tree.freeze("b0", "s")
    p.publish("k")
    tree.run()
    assert p.acked == (1, 1)
    tree.crash("b0")
    tree.crown("b2", 2)
    tree.attach("b1", "b2")
    tree.move("s", "b1")
    tree.thaw("b0", "s")
    s.subscribe()
    tree.run()
    tree.pass_time(20_000)

    assert s.delivered == ["p1"]


def test_an_entry_that_leaves_the_log_above_the_base_is_noticed() -> None:
    """BRK-I2: locks, log and received-set say the same."""
    tree = Tree({})
    tree.member("x", "b0").publish("k")
    tree.run()
    node = tree.brokers["b0"].nodes[T]
    node.log.entries.clear()
    node.version += 1
    with pytest.raises(InvariantError, match="received"):
        tree.brokers["b0"].check_invariants()
