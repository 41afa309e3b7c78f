"""Groups and trees that change: what is promised, and the orders of events in which it nearly is not."""

from __future__ import annotations

import msgspec
import pytest

from ordercast.core.errors import PeerError, UsageError
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.messages import Message
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols import lookup
from ordercast.protocols.locamu.membership.entrance import DEPARTED, GONE, INSIDE, OUTSIDE
from ordercast.protocols.locamu.membership.notices import (
    Depart,
    Knock,
    MembersChange,
    MembershipAsk,
    Settled,
    Stable,
    Welcome,
    from_tag,
    tag_of,
)
from ordercast.protocols.locamu.node import Locamu
from ordercast.protocols.locamu.packets import Ack, Data, Notice, Whole
from ordercast.protocols.locamu.variants import LOCAMU
from ordercast.scenario.load import parse_scenario
from ordercast.sim import simulate
from ordercast.sim.explicit_workload import deeds_of
from tests.mutants.locamu_membership_mutants import AddressesWhoIsIn, BeginsWithoutPast
from tests.support.locamu_membership_lab import ChangingTree, content_of

LINE = "01 12 23 34"


def joined(edges: str, groups: dict[str, str], later: str, **options: object) -> ChangingTree:
    tree = ChangingTree(edges, groups, later, **options)  # type: ignore[arg-type]
    for node in later:
        tree.join(node)
        tree.settle()
    return tree


def test_every_pair_of_view_and_epoch_has_a_small_tag_of_its_own() -> None:
    pairs = [(view, epoch) for view in range(60) for epoch in range(60)]
    tags = {tag_of(*pair): pair for pair in pairs}
    assert len(tags) == len(pairs)
    assert all(from_tag(tag) == pair for tag, pair in tags.items())
    assert tag_of(0, 0) == 0
    assert max(tag_of(v, e) for v in range(8) for e in range(8)) < 128


# Groups


def test_a_subscriber_gets_what_is_published_once_everybody_knows() -> None:
    """LCM-E1 to LCM-E6: how a group changes."""
    tree = ChangingTree(LINE, {"g": "1"})
    tree.subscribe("4", "g")
    tree.settle()
    message = tree.broadcast("0", topic="g")
    tree.settle()
    assert tree.ids("4") == tree.ids("1") == [message.id]
    assert tree.noted("4") == [("subscribe", "g", True), ("subscribe", "g", False)]
    assert all(tree.members(node, "g") == "14" for node in "01234")
    tree.assert_forgotten()


def test_who_has_unsubscribed_gets_nothing_more() -> None:
    tree = ChangingTree(LINE, {"g": "14"})
    tree.unsubscribe("4", "g")
    tree.settle()
    tree.broadcast("0", topic="g")
    tree.settle()
    assert tree.ids("4") == []
    assert tree.noted("4") == [("unsubscribe", "g", True), ("unsubscribe", "g", False)]
    tree.assert_forgotten()


def test_a_message_goes_by_the_list_of_its_publisher_wherever_it_is() -> None:
    """LCM-E3: 0 publishes by the old list while the routers on the way have the new one."""
    tree = ChangingTree(LINE, {"g": "13"})
    tree.subscribe("4", "g")
    tree.pass_on(MembershipAsk, "4321")
    old = tree.broadcast("0", topic="g")
    tree.pass_on(MembersChange, "1234")
    new = tree.broadcast("2", topic="g")
    tree.settle()
    assert tree.ids("4") == [new.id]
    assert tree.ids("3") == [new.id, old.id] or tree.ids("3") == [old.id, new.id]
    tree.assert_forgotten()


def test_a_message_waits_for_the_list_it_goes_by() -> None:
    """LCM-E3: a jump brings a message of the new list before the list itself."""
    tree = ChangingTree(LINE, {"g": "0", "h": "3"}, delta=False)
    tree.subscribe("4", "g")
    tree.pass_on(MembershipAsk, "43210")
    tree.suspect("1", by="0")
    tree.pass_on(MembersChange, "02")
    message = tree.broadcast("2", topic="g")
    tree.carry(message, to="1", by="2")
    assert [copy.message for copy in tree.machine("1").held.copies.values()] == [message]
    tree.trust("1", by="0")
    tree.settle()
    assert tree.ids("4") == tree.ids("0") == [message.id]
    tree.assert_forgotten()


