"""Delta-Neighbourhood: one message at a time, nobody twice, and who is skipped."""

from __future__ import annotations

import pytest

from ordercast.core.effects import Deliver
from ordercast.core.errors import PeerError, UsageError
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.messages import Message, Packet
from ordercast.protocols import lookup
from ordercast.protocols.tree.delta_neighbourhood import RESEND, DeltaNeighbourhood
from ordercast.protocols.tree.delta_neighbourhood_state import Data, Done
from tests.mutants.baseline_mutants import DELTA_MUTANTS
from tests.support.group import assert_copy_is_independent
from tests.support.tree_group import AnyTreeGroup, stumble

LINE = "01 12 23 34"


def group_of(edges: str = LINE, groups: str = "01234", **options: object) -> AnyTreeGroup:
    return AnyTreeGroup("delta-neighbourhood", edges, groups, tally=True, **options)


def machine(group: AnyTreeGroup, node: str) -> DeltaNeighbourhood:
    found = group.machines[NodeId(node)]
    assert isinstance(found, DeltaNeighbourhood)
    return found


def values(group: AnyTreeGroup, message: Message, to: str, by: str | None = None) -> list[tuple[int, int] | None]:
    """The list of the oldest copy in flight: node and value; None where a node was skipped."""
    packet = group.flying(message, to=to, by=by)[0]
    assert isinstance(packet, Data)
    return [(entry[0], entry[1]) if entry else None for entry in packet.entries]


def test_a_publisher_has_one_message_in_flight() -> None:
    group = group_of()
    first, second = group.publish("0", "01234"), group.publish("0", "01234")
    assert group.delivered[NodeId("0")] == [first]
    for node in "1234":
        group.carry(first, to=node)
    for node in "321":
        group.carry(Done, to=node)
    assert not group.flying(second, to="1")
    assert group.completed[NodeId("0")] == []
    group.carry(Done, to="0")
    assert group.completed[NodeId("0")] == [first.id]
    assert group.flying(second, to="1")
    group.settle()
    assert all(group.delivered[node] == [first, second] for node in group.nodes)


def test_a_long_queue_of_messages_to_nobody_else_is_no_problem() -> None:
    group = group_of(groups="01234 0")
    first = group.publish("0", "01234")
    for _ in range(3000):
        group.publish("0", "0")
    assert len(group.delivered[NodeId("0")]) == 1
    group.settle()
    assert len(group.delivered[NodeId("0")]) == 3001
    assert group.delivered[NodeId("4")] == [first]


def test_the_list_names_the_last_nodes_and_who_was_skipped() -> None:
    group = group_of()
    group.suspect("2", by="1")
    message = group.publish("0", "01234")
    assert values(group, message, to="1") == [(0, 1)]
    group.carry(message, to="1")
    assert not group.flying(message, to="2")
    assert values(group, message, to="3") == [(0, 1), (1, 1), None]
    group.carry(message, to="3")
    assert values(group, message, to="4") == [(1, 1), None, (3, 1)]


def test_an_acknowledgement_names_the_value_of_who_sent_the_copy() -> None:
    """Not the last entry of the list, which says nothing after a jump."""
    group = group_of(groups="3")
    group.publish("2", "3")
    group.settle()
    group.suspect("2", by="1")
    message = group.publish("0", "3")
    group.carry(message, to="1")
    group.carry(message, to="3", by="1")
    (done,) = group.packets(Done, to="1")
    assert isinstance(done, Done)
    assert done.value == 1
    group.settle()
    assert group.completed[NodeId("0")] == [message.id]


def test_a_way_with_too_many_skipped_nodes_is_not_taken() -> None:
    """DNB-N3: two of the last three nodes before 4 would be unknown."""
    group = group_of(groups="4")
    group.suspect("1", by="0")
    group.suspect("3", by="2")
    message = group.publish("0", "4")
    group.carry(message, to="2")
    assert not group.flying(message, to="4")
    assert machine(group, "2").progress[1].blocked
    group.carry_all()
    assert group.completed[NodeId("0")] == []
    group.trust("1", by="0")
    group.carry(message, to="1")
    assert group.flying(message, to="2", by="1")
    group.carry(message, to="2", by="1")
    assert values(group, message, to="4") == [(1, 1), (2, 1), None]
    group.settle()
    assert group.delivered[NodeId("4")] == [message]
    assert group.completed[NodeId("0")] == [message.id]


def test_a_retransmission_keeps_its_value() -> None:
    group = group_of()
    message = group.publish("0", "01234")
    group.lose(message, to="1")
    group.fire("0", RESEND)
    assert not group.flying(message, to="1")
    group.fire("0", RESEND)
    assert values(group, message, to="1") == [(0, 1)]


def test_another_copy_is_acknowledged_when_the_message_is_complete() -> None:
    group = group_of("01 12", "012")
    message = group.publish("0", "012")
    group.duplicate(message, to="1")
    group.carry(message, to="1")
    group.carry(message, to="1")
    assert not group.packets(Done, to="0")
    group.carry(message, to="2")
    group.carry(Done, to="1")
    assert len(group.packets(Done, to="0")) == 1
    group.settle()
    assert group.delivered[NodeId("1")] == [message]


SLOW = "01 12 23 15"


def two_publishers(protocol: object) -> AnyTreeGroup:
    """DNB-D1: node 1 sends m1 through 2, which is slow, then m2 past it."""
    group = AnyTreeGroup(protocol, SLOW, "3")  # type: ignore[arg-type]
    first = group.publish("0", "3")
    group.carry(first, to="1")
    group.carry(first, to="2")
    group.suspect("2", by="1")
    group.lose(first, to="3", by="1")
    second = group.publish("5", "3")
    group.carry(second, to="1")
    group.carry(second, to="3", by="1")
    group.carry(first, to="3", by="2")
    group.settle()
    return group


