"""Replicated groups: who forms them, what is refused, and what their machines must be able to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ordercast.core.effects import EffectLog
from ordercast.core.errors import PeerError, UsageError
from ordercast.core.ids import NodeId
from ordercast.core.messages import Packet
from ordercast.protocols import lookup
from ordercast.protocols.replicated.groups import Division
from ordercast.protocols.replicated.log import Append, LogEntry, Prepare, Promise
from ordercast.protocols.replicated.machine import Forward, Input, Taken
from ordercast.protocols.replicated.variants import EnteringSkeen
from tests.support.group import Group, assert_copy_is_independent

NAMES = ("n0", "n1", "n2", "n3", "n4", "n5")
REPLICATED = ("replicated-daisy-chain", "replicated-delporte-fauconnier", "replicated-skeen")
EVERY = (*REPLICATED, "replicated-daisy-chain-real-time")


def payloads(group: Group, node: str) -> list[bytes]:
    return [message.payload for message in group.delivered[NodeId(node)]]


@pytest.mark.parametrize("protocol", REPLICATED)
def test_every_named_replica_delivers_what_its_publisher_wrote(protocol: str) -> None:
    group = Group(protocol, *NAMES)
    first = group.broadcast("n4", b"to all", dst=NAMES)
    second = group.broadcast("n0", b"to some", dst=["n5", "n1"])
    group.settle()
    assert group.delivered[NodeId("n1")] == group.delivered[NodeId("n5")]
    assert set(payloads(group, "n1")) == {b"to all", b"to some"}
    assert payloads(group, "n2") == [b"to all"]
    assert set(group.delivered[NodeId("n5")]) == {first, second}
    assert (group.completed[NodeId("n4")], group.completed[NodeId("n0")]) == ([first.id], [second.id])


@pytest.mark.parametrize("protocol", REPLICATED)
def test_a_group_without_its_leader_goes_on_after_it_was_noticed(protocol: str) -> None:
    group = Group(protocol, *NAMES)
    before = group.broadcast("n1", b"before", dst=NAMES)
    group.crash("n0")
    group.crash("n3")
    for dead in ("n0", "n3"):
        for node in ("n1", "n2", "n4", "n5"):
            group.suspect(dead, by=node)
    after = group.broadcast("n5", b"after", dst=NAMES)
    group.settle()
    orders = [group.delivered[NodeId(node)] for node in ("n1", "n2", "n4", "n5")]
    assert all(order == orders[0] for order in orders)
    assert set(orders[0]) == {before, after}
    assert group.completed[NodeId("n1")] == [before.id]


def test_a_proposal_is_as_good_as_the_clients_copy() -> None:
    """The client asks one group only, so it cannot die between two."""
    group = Group("replicated-skeen", *NAMES)
    group.broadcast("n5", dst=NAMES)
    asked = [(sender, receiver) for sender, receiver, packet in group.in_flight if isinstance(packet, Input)]
    assert asked == [(NodeId("n5"), NodeId("n0"))]
    assert isinstance(group.machines[NodeId("n0")].group.machine, EnteringSkeen)  # type: ignore[attr-defined]


def test_servers_are_divided_in_order_and_the_last_group_takes_the_rest() -> None:
    nodes = tuple(map(NodeId, "abcdefgh"))
    division = Division(nodes[:7], nodes, 3)
    assert [division.members[name] for name in division.names] == [nodes[:3], nodes[3:7]]
    assert division.groups((NodeId("g"), NodeId("a"), NodeId("d"))) == division.names
    assert division.members[NodeId("h")] == ("h",)
    with pytest.raises(UsageError, match="replicas: 2 servers are too few for a group of 3"):
        Division(nodes[:2], nodes, 3)


@pytest.mark.parametrize(
    ("dst", "problem"),
    [
        ([], "names no destinations"),
        (["n0", "n9"], "unknown destination 'n9'"),
        (["n0", "n1", "n0"], "names n0 twice"),
    ],
)
def test_destinations_that_make_no_sense_are_refused_and_nothing_is_sent(dst: list[str], problem: str) -> None:
    group = Group("replicated-skeen", *NAMES)
    frozen = group.machines[NodeId("n0")].frozen()
    with pytest.raises(UsageError, match=problem):
        group.broadcast("n0", dst=dst)
    assert not group.in_flight
    assert group.machines[NodeId("n0")].frozen() == frozen


def test_a_node_without_a_link_to_every_server_is_refused() -> None:
    with pytest.raises(UsageError, match="n0 has none to n2"):
        Group("replicated-skeen", "n0", "n1", "n2", edges=[("n0", "n1"), ("n1", "n2")])


def _body(group: Group) -> bytes:
    packet = next(packet for _, _, packet in group.in_flight if isinstance(packet, Input))
    return packet.body


@pytest.mark.parametrize(
    ("forge", "problem"),
    [
        (lambda body: Input(NodeId("group 1"), NodeId("group 0"), 1, body), "sends for group 1"),
        (lambda body: Input(NodeId("n5"), NodeId("group 1"), 1, body), "speaks to group 1"),
        (lambda body: Input(NodeId("n2"), NodeId("group 0"), 1, b"junk"), "malformed packet"),
        (lambda body: Taken(NodeId("n1"), NodeId("group 0"), 1), "speaks to n1"),
    ],
)
def test_packets_that_no_right_peer_sends_are_refused(forge: Callable[[bytes], Packet], problem: str) -> None:
    group = Group("replicated-skeen", *NAMES)
    group.broadcast("n5", dst=["n0"])
    with pytest.raises(PeerError, match=problem):
        group.hand(forge(_body(group)), to="n0", by="n2")


def test_an_input_that_the_multicast_refuses_has_no_effect_but_its_number() -> None:
    group = Group("replicated-skeen", *NAMES)
    good = group.broadcast("n5", b"good", dst=["n0", "n1"])
    body = _body(group)
    group.settle()
    wrong = lookup("skeen").codec().encode(lookup("skeen").packets[1](99))  # type: ignore[call-arg]
    group.hand(Input(NodeId("n5"), NodeId("group 0"), 2, wrong), to="n0", by="n5")
    group.hand(Input(NodeId("n5"), NodeId("group 0"), 2, body), to="n0", by="n5")
    group.settle()
    assert group.delivered[NodeId("n0")] == group.delivered[NodeId("n1")] == [good]
    assert [note.kind for note in group.notes[NodeId("n1")]] == ["drop"]


def busy(protocol: str, **options: Any) -> Group:
    group = Group(protocol, *NAMES, **options)
    for i, node in enumerate(NAMES):
        group.broadcast(node, bytes([i]), dst=NAMES[i:] or NAMES)
        for _ in range(9):
            sender, receiver, packet = group.in_flight.pop(0)
            group.hand(packet, to=receiver, by=sender)
    return group


@pytest.mark.parametrize("protocol", EVERY)
def test_copies_are_equal_and_independent_and_packets_survive_the_wire(protocol: str) -> None:
    group = busy(protocol)
    codec = lookup(protocol).codec()
    assert all(codec.decode(codec.encode(packet), "n0") == packet for _, _, packet in group.in_flight)
    for node in group.nodes:
        assert_copy_is_independent(group, node, dst=NAMES)


@pytest.mark.parametrize("protocol", EVERY)
def test_a_whole_cluster_that_comes_back_with_its_state_goes_on(protocol: str) -> None:
    group = busy(protocol)
    for node in NAMES:
        group.crash(node)
    group.in_flight.clear()
    for node in NAMES:
        group.recover(node)
    group.settle()
    orders = {node: group.delivered[node] for node in group.nodes}
    assert len(orders[NodeId("n5")]) == len(set(orders[NodeId("n5")])) == len(NAMES)
    for i, node in enumerate(group.nodes):
        assert orders[node] == [message for message in orders[NodeId("n5")] if node in message.dst], i
        assert len(group.completed[node]) == 1


def test_the_metadata_formula_is_what_the_wire_says() -> None:
    """o, s, t: lengths of the names of publisher and both groups; d, k: groups and servers, one byte more each."""
    info = lookup("replicated-skeen")
    group = Group(info, *NAMES)
    message = group.broadcast("n1", b"payload", dst=["n0", "n4"], topic="")
    packet = None
    while packet is None:
        sender, receiver, flying = group.in_flight.pop(0)
        if isinstance(flying, Input) and flying.target == "group 1":
            packet = flying
        else:
            group.hand(flying, to=receiver, by=sender)
    names = {"o": len(message.origin), "s": 7, "t": 7, "d": 2 * 8, "k": 2 * 3}
    header = info.codec().size(packet) - len(message.payload)
    assert header == eval(info.metadata, {"__builtins__": {}}, names)


def test_groups_of_five_outlive_two_of_them() -> None:
    nodes = [f"n{i}" for i in range(10)]
    group = Group("replicated-daisy-chain", *nodes, replicas=5)
    for node in nodes:
        group.broadcast(node, node.encode(), dst=nodes)
    dead = ("n0", "n1", "n5", "n8")
    for node in dead:
        group.crash(node)
    alive = [node for node in nodes if node not in dead]
    for node in dead:
        for other in alive:
            group.suspect(node, by=other)
    group.settle()
    orders = [payloads(group, node) for node in alive]
    assert all(order == orders[0] for order in orders)
    assert {node.encode() for node in alive} <= set(orders[0])


def test_a_replica_that_does_not_lead_takes_no_forwarded_input() -> None:
    group = Group("replicated-skeen", *NAMES)
    machine = group.machines[NodeId("n1")]
    frozen = machine.frozen()
    out = EffectLog()
    machine.on_receive(NodeId("n2"), Forward(LogEntry(NodeId("n5"), 1, b"x")), out)
    assert not out.effects
    assert machine.frozen() == frozen


@pytest.mark.parametrize("protocol", EVERY)
def test_a_short_wrong_suspicion_and_one_lost_packet_stop_nobody(protocol: str) -> None:
    """Nobody crashes: n1 leads an empty log that n0, to whom all clients turn, has not seen."""
    group = Group(protocol, *NAMES)
    group.suspect("n0", by="n1")
    group.carry(Prepare, to="n2", by="n1")
    group.carry(Promise, to="n1", by="n2")
    group.trust("n0", by="n1")
    group.lose(Append, to="n0", by="n1")
    message = group.broadcast("n5", b"through n0", dst=["n0", "n2"])
    group.settle()
    assert group.delivered[NodeId("n0")] == group.delivered[NodeId("n2")] == [message]
    assert group.completed[NodeId("n5")] == [message.id]


@pytest.mark.parametrize("protocol", EVERY)
def test_what_waits_behind_the_gap_of_a_dead_publisher_keeps_nobody_awake(protocol: str) -> None:
    group = Group(protocol, *NAMES)
    group.broadcast("n5", b"lost with its publisher", dst=["n0"])
    group.lose(Input, to="n0", by="n5")
    group.broadcast("n5", b"can never be taken", dst=["n0"])
    group.carry(Input, to="n0", by="n5")
    group.crash("n5")
    for node in NAMES[:-1]:
        group.suspect("n5", by=node)
    alive = group.broadcast("n4", b"goes on", dst=["n0", "n4"])
    group.settle()
    assert group.delivered[NodeId("n0")] == group.delivered[NodeId("n4")] == [alive]


@pytest.mark.parametrize("protocol", EVERY)
def test_a_gap_is_filled_when_its_publisher_is_back(protocol: str) -> None:
    group = Group(protocol, *NAMES)
    sent = [group.broadcast("n5", b"first", dst=["n0"])]
    group.lose(Input, to="n0", by="n5")
    sent.append(group.broadcast("n5", b"second", dst=["n0"]))
    group.carry(Input, to="n0", by="n5")
    group.crash("n5")
    group.suspect("n5", by="n0")
    group.settle()
    assert group.delivered[NodeId("n0")] == []
    group.recover("n5")
    group.trust("n5", by="n0")
    group.settle()
    assert group.delivered[NodeId("n0")] == sent


def test_what_follows_a_dead_publishers_gap_is_taken_once_another_replica_has_filled_it() -> None:
    """n0 has the first input and n1 the second: each holds its own until the group has taken it."""
    group = Group("replicated-skeen", *NAMES)
    sent = [group.broadcast("n5", b"first", dst=["n0", "n1"])]
    group.suspect("n0", by="n5")
    group.lose(Input, to="n1", by="n5")
    sent.append(group.broadcast("n5", b"second", dst=["n0", "n1"]))
    group.carry(Input, to="n1", by="n5")
    group.lose(Forward, to="n0", by="n1")
    group.crash("n5")
    for node in NAMES[:-1]:
        group.suspect("n5", by=node)
    group.settle()
    assert group.delivered[NodeId("n0")] == group.delivered[NodeId("n1")] == sent
