"""A channel against a model: order and once under every series of sends, losses, acknowledgements and connections."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId
from ordercast.net.nodes.channel import Channel
from ordercast.net.nodes.settings import NodeSettings
from ordercast.net.wire.connection import WireConnection

BOB = NodeId("bob")


def channel(**settings: int) -> tuple[Channel, list[bool]]:
    """A channel, and whether it was full whenever that changed."""
    pressure: list[bool] = []
    return Channel(BOB, NodeSettings(**settings), lambda one: pressure.append(one.full)), pressure  # type: ignore[arg-type]


def connect(one: Channel, received: int = 0, connection: int = 1) -> list[bytes]:
    """A new connection to a peer that has so much: what is sent again."""
    one.open(connection, now_ns=0)
    return one.resume(cast("WireConnection", object()), received)


@given(st.lists(st.sampled_from(["push", "arrive", "ack", "reconnect"]), max_size=60))
def test_order_and_once_over_any_series_of_connections(steps: list[str]) -> None:
    """The receiver is a model: it takes the next number and nothing else."""
    one, _ = channel()
    wire = connect(one)
    taken: list[bytes] = []
    pushed = looked = 0
    for step in [*steps, "reconnect"]:
        match step:
            case "push":
                pushed += 1
                one.push(b"%d" % pushed)
                wire.append(b"%d" % pushed)
            case "arrive":
                # Half of what was written arrives, so that a reconnection finds something lost.
                frames = wire[looked:]
                arrived = frames[: (len(frames) + 1) // 2]
                looked += len(arrived)
                taken += arrived
            case "ack":
                one.settle(len(taken))
            case "reconnect":
                wire, looked = connect(one, len(taken)), 0
    assert [*taken, *wire] == [b"%d" % i for i in range(1, pushed + 1)]


def test_what_is_pushed_without_a_connection_waits_for_one() -> None:
    one, _ = channel()
    one.push(b"a")
    one.push(b"b")
    assert not one.connected
    assert connect(one) == [b"a", b"b"]
    assert one.connected


def test_a_connection_carries_nothing_before_the_peer_has_said_what_it_has() -> None:
    one, _ = channel()
    one.open(1, now_ns=0)
    assert (one.connection, one.connected) == (1, False)


@pytest.mark.parametrize("number", [3, 99, -1])
def test_nobody_can_acknowledge_what_was_not_sent(number: int) -> None:
    one, _ = channel()
    connect(one)
    one.push(b"a")
    one.push(b"b")
    with pytest.raises(PeerError, match=f"acknowledges packet {number}"):
        one.settle(number)


def test_acknowledgements_do_not_go_back() -> None:
    one, _ = channel()
    connect(one)
    for body in (b"a", b"b"):
        one.push(body)
    one.settle(2)
    with pytest.raises(PeerError, match="acknowledges packet 1"):
        one.settle(1)
    with pytest.raises(PeerError, match="claims to have received 1"):
        connect(one, 1)


def test_pressure_rises_at_the_mark_and_falls_at_half_of_it() -> None:
    one, pressure = channel(high_water_bytes=1000)
    connect(one)
    for _ in range(3):
        one.push(bytes(400))
    assert pressure == [True]
    one.settle(1)
    assert pressure == [True]
    one.settle(2)
    assert pressure == [True, False]


def test_a_suspected_peer_exerts_pressure_only_at_a_higher_mark() -> None:
    one, pressure = channel(high_water_bytes=1000, stranded_bytes=10_000)
    one.push(bytes(1200))
    one.set_suspected(suspected=True)
    one.push(bytes(1200))
    assert pressure == [True, False]
    one.push(bytes(9000))
    assert pressure == [True, False, True]


def test_a_packet_is_not_queued_twice_while_it_is_on_its_way() -> None:
    one, _ = channel()
    connect(one)
    assert one.push(b"a", key=7)
    assert not one.push(b"a", key=7)
    assert one.push(b"a")
    one.settle(1)
    assert one.push(b"a", key=7)
    assert one.sent == 3


def test_a_new_life_of_the_peer_starts_both_directions_again() -> None:
    one, _ = channel()
    assert not one.meet(0, 0)
    connect(one)
    one.push(b"lost", key=1)
    one.took_over(4)
    one.banned = "for a reason"
    with pytest.raises(PeerError, match="broke the protocol: for a reason"):
        one.admit(0)
    one.admit(1)
    assert one.meet(1, 1)
    assert connect(one) == []
    assert one.push(b"new", key=1)
    assert (one.sent, one.received, one.buffered, one.banned) == (1, 0, 3, "")
    with pytest.raises(PeerError, match="life 1 was here already"):
        one.admit(0)


def test_a_new_life_that_remembers_the_former_one_has_forgotten_nothing() -> None:
    one, _ = channel()
    assert not one.meet(3, 3)
    assert not one.meet(4, 2)
    assert one.meet(5, 5)


def test_what_was_sent_before_the_first_meeting_is_kept() -> None:
    one, _ = channel()
    one.push(b"early")
    assert not one.meet(5, 5)
    assert connect(one) == [b"early"]


def test_the_end_of_an_older_connection_is_not_that_of_the_newer_one() -> None:
    one, _ = channel()
    connect(one, connection=1)
    connect(one, connection=2)
    one.lost(1)
    assert (one.connection, one.connected) == (2, True)
    one.lost(2)
    assert not one.connected
