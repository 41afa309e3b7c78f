"""No packet of a neighbour or a client, whatever is in it, ends a broker: at worst the connection it came on."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from ordercast.broker.node import Broker
from ordercast.broker.packet_checks import check
from ordercast.broker.place import BrokerPlace
from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.messages import Guarantee, Packet
from ordercast.core.process import Connection, Peer
from ordercast.pubsub.client_packets import CLIENT_PACKETS, Attach, Entries, Resume, StableReport, Subscribe
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.settings import BrokerSettings
from ordercast.pubsub.topic_packets import (
    TOPIC_PACKETS,
    Held,
    MemberReport,
    OpenTopic,
    Prepare,
    RosterSync,
    RosterUpdate,
    StableVote,
)  # fmt: skip
from ordercast.pubsub.tree_packets import (
    TREE_PACKETS,
    Change,
    DirectoryWave,
    JoinRequest,
    KnownDirectory,
    LeaveRequest,
    ParentRequest,
    ParentResponse,
    Welcome,
)
from tests.support.any_packet import any_packet
from tests.support.hand_wires import HandWires

T = Topic("t.x")
TERM = (1, NodeId("b0"))


class Surrounded:
    """A broker, root or not, with two children and a member of a topic that the first child takes part in."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.wires = HandWires(first=101)
        names = {NodeId(f"b{i}"): f"b{i}" for i in range(4)}
        root = chance.random() < 0.5
        me, parent = (NodeId("b0"), None) if root else (NodeId("b3"), NodeId("b0"))
        settings = BrokerSettings(
            partitions=chance.choice(("primary", "excluded")), order_scope=chance.choice(("key", "session"))
        )
        self.broker = Broker(BrokerPlace(me, me, names, parent=parent), settings, self.wires)
        self.links: list[Connection] = [1, 2]
        self.act(self.broker.on_start)
        if not root:
            self.act(self.broker.on_opened, 101, Peer("broker", "b0", 0))
            (request,) = [packet for _, packet in self.wires.sent if isinstance(packet, ParentRequest)]
            self.hear(101, ParentResponse(request.request, accepted=True, term=TERM))
            self.links.append(101)
        for line, name in ((1, "b1"), (2, "b2")):
            self.act(self.broker.on_opened, line, Peer("broker", name, 0))
            self.hear(line, ParentRequest(1, (), break_degree=True, rank=(0, NodeId(name))))
        self.act(self.broker.on_opened, 9, Peer("client", "ann", 0))
        for packet in (Attach(1), Subscribe(T), Resume(T, 1, {}, {})):
            self.hear(9, packet)
        self.hear(1, OpenTopic(T, 1, grounded=True, have={}, base={}))

    def act(self, what: Callable[..., None], *arguments: Any) -> None:
        what(*arguments)
        self.broker.on_turn_end()
        self.broker.topics.check_invariants()

    def hear(self, line: Connection, packet: Packet) -> None:
        try:
            self.act(self.broker.on_packets, line, [packet])
        except PeerError:  # The runtime ends the connection and the turn.
            self.broker.on_turn_end()

    def let_time_pass(self) -> None:
        if self.wires.timers:
            self.act(self.broker.on_timer, self.wires.next_timer())


@pytest.mark.parametrize("kinds", [TOPIC_PACKETS, (*TREE_PACKETS, *TOPIC_PACKETS, Entries), CLIENT_PACKETS])
def test_whatever_is_in_a_packet_the_broker_goes_on(kinds: tuple[type[Packet], ...]) -> None:
    for seed in range(300):
        chance = random.Random(seed)
        scene = Surrounded(chance)
        for _ in range(30):
            packet = any_packet(kinds, chance)
            if isinstance(packet, Entries | OpenTopic | StableVote | MemberReport | Prepare) and chance.random() < 0.5:
                packet = type(packet)(T, *[getattr(packet, name) for name in packet.__struct_fields__[1:]])
            scene.hear(9 if kinds is CLIENT_PACKETS else chance.choice(scene.links), packet)
            if chance.random() < 0.15:
                scene.let_time_pass()


