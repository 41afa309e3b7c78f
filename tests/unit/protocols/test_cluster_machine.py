"""A member of clusters as a machine: copies, what it refuses, how it comes and goes (CLU-5, CLU-8)."""

from __future__ import annotations

from typing import Any

import pytest

from ordercast.core.errors import PeerError
from ordercast.core.messages import Packet
from ordercast.core.process import Peer
from ordercast.protocols.cluster.packets import Recover, Recovered, Release, Snapshot, SnapshotAsked, Update
from tests.support.cluster_lab import CLUSTER, OTHER, OneMember, asked_range, event, value
from tests.support.hand_wires import HandWires

A1, A2, B1 = event("a1", "1 0 0"), event("a2", "2 0 0"), event("b1", "1 1 0")


def test_a_copy_is_equal_and_independent() -> None:
    one = OneMember(coordinators=("x", "y", "me"))
    one.gossip(A2)
    one.publish("mine")
    copy = one.machine.copy(HandWires())
    assert copy == one.machine
    assert hash(copy) == hash(one.machine)
    copy.on_cast(OTHER, [Update(CLUSTER, (A1,), b"\0")])
    assert copy != one.machine
    assert A2.key in one.member.delivery.ordering.waiting


def of_too_many_members() -> Packet:
    return Update(CLUSTER, (), b"", tuple((f"m{i}", 0, 0) for i in range(11)))


@pytest.mark.parametrize(
    "packet",
    [
        Update(CLUSTER, (A1,), b""),
        Update(CLUSTER, (A1,) * 21, bytes(21)),
        of_too_many_members(),
        Update(CLUSTER, (), b"", (("", 0, 0),)),
        Update(CLUSTER, (), b"", (("x", 0, -1),)),
        Update(CLUSTER, (), b"", digest=(1, 2)),
        Update(CLUSTER, (event("a1", "1 0"),), b"\0"),
        Update(CLUSTER, (event("a2", "1 0 0"),), b"\0"),
        Update(CLUSTER, (event("a1@2", "1@2 0 0", prev="1@2"),), b"\0"),
        Recover(CLUSTER, (asked_range("a", "0", "1"),) * 4),
        Recovered(CLUSTER, (event("a2", "1 0 0"),)),
        SnapshotAsked(CLUSTER),
    ],
    ids=lambda packet: type(packet).__name__,
)
def test_a_packet_that_makes_no_sense_is_its_senders_fault_and_changes_nothing_that_counts(packet: Packet) -> None:
    one = OneMember()
    with pytest.raises(PeerError, match="other"):
        one.cast(packet)
    assert one.gossip(A1) == ["a1"], "and the member goes on"
    assert one.gossip(A2) == ["a2"]


def test_of_two_makers_of_an_epoch_the_second_is_not_believed() -> None:
    one = OneMember()
    one.gossip(A1)
    with pytest.raises(PeerError, match="1 updates that cannot be"):
        one.gossip(event("a2", "2 0 0", creator="a thief"), B1)
    assert one.delivered == ["a1", "b1"], "what else was in the packet counts"
    assert one.gossip(A2) == ["a2"], "and so does the true one"
    assert one.wires.counts["updates_of_two_makers"] == 1


def test_a_stranger_that_offers_a_snapshot_is_refused() -> None:
    one = OneMember()
    one.machine.on_opened(5, Peer("node", "mallory", 0, "mallory"))
    with pytest.raises(PeerError, match="mallory"):
        one.machine.on_packets(5, [Snapshot(CLUSTER, (9, 9, 9), (), b"")])
    with pytest.raises(PeerError, match="mallory"):
        one.machine.on_packets(5, [Update(CLUSTER, (), b"")])


def test_a_newcomer_asks_the_next_one_if_nobody_answers_and_begins_at_nothing_in_the_end() -> None:
    one = OneMember(genesis=False, contacts=("x", "y"), join_ms=3.0)
    first = one.wires.dialed[:]
    one.until(4)
    assert len(one.wires.dialed) == 2
    assert one.wires.dialed != first * 2
    one.machine.on_closed(2, gone=True)
    assert one.wires.counts["joined_without_snapshot"] == 1
    assert one.gossip(A1) == ["a1"]


def test_a_member_answers_a_newcomer_with_where_it_stands() -> None:
    class Board:
        """An application with a state."""

        def __getattr__(self, _name: str) -> Any:
            return lambda *_values, **_named: b"the board"

    one = OneMember(app=Board())
    one.gossip(A1, B1)
    one.machine.on_opened(3, OTHER)
    one.machine.on_packets(3, [SnapshotAsked(CLUSTER), SnapshotAsked("elsewhere")])
    (_, told), (_, unknown) = one.wires.sent
    assert told == Snapshot(CLUSTER, (value("1"), value("1"), 0), ((0, 1, "at-a"), (1, 1, "at-b")), b"the board")
    assert unknown == Snapshot("elsewhere", (), (), b"")


def test_who_ends_the_order_delivers_what_waits_first_and_nothing_twice() -> None:
    """CLU-5.3."""
    one = OneMember()
    one.gossip(event("c1", "1 1 1"))
    one.gossip(B1)
    one.machine.join(CLUSTER, ordered=False)
    assert one.delivered == ["b1", "c1"]
    assert one.gossip(A1, A2) == ["a2"], "a1 was passed over while the order was kept"
    one.until(30)
    assert one.asked() == []


def test_who_leaves_gives_its_entry_back_and_tells_some() -> None:
    """CLU-5.5."""
    one = OneMember(managers=("me", "other", "third"), entries=3)
    member = one.member
    one.machine.leave(CLUSTER)
    (_, last) = one.told(Update)[-1]
    assert last.gone == (("me", 0),)
    assert last.members == ()
    assert one.machine.clusters == {}
    assert member.left
    one.machine.on_cast(OTHER, [Update(CLUSTER, (A1,), b"\0")])
    assert one.delivered == []


def test_an_update_that_can_never_be_made_is_refused_and_counted() -> None:
    for settings, why in (
        ({}, "neither"),
        ({"observers": ("me",)}, "without order"),
        ({"coordinators": ("me",), "packet_bytes": 1_000}, "1,000"),
    ):
        one = OneMember(**settings)
        one.publish("x" * (2_000 if why == "1,000" else 1))
        assert one.wires.counts["updates_refused"] == 1, why
        assert one.delivered == []


def test_releases_of_strangers_change_nothing() -> None:
    one = OneMember(managers=("me", "other", "third"))
    one.cast(Release(CLUSTER, 0, 1, 5))
    assert one.machine.manager.tickets == {}
