"""Ids, messages, errors, effects and the wire."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.core.effects import CancelTimer, Deliver, EffectLog, Note, Send, SetTimer
from ordercast.core.errors import PeerError, unknown_name
from ordercast.core.ids import NodeId, Origin, Topic, origin_of, publisher_of, valid_node
from ordercast.core.machine import Machine, Place
from ordercast.core.messages import GUARANTEES, Guarantee, Message
from ordercast.core.wire import FRAME_PREFIX_BYTES, Codec
from tests.support.plain_flood import Data, Ping, PlainFlood, protocol_of

messages = st.builds(
    Message,
    origin=st.text(min_size=1, max_size=8).map(Origin),
    number=st.integers(1, 2**40),
    topic=st.text(max_size=8).map(Topic),
    payload=st.binary(max_size=40),
    guarantee=st.sampled_from(Guarantee),
    keys=st.lists(st.text(max_size=4), max_size=3).map(tuple),
    dst=st.lists(st.text(max_size=4).map(NodeId), max_size=3).map(tuple),
)


@given(messages)
def test_a_packet_that_was_encoded_decodes_to_itself(message: Message) -> None:
    codec = Codec((Data, Ping))
    for packet in (Data(message), Ping(message.number)):
        assert codec.decode(codec.encode(packet), "n1") == packet
        assert codec.size(packet) == len(codec.encode(packet)) + FRAME_PREFIX_BYTES


@pytest.mark.parametrize("frame", [b"", b"\x93", b"garbage", b"\x92\x09\x01", b"\x92\x02\xa1x", b"\x92\x02\x01\x01"])
def test_garbage_from_a_peer_is_blamed_on_the_peer(frame: bytes) -> None:
    with pytest.raises(PeerError, match="n1: sent a malformed packet") as caught:
        Codec((Data, Ping)).decode(frame, "n1")
    assert caught.value.peer == "n1"


def test_an_origin_names_its_node_in_every_life() -> None:
    assert [origin_of(NodeId("n3"), life) for life in (0, 1, 2)] == ["n3", "n3~1", "n3~2"]
    assert {publisher_of(origin_of(NodeId("n3"), life)) for life in range(3)} == {"n3"}
    assert Message(Origin("n3~1"), 7, Topic("t"), b"").id == "n3~1#7"


@pytest.mark.parametrize("name", ["", "a b", "a#1", "a~1", "a,b", "a;b", "a\n", "\x00"])
def test_a_name_that_could_be_mistaken_for_something_else_is_no_node_s_name(name: str) -> None:
    assert not valid_node(name)
    assert valid_node(f"broker-{len(name)}")


def test_guarantees_have_the_names_users_write() -> None:
    assert list(GUARANTEES) == ["eventual", "fifo", "causal", "total", "atomic", "optimistic-causal"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("floood", "did you mean 'flood'?"),
        ("seq", "did you mean 'sequencer'?"),
        ("zzzzzz", "known: fifo, flood, sequencer"),
        ("", "known: fifo, flood, sequencer"),
    ],
)
def test_an_unknown_name_comes_with_the_nearest_valid_one(name: str, hint: str) -> None:
    assert str(unknown_name("protocol", name, ["sequencer", "flood", "fifo"])) == f"unknown protocol {name!r}; {hint}"


def test_a_long_list_of_valid_names_is_cut_short() -> None:
    assert str(unknown_name("node", "x", [f"node{i:03}" for i in range(500)])).endswith("node018, node019, ...")


def test_an_effect_log_keeps_what_it_was_given_in_order() -> None:
    log = EffectLog()
    message = Message(Origin("n0"), 1, Topic("t"), b"")
    log.send(NodeId("n1"), Ping(1))
    log.deliver(message)
    log.set_timer("x", 5, background=True)
    log.cancel_timer("x")
    log.note("join", {})
    assert log.take() == [
        Send(NodeId("n1"), Ping(1)),
        Deliver(message),
        SetTimer("x", 5, background=True),
        CancelTimer("x"),
        Note("join", {}),
    ]
    assert log.take() == []


def test_a_batch_is_by_default_its_packets_one_by_one() -> None:
    place = Place(NodeId("n0"), (NodeId("n1"),), (NodeId("n0"), NodeId("n1")))
    one, many = protocol_of(PlainFlood).build(place, None), protocol_of(PlainFlood).build(place, None)
    packets = [Data(Message(Origin("n1"), i, Topic("t"), b"")) for i in (1, 2, 1)]
    single, batch = EffectLog(), EffectLog()
    for packet in packets:
        one.on_receive(NodeId("n1"), packet, single)
    many.on_receive_many(NodeId("n1"), packets, batch)
    assert single.take() == batch.take() != []
    assert one == many


def test_a_machine_ignores_what_it_does_not_handle_and_recovers_as_it_starts() -> None:
    log = EffectLog()

    class Starter(Machine):
        def on_start(self, out: object) -> None:
            log.note("join", {})

    machine = Starter()
    machine.on_publish(Message(Origin("n0"), 1, Topic("t"), b""), log)
    machine.on_receive(NodeId("n1"), Ping(1), log)
    machine.on_timer("x", log)
    machine.on_suspect(NodeId("n1"), log)
    machine.on_trust(NodeId("n1"), log)
    machine.on_subscribe(Topic("t"), log)
    machine.on_unsubscribe(Topic("t"), log)
    assert log.take() == []
    machine.on_recover(log)
    assert log.take() == [Note("join", {})]


def test_a_place_knows_its_topics() -> None:
    here = NodeId("n0")
    groups = {Topic("a"): (here,), Topic("b"): (NodeId("n1"),)}
    assert Place(here, (), (here,), groups).initial_topics() == {"a"}
    assert Place(here, (), (here,)).initial_topics() is None
