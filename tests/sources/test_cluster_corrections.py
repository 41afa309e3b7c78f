"""Where the published layer is incomplete or wrong: a counterexample each, as in docs/protocols/cluster.md."""

from __future__ import annotations

from itertools import permutations, product

from ordercast.protocols.cluster.events import Event, causal_order
from ordercast.protocols.cluster.ordering import UpdateOrdering
from ordercast.protocols.cluster.packets import Recovered, Snapshot, SnapshotAsked, Update
from tests.support.cluster_lab import CLUSTER, OneMember, asked_range, event, value

A1, A2, A3 = event("a1", "1 0 0"), event("a2", "2 0 0"), event("a3", "3 0 0")
B1, C1 = event("b1", "1 1 0"), event("c1", "1 1 1")


def names(events: list[Event]) -> list[str]:
    return [one.message.payload.decode() for one in events]


def test_c1_a_new_owner_never_makes_an_update_with_the_id_of_one_under_way() -> None:
    """The old life made a1, a2; the new one has seen a1 only. Without epochs both would make a second one."""
    old = OneMember(coordinators=("me",))
    old.publish("1")
    old.publish("2", number=2)
    old.until(1)
    made = old.told(Update)[0][1].events
    new = OneMember(coordinators=("me",), life=1)
    new.gossip(made[0])
    new.publish("3", origin="me~1")
    new.until(1)
    fresh = [one for one in new.told(Update)[0][1].events if one.message.payload == b"3"]
    assert {one.key for one in fresh}.isdisjoint({one.key for one in made})
    assert fresh[0].prev == made[0].value
    watcher = OneMember()
    watcher.gossip(made[0], fresh[0])
    assert watcher.gossip(made[1]) == [], "obsolete: its owner's time is over, and its number is nobody else's"


def test_c3_a_range_across_epochs_is_asked_for_although_nobody_knows_how_long_the_old_one_was() -> None:
    one = OneMember()
    one.gossip(A1)
    one.gossip(event("a2@2", "2@2 0 0"))
    one.until(6)
    assert one.asked() == [asked_range("a", "1", "1@2")]
    first = event("a1@2", "1@2 0 0", prev="2")
    assert one.recovered(A2, first) == ["a2", "a1@2", "a2@2"]


def test_c4_a_newcomer_begins_where_a_member_stands_and_asks_for_nothing_of_the_past() -> None:
    one = OneMember(genesis=False)
    assert one.wires.sent == [(1, SnapshotAsked(CLUSTER))]
    assert one.gossip(event("a58", "58 130 7")) == [], "what comes meanwhile waits"
    one.machine.on_packets(1, [Snapshot(CLUSTER, tuple(map(value, ("57", "130", "7"))), (), b"")])
    assert one.delivered == ["a58"]
    one.until(20)
    assert one.asked() == []
    assert one.wires.notes == [("join", {})]


def test_c6_a_recovered_update_that_cannot_be_delivered_asks_for_its_own_gaps_and_is_not_stuck() -> None:
    one = OneMember()
    one.recovered(A2)
    assert one.asked() == [asked_range("a", "0", "1")]
    assert one.until(3.9) == []
    assert one.until(4) == ["a2"]


def test_c7_what_waits_is_delivered_before_what_it_happened_before() -> None:
    """b1 waits for a1, c1 for both: whichever runs out of time first, b1 is not lost."""
    one = OneMember()
    one.gossip(C1)
    one.until(1)
    one.gossip(B1)
    assert one.until(10) == ["b1", "c1"]


def test_c18_the_past_of_an_update_whose_epoch_was_cut_short_is_delivered_too() -> None:
    """b1 is in the past of a2, and a2 is not in the past of a1@2; forced, a1@2 makes a2 obsolete, and a2 makes b1."""
    cut_short = event("a2", "2 1 0")
    before_it = event("b1", "0 1 1")  # Waits for c1, which never comes.
    next_owner = event("a1@2", "1@2 0 0", prev="1")
    ordering = UpdateOrdering(3)
    for waiting in (cut_short, before_it, next_owner):
        ordering.waiting[waiting.key] = waiting
    assert names(ordering.force(next_owner)) == ["b1", "a2", "a1@2"]
    ready = UpdateOrdering(3)
    ready.take(A1)
    for waiting in (cut_short, before_it):
        ready.waiting[waiting.key] = waiting
    assert names(ready.take(next_owner)) == ["b1", "a2", "a1@2"], "also if the next owner's is ready at once"


