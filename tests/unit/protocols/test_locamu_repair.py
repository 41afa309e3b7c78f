"""LoCaMu's repairs: little is sent twice, what is sent together is short, and nobody is left without."""

from __future__ import annotations

import pytest

from ordercast.core.messages import Message
from ordercast.protocols import lookup
from ordercast.protocols.locamu.forwarding import LONGEST_BURST
from ordercast.protocols.locamu.packets import Ack, Alias, Data
from ordercast.protocols.locamu.resend import AT_ONCE
from tests.support.locamu_lab import TreeGroup, line
from tests.support.locamu_membership_lab import ChangingTree
from tests.support.sim_lab import Lab, publish, scenario, schedule

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
    """LCM-P4, LCM-R2, LCM-R4: live members get what live nodes have."""
    group, message = fallen_publisher()
    for node in "023":
        group.suspect("1", by=node)
    live(group)
    assert [group.delivered[node] for node in group.nodes if node != "1"] == [[message]] * 3


def test_a_lost_copy_in_anothers_name_is_sent_again() -> None:
    """LCM-P4, LCM-R2, LCM-R4: live members get what live nodes have."""
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
    """LCM-H8: copies that are sent again together share a session."""
    group, messages = behind(MANY)
    assert len({packet.session for packet in again(group)}) == 1
    group.reorder(seed)
    group.settle()
    assert group.order["1"] == group.order["2"] == messages
    group.assert_forgotten()


@pytest.mark.parametrize("lost", [0, 5, MANY - 1])
def test_if_one_of_them_is_lost_the_rest_is_asked_for(lost: int) -> None:
    """LCM-H8: copies that are sent again together share a session."""
    group, messages = behind(MANY)
    group.lose(messages[lost], to="1", by="0")
    group.settle()
    assert group.order["1"] == group.order["2"] == messages
    group.assert_forgotten()


def test_copies_sent_again_together_cost_little_more_than_first_ones() -> None:
    """LCM-H8: copies that are sent again together share a session."""
    group, messages = behind(MANY)
    codec = lookup("locamu").codec()
    together = [codec.size(packet) for packet in again(group)]
    alone, _ = behind(1)
    (whole,) = [codec.size(packet) for packet in again(alone)]
    assert len(together) == len(messages)
    assert max(together[1:]) < whole


def test_old_copies_of_a_burst_that_come_after_newer_ones_are_dropped() -> None:
    """LCM-H8: so is what a node that has come back gets of a burst whose beginning it has missed."""
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
    """LCM-H8, LCM-R3: of more copies than a burst has, the receiver is asked first."""
    group, messages = behind(3 * LONGEST_BURST)
    assert len(again(group)) == LONGEST_BURST
    group.carry_all()
    assert group.order["1"] == messages


@pytest.mark.parametrize("count", [AT_ONCE, AT_ONCE + 1])
def test_a_node_that_becomes_active_is_asked_first_if_it_may_lack_much(count: int) -> None:
    """LCM-R3: it has got most of it already from the node that fell silent."""
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
    """LCM-M5: and if the copy was lost, repair brings message and names."""
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


NEED = Ack((), need=True)


def served(group: TreeGroup, message: Message, ack: Ack) -> int:
    """How many copies node 0 sends when 1 says that."""
    group.in_flight.clear()
    group.hand(ack, to="0", by="1")
    return len(group.travelling(message, to="1", by="0"))


def lost_on_the_way(*, delta: bool = True) -> tuple[TreeGroup, Message]:
    group = TreeGroup(line(2), "01", delta=delta)
    message = group.publish("0", "01")
    group.lose(message, to="1", by="0")
    return group, message


def rounds(group: TreeGroup, count: int) -> int:
    for _ in range(count):
        group.fire("0", "tick")
    return group.machine("0").rounds.round


def test_who_needs_something_is_not_sent_what_may_still_be_on_its_way() -> None:
    """LCM-R2: a new session says that it is not."""
    group, message = lost_on_the_way()
    assert served(group, message, NEED) == 0
    assert served(group, message, Ack((), need=True, reset=True)) == 1


def test_without_sessions_nothing_shows_that_a_copy_was_lost_so_whoever_needs_it_gets_it() -> None:
    """LCM-R2: what was sent has time to arrive."""
    group, message = lost_on_the_way(delta=False)
    assert served(group, message, NEED) == 1


