"""Reliable links: exactly once over links that lose, duplicate and reorder, and quiet when there is nothing to do."""

from __future__ import annotations

import msgspec
import pytest

from ordercast.core.effects import Send, SetTimer
from ordercast.core.errors import PeerError
from ordercast.protocols.flood.flood import Data, Flood
from ordercast.protocols.shared.links import (
    ABOVE_LIMIT,
    ACK,
    ACK_EVERY,
    HELLO,
    RESEND,
    Ack,
    Hello,
    ReliableLink,
    Welcome,
)
from tests.support.group import Group


def pair(**options: object) -> Group:
    return Group("flood", "ann", "bob", **options)


def link(group: Group, node: str, peer: str) -> ReliableLink:
    machine = group.machines[node]  # type: ignore[index]
    assert isinstance(machine, Flood)
    return machine.links.links[peer]  # type: ignore[index]


def test_a_lost_packet_is_sent_again_until_it_arrives() -> None:
    group = pair()
    message = group.broadcast("ann")
    group.lose(message, to="bob")
    group.fire("ann", RESEND)
    assert group.packets(Data) == [], "what was sent within the last period is not sent again"
    group.fire("ann", RESEND)
    group.lose(message, to="bob")
    group.fire("ann", RESEND)
    group.settle()
    assert group.delivered["bob"] == [message]


def test_a_packet_that_comes_twice_is_taken_once() -> None:
    group = pair()
    message = group.broadcast("ann")
    group.duplicate(message, to="bob")
    group.settle()
    assert group.delivered["bob"] == [message]


def test_a_lost_acknowledgement_does_not_deliver_twice() -> None:
    group = pair(f=0)
    message = group.broadcast("ann")
    group.carry(message, to="bob")
    group.fire("bob", ACK)
    group.lose(Ack, to="ann")
    group.settle()
    assert group.delivered["bob"] == [message]
    assert not link(group, "ann", "bob").unacked


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_arrival_is_exactly_once(seed: int) -> None:
    group = pair()
    messages = [group.broadcast("ann") for _ in range(10)]
    group.duplicate(messages[3], to="bob")
    group.lose(messages[5], to="bob")
    group.reorder(seed)
    group.settle()
    assert sorted(message.number for message in group.delivered["bob"]) == list(range(1, 11))


def test_no_timer_stays_armed_once_all_is_acknowledged() -> None:
    group = pair()
    group.broadcast("ann")
    group.broadcast("bob")
    group.settle()
    assert group.timers == {"ann": set(), "bob": set()}


def test_acknowledgements_wait_for_company() -> None:
    group = pair(f=0)
    messages = [group.broadcast("ann") for _ in range(5)]
    for message in messages:
        group.carry(message, to="bob")
    assert group.packets(Ack) == []
    group.fire("bob", ACK)
    assert group.packets(Ack) == [Ack(0, 5)]


def test_many_packets_are_acknowledged_without_waiting() -> None:
    group = pair(f=0)
    for _ in range(ACK_EVERY):
        group.broadcast("ann")
    for _ in range(ACK_EVERY):
        group.carry(Data, to="bob")
    assert group.packets(Ack) == [Ack(0, ACK_EVERY)]


def test_a_packet_that_asks_is_acknowledged_at_once() -> None:
    group = pair(f=1)
    group.carry(group.broadcast("ann"), to="bob")
    assert group.packets(Ack) == [Ack(0, 1)]


def test_data_in_the_other_direction_carries_the_acknowledgement() -> None:
    group = pair(f=0)
    group.carry(group.broadcast("ann"), to="bob")
    group.carry(group.broadcast("bob"), to="ann")
    assert not link(group, "ann", "bob").unacked
    group.fire("bob", ACK)
    assert group.packets(Ack) == [], "nothing is left to acknowledge"


def test_only_what_is_missing_is_sent_again() -> None:
    group = pair(f=0)
    messages = [group.broadcast("ann") for _ in range(4)]
    group.lose(messages[1], to="bob")
    for message in (messages[0], messages[2], messages[3]):
        group.carry(message, to="bob")
    group.fire("bob", ACK)
    assert group.packets(Ack) == [Ack(0, 1, (3, 4))]
    group.carry(Ack, to="ann")
    group.fire("ann", RESEND)
    group.fire("ann", RESEND)
    assert [packet.message for packet in group.packets(Data) if isinstance(packet, Data)] == [messages[1]]


def test_an_acknowledgement_lists_a_bounded_number_of_early_packets() -> None:
    group = pair(f=0)
    messages = [group.broadcast("ann") for _ in range(ABOVE_LIMIT + 10)]
    group.lose(messages[0], to="bob")
    for message in messages[1:]:
        group.carry(message, to="bob")
    group.fire("bob", ACK)
    acks = [packet for packet in group.packets(Ack) if isinstance(packet, Ack)]
    assert max(len(ack.above) for ack in acks) == ABOVE_LIMIT
    group.settle()
    assert len(group.delivered["bob"]) == len(messages)


def test_a_suspected_neighbour_is_sent_nothing_and_everything_when_trusted() -> None:
    group = pair(f=0)
    first = group.broadcast("ann")
    group.lose(first, to="bob")
    group.suspect("bob", by="ann")
    second = group.broadcast("ann")
    group.fire("ann", RESEND)
    assert group.packets(Data) == []
    assert RESEND not in group.timers["ann"]  # type: ignore[index]
    group.trust("bob", by="ann")
    group.settle()
    assert group.delivered["bob"] == [first, second]


