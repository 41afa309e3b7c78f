"""Who is given a unit of shared work."""

from __future__ import annotations

from ordercast.client.work.lanes import WorkLanes, unit_of
from ordercast.core.ids import Origin, Topic
from ordercast.pubsub.publications import Publication

PUBLISHER = Origin("ann#1")


def unit(number: int) -> Publication:
    return Publication(PUBLISHER, number, Topic("orders"), b"", keys=(f"k{number}",))


def test_a_member_that_holds_more_than_the_window_gets_nothing_until_it_has_room() -> None:
    """A leader may take over from one with a larger window."""
    lanes = WorkLanes(2)
    lanes.open("bob", [unit_of(unit(number), 0) for number in range(1, 6)])
    lanes.add([unit_of(unit(6), 0)])

    for number in (1, 2, 3):
        lanes.done("bob", [(PUBLISHER, number)])
        assert lanes.outgoing() == []
    lanes.done("bob", [(PUBLISHER, 4)])

    assert [(member, work.entry.number) for member, work in lanes.outgoing()] == [("bob", 6)]


def test_a_member_that_is_gone_while_it_holds_more_than_the_window_is_given_nothing() -> None:
    lanes = WorkLanes(2)
    lanes.open("bob", [unit_of(unit(number), 0) for number in range(1, 6)])
    lanes.done("bob", [(PUBLISHER, 1)])
    lanes.close("bob")
    lanes.open("cho")

    lanes.add([unit_of(unit(6), 0)])

    assert [(member, work.entry.number) for member, work in lanes.outgoing()] == [("cho", 6)]
