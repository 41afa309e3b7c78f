"""Skeen: everyone proposes, the largest proposal decides."""

from __future__ import annotations

import pytest

from ordercast.core.effects import EffectLog
from ordercast.core.errors import InvariantError, PeerError
from ordercast.core.ids import NodeId
from ordercast.protocols.multicast.skeen import Propose, Skeen
from tests.support.multicast import Servers


def proposals(servers: Servers, name: str) -> set[tuple[int, str]]:
    """Clock value and proposer of every proposal for the message that was handled."""
    found = set()
    for sender, _, packet in servers.log:
        if isinstance(packet, Propose) and servers.names[packet.message.id] == name:
            found.add((packet.clock, sender))
    return found


def test_crossing_messages_are_delivered_by_their_final_timestamps() -> None:
    """T-SK-1."""
    servers = Servers("skeen", 2, {"a": "12", "b": "12"}).run("c:a@1 c:b@2 c:b@1 c:a@2 1>2 2>1 1>2 2>1")
    assert proposals(servers, "a") == {(1, "1"), (2, "2")}
    assert proposals(servers, "b") == {(2, "1"), (1, "2")}
    assert servers.all_orders() == {1: "b a", 2: "b a"}
    assert len(servers.log) == 4


def test_a_proposal_may_come_before_the_clients_copy() -> None:
    """T-SK-2."""
    servers = Servers("skeen", 2, {"a": "12", "b": "2"}).run("c:a@1 1>2")
    assert servers.all_orders() == {}
    assert servers.run("c:b@2").order(2) == "b"
    assert servers.run("c:a@2").order(2) == "b a"
    assert servers.run("2>1").order(1) == "a"


def test_a_message_waits_for_one_with_a_lower_proposal() -> None:
    """T-SK-3."""
    servers = Servers("skeen", 2, {"a": "12", "b": "1"}).run("c:a@1 c:b@1")
    assert servers.order(1) == ""
    assert servers.run("c:a@2 1>2 2>1").order(1) == "a b"


def test_a_final_timestamp_can_move_a_message_back() -> None:
    """T-SK-4."""
    servers = Servers("skeen", 2, {"s": "2", "t": "2", "a": "12", "b": "1"})
    servers.run("c:s@2 c:t@2 c:a@1 c:b@1 c:a@2 1>2 2>1")
    assert max(proposals(servers, "a")) == (3, "2")
    assert servers.all_orders() == {1: "b a", 2: "s t a"}


def test_messages_that_meet_pairwise_leave_no_cycle() -> None:
    """T-SK-5."""
    servers = Servers("skeen", 3, {"a": "12", "b": "23", "c": "13"})
    servers.run("c:a@1 c:b@2 c:c@3 c:a@2 c:b@3 c:c@1 *")
    assert servers.all_orders() == {1: "c a", 2: "a b", 3: "c b"}


@pytest.mark.parametrize("size", range(1, 9))
def test_a_message_costs_as_many_packets_as_its_destinations_squared(size: int) -> None:
    servers = Servers("skeen", 8, {"a": "12345678"[:size]})
    copies = len(servers.copies["a"])
    for server in list(servers.copies["a"]):
        servers.enter("a", server)
    servers.drain()
    assert copies + len(servers.log) == size**2
    assert servers.completed == ["a"]


def test_real_time_order_is_not_kept() -> None:
    """q is asked for after p is done, and still comes before it: q < m < p."""
    servers = Servers("skeen", 2, {"x": "1", "y": "1", "z": "1", "m": "12", "p": "1", "q": "2"})
    servers.run("c:x@1 c:y@1 c:z@1 c:m@1 c:m@2 2>1 c:p@1")
    assert servers.completed[-1] == "p"
    servers.run("c:q@2 1>2")
    assert servers.all_orders() == {1: "x y z m p", 2: "q m"}


def test_a_second_proposal_of_a_peer_is_its_fault() -> None:
    servers = Servers("skeen", 3, {"a": "123"}).run("c:a@1 1>2")
    (_, _, proposal) = servers.log[0]
    with pytest.raises(PeerError, match="1: proposes for message client#1 out of turn"):
        servers.machines[NodeId("2")].on_receive(NodeId("1"), proposal, EffectLog())
    with pytest.raises(PeerError, match="proposes for message client#1 out of turn"):
        servers.machines[NodeId("2")].on_receive(NodeId("client"), proposal, EffectLog())


def test_a_clock_that_fell_behind_is_noticed() -> None:
    servers = Servers("skeen", 2, {"a": "12", "s": "2", "t": "2"}).run("c:s@2 c:t@2 c:a@1 c:a@2")
    first = servers.machines[NodeId("1")]
    assert isinstance(first, Skeen)
    first._catch_up = lambda _final: None  # type: ignore[method-assign]
    with pytest.raises(InvariantError, match="the clock is at 1, behind a timestamp it has seen"):
        servers.run("2>1")
