"""Packets that no honest LoCaMu node sends: who sent them is named, nobody else is, and nothing stays behind."""

from __future__ import annotations

import pytest

from ordercast.core.errors import PeerError, UsageError
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.messages import Guarantee, Message
from ordercast.protocols.locamu.membership.notices import (
    EVERYBODY,
    Content,
    MembersChange,
    Settled,
    Stable,
    TreeChange,
    Welcome,
    encode,
)
from ordercast.protocols.locamu.packets import SECOND_BITS, Ack, Alias, Data, Notice, Whole, flat_names
from tests.support.locamu_membership_lab import ChangingTree

GROUP = Topic("g")
PLACED, MORE, ONE_VECTOR = 1, 2, 1 << 2


def line() -> ChangingTree:
    return ChangingTree("01 12 23 34", {"g": "01234"})


def message(origin: str = "0", number: int = 1) -> Message:
    return Message(Origin(origin), number, GROUP, b"", Guarantee.CAUSAL)


HEADERS = {
    "shapes without end": (MORE, 0, 2**62, 7, 0, -3),
    "a late vector that is cut off": (ONE_VECTOR | MORE, 11, 1, 0, 1, 2, 1, 5, 0, 1, 0, 0),
    "fewer vectors than it says": (ONE_VECTOR,),
    "fewer than no streams": (MORE, -1, 0, 0),
    "a negative epoch": (PLACED, 0, -5),
    "a negative depth": (PLACED, -5, 0),
}


@pytest.mark.parametrize("session", [1, -1])
@pytest.mark.parametrize("what", HEADERS)
def test_a_header_that_makes_no_sense_is_its_senders_fault(what: str, session: int) -> None:
    """LCM-H3, LCM-H6, LCM-H8: headers of sessions mean what they meant to the sender."""
    group = line()
    with pytest.raises(PeerError, match="0: sent 0#1 with a header that makes no sense"):
        group.hand(Data(message(), session, 0, HEADERS[what]), to="1", by="0")
    group.settle()


def test_a_held_copy_that_makes_no_sense_is_complained_of_once() -> None:
    """LCM-M6: of its sender, though another's packet brings it to light."""
    group = line()
    waits_for = [(2 << SECOND_BITS | 1, 1)]
    bad = Whole(0, 0, 0, [(0, (1,), (1,))], waits_for).flat()
    group.hand(Data(message("nobody"), 0, 0, bad), to="1", by="0")
    first, second = (group.broadcast("2", topic="g") for _ in range(2))
    with pytest.raises(PeerError, match="0: sent nobody#1"):
        group.carry(first, to="1", by="2")
    group.carry(second, to="1", by="2")
    assert not group.machine("1").held.copies
    assert group.machine("1").processed.prefix[2] == 2


@pytest.mark.parametrize(
    "content",
    [
        Settled(99),
        Stable(GROUP, 99),
        MembersChange(GROUP, 1, NodeId("zz"), joins=True),
        TreeChange(1, NodeId("x"), NodeId("zz")),
        TreeChange(1, NodeId("2"), None),
        TreeChange(7, NodeId("x"), NodeId("2")),
    ],
    ids=str,
)
def test_word_of_what_cannot_be_changes_nothing(content: Content) -> None:
    """LCM-E3, LCM-E5, LCM-V2, LCM-V3: it has come a long way, and nobody here can be blamed."""
    group = line()
    machine = group.machine("1")
    before = machine.tables.frozen()
    notice = Message(Origin("0~$"), 1, EVERYBODY, encode(content), Guarantee.CAUSAL)
    group.hand(Notice(notice, 0, 0, Whole(0, 0, 0, [(0, (1, 2), (1, 1))], []).flat()), to="1", by="0")
    assert machine.tables.frozen() == before


JOINED = ((NodeId("4"), NodeId("3")),)
WELCOMES = {
    "without the leaf": Welcome((), 0, {}, ()),
    "under a stranger": Welcome(((NodeId("4"), NodeId("zz")),), 1, {}, ()),
    "under another": Welcome(((NodeId("4"), NodeId("2")),), 1, {}, ()),
    "an empty list": Welcome(JOINED, 1, {GROUP: {}}, ()),
    "a member that is nobody": Welcome(JOINED, 1, {GROUP: {1: (99,)}}, ()),
    "a stream of nobody": Welcome(JOINED, 1, {}, ((0, 99, 1),)),
    "settled before it came": Welcome(JOINED, 2, {}, ()),
}


