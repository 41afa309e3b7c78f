"""Vector clocks: an answer never comes before its question, whoever asked, whatever the topic."""

from __future__ import annotations

import msgspec
import pytest

from ordercast.core.effects import Deliver
from ordercast.core.errors import PeerError, UsageError
from ordercast.core.machine import Place
from ordercast.protocols import lookup
from ordercast.protocols.flood.flood import Data
from ordercast.protocols.flood.vector import Vector
from tests.support.group import Group


def test_an_answer_waits_for_the_question_it_replies_to() -> None:
    """[BSS91], the delivery rule of the vector clock protocol."""
    group = Group("vector", "ann", "bob", "cho")
    question = group.broadcast("ann", b"why?")
    group.carry(question, to="bob")
    answer = group.broadcast("bob", b"because")

    assert group.carry(answer, to="cho") == []
    assert group.carry(question, to="cho") == [Deliver(question), Deliver(answer)]


def test_messages_that_know_nothing_of_each_other_do_not_wait() -> None:
    group = Group("vector", "ann", "bob", "cho")
    group.broadcast("ann")
    other = group.broadcast("bob")
    assert group.carry(other, to="cho") == [Deliver(other)]


def test_messages_of_one_publisher_are_delivered_in_order() -> None:
    group = Group("vector", "ann", "bob")
    first, second = group.broadcast("ann"), group.broadcast("ann")
    assert group.carry(second, to="bob") == []
    assert group.carry(first, to="bob") == [Deliver(first), Deliver(second)]


def test_order_holds_through_a_topic_that_the_receiver_does_not_have() -> None:
    group = Group("vector", "ann", "bob", "cho", topics={"x": ["ann", "cho"], "y": ["ann", "bob"], "z": ["bob", "cho"]})
    start = group.broadcast("ann", topic="x")
    between = group.broadcast("ann", topic="y")
    group.carry(start, to="bob")
    group.carry(between, to="bob")
    end = group.broadcast("bob", topic="z")
    assert group.carry(end, to="cho") == []
    assert group.carry(between, to="cho", by="ann") == []
    assert group.carry(start, to="cho", by="ann") == [Deliver(start), Deliver(end)]


def test_a_long_chain_that_arrives_backwards_is_delivered_forwards() -> None:
    group = Group("vector", "ann", "bob", "cho")
    chain = []
    for i in range(10):
        publisher, other = ("ann", "bob") if i % 2 == 0 else ("bob", "ann")
        chain.append(group.broadcast(publisher))
        group.carry(chain[-1], to=other)
    for message in reversed(chain[1:]):
        assert group.carry(message, to="cho") == []
    assert group.carry(chain[0], to="cho") == [Deliver(message) for message in chain]


def test_a_publisher_does_not_deliver_an_answer_before_its_own_question() -> None:
    group = Group("vector", "ann", "bob", "cho", f=2)
    question = group.broadcast("ann")
    group.carry(question, to="bob")
    group.carry(question, to="cho", by="ann")
    group.carry(question, to="bob", by="cho")
    answer = group.broadcast("bob")
    group.settle()
    assert group.delivered["ann"] == [question, answer]


def test_what_waits_survives_a_crash() -> None:
    group = Group("vector", "ann", "bob", "cho")
    question = group.broadcast("ann")
    group.carry(question, to="bob")
    answer = group.broadcast("bob")
    group.carry(answer, to="cho")
    group.crash("cho")
    group.recover("cho")
    group.settle()
    assert group.delivered["cho"] == [question, answer]


def test_nothing_is_kept_once_everything_is_delivered() -> None:
    group = Group("vector", "ann", "bob", "cho")
    for node in ("ann", "bob", "cho") * 5:
        group.broadcast(node)
        group.reorder(3)
    group.settle()
    machine = group.machines[group.nodes[0]]
    assert isinstance(machine, Vector)
    assert machine.blocked == {}
    assert machine.delivered == [5, 5, 5]


@pytest.mark.parametrize(("stamp", "reason"), [((1,), "1 entries in a group of 2"), ((7, 0), "count the message")])
def test_a_stamp_that_makes_no_sense_is_blamed_on_the_peer(stamp: tuple[int, ...], reason: str) -> None:
    group = Group("vector", "ann", "bob")
    group.broadcast("ann")
    packet = group.packets(Data)[0]
    with pytest.raises(PeerError, match=f"ann: stamped ann#1 .*{reason}"):
        group.hand(msgspec.structs.replace(packet, stamp=stamp), to="bob", by="ann")


@pytest.mark.parametrize("protocol", ["vector", "sequencer"])
def test_a_fixed_group_refuses_a_member_that_lost_its_state(protocol: str) -> None:
    info = lookup(protocol)
    group = Group(info, "ann", "bob")
    place = Place(group.nodes[0], group.nodes[1:], group.nodes, None, 1)
    assert not info.readmits
    with pytest.raises(UsageError, match=f"ann: {protocol} has a fixed group"):
        info.build(place, info.parse_options({}))