def test_lists_are_kept_until_everybody_has_a_newer_one() -> None:
    """LCM-E5: 3 has not heard of the change; the others keep the old list for what 3 may publish."""
    tree = ChangingTree(LINE, {"g": "1"})
    tree.subscribe("0", "g")
    tree.pass_on(MembershipAsk, "01")
    tree.pass_on(MembersChange, "12")
    tree.pass_on(MembersChange, "10")
    assert sorted(tree.machine("2").tables.lists[Topic("g")]) == [0, 1]
    assert not tree.notices(Stable)
    old = tree.broadcast("3", topic="g")
    tree.settle()
    assert tree.ids("1") == [old.id]
    assert tree.ids("0") == []
    tree.assert_forgotten()


def test_two_requests_in_a_row_are_done_in_their_order() -> None:
    tree = ChangingTree(LINE, {"g": "0"})
    tree.subscribe("4", "g")
    tree.subscribe("4", "g")
    tree.unsubscribe("4", "g")
    assert tree.machine("4").groups.requests == {Topic("g"): [True, False]}
    tree.settle()
    assert tree.members("2", "g") == "0"
    assert tree.machine("4").tables.newest == {Topic("g"): 2}
    assert tree.noted("4")[-1] == ("unsubscribe", "g", False)
    assert tree.machine("4").groups.requests == {}


def test_a_first_subscription_creates_a_group() -> None:
    """LCM-E1: the first node owns groups that nobody was in at the start."""
    tree = ChangingTree(LINE, {"g": "1"})
    with pytest.raises(UsageError, match="unknown group 'new'"):
        tree.broadcast("3", topic="new")
    tree.subscribe("4", "new")
    tree.settle()
    message = tree.broadcast("3", topic="new")
    tree.settle()
    assert tree.ids("4")[-1] == message.id
    assert tree.machine("4").tables.owner(Topic("new"), tree.machine("4").here.routes) == "0"


def test_the_names_of_the_protocol_are_its_own() -> None:
    tree = ChangingTree(LINE, {"g": "1"})
    for topic in ("$all", "$to/3", "$x"):
        with pytest.raises(UsageError, match="unknown group"):
            tree.broadcast("3", topic=topic)
        with pytest.raises(UsageError, match="protocol's own"):
            tree.subscribe("3", topic)


def test_a_change_survives_crashes_of_everybody() -> None:
    tree = ChangingTree(LINE, {"g": "1"})
    tree.subscribe("4", "g")
    for node in "43210":
        tree.carry_all()
        tree.crash(node)
        tree.recover(node)
    tree.settle()
    message = tree.broadcast("0", topic="g")
    tree.settle()
    assert tree.ids("4") == [message.id]
    tree.assert_forgotten()


def test_what_goes_by_a_list_that_nobody_announced_is_refused() -> None:
    tree = ChangingTree(LINE, {"g": "1"})
    header = Whole(2, 0, tag_of(0, 7), [(4, (1,), (1,))], ()).flat()
    stray = Data(Message(Origin("2"), 1, Topic("g"), b""), 0, 0, header)
    with pytest.raises(PeerError, match="a list of members that nobody announced"):
        tree.hand(stray, to="1", by="2")


def test_a_notice_that_says_nothing_changes_nothing() -> None:
    tree = ChangingTree(LINE, {"g": "1"})
    header = Whole(2, 0, 0, [(4, (1,), (1,))], ()).flat()
    tree.hand(Notice(Message(Origin("2~$"), 1, Topic("$all"), b"\xff"), 0, 0, header), to="1", by="2")
    assert tree.machine("1").tables.newest == {}


# Leaves that join


def test_a_leaf_joins_subscribes_and_publishes() -> None:
    """LCM-V1 to LCM-V5: how a leaf joins."""
    tree = ChangingTree("01 12 23 2x", {"g": "13"}, "x")
    assert tree.machine("x").entrance.status == OUTSIDE
    tree.join("x")
    tree.settle()
    assert tree.machine("x").entrance.status == INSIDE
    assert tree.noted("x")[0][0] == "join"
    assert all(tree.machine(node).here.routes.rank[NodeId("x")] == 4 for node in "0123x")
    tree.subscribe("x", "g")
    tree.settle()
    first = tree.broadcast("0", topic="g")
    second = tree.broadcast("x", topic="g")
    tree.settle()
    assert sorted(tree.ids("x")) == sorted(tree.ids("3")) == sorted([first.id, second.id])
    tree.assert_forgotten()


