"""Delporte-Gallet and Fauconnier: a message climbs, and its destinations wait for its end."""

from __future__ import annotations

import pytest

from ordercast.core.effects import EffectLog
from ordercast.core.errors import PeerError, UsageError
from ordercast.core.ids import NodeId, Origin
from ordercast.protocols.multicast.delporte_fauconnier import Climb, End
from tests.support.multicast import Servers

PROTOCOL = "delporte-fauconnier"
POLICIES = ("handle", "end")


@pytest.mark.parametrize("delivery", POLICIES)
def test_only_destinations_take_part(delivery: str) -> None:
    """T-DF-1."""
    servers = Servers(PROTOCOL, 4, {"a": "124"}, delivery=delivery).run("c:a 1>2 2>4 4>1 4>2")
    assert [type(packet) for _, _, packet in servers.log] == [Climb, Climb, End, End]
    assert servers.all_orders() == {1: "a", 2: "a", 4: "a"}
    assert not any(servers.channels.values())


@pytest.mark.parametrize("delivery", POLICIES)
def test_what_waits_behind_a_message_is_handled_at_its_end(delivery: str) -> None:
    """T-DF-2."""
    servers = Servers(PROTOCOL, 3, {"a": "13", "b": "1", "c": "12"}, delivery=delivery).run("c:a c:b c:c")
    assert servers.order(1) == ("a" if delivery == "handle" else "")
    servers.run("1>3 3>1")
    assert servers.order(1) == ("a b c" if delivery == "handle" else "a b")
    assert servers.run("*").order(1) == "a b c"


@pytest.mark.parametrize("delivery", POLICIES)
def test_a_message_queues_behind_the_one_a_server_waits_for(delivery: str) -> None:
    """T-DF-3."""
    servers = Servers(PROTOCOL, 3, {"a": "12", "b": "23", "c": "13"}, delivery=delivery)
    servers.run("c:a c:c c:b 1>2 2>3 3>2 *")
    assert servers.all_orders() == {1: "a c", 2: "b a", 3: "b c"}


@pytest.mark.parametrize("delivery", POLICIES)
def test_a_convoy_dissolves_from_the_top(delivery: str) -> None:
    """T-DF-4."""
    servers = Servers(PROTOCOL, 5, {"a": "123", "b": "24", "c": "35", "e": "45"}, delivery=delivery)
    servers.run("c:a c:b c:c c:e 1>2 2>4 3>5 4>5 *")
    assert servers.all_orders() == {1: "a", 2: "b a", 3: "c a", 4: "e b", 5: "c e"}
    assert len(servers.log) == 10
    assert servers.completed[-1] == "a"


def test_by_default_a_server_delivers_when_it_handles() -> None:
    assert Servers(PROTOCOL, 2, {"a": "12"}).run("c:a").order(1) == "a"


@pytest.mark.parametrize("size", range(1, 9))
def test_a_message_costs_two_packets_a_destination_less_one(size: int) -> None:
    servers = Servers(PROTOCOL, 8, {"a": "12345678"[:size]})
    copies = len(servers.copies["a"])
    servers.run("c:a *")
    assert copies + len(servers.log) == 2 * size - 1


@pytest.mark.parametrize("delivery", POLICIES)
def test_real_time_order_is_kept(delivery: str) -> None:
    """The history that breaks it elsewhere cannot happen: p is not done before m is."""
    servers = Servers(PROTOCOL, 2, {"m": "12", "p": "1", "q": "2"}, delivery=delivery).run("c:m c:p")
    assert servers.completed == []
    servers.run("* c:q")
    assert servers.all_orders() == {1: "m p", 2: "m q"}


def test_an_end_that_nobody_waits_for_is_the_peers_fault() -> None:
    servers = Servers(PROTOCOL, 3, {"a": "13"}).run("c:a")
    for packet in (End(Origin("client"), 2), End(Origin("3"), 1)):
        with pytest.raises(PeerError, match="for which 1 does not wait"):
            servers.machines[NodeId("1")].on_receive(NodeId("3"), packet, EffectLog())


@pytest.mark.parametrize(("peer", "to"), [("1", "2"), ("2", "3"), ("3", "1")])
def test_a_message_that_left_its_way_is_the_peers_fault(peer: str, to: str) -> None:
    servers = Servers(PROTOCOL, 3, {"a": "13"}).run("c:a")
    (climb,) = servers.channels["1", "3"]
    with pytest.raises(PeerError, match=f"{peer}: passes on message client#1, which does not climb from it to {to}"):
        servers.machines[NodeId(to)].on_receive(NodeId(peer), climb, EffectLog())


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(UsageError, match="options of delporte-fauconnier: Invalid enum value 'never'"):
        Servers(PROTOCOL, 2, {}, delivery="never")
