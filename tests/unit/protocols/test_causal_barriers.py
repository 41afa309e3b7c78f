"""Causal Barriers: a message waits for what was sent to the same node before it, and for nothing else."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest

from ordercast.core.effects import Deliver
from ordercast.core.errors import PeerError, UsageError
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.messages import Message
from ordercast.protocols import lookup
from ordercast.protocols.tree.causal_barriers import CausalBarriers
from ordercast.protocols.tree.causal_barriers_lists import Data, Header, Waits, added, handed_on, replaced
from ordercast.protocols.tree.sizes import barrier_bytes
from tests.support.group import assert_copy_is_independent
from tests.support.tree_group import AnyTreeGroup, stumble

LINE = "01 12 23"


def group_of(edges: str = LINE, groups: str = "0123", *, prune: bool = True) -> AnyTreeGroup:
    return AnyTreeGroup("causal-barriers", edges, groups, prune=prune, tally=True)


def machine(group: AnyTreeGroup, node: str) -> CausalBarriers:
    found = group.machines[NodeId(node)]
    assert isinstance(found, CausalBarriers)
    return found


def header(group: AnyTreeGroup, message: Message, to: str) -> dict[int, dict[int, int]]:
    """The barriers of every node that a copy in flight carries."""
    (packet,) = group.flying(message, to=to)
    assert isinstance(packet, Data)
    found: dict[int, dict[int, int]] = {}
    for publisher, waits in packet.header.lists.items():
        for number, nodes in waits:
            for node in range(len(group.nodes)):
                if nodes >> node & 1:
                    found.setdefault(node, {})[publisher] = number
    return found


def test_an_answer_waits_for_its_question() -> None:
    group = group_of()
    question = group.publish("0", "0123")
    group.carry(question, to="1")
    answer = group.publish("1", "0123")
    assert group.carry(answer, to="2") == []
    assert group.flying(answer, to="3")
    assert group.carry(question, to="2") == [Deliver(question), Deliver(answer)]


def test_messages_of_one_publisher_are_delivered_in_order() -> None:
    group = group_of("01", "01")
    first, second, third = (group.publish("0", "01") for _ in range(3))
    assert group.carry(third, to="1") == []
    assert group.carry(second, to="1") == []
    assert group.carry(first, to="1") == [Deliver(first), Deliver(second), Deliver(third)]


def test_order_holds_through_nodes_that_are_no_target_of_the_first_message() -> None:
    """CBR-B4: what 2 has to wait for travels through 1, which never gets it."""
    group = group_of("01 12", "02 01 12")
    start = group.publish("0", "02")
    between = group.publish("0", "01")
    group.carry(start, to="1")
    group.carry(between, to="1")
    end = group.publish("1", "12")
    assert group.carry(end, to="2") == []
    assert group.carry(start, to="2") == [Deliver(start), Deliver(end)]


def test_a_message_waits_for_nothing_that_is_not_for_its_receiver() -> None:
    group = group_of("01 12", "01 12")
    group.carry(group.publish("0", "01"), to="1")
    after = group.publish("1", "12")
    assert header(group, after, to="2") == {}
    assert group.carry(after, to="2") == [Deliver(after)]


def test_only_direct_dependencies_travel() -> None:
    """CBR-B3: a message that is delivered replaces what it waited for itself."""
    group = group_of("01 12 13", "0123")
    first = group.publish("0", "0123")
    group.carry(first, to="1")
    second = group.publish("1", "0123")
    assert header(group, second, to="2") == {2: {0: 1}, 3: {0: 1}}
    group.carry(first, to="2")
    group.carry(second, to="2")
    third = group.publish("2", "0123")
    assert header(group, third, to="1") == {0: {1: 1}, 3: {1: 1}}


def test_without_pruning_publishers_wait_for_themselves_and_the_order_is_the_same() -> None:
    group = group_of(groups="0123", prune=False)
    first = group.publish("0", "0123")
    group.carry(first, to="1")
    second = group.publish("1", "0123")
    assert header(group, second, to="2") == {0: {0: 1}, 2: {0: 1}, 3: {0: 1}}
    assert group.carry(second, to="0") == [Deliver(second)]


def test_any_set_of_nodes_can_be_addressed() -> None:
    group = group_of("01 12 23 14")
    first = group.publish("0", "", dst=["3", "1"])
    second = group.publish("3", "", dst=["1", "4"])
    group.settle()
    assert {node: group.delivered[NodeId(node)] for node in "024"} == {"0": [], "2": [], "4": [second]}
    assert set(group.delivered[NodeId("1")]) == {first, second}
    assert set(group.delivered[NodeId("3")]) == {first}
    assert not any(packet for packet in group.in_flight)


def test_a_message_to_oneself_is_nobody_elses_barrier() -> None:
    group = group_of("01 12", "0 012")
    own, shared = group.publish("0", "0"), group.publish("0", "012")
    assert header(group, shared, to="1") == {}
    group.carry(shared, to="1")
    answer = group.publish("1", "012")
    group.carry(answer, to="0")
    assert group.delivered[NodeId("0")] == [own, shared, answer]


def test_a_publisher_need_not_be_a_member() -> None:
    group = group_of(groups="23")
    first, second = group.publish("0", "23"), group.publish("0", "23")
    group.settle()
    assert group.delivered == {"0": [], "1": [], "2": [first, second], "3": [first, second]}


def test_a_duplicate_is_ignored() -> None:
    group = group_of("01", "01")
    message = group.publish("0", "01")
    (packet,) = group.packets(Data)
    assert isinstance(packet, Data)
    assert group.carry(message, to="1") == [Deliver(message)]
    assert group.hand(Data(0, 2, 0, False, packet.message, packet.header), to="1", by="0") == []


def test_sizes_by_the_count_of_the_source() -> None:
    """Eight bytes a target and eight an entry."""
    group = group_of()
    group.publish("0", "0123")
    group.publish("0", "0123")
    tally = machine(group, "0").tally
    assert tally is not None
    assert (tally.copies, tally.header_bytes) == (2, 8 * 4 + 8 * (4 + 3))
    assert barrier_bytes(0, 1024 * 1024) == 8_388_608


def test_the_metadata_formula_is_what_the_wire_says() -> None:
    """M messages that somebody has to wait for, W bytes for a set of nodes."""
    group = group_of(groups="0123 023")
    codec = lookup("causal-barriers").codec()
    for members in ("0123", "023", "0123"):
        group.publish("0", members)
    for packet in group.packets(Data, to="1"):
        assert isinstance(packet, Data)
        messages = sum(len(waits) for waits in packet.header.lists.values())
        names = {"o": 1, "t": len(packet.message.topic), "M": messages, "W": 1}
        size = codec.size(packet) - len(packet.message.payload)
        assert size == eval(lookup("causal-barriers").metadata, {"__builtins__": {}}, names)
        assert codec.decode(codec.encode(packet), "0") == packet


@pytest.mark.parametrize("prune", [False, True])
def test_durable_state_is_enough_to_go_on(prune: bool) -> None:
    group = group_of("01 12 13", "0123 23 02", prune=prune)
    assert stumble(group) == {"0": 15, "1": 10, "2": 20, "3": 15}


def test_a_copy_is_equal_and_independent() -> None:
    group = group_of()
    group.carry(group.publish("0", "0123"), to="1")
    assert_copy_is_independent(group, "1", topic="0123")


def test_what_makes_no_sense_is_refused() -> None:
    group = group_of()
    with pytest.raises(UsageError, match="unknown group 'nobody'"):
        group.publish("0", "nobody")
    with pytest.raises(UsageError, match="unknown node 'x'"):
        group.publish("0", "", dst=["1", "x"])
    with pytest.raises(UsageError, match="0123: causal-barriers has fixed groups"):
        group.subscribe("0", "0123")


def test_a_peer_that_sends_nonsense_is_named() -> None:
    group = group_of()
    message = Message(Origin("2"), 1, Topic("0123"), b"")
    for lists in ({9: ((1, 1),)}, {4: ((1, 1),)}, {2**40: ((1, 1),)}, {0: ((1, 16),)}):
        number = group.machines[NodeId("0")].links.links[NodeId("1")].received + 1  # type: ignore[attr-defined]
        with pytest.raises(PeerError, match="1: sent 2#1 with barriers of nodes that nobody knows"):
            group.hand(Data(0, number, 0, False, message, Header(lists)), to="0", by="1")
    elsewhere = Message(Origin("2"), 2, Topic(""), b"", dst=(NodeId("x"),))
    with pytest.raises(PeerError, match="1: sent 2#2 with barriers of nodes that nobody knows"):
        group.hand(Data(0, 5, 0, False, elsewhere, Header({})), to="0", by="1")


@pytest.mark.parametrize(
    "rows",
    [
        [(-1, 1, b"\1")],
        [(0, 0, b"\1")],
        [(0, 1, b"")],
        [(0, 2, b"\1"), (0, 1, b"\2")],
        [(0, 1, b"\1"), (0, 2, b"\3")],
        7,
    ],
)
def test_bytes_that_are_no_barriers_are_refused(rows: object) -> None:
    codec = lookup("causal-barriers").codec()
    packet = Data(0, 1, 0, False, Message(Origin("2"), 1, Topic("0123"), b""), Header({}))
    fields = msgspec.msgpack.decode(codec.encode(packet))
    fields[-1] = msgspec.msgpack.encode(rows)
    with pytest.raises(PeerError, match="1: sent a malformed packet"):
        codec.decode(msgspec.msgpack.encode(fields), "1")


def test_a_header_outlives_its_process() -> None:
    header_ = Header({0: ((1, 6), (3, 8)), 2: ((7, 15),)})
    assert Header.decoded(header_.encoded()) == header_


NODES = range(3)


def row(waits: Waits, node: int) -> int:
    """What a node has to wait for; 0: nothing."""
    return next((number for number, nodes in waits if nodes >> node & 1), 0)


def waits_of(numbers: tuple[int, ...]) -> Waits:
    """One number for each node."""
    return tuple((n, sum(1 << node for node in NODES if numbers[node] == n)) for n in sorted({*numbers} - {0}))


@pytest.mark.parametrize("targets", range(8))
def test_sets_of_nodes_say_what_a_list_a_node_would_say(targets: int) -> None:
    """CBR-B3 and CBR-B4 node by node, for all that three nodes can have to wait for here and there."""
    for mine in product(range(4), repeat=3):
        for theirs in product(range(4), repeat=3):
            fewer = replaced(waits_of(mine), waits_of(theirs), targets)
            more = handed_on(waits_of(mine), waits_of(theirs), targets)
            for node in NODES:
                addressed = targets >> node & 1
                gone = addressed and mine[node] <= theirs[node]
                assert row(fewer, node) == (0 if gone else mine[node])
                assert row(more, node) == (max(mine[node], theirs[node]) if addressed else mine[node])
            assert more == waits_of(tuple(row(more, node) for node in NODES))
        assert row(added(waits_of(mine), 3, targets), 0) == (3 if targets & 1 else mine[0])