def test_what_is_asked_of_a_node_that_is_not_in_yet_is_done_when_it_is() -> None:
    """LCM-V5: wishes wait until the node is part of the tree."""
    tree = ChangingTree("01 12 2x", {"g": "0"}, "x")
    message = tree.broadcast("x", topic="g")
    tree.subscribe("x", "g")
    with pytest.raises(UsageError, match="unknown group"):
        tree.broadcast("x", topic="nothing")
    tree.join("x")
    tree.settle()
    assert tree.ids("0") == [message.id]
    assert tree.completed[NodeId("x")] == [message.id]
    assert tree.members("1", "g") == "0x"


def test_nobody_joins_while_a_node_is_down_and_data_flows_all_the_same() -> None:
    tree = ChangingTree("01 12 23 1x", {"g": "02"}, "x")
    tree.crash("3")
    tree.join("x")
    for _ in range(5):
        tree.carry_all()
        tree.fire("x", "knock")
    message = tree.broadcast("0", topic="g")
    tree.carry_all()
    assert tree.ids("2") == [message.id]
    assert tree.machine("x").entrance.status == OUTSIDE
    tree.recover("3")
    tree.settle()
    assert tree.machine("x").entrance.status == INSIDE
    tree.assert_forgotten()


def test_a_joining_node_may_crash_at_any_time() -> None:
    for crash_after in range(40):
        tree = ChangingTree("01 12 2x", {"g": "0"}, "x")
        tree.subscribe("x", "g")
        tree.join("x")
        for _ in range(crash_after):
            if tree.in_flight:
                sender, receiver, packet = tree.in_flight.pop(0)
                tree.hand(packet, to=receiver, by=sender)
        tree.crash("x")
        tree.recover("x")
        tree.settle()
        message = tree.broadcast("1", topic="g")
        tree.settle()
        assert tree.ids("x") == [message.id]
        tree.assert_forgotten()


def test_a_leaf_can_join_under_one_that_has_joined() -> None:
    tree = joined("01 12 2x xy", {"g": "0"}, "xy")
    tree.subscribe("y", "g")
    tree.settle()
    message = tree.broadcast("1", topic="g")
    tree.settle()
    assert tree.ids("y") == tree.ids("0") == [message.id]
    tree.assert_forgotten()


def test_a_new_leaf_begins_with_the_past_of_its_parent() -> None:
    """LCM-V4: what it publishes by a list that it was handed waits for that list."""
    tree = _first_word_of_a_new_leaf(ChangingTree("01 12 23 2x", {"g": "01"}, "x"))
    assert [copy.message.id for copy in tree.machine("1").held.copies.values()] == ["x#1"]
    tree.trust("1", by="0")
    tree.trust("2", by="x")
    tree.settle()
    assert tree.ids("1") == ["x#1"]
    assert tree.ids("0") == []
    tree.assert_forgotten()


def test_without_that_past_its_messages_come_before_their_lists() -> None:
    mutant = _mutant(BeginsWithoutPast)
    with pytest.raises(PeerError, match="a list of members that nobody announced"):
        _first_word_of_a_new_leaf(ChangingTree("01 12 23 2x", {"g": "01"}, "x", mutant))


def test_a_new_leaf_misses_no_list_that_was_under_way() -> None:
    """LCM-V2: what is for everybody goes to the leaf as soon as its publisher has seen it, though it is not in yet."""
    tree = _list_under_way(ChangingTree("01 12 2x", {"g": "1"}, "x"))
    assert tree.members("x", "g") == tree.members("0", "g") == ""
    tree.assert_forgotten()


def test_a_leaf_that_is_addressed_only_once_it_is_in_misses_lists() -> None:
    """Why LCM-V2 deviates: messages to everybody that pass the word that the leaf is in never reach it."""
    tree = _list_under_way(ChangingTree("01 12 2x", {"g": "1"}, "x", _mutant(AddressesWhoIsIn)))
    assert tree.members("0", "g") == ""
    assert tree.members("x", "g") == "1"


