"""Members that move while somebody has not noticed: whose word counts for them (BRK-M4 to BRK-M10, BRK-R2)."""

from __future__ import annotations

from typing import Any

from ordercast.broker.place import SavedBroker
from ordercast.broker.roster_book import adopter, broker_of, fence
from ordercast.broker.topics.authority import Authority
from ordercast.broker.topics.membership.leaving import Leaving
from ordercast.broker.topics.state.grants import Grants
from ordercast.broker.topics.topics import Topics
from ordercast.core.ids import NodeId, Origin
from ordercast.core.messages import Guarantee
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.topic_packets import AttachGranted
from tests.support.topics_tree import T, Tree


def test_a_request_of_an_edge_that_the_client_has_left_takes_nothing_back() -> None:
    """BRK-M4: the edge has not noticed and goes on asking; the total waits for the edge at which the client is."""
    tree = Tree({"b1": "b0", "b2": "b0", "b3": "b0"})
    x, y = tree.member("x", "b3"), tree.member("y", "b0")
    tree.hang_up("x", gone=False)
    tree.freeze("b1", "b0")
    tree.move("x", "b1")
    x.subscribe()
    tree.run()
    tree.move("x", "b2")
    x.subscribe()
    tree.run()
    tree.thaw("b1", "b0")
    tree.run()
    tree.pass_time(1000)
    assert x.live

    tree.freeze("b0", "b2")
    y.publish("k", guarantee="total")
    tree.run()
    assert y.delivered == []
    x.publish("k")
    tree.run()
    tree.thaw("b0", "b2")
    tree.run()
    assert x.delivered == y.delivered == ["x1", "y1"]


def moved_unnoticed(tree: Tree) -> tuple[Any, Any]:
    """x is at b2, b1 still takes it for its own, and the root that knew is dead."""
    x, y = tree.member("x", "b1"), tree.member("y", "b3")
    tree.move("x", "b2")
    tree.freeze("b1", "x")
    x.subscribe()
    tree.run()
    assert x.live
    tree.crash("b0")
    tree.crown("b3", 2)
    tree.attach("b1", "b3")
    tree.run()
    y.publish("k", guarantee="total")
    tree.run()
    x.publish("k")
    tree.run()
    return x, y


def test_a_new_root_does_not_take_the_word_of_an_edge_that_the_client_has_left() -> None:
    """BRK-M9: the epoch of every attach is recorded by all brokers before it is granted."""
    tree = Tree({"b1": "b0", "b2": "b0", "b3": "b0"})
    x, y = moved_unnoticed(tree)
    assert x.delivered == ["x1"]
    assert y.delivered == []
    tree.attach("b2", "b3")
    tree.run()

    assert x.delivered == y.delivered == ["x1", "y1"]


def test_an_edge_drops_a_member_that_is_recorded_elsewhere() -> None:
    """BRK-M9: what it had sent up of it is at the root before the member is granted."""
    tree = Tree({"b1": "b0", "b2": "b0"})
    x = tree.member("x", "b1")
    tree.freeze("b1", "b0")
    tree.move("x", "b2")
    x.subscribe()
    tree.run()
    assert not x.live
    tree.thaw("b1", "b0")
    tree.run()

    assert x.live
    assert not tree.brokers["b1"].has(T)


def test_an_edge_gives_up_a_request_that_a_later_attach_has_overtaken() -> None:
    """BRK-M9: also where the edge has not noticed that the connection is dead; nothing waits there for ever."""
    tree = Tree({"b1": "b0", "b2": "b0"})
    x = tree.member("x", "b2")
    tree.hang_up("x", gone=False)
    tree.move("x", "b1")
    x.subscribe()
    tree.carry("x", "b1")
    tree.freeze("x", "b1")
    tree.run()
    tree.move("x", "b2")
    x.subscribe()
    tree.run()
    tree.thaw("x", "b1")
    tree.run()
    tree.pass_time(1000)

    assert x.live
    assert not tree.brokers["b1"].has(T)


def test_a_departure_of_an_earlier_membership_does_not_end_a_later_one() -> None:
    """BRK-M11: an edge repeats it until it hears that it is known; the root that granted the later one may be gone."""
    tree = Tree({"b1": "b0", "b2": "b0"})
    x = tree.member("x", "b1")
    first = tree.brokers["b0"].book.epoch(T, x.origin)
    tree.hang_up("x", gone=False)
    tree.move("x", "b2")
    x.subscribe()
    tree.run()
    tree.crash("b0")
    tree.crown("b1", 2)
    tree.brokers["b1"].leaving.depart(T, x.origin, first)
    tree.run()

    assert tree.brokers["b1"].book.live(T) == {"x"}


