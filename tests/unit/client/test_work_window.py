"""One window over the topics of a filter (SHW-9), and where a group on a filter began (SHW-10)."""

from __future__ import annotations

from ordercast.client.work.lanes import WorkLanes, unit_of
from ordercast.client.work.leader import WorkLeader, WorkSettings
from ordercast.client.work.member import WorkMember
from ordercast.client.work.window import SharedWindow
from ordercast.client.work.words import (
    GroupBeginning,
    Orders,
    WorkOrder,
    beginning_in,
    beginning_topic,
    earliest_of,
    encode,
    is_groups_own,
    progress_in,
)
from ordercast.core.ids import Origin, Topic
from ordercast.pubsub.publications import Publication

ANN, BOB = Origin("ann#1"), Origin("bob#1")
SETTINGS = WorkSettings(window=8, silent_ms=1000)


def entry(number: int, topic: str = "t0") -> Publication:
    return Publication(ANN, number, Topic(topic), b"", keys=("",))


def busy_window(topics: int, window: int = 8) -> tuple[SharedWindow, list[WorkMember]]:
    shared = SharedWindow(window)
    members = [WorkMember("bob", SETTINGS, 0) for _ in range(topics)]
    for i, member in enumerate(members):
        shared.add(f"t{i}", member)
    return shared, members


def fill(member: WorkMember) -> None:
    """The leader sends as much as it may by the last report, and has all of them."""
    member.report(10**12)
    first = 1 + max((number for _, number in member.held), default=0)
    sent = tuple(WorkOrder(entry(first + i), 1) for i in range(member.room - len(member.held)))
    member.orders(Orders(1, member.member, sent, heard=member.number), 0)


def test_all_topics_together_have_one_window_and_each_has_room_for_one() -> None:
    shared, members = busy_window(4)
    for _ in range(10):
        for member in members:
            fill(member)
            shared.grow(member)
        shared.settle()
        assert sum(member.taken_up for member in members) <= 8

    assert [member.room for member in members] == [2, 2, 2, 2]
    assert all(member.room == 1 for member in busy_window(20)[1])


def test_the_only_busy_topic_gets_what_the_others_do_not_use_and_gives_it_back() -> None:
    shared, (one, other, third) = busy_window(3)
    for _ in range(5):
        fill(one)
        shared.grow(one)
    assert [one.room, other.room, third.room] == [6, 1, 1]
    fill(one)
    fill(other)

    assert shared.settle() == ["t0"]  # Its leader may use the room until it has heard that it is less.
    assert (one.room, other.room, one.taken_up) == (4, 1, 6)
    for held in list(one.held.values())[:4]:
        one.done(held)
    fill(one)
    assert shared.settle() == ["t1"]
    assert other.room == 2


def test_a_leader_sends_a_member_no_more_than_the_room_that_it_gives() -> None:
    leader = WorkLeader(1, None, SETTINGS, 0)
    member = WorkMember("bob", SETTINGS, 0)
    member.room = 2
    report = member.report(0)
    assert report is not None
    leader.report(report)
    assert leader.progress() is not None
    leader.recorded(leader.version)
    leader.arrive([entry(number) for number in range(1, 20)])
    sent = [order for orders in leader.orders() for order in orders.assigned]
    assert len(sent) == 2

    member.room = 5
    more = member.report(1)
    assert more is not None
    assert more.room == 5
    leader.report(more)

    assert len([order for orders in leader.orders() for order in orders.assigned]) == 3


def test_a_member_whose_room_shrinks_gets_nothing_before_it_has_room_again() -> None:
    lanes = WorkLanes(4)
    lanes.open("bob")
    lanes.add([unit_of(entry(number), 0) for number in range(1, 9)])
    assert len(lanes.outgoing()) == 4

    lanes.resize("bob", 2)
    lanes.done("bob", [(ANN, 1), (ANN, 2)])
    assert lanes.outgoing() == []
    lanes.done("bob", [(ANN, 3)])
    assert len(lanes.outgoing()) == 1
    lanes.resize("bob", 0)

    assert len(lanes.outgoing()) == 2


def test_of_two_beginnings_what_is_in_both_counts_and_a_topic_that_one_lacks_begins_at_its_beginning() -> None:
    pt, es = Topic("orders.PT"), Topic("orders.ES")
    first = GroupBeginning({pt: {ANN: 3, BOB: 1}})
    second = GroupBeginning({pt: {ANN: 2}, es: {ANN: 7}})

    assert earliest_of([first, second]) == {pt: {ANN: 2}}
    assert beginning_in(encode(first)) == first
    assert progress_in(encode(first)) is None
    assert beginning_topic("orders.*.>", "g") == "groups.orders.(any).(rest).g"


def test_what_groups_write_is_nobodys_work() -> None:
    own = ["groups.orders.PT.g", "work.orders.PT.g.reports", "dead.orders.PT.g", "lost"]
    others = ["orders.PT", "dead.orders.PT.h", "group.x"]

    assert [topic for topic in (*own, *others) if is_groups_own(topic, "g", "lost")] == own