def _mutant(machine: type[Locamu]) -> ProtocolInfo:
    return msgspec.structs.replace(LOCAMU, build=machine)


def _list_under_way(tree: ChangingTree) -> ChangingTree:
    """x is let in by 2, to which the word came past 1; 1 changes its group before it has heard it."""
    tree.join("x")
    _carry_but_for(tree, Settled)
    while not tree.notices(Settled):
        tree.fire("x", "knock")
        _carry_but_for(tree, Settled)
    tree.suspect("1", by="0")
    tree.pass_on(Settled, "02")
    tree.carry(Welcome, to="x", by="2")
    tree.unsubscribe("1", "g")
    tree.trust("1", by="0")
    tree.settle()
    return tree


def _first_word_of_a_new_leaf(tree: ChangingTree) -> ChangingTree:
    """All have seen x and only its welcome is missing; a list jumps over 1 to 2, which lets x in; x jumps over 2."""
    tree.join("x")
    while not tree.packets(Welcome):
        sender, receiver, packet = tree.in_flight.pop(0)
        tree.hand(packet, to=receiver, by=sender)
    tree.lose(Welcome, to="x")
    _carry_but_for(tree, Welcome)
    tree.suspect("1", by="0")
    tree.unsubscribe("0", "g")
    tree.pass_on(MembersChange, "02")
    tree.suspect("2", by="x")
    message = tree.broadcast("x", topic="g")
    tree.fire("x", "knock")
    tree.carry(Knock, to="2", by="x")
    tree.carry(Welcome, to="x", by="2")
    tree.carry(message, to="1", by="x")
    return tree


def _carry_but_for(tree: ChangingTree, kind: type) -> None:
    """Carry everything that is not, or does not say, that."""
    while True:
        others = [f for f in tree.in_flight if not isinstance(f[2], kind) and not isinstance(content_of(f[2]), kind)]
        if not others:
            return
        tree.in_flight.remove(others[0])
        tree.hand(others[0][2], to=others[0][1], by=others[0][0])


# Leaves that leave


def test_a_leaf_leaves_and_nothing_of_it_is_left() -> None:
    """LCM-V6, LCM-V7: how a leaf leaves."""
    tree = ChangingTree("01 12 23", {"g": "123"})
    first = tree.broadcast("3", topic="g")
    tree.leave("3")
    tree.settle()
    assert tree.machine("3").entrance.status == GONE
    assert tree.noted("3") == [("unsubscribe", "g", True), ("unsubscribe", "g", False), ("leave", "", False)]
    for node in "012":
        machine = tree.machine(node)
        assert 3 in machine.here.routes.gone
        assert 3 not in machine.here.distance
        assert 3 not in machine.here.linked
        assert 3 not in machine.processed.prefix
    second = tree.broadcast("0", topic="g")
    tree.settle()
    assert tree.ids("1") == tree.ids("2") == [first.id, second.id]
    tree.assert_forgotten()


def test_who_is_leaving_publishes_and_subscribes_no_more() -> None:
    tree = ChangingTree("01 12 23", {"g": "123"})
    tree.leave("3")
    with pytest.raises(UsageError, match="3 cannot publish: it is leaving"):
        tree.broadcast("3", topic="g")
    with pytest.raises(UsageError, match="3 cannot subscribe to 'g'"):
        tree.subscribe("3", "g")
    tree.leave("3")
    tree.settle()
    tree.leave("3")


def test_who_has_asked_to_go_may_hear_from_a_leaf_it_does_not_know() -> None:
    """LCM-V3, LCM-V6: nobody waits for it to see the view that brings the leaf."""
    tree = ChangingTree("01 12 23", {"g": "12"})
    hello = Ack((), ask=1, reset=True)
    with pytest.raises(PeerError, match="9: is not linked to this node"):
        tree.hand(hello, to="3", by="9")
    tree.leave("3")
    assert tree.machine("3").entrance.status == DEPARTED
    assert not tree.hand(hello, to="3", by="9")
    tree.settle()
    assert tree.machine("3").entrance.status == GONE