def _dies_before_it_hears(tree: Tree, name: str, at: str) -> None:
    """It asks, every broker records that, and its connection breaks before the grant arrives."""
    tree.freeze("b0", at)
    tree.clients[name].subscribe()
    tree.run()
    while tree.brokers["b0"].grants.epoch(T, tree.clients[name].origin) < 0 and tree.carry("b0", at, 1):
        tree.run()
    tree.hang_up(name, gone=False)
    tree.thaw("b0", at)
    tree.run()


def test_nobody_waits_for_a_client_that_died_before_it_heard_that_it_is_a_member() -> None:
    """BRK-M8: or whoever may subscribe could hold up the totals of a topic again and again, by coming and going."""
    tree = Tree({"b1": "b0"}, partitions="primary")
    x = tree.member("x", "b0")
    tree.client("y", "b1")
    _dies_before_it_hears(tree, "y", "b1")
    x.publish("k", guarantee="total")
    tree.run()
    assert tree.brokers["b0"].book.live(T) == {"x"}
    assert x.delivered == ["x1"]


def test_who_was_a_member_before_is_waited_for_though_it_died_before_it_heard_that_it_is_one_here() -> None:
    tree = Tree({"b1": "b0", "b2": "b0"}, partitions="primary", absent_member="wait")
    tree.member("x", "b0")
    y = tree.member("y", "b2")
    tree.hang_up("y", gone=False)
    tree.move("y", "b1")
    _dies_before_it_hears(tree, "y", "b1")
    assert tree.brokers["b0"].book.live(T) == {"x", "y"}
    tree.move("y", "b2")
    y.subscribe()
    tree.run()
    assert y.live


def test_who_comes_back_after_it_died_before_it_heard_of_its_membership_is_one() -> None:
    tree = Tree({"b1": "b0", "b2": "b0"}, partitions="primary")
    x = tree.member("x", "b0")
    y = tree.client("y", "b1")
    _dies_before_it_hears(tree, "y", "b1")
    tree.move("y", "b2")
    y.subscribe()
    tree.run()
    assert y.live
    x.publish("k", guarantee="total")
    tree.run()
    assert (x.delivered, y.delivered) == (["x1"], ["x1"])


def test_a_grant_goes_down_only_behind_all_that_the_root_had_sent_before() -> None:
    """BRK-M5, F-TOT-14: a relay that has begun the topic anew has missed what came before the grant."""
    tree = Tree({"b1": "b0", "b3": "b1"})
    tree.member("y", "b0")
    x = tree.client("x", "b3")
    x.subscribe()
    tree.freeze("b0", "b1")
    tree.run()
    while not any(isinstance(packet, AttachGranted) for _, packet in tree.queues["b0", "b1"]):
        assert tree.carry("b0", "b1", 1)
        tree.run()
    broker = tree.brokers["b1"]
    broker.channels.reset(broker.nodes[T])
    broker.turn_end()
    tree.run()
    assert tree.brokers["b3"].nodes[T].up_live
    (position, *_) = [i for i, (_, packet) in enumerate(tree.queues["b0", "b1"]) if isinstance(packet, AttachGranted)]
    tree.carry("b0", "b1", position + 1)
    tree.run()
    assert not x.live
    tree.thaw("b0", "b1")
    tree.run()
    tree.pass_time(1000)
    assert x.live


def test_the_history_of_a_fenced_session_goes_no_further_than_the_edge_that_did_not_know() -> None:
    """BRK-S7: nobody who counts has delivered it; it comes like any other orphan."""
    tree = Tree({"b2": "b0", "b1": "b2"})
    y, w = tree.member("y", "b0"), tree.member("w", "b0")
    tree.hang_up("w", gone=False)
    tree.crash("b2")
    w.history = [Publication(w.origin, 1, T, b"x", Guarantee.CAUSAL, ("k",))]
    w.have.add(w.origin, 1)
    tree.move("w", "b1")
    w.subscribe()
    u = tree.client("u", "b1")
    u.subscribe()
    tree.run()
    assert tree.log_of("b1") == ["w1"]
    tree.brokers["b0"].news.learn({}, fence(w.origin))
    tree.attach("b1", "b0")
    tree.run()
    tree.pass_time(1000)

    assert u.live
    assert u.delivered == y.delivered == ["w1"]
    assert tree.wires("b1").counts["orphans_published"] == 1