@pytest.mark.parametrize(
    ("packet", "word"),
    [
        (RosterSync({T: (Origin("ann"),)}, {}), "member called 'ann'"),
        (RosterSync({T: (Origin("ann x"),)}, {}), "member called 'ann x'"),
        (RosterSync({Topic("a b"): (Origin("ann 1"),)}, {}), "a b"),
        (RosterSync({}, {Origin("ann"): -1}), "the end 'ann' at -1"),
        (RosterUpdate(1, T, Origin("ann 7"), 1), "member called 'ann 7'"),
        (RosterUpdate(1, T, Origin("ann"), 1 << 63), "epoch"),
        (RosterUpdate(1, T, Origin("ann"), 1, (Origin("bob"),)), "member called 'bob'"),
        (RosterUpdate(1, Topic("~a.>.b"), Origin("ann"), 1), "'>' stands only at the end"),
        (OpenTopic(Topic(""), 1, grounded=False, have={}, base={}), "topic"),
        (OpenTopic(T, 1, grounded=False, have={Origin("ann"): (3, (2,))}, base={}), r"received-set \(3, 2\) of ann"),
        (OpenTopic(T, 1, grounded=False, have={}, base={Origin("ann"): -4}), "number -4 of ann"),
        (Held(T, 1, {Origin("ann"): (0, (1 << 60,))}), "received-set"),
        (StableVote(T, TERM, ((Origin("ann"), -1),), None), "epoch -1"),
        (Entries(T, (Publication(Origin("ann"), 1, Topic("other"), b""),)), "a publication on other"),
        (Prepare(T, (Publication(Origin("ann"), 1, T, b"", Guarantee.CAUSAL, ("k",)),)), "no total"),
        (JoinRequest(NodeId("*"), "nonsense"), r"a broker '\*' at 'nonsense'"),
        (JoinRequest(NodeId("b 9"), "127.0.0.1:7000"), "a broker 'b 9'"),
        (JoinRequest(NodeId(".."), "127.0.0.1:7000"), r"a broker '\.\.'"),
        (JoinRequest(NodeId("*"), "127.0.0.1:7000"), r"a broker '\*'"),
        (JoinRequest(NodeId("b/9"), "127.0.0.1:7000"), "a broker 'b/9'"),
        (JoinRequest(NodeId("b9"), "127.0.0.1:70000"), "at '127.0.0.1:70000'"),
        (JoinRequest(NodeId("b9" * 100), "127.0.0.1:7000"), "a broker 'b9b9"),
        (LeaveRequest(NodeId("b9"), ":7000"), "at ':7000'"),
        (Welcome(KnownDirectory((), (1, 1), {NodeId("b9"): "\x1b[2J:1"})), "a broker 'b9'"),
        (DirectoryWave(KnownDirectory((Change(NodeId("b#9"), "", (1, 1)),))), "the change"),
        (Attach(-1), "the number -1"),
        (Resume(T, 1, {}, {Origin("ann"): -1}), "number -1 of ann"),
        (Resume(T, 1, {}, {}, (Publication(Origin("ann"), 1, Topic("other"), b""),)), "ann/other#1 in it"),
        (StableReport(T, {Origin("ann"): 1 << 60}), "of ann"),
        (Prepare(T, (Publication(Origin("ann"), 0, T, b"", Guarantee.TOTAL, ("k",)),)), "no total"),
    ],
)
def test_what_makes_no_sense_is_named_with_its_sender(packet: Packet, word: str) -> None:
    with pytest.raises(PeerError, match=f"b7: sent {type(packet).__name__} with .*{word}"):
        check("b7", packet)


def test_a_newcomer_cannot_be_entered_under_another_address_than_its_own() -> None:
    scene = Surrounded(random.Random(8))  # A root that decides.
    with pytest.raises(PeerError, match=r"b1: listens at .* and asks for a place at 10\.0\.0\.9:7000"):
        scene.act(scene.broker.on_packets, 1, [JoinRequest(NodeId("b1"), "10.0.0.9:7000")])


@pytest.mark.parametrize(
    ("node", "address", "taken"),
    [
        ("b9", "10.0.0.9:7000", True), ("*", "*", False), ("", "10.0.0.9:7000", False), ("b 9", "10.0.0.9:7000", False),
        ("b9", "10.0.0.9", False), ("b9", "somewhere else:7000", False),
    ],
)  # fmt: skip
def test_nobody_gets_into_the_directory_who_could_not_be_a_broker(node: str, address: str, *, taken: bool) -> None:
    scene = Surrounded(random.Random(8))  # A root that decides.
    scene.hear(1, JoinRequest(NodeId(node), address))
    assert ({*scene.broker.tree.directory} == {"b0", "b1", "b2", "b3", node}) == taken