def test_only_leaves_leave_and_only_nodes_outside_join() -> None:
    tree = ChangingTree("01 12 2x", {"g": "1"}, "x")
    with pytest.raises(UsageError, match="1 cannot leave: others hang on it"):
        tree.leave("1")
    with pytest.raises(UsageError, match="0 cannot leave: it keeps the list"):
        tree.leave("0")
    with pytest.raises(UsageError, match="x cannot leave: it is not part of the tree"):
        tree.leave("x")
    with pytest.raises(UsageError, match="1 cannot join: it is part of the tree"):
        tree.join("1")
    tree.join("x")
    tree.carry(Knock, to="2", by="x")
    with pytest.raises(UsageError, match="2 cannot leave: others hang on it"):
        tree.leave("2")


def test_the_groups_of_an_owner_that_leaves_pass_to_the_first_node() -> None:
    """LCM-V6: also what it was asked for and had not done."""
    tree = ChangingTree("01 12 23", {"g": "3"})
    tree.leave("3")
    _carry_but_for(tree, Depart)
    while not tree.notices(Depart):
        tree.fire("3", "tick")
        _carry_but_for(tree, Depart)
    tree.subscribe("1", "g")
    tree.settle()
    message = tree.broadcast("2", topic="g")
    tree.settle()
    assert tree.ids("1") == [message.id]
    assert tree.members("0", "g") == "1"
    tree.assert_forgotten()


def test_a_copy_that_was_delayed_past_the_leave_of_its_publisher_is_no_news() -> None:
    """LCM-V6: nothing is kept of who has left."""
    tree = ChangingTree("01 12 23", {"g": "02"})
    message = tree.broadcast("3", topic="g")
    (stale,) = [flying for flying in tree.in_flight if flying[1] == "2"]
    tree.settle()
    tree.leave("3")
    tree.settle()
    tree.hand(stale[2], to="2", by="3")
    tree.hand(stale[2], to="2", by="1")
    tree.settle()
    assert tree.ids("2") == tree.ids("0") == [message.id]


def test_a_leaf_that_joined_can_leave_at_once_and_its_name_is_used_up() -> None:
    tree = ChangingTree("01 12 2x", {"g": "1"}, "x")
    tree.join("x")
    tree.leave("x")
    tree.settle()
    assert tree.machine("x").entrance.status == GONE
    assert tree.machine("0").tables.view == tree.machine("0").tables.settled == 2
    with pytest.raises(UsageError, match="x cannot join: it is part of the tree, or was"):
        tree.join("x")


def test_all_nodes_share_one_tree_and_one_list() -> None:
    tree = joined("01 12 2x", {"g": "1"}, "x")
    tree.subscribe("x", "g")
    tree.settle()
    tree.broadcast("0", topic="g")
    tree.settle()
    trees = {id(tree.machine(node).here.routes) for node in "012x"}
    assert len(trees) == 1
    tag = tree.machine("0").tables.tag(Topic("g"))
    assert len({id(tree.machine(node).tables.way(Topic("g"), tag)[1]) for node in "012x"}) == 1  # type: ignore[index]


# Scenarios


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"fault": [{"kind": "join", "node": "n0", "at_ms": 1}]}, "n0 cannot join later: it keeps the list"),
        ({"fault": [{"kind": "join", "node": "n1", "at_ms": 1}]}, "n1 cannot join later: n2 is there from the start"),
        ({"fault": [{"kind": "join", "node": "n9", "at_ms": 1}]}, r"fault\[0\].node: unknown node 'n9'"),
        ({"fault": [{"kind": "leave", "node": "n3", "at_ms": 999}]}, r"fault\[0\].at_ms: 999.0 is not within"),
        ({"fault": [{"kind": "leave", "node": "n1", "at_ms": 1}]}, "n1 cannot leave: others hang on it"),
        (
            {
                "fault": [{"kind": "join", "node": "n3", "at_ms": 1}],
                "groups": {"kind": "explicit", "members": {"t": ["n3"]}},
            },
            "groups.members.t: unknown node 'n3'",
        ),
        ({"fault": [{"kind": "join", "node": "n3", "at_ms": 1}], "protocol": "cbcast"}, "cannot join or leave"),
    ],
)
def test_changes_that_cannot_be_are_refused(changes: dict[str, object], reason: str) -> None:
    plain = {
        "name": "bad",
        "protocol": "locamu",
        "overlay": {"kind": "line", "nodes": 4},
        "duration_ms": 100,
        "workload": [{"kind": "open", "rate_per_s": 10}],
    }
    scenario = parse_scenario({**plain, **changes})
    with pytest.raises(UsageError, match=reason):
        simulate(scenario, lookup(scenario.protocol))


