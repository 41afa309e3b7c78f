"""Order across topics: the schedules in which it does not hold, and what a publisher does then (BRK-X1, BRK-X2)."""

from __future__ import annotations

from ordercast.core.ids import Topic
from ordercast.core.messages import Guarantee
from ordercast.pubsub.client_packets import Entries, StableReport, StableUpdate
from ordercast.pubsub.publications import Publication
from tests.support.topics_tree import Somebody, T, Tree

U = Topic("u")


def grown() -> tuple[Tree, Somebody, Somebody]:
    """x at b1 publishes, y at b2 receives both topics."""
    tree = Tree({"b1": "b0", "b2": "b0"}, partitions="primary", order_scope="session")
    tree.member("z", "b0")
    x, y = tree.member("x", "b1"), tree.member("y", "b2")
    for somebody in (x, y):
        somebody.subscribe(U)
    tree.run()
    return tree, x, y


def speak(somebody: Somebody, topic: Topic, number: int, guarantee: Guarantee = Guarantee.CAUSAL) -> None:
    somebody.say(Entries(topic, (Publication(somebody.origin, number, topic, b"x", guarantee, ("k",)),)))


def heard(somebody: Somebody) -> list[str]:
    return [e.topic for packet in somebody.of(Entries) for e in packet.entries]


def taken_by_all(tree: Tree) -> None:
    """Everybody reports what it has of the topic, and hears what is stable."""
    for name in ("x", "y", "z"):
        somebody = tree.clients[name]
        mine = {e.origin: e.number for e in somebody.history if e.topic == T}
        somebody.say(StableReport(T, mine))
    tree.run()
    tree.pass_time(500)


def test_without_any_fault_a_total_is_overtaken_by_what_its_publisher_says_next_elsewhere() -> None:
    """BRK-X1: it waits for everybody; the next one, on another topic, waits for nobody."""
    tree, x, y = grown()
    tree.freeze("z", "b0")
    tree.freeze("b2", "b0")
    speak(x, T, 1, Guarantee.TOTAL)
    speak(x, U, 1)
    tree.run()
    assert heard(y) == [U]
    tree.thaw("b2", "b0")
    tree.run()
    assert heard(y) == [U, T]


def test_after_a_repair_one_topic_may_be_ahead_of_the_other() -> None:
    """BRK-X1: each topic is synchronised by itself, so plain publications are overtaken too."""
    tree, x, y = grown()
    tree.cut("b1", "b0")
    speak(x, T, 1)
    speak(x, U, 1)
    tree.run()
    tree.freeze("b0", "b1")
    tree.attach("b1", "b0")
    tree.run()
    late = [packet for packet in tree.queues["b0", "b1"] if getattr(packet[1], "topic", "") == T]
    for packet in late:
        tree.queues["b0", "b1"].remove(packet)
    tree.carry("b0", "b1")
    tree.run()
    assert heard(y) == [U]
    tree.queues["b0", "b1"].extendleft(reversed(late))
    tree.thaw("b0", "b1")
    tree.run()
    assert heard(y) == [U, T]


def test_whoever_waits_until_the_first_is_delivered_is_never_overtaken() -> None:
    """BRK-X2: when the publisher hears that it is stable, every member has taken it, whatever happens from then on."""
    tree, x, y = grown()
    tree.cut("b1", "b0")
    speak(x, T, 1)
    tree.run()
    taken_by_all(tree)
    assert not x.of(StableUpdate)
    tree.attach("b1", "b0")
    tree.run()
    taken_by_all(tree)
    assert x.of(StableUpdate)[-1].base == {x.origin: 1}
    tree.crash("b1")
    tree.move("x", "b2")
    x.subscribe(U)
    tree.pass_time(3000)
    speak(x, U, 1)
    tree.run()
    assert heard(y) == [T, U]