def test_what_was_on_its_way_when_its_sender_crashed_is_sent_again() -> None:
    """LCM-R2, LCM-R6: what was on its way at a crash may be lost."""
    group, message = lost_on_the_way()
    group.crash("0")
    group.recover("0")
    assert served(group, message, NEED) == 1


def test_two_answers_show_that_a_copy_was_lost() -> None:
    """LCM-R2: whether the other one needs anything or not."""
    for need in (False, True):
        group, message = lost_on_the_way()
        assert served(group, message, Ack((), need=need, reply=rounds(group, 1))) == 0
        assert served(group, message, Ack((), need=need, reply=rounds(group, 1))) == 1


def test_what_was_sent_again_has_more_time_before_it_is_sent_once_more() -> None:
    """LCM-R2: answers wait in queues, too."""
    group, message = lost_on_the_way()
    for more, copies in ((2, 1), (3, 0), (1, 1), (5, 0), (1, 1)):
        assert served(group, message, Ack((), need=True, reply=rounds(group, more))) == copies


def test_who_is_suspected_gets_what_it_needs_however_often_it_is_lost() -> None:
    """LCM-R2: it is not asked for answers."""
    group, message = lost_on_the_way()
    group.suspect("1", by="0")
    for copies in (1, 0, 1, 0, 0, 0, 1):
        assert served(group, message, NEED) == copies
        rounds(group, 1)


def test_who_waits_for_what_only_a_fallen_node_has_does_not_keep_a_run_from_its_rest() -> None:
    """LCM-R1, LCM-R2: requests go on in the background, and so do the rounds that they cause."""
    lab = Lab(
        scenario(
            duration_ms=600,
            drain_ms=30_000,
            overlay={"kind": "line", "nodes": 4},
            detector={"delay_ms": 20},
            options={"delta": False},
            workload=[schedule(publish("n1", 10), publish("n1", 20), publish("n3", 200))],
            fault=[
                {"kind": "partition", "sides": [["n1"], ["n0", "n2", "n3"]], "at_ms": 9, "until_ms": 12},
                {"kind": "crash", "node": "n1", "at_ms": 22, "survive": "all"},
            ],
        ),
        lookup("locamu"),
    )
    assert lab.messages("deliver", "n3") == ["n3#1"]
    assert lab.manifest.drained is True


def overtaken(count: int) -> tuple[TreeGroup, list[Message]]:
    """A line: 3 gets messages of 2 that it cannot deliver, for want of one that 2 has lost."""
    group = TreeGroup(line(4), "0123")
    first = group.publish("0", "0123")
    group.forward(first, "012")
    group.lose(first, to="3", by="2")
    group.suspect("2", by="1")
    later = [group.publish("1", "0123") for _ in range(count)]
    for message in later:
        group.carry(message, to="3", by="1")
    return group, [first, *later]


def asked(group: TreeGroup) -> list[str]:
    """Whom 3 says that it needs something from."""
    return [str(to) for by, to, p in group.in_flight if by == "3" and isinstance(p, Ack) and p.need]


def test_only_what_was_held_back_at_the_last_look_is_asked_for() -> None:
    """LCM-R1: what has just come may simply have overtaken something."""
    group, messages = overtaken(1)
    assert group.held("3") == messages[1:]
    group.in_flight.clear()
    group.fire("3", "need")
    assert asked(group) == ["1"]
    machine = group.machine("3")
    assert list(machine.held.looks.values()) == [1]
    late = group.publish("1", "0123")
    group.carry(late, to="3", by="1")
    group.fire("3", "need")
    assert list(machine.held.looks.values()) == [2, 0]


def test_who_asks_a_node_that_holds_something_back_is_told_so_only_if_that_concerns_it() -> None:
    """LCM-R1: everybody asks in every round, and would send what it has."""
    group, _ = overtaken(1)
    group.fire("3", "need")
    group.in_flight.clear()
    for peer in "12":
        group.hand(Ack((), ask=1), to="3", by=peer)
    assert asked(group) == ["1"]


def test_who_sent_what_waits_is_asked_for_ever_even_if_it_is_suspected() -> None:
    """LCM-R1: it may be the only one to have what is missing, and the suspicion wrong."""
    group, _ = overtaken(1)
    group.suspect("1", by="3")
    for _ in range(5):
        group.in_flight.clear()
        group.fire("3", "need")
        assert "1" in asked(group)
    assert "2" in asked(group)