def test_everybody_is_who_is_there_from_the_start() -> None:
    """A node that joins later is no member of a group of everyone before it subscribes."""
    scenario = parse_scenario(
        {
            "name": "late",
            "protocol": "locamu",
            "overlay": {"kind": "line", "nodes": 4},
            "duration_ms": 100,
            "workload": [{"kind": "schedule", "steps": [{"node": "n0", "at_ms": 1}, {"node": "n3", "at_ms": 2}]}],
            "fault": [{"kind": "join", "node": "n3", "at_ms": 10}],
        }
    )
    outcome = simulate(scenario, lookup("locamu"))
    assert outcome.manifest.groups == {"t0": ["n0", "n1", "n2"]}
    assert (outcome.published, outcome.delivered) == (2, 6)


def test_a_shrunken_run_asks_for_the_same_subscriptions() -> None:
    """Not when they begin to count, which is what the trace says."""
    steps = [{"node": "n2", "do": "subscribe", "topic": "new", "at_ms": 5}, {"node": "n0", "at_ms": 50}]
    scenario = parse_scenario(
        {
            "name": "asks",
            "protocol": "locamu",
            "overlay": {"kind": "line", "nodes": 3},
            "duration_ms": 100,
            "workload": [{"kind": "schedule", "steps": steps}],
        }
    )
    deeds = deeds_of(scenario, lookup("locamu"), 0)
    assert [(deed.step.do, deed.step.at_ms) for deed in deeds] == [("subscribe", 5), ("publish", 50)]


def test_a_node_that_recovers_still_has_old_lists_to_forget() -> None:
    """LCM-E5: which lists are out of date survives a crash, and so does that some are."""
    tree = ChangingTree(LINE, {"g": "1"})
    tree.subscribe("4", "g")
    tree.settle()
    machine = tree.machine("2")
    machine.tables.lists[Topic("g")][0] = frozenset()
    machine.groups.outdated = True
    tree.crash("2")
    tree.recover("2")
    tree.settle()
    tree.assert_forgotten()


def test_a_leaf_keeps_the_lists_it_was_handed_until_it_hears_itself_that_nobody_goes_by_them() -> None:
    """LCM-V4, LCM-E5: not when it hears so of another group, and not because its parent has."""
    tree = ChangingTree(LINE, {"g": "1", "h": "1"}, "4")
    tree.join("4")
    tables = tree.machine("4").tables
    handed = {Topic(topic): {1: (1,), 2: (1, 2)} for topic in "gh"}
    tables.take_over(Welcome(((NodeId("4"), NodeId("3")),), 1, handed, ()))
    assert tables.confirm(Topic("h"), 2, 1)
    assert not tables.discard(())
    assert {topic: sorted(known) for topic, known in tables.lists.items()} == {"g": [1, 2], "h": [2]}
    assert tables.confirm(Topic("g"), 2, 1)
    tables.discard(())
    assert sorted(tables.lists[Topic("g")]) == [2]


@pytest.mark.parametrize(("view", "handed"), [(0, [2]), (1, [1, 2])])
def test_a_leaf_is_handed_what_messages_to_it_go_by(view: int, handed: list[int]) -> None:
    """LCM-V4: who said that a list is stable before the leaf was addressed had heard of all messages by older ones."""
    tables = ChangingTree(LINE, {"g": "1"}).machine("3").tables
    tables.change(1, NodeId("5"), NodeId("3"))
    for epoch in (1, 2):
        tables.install(Topic("g"), epoch, epoch, joins=True)
    tables.confirm(Topic("g"), 1, 0)
    tables.discard(())
    tables.confirm(Topic("g"), 2, view)
    assert sorted(tables.lists_for(1)[Topic("g")]) == handed