def test_c19_what_was_delivered_without_order_is_behind_whoever_begins_to_keep_it() -> None:
    """It delivered b1 without a1. If its first ordered update did not tell so, others could deliver that before b1."""
    one = OneMember(observers=("me",), coordinators=("me",))
    assert one.gossip(B1) == ["b1"]
    one.machine.join(CLUSTER, ordered=True)
    one.machine.on_packets(1, [Snapshot(CLUSTER, (0, 0, 0), (), b"")])
    assert one.gossip(A1) == [], "a1 happened before b1, which is delivered"
    assert one.member.delivery.ordering.clock == [value("1"), value("1"), 0]


def test_c20_who_has_delivered_an_update_of_a_later_owner_makes_no_more_under_the_old_epoch() -> None:
    one = OneMember(coordinators=("me",))
    one.publish("mine")
    lease = one.member.coordinating.lease
    one.gossip(event("a1@9", "1@9 0 0", prev=f"1@{lease.epoch}", creator="another"))
    assert not one.member.coordinating.may_update


def test_every_arrival_every_loss_and_every_early_end_keeps_the_order_and_loses_nothing_that_came() -> None:
    """O1, O2, O4 for one receiver: all orders of four updates, with duplicates, some forced after each arrival."""
    schedules = 0
    for events in _families():
        for order in permutations(events):
            for count in range(1, len(order) + 1):
                for forced in product((None, 0, -1), repeat=count):
                    _run(order[:count], forced)
                    schedules += 1
    assert schedules == len(_families()) * 24 * (3 + 9 + 27 + 81)


def _families() -> list[list[Event]]:
    return [
        [A1, A2, B1, C1],
        [A1, event("b1", "0 1 0"), event("c1", "1 0 1"), event("b2", "1 2 1")],
        [A1, event("a2", "2 1 0"), event("b1", "0 1 0"), event("a1@2", "1@2 0 0", prev="1")],
        [A1, event("a1@3", "1@3 1 0", prev="1"), event("b1", "1@2 1 0"), event("a1@2", "1@2 0 0", prev="1")],
    ]


def _run(arrivals: tuple[Event, ...], forced: tuple[int | None, ...]) -> None:
    """`forced`: after each arrival nothing runs out of time, or the first of all that waits, or the last."""
    ordering = UpdateOrdering(3)
    delivered: list[Event] = []
    reached: list[Event] = []
    for i, arrival in enumerate(arrivals):
        for one in (arrival, arrivals[i // 2]):  # And one of those before for a second time.
            if ordering.is_obsolete(one) or one.key in ordering.waiting:
                continue
            reached.append(one)
            if ordering.is_ready(one):
                delivered += ordering.take(one)
            else:
                ordering.waiting[one.key] = one
        which = forced[i]
        if which is not None and ordering.waiting:
            delivered += ordering.force(list(ordering.waiting.values())[which])
        for waiting in ordering.waiting.values():
            assert not ordering.is_obsolete(waiting)
            assert not ordering.is_ready(waiting)
    keys = [one.key for one in delivered]
    assert len(keys) == len(set(keys)), "O2"
    assert sorted(keys + list(ordering.waiting)) == sorted(one.key for one in reached), "O4"
    for i, late in enumerate(delivered):
        for early in delivered[:i]:
            assert not _happened_before(late, early), f"O1: {names(delivered)}"


def _happened_before(one: Event, other: Event) -> bool:
    return one.key != other.key and all(x <= y for x, y in zip(one.vector, other.vector, strict=True))


def test_sorting_by_the_sum_of_a_vector_never_puts_a_later_update_first() -> None:
    assert min([C1, B1, A3, A1, A2], key=causal_order) == A1
    assert names(sorted([C1, B1, A1], key=causal_order)) == ["a1", "b1", "c1"]


def test_an_answer_is_split_into_packets_of_bounded_size() -> None:
    one = OneMember(packet_bytes=1_000)
    one.gossip(A1, A2, A3, event("a4", "4 0 0"), event("a5", "5 0 0"))
    one.told(Recovered)
    one.member.delivery.answer("other", (asked_range("a", "0", "5"),), "other")
    assert [len(packet.events) for _, packet in one.told(Recovered)] == [4, 1]
