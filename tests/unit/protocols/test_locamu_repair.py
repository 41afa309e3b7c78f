"""LoCaMu's repairs: little is sent twice, what is sent together is short, and nobody is left without."""

from __future__ import annotations

import pytest

from ordercast.core.messages import Message
from ordercast.protocols import lookup
from ordercast.protocols.locamu_forwarding import LONGEST_BURST
from ordercast.protocols.locamu_machine import AT_ONCE
from ordercast.protocols.locamu_packets import Ack, Alias, Data
from tests.support.locamu_lab import TreeGroup, line
from tests.support.locamu_membership_lab import ChangingTree

ROUNDS = 20
MANY = 12


def live(group: ChangingTree) -> None:
    """Let packets and timers go on for some rounds: with a node down for good nothing comes to rest."""
    for _ in range(ROUNDS):
        group.carry_all()
        for node in [node for node in group.nodes if node in group.machines]:
            for timer in sorted(group.timers[node], key=str):
                group.fire(node, timer)


def fallen_publisher() -> tuple[ChangingTree, Message]:
    """A star: the node in the middle publishes and falls; only its copy to 2 is not lost with it."""
    group = ChangingTree("10 12 13", {"g": "0123"})
    message = group.broadcast("1", topic="g")
    group.crash("1")
    group.in_flight = [flying for flying in group.in_flight if flying[1] == "2"]
    return group, message


def test_a_copy_that_comes_after_the_suspicion_is_passed_on_in_its_forwarders_name() -> None:
    """P4, R2, R4."""
    group, message = fallen_publisher()
    for node in "023":
        group.suspect("1", by=node)
    live(group)
    assert [group.delivered[node] for node in group.nodes if node != "1"] == [[message]] * 3


def test_a_lost_copy_in_anothers_name_is_sent_again() -> None:
    """P4, R2, R4."""
    group, message = fallen_publisher()
    group.carry(message, to="2", by="1")
    for node in "023":
        group.suspect("1", by=node)
    group.lose(message, to="3", by="2")
    live(group)
    assert [group.delivered[node] for node in group.nodes if node != "1"] == [[message]] * 3


def behind(count: int) -> tuple[TreeGroup, list[Message]]:
    """A line on which 1 has missed so many messages of 0, which do not reach 2 either, and asks for them."""
    group = TreeGroup(line(3), "012")
    messages = [group.publish("0", "012") for _ in range(count)]
    group.in_flight.clear()
    group.crash("1")
    group.recover("1")
    group.in_flight = [flying for flying in group.in_flight if flying[:2] == ("1", "0")]
    group.carry(Ack, to="0", by="1")
    return group, messages


def again(group: TreeGroup) -> list[Data]:
    return [packet for sender, to, packet in group.in_flight if (sender, to) == ("0", "1") and isinstance(packet, Data)]


@pytest.mark.parametrize("seed", range(5))
def test_copies_sent_again_together_are_read_in_whatever_order_they_come(seed: int) -> None:
    """H8."""
    group, messages = behind(MANY)
    assert len({packet.session for packet in again(group)}) == 1
    group.reorder(seed)
    group.settle()
    assert group.order["1"] == group.order["2"] == messages
    group.assert_forgotten()


@pytest.mark.parametrize("lost", [0, 5, MANY - 1])
def test_if_one_of_them_is_lost_the_rest_is_asked_for(lost: int) -> None:
    """H8."""
    group, messages = behind(MANY)
    group.lose(messages[lost], to="1", by="0")
    group.settle()
    assert group.order["1"] == group.order["2"] == messages
    group.assert_forgotten()


def test_copies_sent_again_together_cost_little_more_than_first_ones() -> None:
    """H8."""
    group, messages = behind(MANY)
    codec = lookup("locamu").codec()
    together = [codec.size(packet) for packet in again(group)]
    alone, _ = behind(1)
    (whole,) = [codec.size(packet) for packet in again(alone)]
    assert len(together) == len(messages)
    assert max(together[1:]) < whole


def test_old_copies_of_a_burst_that_come_after_newer_ones_are_dropped() -> None:
    """H8: so is what a node that has come back gets of a burst whose beginning it has missed."""
    group, messages = behind(3)
    _, second, third = again(group)
    group.in_flight.clear()
    for packet in (third, second):
        group.hand(packet, to="1", by="0")
    assert group.order["1"] == []
    group.crash("1")
    group.recover("1")
    group.hand(third, to="1", by="0")
    group.settle()
    assert group.order["1"] == messages


def test_a_node_that_has_missed_much_gets_it_burst_by_burst_without_waiting_for_a_round() -> None:
    """H8, R3."""
    group, messages = behind(3 * LONGEST_BURST)
    assert len(again(group)) == LONGEST_BURST
    group.carry_all()
    assert group.order["1"] == messages


@pytest.mark.parametrize("count", [AT_ONCE, AT_ONCE + 1])
def test_a_node_that_becomes_active_is_asked_first_if_it_may_lack_much(count: int) -> None:
    """R3: it has got most of it already from the node that fell silent."""
    group = TreeGroup(line(3), "012")
    messages = [group.publish("0", "012") for _ in range(count)]
    for message in messages[:-1]:
        group.forward(message, "012")
    group.in_flight.clear()
    group.suspect("1", by="0")
    copies = [p for _, to, p in group.in_flight if to == "2" and isinstance(p, Data)]
    assert len(copies) == (count if count <= AT_ONCE else 0)
    if not copies:
        group.carry(Ack, to="2", by="0")
        group.carry(Ack, to="0", by="2")
        (copy,) = [p for _, to, p in group.in_flight if to == "2" and isinstance(p, Data)]
        assert copy.message == messages[-1]


def test_who_was_sent_a_copy_gets_names_only() -> None:
    """M5: and if the copy was lost, repair brings message and names."""
    group = TreeGroup(line(4), "123")
    group.suspect("1", by="0")
    message = group.publish("0", "123")
    group.carry(message, to="2", by="0")
    group.lose(message, to="3", by="2")
    group.trust("1", by="0")
    group.forward(message, "012")
    assert [type(p) for _, to, p in group.in_flight if to == "3" and not isinstance(p, Ack)] == [Alias]
    group.settle()
    assert group.order["3"] == [message]
    group.assert_forgotten()