def test_a_value_lower_than_others_that_were_met_is_no_duplicate() -> None:
    group = two_publishers("delta-neighbourhood")
    assert [message.id for message in group.delivered[NodeId("3")]] == ["5#1", "0#1"]


def test_comparing_with_the_highest_value_loses_a_message_and_acknowledges_it() -> None:
    (mutant,) = [mutant for mutant in DELTA_MUTANTS if mutant.name == "compares-with-the-highest"]
    group = two_publishers(mutant)
    assert [message.id for message in group.delivered[NodeId("3")]] == ["5#1"]
    assert group.completed[NodeId("0")] == ["0#1"]


def test_a_node_that_was_skipped_may_miss_a_message() -> None:
    """The limit of the protocol, with a wrong suspicion."""
    group = group_of("01 12", "012")
    group.suspect("1", by="0")
    message = group.publish("0", "012")
    group.carry(message, to="2")
    group.carry(Done, to="0")
    assert group.completed[NodeId("0")] == [message.id]
    group.trust("1", by="0")
    group.settle()
    assert group.delivered == {"0": [message], "1": [], "2": [message]}


def test_a_node_that_was_skipped_may_get_messages_out_of_order() -> None:
    group = group_of("01 12", "012")
    first = group.publish("0", "012")
    group.suspect("1", by="0")
    group.carry(first, to="2")
    group.carry(Done, to="0")
    second = group.publish("2", "012")
    group.carry(second, to="1")
    group.carry(second, to="0")
    assert group.carry(first, to="1", by="0") == [Deliver(first)]
    third = group.publish("0", "012")
    group.trust("1", by="0")
    group.settle()
    assert group.delivered[NodeId("1")] == [second, first, third]


def test_whoever_waits_leaves_nobody_behind() -> None:
    group = group_of("01 12", "012", waits=True)
    group.suspect("1", by="0")
    first, second = group.publish("0", "012"), group.publish("0", "012")
    group.settle()
    assert group.delivered == {"0": [first], "1": [], "2": [first]}
    group.trust("1", by="0")
    group.settle()
    assert all(group.delivered[node] == [first, second] for node in group.nodes)


def test_values_that_are_complete_are_forgotten() -> None:
    group = group_of()
    for _ in range(20):
        for node in "04":
            group.publish(node, "01234")
    group.settle()
    for node in group.nodes:
        assert not machine(group, node).progress
        assert all(len(met.values) <= 3 for met in machine(group, node).met.values())


def test_sizes_by_the_count_of_the_source() -> None:
    """Eight bytes an entry, at most 2f + 1 of them."""
    group = group_of()
    group.publish("0", "01234")
    group.settle()
    tallies = [machine(group, node).tally for node in "0123"]
    assert [tally.header_bytes for tally in tallies if tally] == [8, 16, 24, 24]
    assert [tally.last for tally in tallies if tally] == [8, 16, 24, 24]
    assert Done.model_bytes == 16


@pytest.mark.parametrize("f", [1, 2])
def test_the_metadata_formula_is_what_the_wire_says_far_from_the_publisher(f: int) -> None:
    group = group_of("01 12 23 34 45 56 67", "01234567", f=f)
    codec = lookup("delta-neighbourhood").codec()
    message = group.publish("0", "01234567")
    for node in "1234567":
        if node == "7":
            (packet,) = group.flying(message, to=node)
            names = {"o": 1, "t": 8, "f": f}
            assert codec.size(packet) == eval(lookup("delta-neighbourhood").metadata, {"__builtins__": {}}, names)
            assert codec.decode(codec.encode(packet), "6") == packet
        group.carry(message, to=node)


def test_durable_state_is_enough_to_go_on() -> None:
    group = group_of("01 12 13", "0123 23 02")
    assert stumble(group) == {"0": 15, "1": 10, "2": 20, "3": 15}


def test_a_copy_is_equal_and_independent() -> None:
    group = group_of()
    group.carry(group.publish("0", "01234"), to="1")
    assert_copy_is_independent(group, "1", topic="01234")


def test_what_makes_no_sense_is_refused() -> None:
    group = group_of()
    with pytest.raises(UsageError, match="unknown group 'nobody'"):
        group.publish("0", "nobody")
    with pytest.raises(UsageError, match="multicasts to groups"):
        group.publish("0", "01234", dst=["1"])
    with pytest.raises(UsageError, match="01234: delta-neighbourhood has fixed groups"):
        group.unsubscribe("0", "01234")


def test_a_peer_that_sends_nonsense_is_named() -> None:
    group = group_of()
    message = Message(Origin("2"), 1, Topic("01234"), b"")
    with pytest.raises(PeerError, match="1: sent a Packet"):
        group.hand(Packet(), to="0", by="1")
    with pytest.raises(PeerError, match="4: is not a neighbour"):
        group.hand(Data(message, ((4, 1, 1),)), to="0", by="4")
    for entries in ((), ((),), ((2, 1, 1),), ((1, 1),), ((3, 1, 1), (1, 1, 1)), ((1, 1, 1), ()), ((1, 1, 1),) * 4):
        with pytest.raises(PeerError, match="1: sent 2#1 with a list that makes no sense"):
            group.hand(Data(message, entries), to="0", by="1")
    unknown = Message(Origin("2"), 1, Topic("nobody"), b"")
    with pytest.raises(PeerError, match="makes no sense"):
        group.hand(Data(unknown, ((1, 1, 1),)), to="0", by="1")