@pytest.mark.parametrize("what", WELCOMES)
def test_a_welcome_that_makes_no_sense_is_the_parents_fault(what: str) -> None:
    """LCM-V4: the leaf stays outside and goes on asking."""
    group = ChangingTree("01 12 23 34", {"g": "0123"}, later="4")
    group.join("4")
    with pytest.raises(PeerError, match="3: sent a welcome that makes no sense"):
        group.hand(WELCOMES[what], to="4", by="3")
    group.settle()
    group.subscribe("4", "g")
    group.settle()
    assert group.members("0", "g") == "01234"


def test_a_forwarder_that_has_left_forwards_nothing() -> None:
    """LCM-V6: nothing is kept of who has left."""
    group = line()
    group.leave("4")
    group.settle()
    tag = group.machine("3").tables.tag(GROUP)
    copy = Data(message(number=9), 0, 0, Whole(4, 0, tag, [(8, (3, 2), (9, 9))], []).flat())
    with pytest.raises(PeerError, match="2: sent 0#9"):
        group.hand(copy, to="3", by="2")


def test_a_new_leaf_gets_nothing_by_a_tree_without_it() -> None:
    """LCM-V2: the tree changes one leaf at a time."""
    group = ChangingTree("01 12 23", {"g": "012"}, later="3")
    group.join("3")
    group.settle()
    with pytest.raises(PeerError, match="2: sent 0#1"):
        group.hand(Data(message(), 0, 0, Whole(2, 0, 0, [(4, (3,), (50,))], []).flat()), to="3", by="2")


def test_dependencies_on_a_leaf_that_has_left_count_as_fulfilled() -> None:
    """LCM-V6: even for a copy that has waited since."""
    group = line()
    waits_for = [(4 << SECOND_BITS | 3, 1_000)]
    header = Whole(2, 0, 0, [(4, (3,), (1_000,))], waits_for).flat()
    group.hand(Data(message("2", 7), 0, 0, header), to="3", by="2")
    group.leave("4")
    for _ in range(30):
        assert list(group.machine("3").held.copies) or group.machine("3").here.routes.gone
        group.carry_all()
        for node in group.nodes:
            for timer in sorted(group.timers[node], key=str):
                group.fire(node, timer)
    assert group.machine("3").here.routes.gone
    assert not group.machine("3").held.copies


def test_a_stranger_cannot_make_a_node_remember_nobodies() -> None:
    """LCM-S1, LCM-S4, LCM-R5: state is kept of near nodes only."""
    group = line()
    machine = group.machine("1")
    before = (
        len(machine.streams.shapes),
        len(machine.streams.keys),
        len(machine.waiting.known),
        len(machine.here.origins),
    )
    for i in range(50):
        group.hand(Alias(flat_names([[(2 * (100 + i), (5,), (1,))]])), to="1", by="0")
        group.hand(Ack(((1000 + i, 1),)), to="1", by="0")
        with pytest.raises(PeerError):
            group.hand(Data(message(f"x{i}"), 0, 0, Whole(0, 0, 0, [], []).flat()), to="1", by="0")
    after = (
        len(machine.streams.shapes),
        len(machine.streams.keys),
        len(machine.waiting.known),
        len(machine.here.origins),
    )
    assert after == before


def test_names_of_the_protocol_are_refused_before_a_node_is_part_of_the_tree() -> None:
    """LCM-E1: whom a node asks for a change."""
    group = ChangingTree("01 12 23", {"g": "012"}, later="3")
    with pytest.raises(UsageError, match=r"3 cannot be a member of '\$x': the name is the protocol's own"):
        group.subscribe("3", "$x")


def test_a_copy_whose_turn_it_is_is_read_however_many_are_ahead_of_it() -> None:
    """LCM-H4: a session is read in its own order."""
    group = ChangingTree("01 12", {"g": "01"})
    messages = [group.broadcast("0", topic="g") for _ in range(300)]
    first, *others = [(sender, packet) for sender, to, packet in group.in_flight if to == "1"]
    for sender, packet in (*others, first):
        group.hand(packet, to="1", by=sender)
    assert len(group.delivered[NodeId("1")]) > 250
    group.settle()
    assert group.delivered[NodeId("1")] == messages
