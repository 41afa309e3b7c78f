"""Clients of atomic multicast: what they may ask for, when they are done, and what servers refuse."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ordercast.core.effects import Complete, EffectLog, Send
from ordercast.core.errors import PeerError, UsageError
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.machine import Place
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.protocols import lookup
from ordercast.protocols.multicast.multicast import Ask, Done
from tests.support.group import Group
from tests.support.multicast import CLIENT, Servers

ATOMIC = ("daisy-chain", "daisy-chain-published", "delporte-fauconnier", "skeen")


def message(dst: str, number: int = 1, origin: str = CLIENT) -> Message:
    return Message(Origin(origin), number, Topic(""), b"x", Guarantee.ATOMIC, (), tuple(map(NodeId, dst)))


def busy(protocol: str, **options: Any) -> Servers:
    """Servers with packets in flight and messages held back."""
    messages = {"a": "134", "b": "24", "c": "1234", "e": "13", "f": "2", "g": "34", "h": "14"}
    servers = Servers(protocol, 4, messages, **options)
    for name in messages:
        servers.enter(name)
    servers.carry("1", "2" if "1>2" in servers.hops("a") else "3")
    return servers


@pytest.mark.parametrize("protocol", ATOMIC)
@pytest.mark.parametrize(
    ("dst", "problem"),
    [
        ("", "message client#1 names no destinations"),
        ("127", "unknown destination '7'"),
        ("131", "message client#1 names 1 twice"),
    ],
)
def test_senseless_destinations_are_refused_before_anything_is_sent(protocol: str, dst: str, problem: str) -> None:
    servers = Servers(protocol, 3, {})
    log = EffectLog()
    client = servers.machines[CLIENT]
    before = client.frozen()
    with pytest.raises(UsageError, match=f"^{protocol}: .*{problem}"):
        client.on_publish(message(dst), log)
    assert log.effects == []
    assert client.frozen() == before


@pytest.mark.parametrize("protocol", ATOMIC)
def test_a_client_is_no_destination(protocol: str) -> None:
    servers = Servers(protocol, 2, {})
    to_client = Message(Origin("1"), 1, Topic(""), b"", Guarantee.ATOMIC, (), (NodeId("1"), CLIENT))
    with pytest.raises(UsageError, match="unknown destination 'client'"):
        servers.machines[NodeId("1")].on_publish(to_client, EffectLog())


@pytest.mark.parametrize(
    ("protocol", "entries"), [("skeen", ["1", "3"]), ("delporte-fauconnier", ["1"]), ("daisy-chain", ["1"])]
)
def test_a_client_asks_the_entry_servers_whatever_the_order_of_its_destinations(
    protocol: str, entries: list[str]
) -> None:
    log = EffectLog()
    asked = message("31")
    Servers(protocol, 3, {}).machines[CLIENT].on_publish(asked, log)
    assert log.effects == [Send(NodeId(entry), Ask(asked)) for entry in entries]


@pytest.mark.parametrize("protocol", ATOMIC)
def test_a_client_is_told_once_its_message_is_done(protocol: str) -> None:
    servers = Servers(protocol, 3, {"a": "123"})
    for entry in list(servers.copies["a"]):
        assert servers.completed == []
        servers.enter("a", entry)
    assert servers.completed == []
    servers.drain()
    assert servers.completed == ["a"]


def test_skeen_answers_when_all_destinations_have_delivered() -> None:
    servers = Servers("skeen", 2, {"a": "12"}).run("c:a@1 c:a@2 1>2")
    assert (servers.all_orders(), servers.completed) == ({2: "a"}, [])
    servers.run("2>1")
    assert servers.completed == ["a"]


@pytest.mark.parametrize("protocol", ["delporte-fauconnier", "daisy-chain"])
def test_the_highest_destination_answers(protocol: str) -> None:
    servers = Servers(protocol, 2, {"a": "12"}).run("c:a")
    assert (servers.all_orders(), servers.completed) == ({1: "a"}, [])
    servers.run("1>2")
    assert servers.completed == ["a"]


@pytest.mark.parametrize("protocol", ATOMIC)
@pytest.mark.parametrize(("publisher", "dst"), [("n0", "n0 n1 n2"), ("n1", "n0 n2"), ("n2", "n0 n2"), ("n2", "n2")])
def test_a_server_that_publishes_is_its_own_client(protocol: str, publisher: str, dst: str) -> None:
    group = Group(protocol, "n0", "n1", "n2", check_invariants=True)
    sent = group.broadcast(publisher, dst=dst.split())
    completed: list[Complete] = []
    original = group._do

    def watching(node: NodeId, event: str, *args: object) -> list[Any]:
        effects = original(node, event, *args)
        completed.extend(effect for effect in effects if isinstance(effect, Complete))
        return effects

    group._do = watching  # type: ignore[method-assign]
    group.carry_all()
    assert {node: group.delivered[node] for node in group.nodes} == {
        node: [sent] if node in dst.split() else [] for node in group.nodes
    }
    assert completed == ([] if dst == publisher else [Complete(sent.id)])


@pytest.mark.parametrize("protocol", ATOMIC)
def test_a_message_to_oneself_alone_is_done_at_once(protocol: str) -> None:
    group = Group(protocol, "n0", "n1")
    log = EffectLog()
    own = Message(Origin("n1"), 1, Topic(""), b"", Guarantee.ATOMIC, (), (NodeId("n1"),))
    group.machines[NodeId("n1")].on_publish(own, log)
    assert log.effects[-1] == Complete("n1#1")


@pytest.mark.parametrize("protocol", ATOMIC)
def test_copies_are_equal_and_independent(protocol: str) -> None:
    servers = busy(protocol)
    for node in servers.servers:
        machine = servers.machines[node]
        clone, frozen = machine.copy(), machine.frozen()
        assert clone == machine
        assert hash(clone) == hash(machine)
        clone.on_publish(message("1234", 99, node), EffectLog())
        assert clone != machine
        assert machine.frozen() == frozen


@pytest.mark.parametrize("protocol", ATOMIC)
def test_equal_histories_lead_to_equal_states(protocol: str) -> None:
    first, second = busy(protocol), busy(protocol)
    assert first.machines == second.machines
    assert {pair: list(c) for pair, c in first.channels.items()} == {
        pair: list(c) for pair, c in second.channels.items()
    }


@pytest.mark.parametrize("protocol", ATOMIC)
@pytest.mark.parametrize("rule", ["strict", "lite", "cover"])
def test_saved_state_is_all_there_is(protocol: str, rule: str) -> None:
    """State machine replication needs nothing but what `save` returns."""
    servers = busy(protocol, **({"rule": rule} if protocol == "daisy-chain" else {}))
    for node in servers.servers:
        stranger = servers.build(node)
        stranger.restore(servers.machines[node].save())
        assert stranger == servers.machines[node]


@pytest.mark.parametrize("protocol", ATOMIC)
@pytest.mark.parametrize("checked", [False, True])
def test_every_packet_survives_the_wire(protocol: str, checked: bool) -> None:
    servers = busy(protocol, check_invariants=checked)
    codec = servers.info.codec()
    packets = [packet for channel in servers.channels.values() for packet in channel]
    packets += [packet for copies in servers.copies.values() for packet in copies.values()]
    assert packets
    for packet in packets:
        assert codec.decode(codec.encode(packet), "1") == packet


@pytest.mark.parametrize("protocol", ATOMIC)
@pytest.mark.parametrize("size", [3, 8, 16])
def test_the_metadata_formula_is_what_the_wire_says(protocol: str, size: int) -> None:
    """Header of the first packet between servers: o origin, d destinations on the wire, c changed counters, E edges."""
    group = Group(protocol, *(f"n{i:02d}" for i in range(size)))
    dst = [f"n{i:02d}" for i in range(size)][:8:2]
    sent = group.broadcast("n00", b"payload", topic="", dst=dst)
    codec = group.info.codec()
    packet = next(p for _, _, p in group.in_flight if not isinstance(p, Ask))
    header = codec.size(packet) - len(sent.payload)
    names = {
        "o": len(sent.origin),
        "d": sum(1 + len(name) for name in dst),
        "c": len(dst) - 1,
        "E": size * (size - 1) // 2 + (2 if size * (size - 1) // 2 > 15 else 0),
    }
    assert header == eval(group.info.metadata, {"__builtins__": {}}, names)


@pytest.mark.parametrize("protocol", ATOMIC)
def test_a_missing_link_between_servers_is_named(protocol: str) -> None:
    with pytest.raises(UsageError, match=f"{protocol} needs a link to every server at every node; n0 has none to n2"):
        Group(protocol, "n0", "n1", "n2", edges=[("n0", "n1"), ("n1", "n2")])


@pytest.mark.parametrize("protocol", ATOMIC)
def test_nobody_comes_back_without_state(protocol: str) -> None:
    info = lookup(protocol)
    place = Place(NodeId("n0"), (), (NodeId("n0"),), None, 1)
    with pytest.raises(UsageError, match="cannot take back a node that lost its state"):
        info.build(place, info.parse_options({}))


@pytest.mark.parametrize(
    ("page", "modules", "spec"),
    [
        ("multicast", "multicast/multicast.py", "AMC-M"),
        ("skeen", "multicast/skeen.py", "AMC-[KS]"),
        ("delporte-fauconnier", "multicast/delporte_fauconnier.py", "AMC-D"),
        ("daisy-chain", "daisy_chain/*.py", "DCC-[A-Z]"),
        ("replicated", "replicated/*.py", "REP-[A-Z]"),
        ("real-time", "multicast/real_time.py", "AMC-T"),
    ],
)
def test_every_step_that_the_code_cites_is_explained_on_its_page(page: str, modules: str, spec: str) -> None:
    root = Path(__file__).parents[3]
    text = (root / "docs" / "protocols" / f"{page}.md").read_text(encoding="utf-8")
    for heading in ("## Promise", "## Assumptions", "## Steps", "## Source", "## Deviations", "## Cost"):
        assert heading in text
    code = "".join(file.read_text() for file in (root / "src" / "ordercast" / "protocols").glob(modules))
    cited = set(re.findall(rf"\b{spec}\d\b", code))
    assert len(cited) > 2
    for step in sorted(cited):
        assert f"**{step}**" in text, f"{step} is cited by {modules} and not on its page"


class TestNonsenseIsBlamedOnThePeer:
    @pytest.mark.parametrize("protocol", ATOMIC)
    @pytest.mark.parametrize(
        ("packet", "reason"),
        [
            (Ask(message("23")), "asks 1 to enter message client#1, which enters elsewhere"),
            (Ask(message("")), "destinations that no client can have named"),
            (Ask(message("19")), "destinations that no client can have named"),
            (Ask(message("11")), "destinations that no client can have named"),
            (Ask(message("12", origin="mallory")), "a publisher that nobody knows"),
            (Done(7), "answers message 7 of 1, which waits for no answer"),
            (Packet(), "sent a Packet, which is not part of this protocol"),
        ],
    )
    def test_at_a_server(self, protocol: str, packet: Packet, reason: str) -> None:
        server = Servers(protocol, 3, {}).machines[NodeId("1")]
        with pytest.raises(PeerError, match=reason):
            server.on_receive(NodeId("2"), packet, EffectLog())

    @pytest.mark.parametrize("protocol", ATOMIC)
    def test_at_a_client(self, protocol: str) -> None:
        client = Servers(protocol, 3, {}).machines[CLIENT]
        with pytest.raises(PeerError, match="1: asks client to enter"):
            client.on_receive(NodeId("1"), Ask(message("12")), EffectLog())
        with pytest.raises(PeerError, match="1: sent a Packet to client, which is a client"):
            client.on_receive(NodeId("1"), Packet(), EffectLog())
