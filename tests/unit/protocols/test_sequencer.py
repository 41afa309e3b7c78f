"""Fixed sequencer: everyone delivers in one order, which respects causality."""

from __future__ import annotations

import pytest

from ordercast.core.effects import Deliver
from ordercast.core.errors import PeerError, UsageError
from ordercast.protocols.flood.flood import Data
from ordercast.protocols.flood.sequencer import BATCH, Order
from tests.support.group import Group

PEOPLE = ("ann", "bob", "cho")


@pytest.mark.parametrize("seed", range(20))
def test_everyone_delivers_in_one_order(seed: int) -> None:
    group = Group("sequencer", *PEOPLE, edges=[("ann", "bob"), ("bob", "cho")])
    for _ in range(5):
        for node in PEOPLE:
            group.broadcast(node)
        group.reorder(seed)
        group.carry(Data, to="bob")
    group.settle()
    assert len(group.delivered[group.nodes[0]]) == 15
    assert group.delivered[group.nodes[0]] == group.delivered[group.nodes[1]] == group.delivered[group.nodes[2]]


def test_a_message_waits_for_its_position() -> None:
    group = Group("sequencer", *PEOPLE)
    message = group.broadcast("bob")
    assert group.carry(message, to="cho") == []
    assert group.carry(message, to="ann", by="bob") == [Deliver(message)]
    assert group.carry(Order, to="cho") == [Deliver(message)]


def test_a_position_waits_for_its_message_and_for_the_positions_before_it() -> None:
    group = Group("sequencer", *PEOPLE)
    first, second = group.broadcast("bob"), group.broadcast("cho")
    group.carry(first, to="ann")
    group.carry(second, to="ann")
    group.carry(Order, to="cho", by="ann")
    group.carry(Order, to="cho", by="ann")
    assert group.delivered["cho"] == []
    assert group.carry(first, to="cho", by="bob") == [Deliver(first), Deliver(second)]


def test_a_publishers_messages_are_numbered_in_their_order() -> None:
    group = Group("sequencer", *PEOPLE)
    first, second = group.broadcast("bob"), group.broadcast("bob")
    group.carry(second, to="ann")
    assert group.packets(Order) == []
    group.carry(first, to="ann")
    orders = [order for order in group.packets(Order, to="cho") if isinstance(order, Order)]
    assert [order.publications for order in orders] == [((1, 1), (1, 2))], "one packet orders both"
    group.settle()
    assert group.delivered["cho"] == [first, second]


def test_an_order_can_wait_for_company() -> None:
    group = Group("sequencer", *PEOPLE, batch_ms=5)
    for node in ("bob", "cho"):
        group.carry(group.broadcast(node), to="ann")
    assert group.packets(Order) == []
    group.fire("ann", BATCH)
    orders = [order for order in group.packets(Order, to="bob") if isinstance(order, Order)]
    assert [order.publications for order in orders] == [((1, 1), (2, 1))]


def test_what_the_sequencer_collected_survives_its_crash() -> None:
    group = Group("sequencer", *PEOPLE, batch_ms=5)
    message = group.broadcast("bob")
    group.carry(message, to="ann")
    group.crash("ann")
    group.recover("ann")
    group.settle()
    assert all(group.delivered[node] == [message] for node in group.nodes)


def test_nothing_is_delivered_while_the_sequencer_is_down_and_all_when_it_is_back() -> None:
    group = Group("sequencer", *PEOPLE)
    group.crash("ann")
    for node in ("bob", "cho"):
        group.suspect("ann", by=node)
    message = group.broadcast("bob")
    group.settle()
    assert group.delivered["cho"] == []
    group.recover("ann")
    for node in ("bob", "cho"):
        group.trust("ann", by=node)
    group.settle()
    assert all(group.delivered[node] == [message] for node in group.nodes)


def test_nonmembers_keep_step_with_the_order() -> None:
    group = Group("sequencer", *PEOPLE, topics={"x": ["ann", "bob"], "y": ["ann", "bob", "cho"]})
    group.broadcast("bob", topic="x")
    wanted = group.broadcast("bob", topic="y")
    group.settle()
    assert group.delivered["cho"] == [wanted]


def test_another_node_can_be_the_sequencer() -> None:
    group = Group("sequencer", *PEOPLE, sequencer="cho")
    message = group.broadcast("ann")
    group.carry(message, to="bob")
    assert group.carry(message, to="cho", by="ann") == [Deliver(message)]


def test_an_unknown_sequencer_is_named() -> None:
    with pytest.raises(UsageError, match=r"options of sequencer: unknown node 'chu'; did you mean 'cho'"):
        Group("sequencer", *PEOPLE, sequencer="chu")


def test_an_order_from_anyone_else_is_blamed_on_the_peer() -> None:
    group = Group("sequencer", *PEOPLE)
    with pytest.raises(PeerError, match="cho: relays an order that is not from the sequencer ann"):
        group.hand(Order(0, 1, 0, False, (2, 1, 1), ((1, 1),)), to="bob", by="cho")


def test_an_order_for_an_unknown_publisher_is_blamed_on_the_peer() -> None:
    group = Group("sequencer", *PEOPLE)
    with pytest.raises(PeerError, match="cho: relays order 1, which names a publisher"):
        group.hand(Order(0, 1, 0, False, (0, 1, 1), ((9, 1),)), to="bob", by="cho")