def test_a_fence_takes_effect_once_every_broker_has_recorded_it() -> None:
    """BRK-M10: what is on its way from an edge that did not know is at the root by then."""
    tree = Tree({"b1": "b0", "b2": "b0"})
    y, z = tree.member("y", "b0"), tree.member("z", "b1")
    tree.freeze("b2", "b0")
    tree.hang_up("z", gone=True)
    tree.run()
    y.publish("k", guarantee="total")
    tree.run()
    assert y.delivered == []
    tree.thaw("b2", "b0")
    tree.run()

    assert y.delivered == ["y1"]
    assert tree.brokers["b0"].book.fenced(z.origin)


# Adopters


def adopting(tree: Tree, **settings: Any) -> None:
    """b1 dies while it is a member on behalf of an orphan."""
    tree.crash("b1")
    entry = Publication(Origin("old"), 1, T, b"x", Guarantee.TOTAL, ("k",))
    tree.start("b1", life=1, saved=SavedBroker(entries={T: [entry]}))
    tree.attach("b1", "b0")
    tree.freeze("b0", "b1")
    tree.run()
    tree.thaw("b0", "b1")
    while adopter(NodeId("b1"), 1, 0, T) not in tree.brokers["b0"].book.live(T):
        assert tree.carry("b0", "b1", 1) + tree.carry("b1", "b0", 1)
    tree.crash("b1")


def test_nobody_waits_for_the_adopter_of_a_dead_broker() -> None:
    """BRK-R2, `excluded`: the death of the broker is the end of it."""
    tree = Tree({"b1": "b0", "b2": "b0"})
    x = tree.member("x", "b0")
    adopting(tree)
    tree.overlays["b0"].dead[NodeId("b1")] = 1
    x.publish("k", guarantee="total")
    tree.brokers["b0"].copies.neighbours_changed()
    tree.run()
    tree.brokers["b0"].turn_end()
    tree.run()

    assert x.delivered == ["x1"]


def test_the_next_life_of_a_broker_ends_the_adopter_of_the_last_one() -> None:
    """BRK-R2, `primary`: a broken connection says nothing, the next life does."""
    tree = Tree({"b1": "b0", "b2": "b0"}, partitions="primary")
    x = tree.member("x", "b0")
    adopting(tree)
    x.publish("k", guarantee="total")
    tree.run()
    assert x.delivered == []
    tree.start("b1", life=2)
    tree.attach("b1", "b0")
    tree.run()

    assert x.delivered == ["x1"]
    assert not any(broker_of(member) for member in tree.brokers["b0"].book.live(T))


def test_clients_are_no_adopters_whatever_their_names() -> None:
    assert broker_of(adopter(NodeId("b-1"), 12, 3, T)) == ("b-1", 12)
    for name in ("joe", "joe~1", "joe@example.org", "joe@example.org~2", "7@x", "7.1@x", "a~1@x", "~1.0@t"):
        assert broker_of(Origin(name)) is None


# The rules are needed


class _AnyEpochCovers(Grants):
    def all_of(self, topic: Any, covered: Any, **_: Any) -> bool:
        return self.book.live(topic) <= {member for member, _ in covered}


class _AnyEpochIsPresent(Authority):
    def _latest(self, node: Any, members: Any) -> set[Origin]:
        return {member for member, _ in members}


class _KeepsMoved(Leaving):
    def superseded(self, topic: Any, member: Origin, epoch: int) -> None:
        pass


class _Forgetful(Topics):
    grants_type = _AnyEpochCovers
    authority_type = _AnyEpochIsPresent
    leaving_type = _KeepsMoved


class _ForgetfulTree(Tree):
    topics_type = _Forgetful


def test_without_recorded_epochs_a_new_root_orders_differently() -> None:
    tree = _ForgetfulTree({"b1": "b0", "b2": "b0", "b3": "b0"})
    x, y = moved_unnoticed(tree)
    assert x.delivered == ["x1"]
    assert y.delivered == ["y1"]
