"""A channel against a model: under every series of sends, losses, acknowledgements and connections, order and once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId
from ordercast.net.nodes.channel import Channel
from ordercast.net.nodes.frames import ACK, DATA, FrameReader
from ordercast.net.settings import NetSettings

BOB = NodeId("bob")


class PaperWire:
    """A connection that keeps what is written."""

    def __init__(self) -> None:
        self.writable = True
        self.written: list[bytes] = []
        self.ended = ""

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def complain(self, reason: str) -> None:
        self.ended = reason

    def abort(self, reason: str) -> None:
        self.ended = reason

    def frames(self) -> list[tuple[int, int, bytes]]:
        return FrameReader("bob", 1 << 20).feed(b"".join(self.written))


class Owner:
    def __init__(self) -> None:
        self.woken = 0
        self.pressure: list[bool] = []

    def has_writes(self, channel: Channel) -> None:
        self.woken += 1

    def pressure_changed(self, channel: Channel) -> None:
        self.pressure.append(channel.full)


def channel(**settings: int) -> tuple[Channel, Owner]:
    owner = Owner()
    return Channel(BOB, NetSettings(**settings), owner), owner  # type: ignore[arg-type]


def connect(one: Channel, received: int = 0) -> PaperWire:
    wire = PaperWire()
    one.resume(wire, received)
    return wire


def test_one_flush_is_one_write() -> None:
    one, owner = channel()
    wire = connect(one)
    for body in (b"a", b"b", b"c"):
        one.push(body)
    one.took_over(1)
    one.flush()
    assert len(wire.written) == 1
    assert wire.frames() == [(ACK, 1, b""), (DATA, 1, b"a"), (DATA, 2, b"b"), (DATA, 3, b"c")]
    assert owner.woken == 1


@given(st.lists(st.sampled_from(["push", "flush", "arrive", "ack", "reconnect"]), max_size=60))
def test_order_and_once_over_any_series_of_connections(steps: list[str]) -> None:
    """The receiver is a model: it takes the next number and nothing else."""
    one, _ = channel()
    wire = connect(one)
    taken: list[bytes] = []
    pushed = 0
    looked = 0
    for step in [*steps, "reconnect", "flush", "arrive", "arrive"]:
        match step:
            case "push":
                pushed += 1
                one.push(b"%d" % pushed)
            case "flush":
                one.flush()
            case "arrive":
                # Half of what was written arrives, so that a reconnection finds something lost.
                frames = wire.frames()[looked:]
                for _, number, body in frames[: (len(frames) + 1) // 2] if step in steps else frames:
                    looked += 1
                    assert number == len(taken) + 1
                    taken.append(body)
            case "ack":
                one.settle(len(taken))
            case "reconnect":
                wire, looked = connect(one, len(taken)), 0
    one.flush()
    for _, _, body in wire.frames()[looked:]:
        taken.append(body)
    assert taken == [b"%d" % i for i in range(1, pushed + 1)]


def test_what_the_socket_does_not_take_waits_and_stays_in_order() -> None:
    one, _ = channel()
    wire = connect(one)
    wire.writable = False
    one.push(b"a")
    one.flush()
    assert wire.written == []
    wire.writable = True
    one.push(b"b")
    one.flush()
    assert [body for _, _, body in wire.frames()] == [b"a", b"b"]


def test_an_acknowledgement_is_written_even_while_the_socket_takes_no_data() -> None:
    one, _ = channel(ack_every=1)
    wire = connect(one)
    wire.writable = False
    one.push(b"a")
    one.took_over(1)
    one.acknowledge_soon()
    one.flush()
    assert wire.frames() == [(ACK, 1, b"")]


def test_few_packets_are_acknowledged_later_and_many_at_once() -> None:
    one, _ = channel(ack_every=3)
    wire = connect(one)
    one.took_over(2)
    assert one.acknowledge_soon()
    one.flush()
    assert wire.frames() == []
    one.took_over(1)
    assert not one.acknowledge_soon()
    one.flush()
    assert wire.frames() == [(ACK, 3, b"")]


@pytest.mark.parametrize("number", [3, 99])
def test_nobody_can_acknowledge_what_was_not_written(number: int) -> None:
    one, _ = channel()
    connect(one)
    one.push(b"a")
    one.push(b"b")
    one.flush()
    one.push(b"c")
    with pytest.raises(PeerError, match=f"acknowledges packet {number}"):
        one.settle(number)


def test_acknowledgements_do_not_go_back() -> None:
    one, _ = channel()
    connect(one)
    for body in (b"a", b"b"):
        one.push(body)
    one.flush()
    one.settle(2)
    with pytest.raises(PeerError, match="acknowledges packet 1"):
        one.settle(1)
    with pytest.raises(PeerError, match="claims to have received 1"):
        connect(one, 1)


def test_pressure_rises_at_the_mark_and_falls_at_half_of_it() -> None:
    one, owner = channel(high_water_bytes=1000)
    connect(one)
    for _ in range(3):
        one.push(bytes(400))
    one.flush()
    assert owner.pressure == [True]
    one.settle(1)
    assert owner.pressure == [True]
    one.settle(2)
    assert owner.pressure == [True, False]


def test_a_suspected_peer_exerts_pressure_only_at_a_higher_mark() -> None:
    one, owner = channel(high_water_bytes=1000, stranded_bytes=10_000)
    one.push(bytes(1200))
    one.set_suspected(suspected=True)
    one.push(bytes(1200))
    assert owner.pressure == [True, False]
    one.push(bytes(9000))
    assert owner.pressure == [True, False, True]


def test_a_packet_is_not_queued_twice_while_it_is_on_its_way() -> None:
    one, _ = channel()
    wire = connect(one)
    assert one.push(b"a", key=7)
    assert not one.push(b"a", key=7)
    assert one.push(b"a")
    one.flush()
    one.settle(1)
    assert one.push(b"a", key=7)
    one.flush()
    assert [number for _, number, _ in wire.frames()] == [1, 2, 3]


def test_a_new_life_of_the_peer_starts_both_directions_again() -> None:
    one, _ = channel()
    assert not one.meet(0)
    connect(one)
    one.push(b"lost", key=1)
    one.took_over(4)
    one.banned = "for a reason"
    assert one.meet(1)
    wire = connect(one)
    assert one.push(b"new", key=1)
    one.flush()
    assert wire.frames() == [(DATA, 1, b"new")]
    assert (one.received, one.buffered > 0, one.banned) == (0, True, "")
    with pytest.raises(PeerError, match="life 1 was here already"):
        one.meet(0)


def test_what_was_sent_before_the_first_meeting_is_kept() -> None:
    one, _ = channel()
    one.push(b"early")
    assert not one.meet(5)
    wire = connect(one)
    one.flush()
    assert wire.frames() == [(DATA, 1, b"early")]


def test_a_newer_connection_replaces_the_older_one() -> None:
    one, _ = channel()
    old = connect(one)
    new = connect(one)
    assert old.ended == "replaced by a newer connection"
    one.lost(old)
    assert one.connection is new
