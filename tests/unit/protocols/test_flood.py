"""Flood: every live node that wants a message delivers it once, and nobody delivers what could still be lost."""

from __future__ import annotations

import pytest

from ordercast.core.effects import Deliver, Note
from ordercast.core.errors import PeerError, UsageError
from ordercast.core.messages import Message
from ordercast.protocols import lookup
from ordercast.protocols.flood.flood import Data
from ordercast.protocols.flood.sequencer import Order
from ordercast.protocols.shared.links import Ack
from tests.support.group import Group

LINE = [("ann", "bob"), ("bob", "cho"), ("cho", "dan")]
RING = [*LINE, ("dan", "ann")]
PEOPLE = ("ann", "bob", "cho", "dan")


@pytest.mark.parametrize("edges", [LINE, RING, None])
def test_everyone_delivers_everything_once(edges: list[tuple[str, str]] | None) -> None:
    group = Group("flood", *PEOPLE, edges=edges)
    messages = {group.broadcast(node) for node in PEOPLE}
    group.settle()
    for node in group.nodes:
        assert len(group.delivered[node]) == 4
        assert set(group.delivered[node]) == messages


def test_a_message_is_relayed_to_all_neighbours_but_its_source() -> None:
    group = Group("flood", *PEOPLE, edges=RING)
    message = group.broadcast("ann")
    group.carry(message, to="bob")
    assert group.packets(Data, to="cho")
    assert len(group.packets(Data, to="ann")) == 0


def test_a_second_copy_is_not_relayed() -> None:
    group = Group("flood", *PEOPLE, edges=RING)
    message = group.broadcast("ann")
    group.carry(message, to="bob")
    group.carry(message, to="dan")
    group.carry(message, to="cho", by="bob")
    assert [p.message for p in group.packets(Data, to="dan") if isinstance(p, Data)] == [message]
    group.carry(message, to="cho", by="dan")
    assert len(group.packets(Data, to="bob")) == 0


# Uniformity


def test_a_publisher_delivers_only_once_somebody_else_holds_the_message() -> None:
    group = Group("flood", "ann", "bob", "cho")
    message = group.broadcast("ann")
    assert group.delivered["ann"] == []
    group.carry(message, to="bob")
    assert group.carry(Ack, to="ann") == [Deliver(message)]
    group.settle()
    assert group.delivered["ann"] == [message]


def test_a_publisher_is_told_once_its_message_will_survive_and_nobody_else_is() -> None:
    group = Group("flood", "ann", "bob", "cho", topics={"news": ["bob", "cho"]})
    message = group.broadcast("ann", topic="news")
    group.carry(message, to="bob")
    assert group.completed["ann"] == []  # type: ignore[index]
    group.settle()
    assert group.completed == {"ann": [message.id], "bob": [], "cho": []}


def test_a_receiver_delivers_at_once_because_its_source_holds_the_message() -> None:
    group = Group("flood", "ann", "bob", "cho")
    message = group.broadcast("ann")
    assert group.carry(message, to="bob") == [Deliver(message)]


def test_with_f_2_a_receiver_waits_for_a_third_holder() -> None:
    group = Group("flood", *PEOPLE, f=2)
    message = group.broadcast("ann")
    assert group.carry(message, to="bob") == []
    assert group.carry(message, to="cho", by="bob") == []
    assert group.carry(Ack, to="bob", by="cho") == [Deliver(message)]


def test_another_copy_of_a_message_shows_another_holder() -> None:
    group = Group("flood", *PEOPLE, f=2)
    message = group.broadcast("ann")
    group.carry(message, to="bob")
    group.carry(message, to="cho", by="ann")
    assert group.carry(message, to="bob", by="cho") == [Deliver(message)]


def test_with_f_0_a_publisher_delivers_at_once() -> None:
    group = Group("flood", "ann", "bob", f=0)
    message = group.broadcast("ann")
    assert group.delivered["ann"] == [message]


def test_fewer_holders_do_when_no_more_neighbours_live() -> None:
    group = Group("flood", *PEOPLE, f=2)
    message = group.broadcast("ann")
    group.carry(message, to="bob")
    group.carry(Ack, to="ann")
    assert group.delivered["ann"] == []
    group.suspect("cho", by="ann")
    assert group.delivered["ann"] == []
    assert Deliver(message) in group.suspect("dan", by="ann")


def test_a_dead_holder_does_not_stand_in_for_a_living_neighbour_that_lacks_the_message() -> None:
    group = Group("flood", *PEOPLE, edges=LINE, f=2)
    message = group.broadcast("ann")
    group.carry(message, to="bob")
    group.crash("ann")
    assert Deliver(message) not in group.suspect("ann", by="bob")
    group.carry(message, to="cho")
    assert group.carry(Ack, to="bob", by="cho") == [Deliver(message)]


def test_a_node_that_suspects_everyone_does_not_deliver_alone() -> None:
    """Suspicions can be wrong: had it crashed now, the others would never get the message."""
    group = Group("flood", "ann", "bob", "cho")
    message = group.broadcast("ann")
    group.suspect("bob", by="ann")
    group.suspect("cho", by="ann")
    assert group.delivered["ann"] == []
    group.trust("bob", by="ann")
    group.settle()
    assert group.delivered["ann"] == [message]


def test_the_last_node_delivers_alone_where_all_others_may_have_crashed() -> None:
    group = Group("flood", "ann", "bob", f=1)
    message = group.broadcast("ann")
    assert Deliver(message) in group.suspect("bob", by="ann")


