"""FIFO: what one node publishes, every node delivers in the order of publication."""

from __future__ import annotations

import pytest

from ordercast.core.effects import Deliver
from ordercast.protocols.shared.links import ACK, Ack, Hello, Welcome
from tests.support.group import Group


def test_a_later_message_waits_for_the_earlier_one() -> None:
    group = Group("fifo", "ann", "bob")
    first, second = group.broadcast("ann"), group.broadcast("ann")
    assert group.carry(second, to="bob") == []
    assert group.carry(first, to="bob") == [Deliver(first), Deliver(second)]


def test_publishers_do_not_wait_for_each_other() -> None:
    group = Group("fifo", "ann", "bob", "cho")
    group.broadcast("ann")
    blocked, free = group.broadcast("ann"), group.broadcast("bob")
    assert group.carry(blocked, to="cho") == []
    assert group.carry(free, to="cho") == [Deliver(free)]


def test_order_holds_across_topics_one_of_which_is_not_wanted() -> None:
    group = Group("fifo", "ann", "bob", topics={"news": ["ann", "bob"], "chat": ["ann"]})
    chat, news = group.broadcast("ann", topic="chat"), group.broadcast("ann", topic="news")
    assert group.carry(news, to="bob") == []
    assert group.carry(chat, to="bob") == [Deliver(news)]


def test_a_publisher_delivers_its_own_messages_in_order_too() -> None:
    group = Group("fifo", "ann", "bob", "cho")
    first, second = group.broadcast("ann"), group.broadcast("ann")
    group.carry(second, to="bob")
    group.carry(first, to="cho")
    group.settle()
    assert group.delivered["ann"] == [first, second]


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_arrival_ends_in_the_order_of_publication(seed: int) -> None:
    group = Group("fifo", "ann", "bob", "cho", edges=[("ann", "bob"), ("bob", "cho")])
    for _ in range(8):
        group.broadcast("ann")
        group.broadcast("cho")
        group.reorder(seed)
    group.settle()
    for node in group.nodes:
        for origin in ("ann", "cho"):
            assert [m.number for m in group.delivered[node] if m.origin == origin] == list(range(1, 9))


def test_what_is_held_back_survives_a_crash() -> None:
    group = Group("fifo", "ann", "bob")
    first, second = group.broadcast("ann"), group.broadcast("ann")
    group.carry(second, to="bob")
    group.crash("bob")
    group.recover("bob")
    group.settle()
    assert group.delivered["bob"] == [first, second]


def test_a_newcomer_starts_where_its_neighbour_stands() -> None:
    group = Group("fifo", "ann", "bob", "cho", edges=[("ann", "bob"), ("bob", "cho")])
    for _ in range(3):
        group.broadcast("ann")
    group.settle()
    group.crash("cho")
    group.recover("cho", state="lost")
    group.settle()
    fourth = group.broadcast("ann")
    group.settle()
    assert group.delivered["cho"] == [fourth]


def test_a_newcomer_waits_for_what_its_neighbour_still_has_to_send() -> None:
    """Bob has 1 and 3; 2 is on its way to him, 3 was not acknowledged by cho's former self."""
    group = Group("fifo", "ann", "bob", "cho", edges=[("ann", "bob"), ("bob", "cho")])
    group.broadcast("ann")
    group.settle()
    second, third = group.broadcast("ann"), group.broadcast("ann")
    group.crash("cho")
    group.suspect("cho", by="bob")
    group.carry(third, to="bob")
    group.recover("cho", state="lost")
    group.trust("cho", by="bob")
    fourth = group.broadcast("ann")
    group.carry(fourth, to="bob")
    group.settle()
    assert group.delivered["cho"] == [second, third, fourth]


def test_a_newcomer_does_not_wait_for_a_message_that_only_its_former_self_got() -> None:
    """Bob welcomes cho before he has ann's first message; dan knows that cho had it and will not send it again."""
    group = Group("fifo", "ann", "bob", "cho", "dan", edges=[("bob", "cho"), ("cho", "dan"), ("dan", "ann")], f=0)
    first = group.broadcast("ann")
    group.carry(first, to="dan")
    group.carry(first, to="cho", by="dan")
    group.fire("cho", ACK)
    group.carry(Ack, to="dan", by="cho")
    group.lose(first, to="bob")
    group.crash("cho")
    group.suspect("cho", by="dan")
    group.suspect("cho", by="bob")
    group.recover("cho", state="lost")
    group.carry(Hello, to="bob")
    group.carry(Welcome, to="cho", by="bob")
    group.trust("cho", by="dan")
    group.trust("cho", by="bob")
    second = group.broadcast("ann")
    group.settle()
    assert group.delivered["cho"] == [second]