def test_a_node_that_recovers_sends_what_was_in_flight_when_it_crashed() -> None:
    group = pair(f=0)
    message = group.broadcast("ann")
    group.lose(message, to="bob")
    group.crash("ann")
    group.recover("ann")
    group.settle()
    assert group.delivered["bob"] == [message]


def test_a_node_that_recovers_takes_nothing_twice() -> None:
    group = pair(f=0)
    message = group.broadcast("ann")
    group.duplicate(message, to="bob")
    packet = group.packets(Data)[0]
    group.carry(message, to="bob")
    group.crash("bob")
    group.recover("bob")
    assert group.hand(packet, to="bob", by="ann") == []
    group.settle()
    assert group.delivered["bob"] == [message]


def test_numbers_of_a_former_life_are_not_mixed_with_the_new_one() -> None:
    group = pair(f=0)
    old = [group.broadcast("ann") for _ in range(3)]
    stale = group.packets(Data, to="bob")
    group.settle()
    group.crash("bob")
    group.recover("bob", state="lost")
    group.settle()
    assert [group.hand(packet, to="bob", by="ann") for packet in stale] == [[], [], []]
    new = group.broadcast("ann")
    group.settle()
    assert group.delivered["bob"] == [new]
    assert old[0] not in group.delivered["bob"]


def test_packets_of_a_neighbour_that_has_since_lost_its_state_are_ignored() -> None:
    group = pair(f=0)
    group.broadcast("bob")
    stale = group.packets(Data, to="ann")[0]
    group.lose(Data, to="ann")
    group.crash("bob")
    group.recover("bob", state="lost")
    group.settle()
    assert group.hand(stale, to="ann", by="bob") == []
    message = group.broadcast("bob")
    group.settle()
    assert group.delivered["ann"] == [message]


def test_hello_is_repeated_until_it_is_answered() -> None:
    group = pair()
    group.crash("bob")
    group.recover("bob", state="lost")
    group.lose(Hello, to="ann")
    group.fire("bob", HELLO)
    group.carry(Hello, to="ann")
    group.lose(Welcome, to="bob")
    group.fire("bob", HELLO)
    group.settle()
    assert [note.info for note in group.notes["bob"]] == [{"topic": "*"}]  # type: ignore[index]


def test_what_was_pending_for_the_former_life_reaches_the_new_one() -> None:
    group = pair(f=0)
    group.crash("bob")
    group.suspect("bob", by="ann")
    message = group.broadcast("ann")
    group.recover("bob", state="lost")
    group.trust("bob", by="ann")
    group.settle()
    assert group.delivered["bob"] == [message]


def test_two_neighbours_that_both_lost_their_state_find_each_other() -> None:
    group = pair()
    for node in ("ann", "bob"):
        group.crash(node)
    for node in ("ann", "bob"):
        group.recover(node, state="lost")
    group.settle()
    message = group.broadcast("ann")
    group.settle()
    assert group.delivered == {"ann": [message], "bob": [message]}


def test_what_is_published_before_the_welcome_is_not_lost() -> None:
    group = pair()
    group.crash("bob")
    group.recover("bob", state="lost")
    message = group.broadcast("bob")
    group.settle()
    assert group.delivered == {"ann": [message], "bob": [message]}


def test_acknowledging_what_was_never_sent_is_blamed_on_the_peer() -> None:
    group = pair()
    with pytest.raises(PeerError, match="bob: acknowledges packets beyond 0"):
        group.hand(Ack(0, 3), to="ann", by="bob")
    with pytest.raises(PeerError, match="bob: acknowledges packets beyond 0"):
        group.hand(Ack(0, 0, (7,)), to="ann", by="bob")


@pytest.mark.parametrize("packet", [Ack(0, 0), Hello(1), Welcome(0, 1, ())])
def test_a_stranger_is_named(packet: object) -> None:
    group = Group("flood", "ann", "bob", "cho", edges=[("ann", "bob"), ("bob", "cho")])
    with pytest.raises(PeerError, match="cho: is not a neighbour"):
        group.hand(packet, to="ann", by="cho")  # type: ignore[arg-type]


def test_timers_use_the_configured_times() -> None:
    group = pair(f=0, ack_ms=7, retransmit_ms=70)
    machine = group.machines["ann"]  # type: ignore[index]
    assert isinstance(machine, Flood)
    assert (machine.links.ack_ns, machine.links.resend_ns) == (7_000_000, 70_000_000)
    group.broadcast("ann")
    effects = group._do(group.nodes[1], "on_receive", group.nodes[0], group.packets(Data)[0])
    assert [effect for effect in effects if isinstance(effect, SetTimer)] == [SetTimer(ACK, 7_000_000)]
    assert not any(isinstance(effect, Send) for effect in effects)


def test_renumbering_keeps_everything_but_session_and_number() -> None:
    group = pair(f=0)
    first, second = group.broadcast("ann"), group.broadcast("ann")
    group.carry(first, to="bob")
    group.fire("bob", ACK)
    group.carry(Ack, to="ann")
    end = link(group, "ann", "bob")
    before = end.unacked[2]
    end.reopen(5)
    assert end.unacked == {1: msgspec.structs.replace(before, session=5, number=1, ack=0)}
    assert isinstance(end.unacked[1], Data)
    assert end.unacked[1].message == second