def test_a_node_without_neighbours_delivers_to_itself() -> None:
    group = Group("flood", "ann")
    message = group.broadcast("ann")
    assert group.delivered["ann"] == [message]


def test_what_waits_for_holders_survives_a_crash() -> None:
    group = Group("flood", "ann", "bob", "cho")
    message = group.broadcast("ann")
    group.lose(message, to="bob")
    group.lose(message, to="cho")
    group.crash("ann")
    group.recover("ann")
    group.settle()
    assert all(group.delivered[node] == [message] for node in group.nodes)


# Who wants what


def test_only_members_deliver_but_everyone_relays() -> None:
    group = Group("flood", *PEOPLE, edges=LINE, topics={"news": ["ann", "dan"], "chat": ["bob"]})
    news = group.broadcast("ann", topic="news")
    group.settle()
    assert {node for node in group.nodes if group.delivered[node]} == {"ann", "dan"}
    assert group.delivered["dan"] == [news]


def test_explicit_destinations_go_before_topics() -> None:
    group = Group("flood", *PEOPLE, edges=LINE, topics={"news": ["ann", "bob"]})
    group.broadcast("ann", topic="news", dst=["dan"])
    group.settle()
    assert {node for node in group.nodes if group.delivered[node]} == {"dan"}


def test_a_subscription_and_its_end_take_effect_at_once() -> None:
    group = Group("flood", "ann", "bob", topics={"news": ["ann"]})
    group.subscribe("bob", "news")
    first = group.broadcast("ann", topic="news")
    group.settle()
    group.unsubscribe("bob", "news")
    group.broadcast("ann", topic="news")
    group.settle()
    assert group.delivered["bob"] == [first]


def test_a_member_of_everything_can_decline_one_topic() -> None:
    group = Group("flood", "ann", "bob")
    group.unsubscribe("bob", "noise")
    group.broadcast("ann", topic="noise")
    news = group.broadcast("ann", topic="news")
    group.settle()
    assert group.delivered["bob"] == [news]


def test_subscriptions_survive_a_crash() -> None:
    group = Group("flood", "ann", "bob", topics={"news": ["ann", "bob"], "chat": ["ann"]})
    group.subscribe("bob", "chat")
    group.unsubscribe("bob", "news")
    group.crash("bob")
    group.recover("bob")
    group.broadcast("ann", topic="news")
    chat = group.broadcast("ann", topic="chat")
    group.settle()
    assert group.delivered["bob"] == [chat]


# Newcomers


def test_a_newcomer_is_confirmed_once_and_per_topic() -> None:
    group = Group("flood", "ann", "bob", "cho", topics={"news": ["ann", "cho"], "chat": ["cho"], "else": ["ann"]})
    group.crash("cho")
    group.recover("cho", state="lost")
    assert group.notes["cho"] == []  # type: ignore[index]
    group.settle()
    assert group.notes["cho"] == [  # type: ignore[index]
        Note("subscribe", {"topic": "chat"}),
        Note("subscribe", {"topic": "news"}),
    ]


def test_a_newcomer_does_not_deliver_what_its_former_self_had() -> None:
    group = Group("flood", "ann", "bob", "cho")
    group.broadcast("ann")
    group.settle()
    group.crash("cho")
    group.recover("cho", state="lost")
    group.settle()
    assert group.delivered["cho"] == []


def test_a_newcomer_delivers_all_that_is_published_after_its_confirmation() -> None:
    group = Group("flood", *PEOPLE, edges=LINE)
    group.broadcast("dan")
    group.settle()
    group.crash("ann")
    group.suspect("ann", by="bob")
    group.recover("ann", state="lost")
    group.trust("ann", by="bob")
    group.settle()
    message = group.broadcast("dan")
    own = group.broadcast("ann")
    group.settle()
    assert set(group.delivered["ann"]) == {message, own}
    assert own in group.delivered["dan"]


def test_a_lone_newcomer_needs_nobody_to_confirm_it() -> None:
    group = Group("flood", "ann")
    group.crash("ann")
    group.recover("ann", state="lost")
    assert group.notes["ann"] == [Note("subscribe", {"topic": "*"})]  # type: ignore[index]


# Nonsense


def test_a_message_of_an_unknown_publisher_is_blamed_on_the_peer() -> None:
    group = Group("flood", "ann", "bob")
    forged = Message("zoe", 1, "t", b"")  # type: ignore[arg-type]
    with pytest.raises(PeerError, match="bob: relays a message of zoe"):
        group.hand(Data(0, 1, 0, False, forged), to="ann", by="bob")


def test_a_packet_of_another_protocol_is_blamed_on_the_peer() -> None:
    group = Group("flood", "ann", "bob")
    with pytest.raises(PeerError, match="bob: sent a Order"):
        group.hand(Order(0, 1, 0, False, (0, 1, 1), ()), to="ann", by="bob")


def test_data_from_a_stranger_is_refused() -> None:
    group = Group("flood", "ann", "bob", "cho", edges=LINE[:2])
    message = group.broadcast("cho")
    packet = group.packets(Data)[0]
    with pytest.raises(PeerError, match="cho: is not a neighbour"):
        group.hand(packet, to="ann", by="cho")
    assert message not in group.delivered["ann"]


@pytest.mark.parametrize(
    "options", [{"f": -1}, {"ack_ms": 0}, {"retransmit_ms": -5}, {"f": 1.5}, {"retransmit_ms": "soon"}]
)
def test_an_option_out_of_range_is_named(options: dict[str, object]) -> None:
    name = next(iter(options))
    with pytest.raises(UsageError, match=rf"options of flood: .*{name}"):
        lookup("flood").parse_options(options)
