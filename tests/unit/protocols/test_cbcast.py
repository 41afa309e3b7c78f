"""CBCAST on a tree: causal order across groups, and clocks that survive being sent as differences."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from ordercast.core.chance import mix, salt
from ordercast.core.effects import Deliver
from ordercast.core.errors import PeerError, UsageError
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.machine import Place
from ordercast.core.messages import Message, Packet
from ordercast.protocols import lookup
from ordercast.protocols.tree.cbcast import Cbcast
from ordercast.protocols.tree.cbcast_clocks import Clock, ClockLayout, Data, Difference
from tests.support.group import assert_copy_is_independent
from tests.support.tree_group import AnyTreeGroup, stumble

LINE = "01 12 23"
NO_CHANGE = Difference.decoded(b"")


def group_of(edges: str = LINE, groups: str = "0123", *, delta: bool = False) -> AnyTreeGroup:
    return AnyTreeGroup("cbcast", edges, groups, delta=delta, tally=True)


def test_a_message_goes_along_the_route_and_no_further() -> None:
    group = group_of("01 12 23 14", "24")
    message = group.publish("1", "24")
    group.settle()
    assert [node for node in group.nodes if group.delivered[node] == [message]] == ["2", "4"]
    assert not any(group.delivered[node] for node in "013")


def test_a_router_passes_on_what_it_does_not_deliver() -> None:
    group = group_of(groups="03")
    message = group.publish("0", "03")
    group.settle()
    assert group.delivered == {"0": [message], "1": [], "2": [], "3": [message]}


@pytest.mark.parametrize("delta", [False, True])
def test_an_answer_waits_for_its_question(delta: bool) -> None:
    group = group_of(delta=delta)
    question = group.publish("0", "0123")
    group.carry(question, to="1")
    answer = group.publish("1", "0123")
    assert group.carry(answer, to="2") == []
    assert group.carry(question, to="2") == [Deliver(question), Deliver(answer)]


def test_without_compression_a_held_back_message_is_passed_on_all_the_same() -> None:
    group = group_of()
    question = group.publish("0", "0123")
    group.carry(question, to="1")
    answer = group.publish("1", "0123")
    group.carry(answer, to="2")
    assert group.flying(answer, to="3")
    assert not group.flying(question, to="3")


def test_order_holds_through_a_group_that_the_receiver_does_not_have() -> None:
    """CBC-C3: 1 is no member of 02, yet its message to 12 follows what it knows of it from 0."""
    group = group_of("01 12", "02 01 12")
    start = group.publish("0", "02")
    between = group.publish("0", "01")
    group.carry(start, to="1")
    group.carry(between, to="1")
    end = group.publish("1", "12")
    assert group.carry(end, to="2") == []
    assert group.carry(start, to="2") == [Deliver(start), Deliver(end)]


def test_a_router_knows_nothing_of_what_it_passes_on() -> None:
    """What was not delivered at 1 is not in the past of its messages."""
    group = group_of("01 12", "02 12")
    group.carry(group.publish("0", "02"), to="1")
    own = group.publish("1", "12")
    assert group.carry(own, to="2") == [Deliver(own)]


def test_a_publisher_need_not_be_a_member() -> None:
    group = group_of(groups="23")
    first, second = group.publish("0", "23"), group.publish("0", "23")
    group.settle()
    assert group.delivered == {"0": [], "1": [], "2": [first, second], "3": [first, second]}


def test_messages_to_different_groups_of_one_publisher_keep_their_order_where_both_go() -> None:
    group = group_of("01 12", "12 02")
    first, second = group.publish("0", "12"), group.publish("0", "02")
    for message in (first, second):
        group.carry(message, to="1")
    assert group.carry(second, to="2") == []
    assert group.carry(first, to="2") == [Deliver(first), Deliver(second)]


def test_a_duplicate_is_ignored() -> None:
    group = group_of("01", "01")
    message = group.publish("0", "01")
    (packet,) = group.packets(Data)
    assert group.carry(message, to="1") == [Deliver(message)]
    assert isinstance(packet, Data)
    again = Data(packet.session, 2, 0, False, packet.message, packet.clock)
    assert group.hand(again, to="1", by="0") == []


def layout() -> ClockLayout:
    """Groups 01 and 23 of four nodes: slots 0 to 3 of members, then 4 a group for everybody."""
    group = group_of(groups="01 23")
    return ClockLayout(group.routes, group.groups)


def clock_of(*counts: int, outside: dict[int, int] | None = None) -> Clock:
    return Clock(np.array(counts), outside or {})


def read_from_bytes(difference: Difference) -> Difference:
    return Difference.decoded(difference.encoded())


def test_alternating_clocks_of_two_publishers_are_read_as_they_were_sent() -> None:
    """On one link the later clock can be the smaller one."""
    big = clock_of(5, 7, 0, 1, outside={6: 3})
    small = clock_of(2, 0, 0, 0, outside={11: 1})
    sent = read = layout().empty
    for clock in (big, small, big, layout().empty, small):
        read = read_from_bytes(Difference.between(sent, clock)).applied_to(read, layout())
        assert read == clock
        sent = clock


@pytest.mark.parametrize("seed", range(200))
def test_any_two_clocks_differ_by_what_their_differences_say(seed: int) -> None:
    salted = salt(seed, "clocks")

    def clock(which: int) -> Clock:
        draws = [mix(salted, which, slot) for slot in range(12)]
        counts = [draw // 3 % 5 << draw // 15 % 40 if draw % 3 else 0 for draw in draws]
        return clock_of(*counts[:4], outside={4 + i: count for i, count in enumerate(counts[4:]) if count})

    one, other = clock(1), clock(2)
    difference = Difference.between(other, one)
    assert difference.applied_to(other, layout()) is one
    assert difference.applied_to(clock(2), layout()) == one
    assert read_from_bytes(difference).applied_to(other, layout()) == one
    assert read_from_bytes(difference) == difference
    assert not len(Difference.between(one, clock(1)).slots())


def test_a_clock_outlives_its_process() -> None:
    clock = clock_of(1, 2, 3, 4, outside={5: 1})
    difference = Difference.between(layout().empty, clock)
    assert Clock.decoded(clock.encoded()) == clock
    assert Difference.decoded(difference.encoded()) == difference


def test_sizes_by_the_count_of_the_source() -> None:
    """One changed entry of one group takes 12 bytes."""
    group = group_of(delta=True)
    for _ in range(3):
        group.publish("0", "0123")
    machine = group.machines[NodeId("0")]
    assert isinstance(machine, Cbcast)
    assert machine.tally is not None
    assert (machine.tally.copies, machine.tally.header_bytes) == (3, 36)


@pytest.mark.parametrize("delta", [False, True])
def test_the_metadata_formula_is_what_the_wire_says(delta: bool) -> None:
    """E entries in which the clock differs from the one before on the link."""
    group = group_of(groups="0123 023", delta=delta)
    codec = lookup("cbcast").codec()
    for members in ("0123", "023", "0123", "0123"):
        group.publish("0", members)
    for packet in group.packets(Data, to="1"):
        assert isinstance(packet, Data)
        names = {"o": 1, "t": len(packet.message.topic), "E": len(packet.clock.slots())}
        size = codec.size(packet) - len(packet.message.payload)
        assert size == eval(lookup("cbcast").metadata, {"__builtins__": {}}, names)


@pytest.mark.parametrize("delta", [False, True])
def test_durable_state_is_enough_to_go_on(delta: bool) -> None:
    group = group_of("01 12 13", "0123 23 02", delta=delta)
    assert stumble(group) == {"0": 15, "1": 10, "2": 20, "3": 15}


def test_a_copy_is_equal_and_independent() -> None:
    group = group_of(delta=True)
    group.publish("0", "0123")
    assert_copy_is_independent(group, "0", topic="0123")


def test_every_packet_survives_the_wire() -> None:
    group = group_of(groups="0123 02", delta=True)
    for members in ("02", "0123"):
        group.publish("0", members)
    codec = lookup("cbcast").codec()
    for _, _, packet in group.in_flight:
        assert codec.decode(codec.encode(packet), "0") == packet


def test_what_makes_no_sense_is_refused() -> None:
    group = group_of()
    with pytest.raises(UsageError, match="unknown group 'nobody'"):
        group.publish("0", "nobody")
    with pytest.raises(UsageError, match="multicasts to groups"):
        group.publish("0", "0123", dst=["1"])
    with pytest.raises(UsageError, match="0123: cbcast has fixed groups"):
        group.subscribe("0", "0123")
    with pytest.raises(UsageError, match="0123: cbcast has fixed groups"):
        group.unsubscribe("0", "0123")
    with pytest.raises(UsageError, match="0: cbcast runs on a tree"):
        lookup("cbcast").build(Place(NodeId("0"), (), (NodeId("0"),)), group.options)
    group.crash("0")
    with pytest.raises(UsageError, match="cannot take back a node that lost its state"):
        group.recover("0", state="lost")


def test_a_peer_that_sends_nonsense_is_named() -> None:
    group = group_of()
    with pytest.raises(PeerError, match="1: sent a Packet"):
        group.hand(Packet(), to="0", by="1")
    stranger = Message(Origin("x"), 1, Topic("0123"), b"")
    with pytest.raises(PeerError, match="1: sent x#1 with a clock that does not count it"):
        group.hand(Data(0, 1, 0, False, stranger, NO_CHANGE), to="0", by="1")
    uncounted = Message(Origin("2"), 1, Topic("0123"), b"")
    with pytest.raises(PeerError, match="1: sent 2#1 with a clock that does not count it"):
        group.hand(Data(0, 2, 0, False, uncounted, NO_CHANGE), to="0", by="1")
    with pytest.raises(PeerError, match="3: is not a neighbour"):
        group.hand(Data(0, 1, 0, False, uncounted, NO_CHANGE), to="0", by="3")


@pytest.mark.parametrize(("clock", "why"), [(b"\x00\x01", "a count below zero"), (b"\x7f\x02", "not so many")])
def test_a_clock_that_cannot_be_is_blamed_on_the_peer(clock: bytes, why: str) -> None:
    group = group_of()
    message = Message(Origin("2"), 1, Topic("0123"), b"")
    with pytest.raises(PeerError, match=f"1: sent 2#1 with a clock that is none: .*{why}"):
        group.hand(Data(0, 1, 0, False, message, Difference.decoded(clock)), to="0", by="1")


@pytest.mark.parametrize("clock", [b"\x01", b"\x01\x02\x00\x02", b"\x80", b"\xff" * 9 + b"\x01\x02", 7])
def test_bytes_that_are_no_clock_are_refused(clock: object) -> None:
    codec = lookup("cbcast").codec()
    packet = Data(0, 1, 0, False, Message(Origin("2"), 1, Topic("0123"), b""), NO_CHANGE)
    fields = msgspec.msgpack.decode(codec.encode(packet))
    fields[-1] = clock
    with pytest.raises(PeerError, match="1: sent a malformed packet"):
        codec.decode(msgspec.msgpack.encode(fields), "1")
