"""Brokers that come back, move, join and leave while the tree runs; candidates by score."""

from __future__ import annotations

import pytest

from ordercast.broker.memory_ledger import MemoryBrokerLedger
from ordercast.broker.tree.directory_book import DirectoryBook
from ordercast.broker.tree.views import Views
from ordercast.core.ids import NodeId
from ordercast.core.process import Connection
from ordercast.pubsub.client_packets import View
from ordercast.pubsub.settings import BrokerSettings
from ordercast.pubsub.tree_packets import TreeView
from ordercast.sim.connections import both_ways, by_region, same_everywhere
from tests.support.overlay_lab import Guest, Lab

THREE: dict[str, str | None] = {"b0": None, "b1": "b0", "b2": "b1"}


def three(partitions: str = "excluded", **settings: object) -> Lab:
    chosen = BrokerSettings(partitions=partitions, **settings)  # type: ignore[arg-type]
    return Lab(THREE, chosen, latency=same_everywhere(5.0), durable=True)


def known(disk: MemoryBrokerLedger) -> dict[NodeId, str]:
    return DirectoryBook({}, disk.saved().directory).directory()


def moves(lab: Lab) -> list[str]:
    return [node for _, node, kind, info in lab.notes if kind == "repair_start" and info["why"] == "move"]


@pytest.mark.parametrize("partitions", ["excluded", "primary"])
def test_a_broker_moves_back_to_its_configured_parent(partitions: str) -> None:
    # BRK-J1
    lab = three(partitions)
    lab.world.crash("b1")
    lab.settle()
    assert lab.tree()["b2"] == "b0"

    lab.world.start("b1")
    lab.run(2000)
    lab.settle()

    assert lab.tree() == THREE
    assert moves(lab) == ["b2"]


def test_a_broker_moves_at_most_once_a_minute() -> None:
    lab = three()
    for _ in range(3):
        lab.world.crash("b1")
        lab.run(1000)
        lab.world.start("b1")
        lab.run(2000)
    assert moves(lab) == ["b2"]

    lab.world.crash("b1")
    lab.run(60_000)
    lab.world.start("b1")
    lab.run(2000)

    assert moves(lab) == ["b2", "b2"]


@pytest.mark.parametrize("partitions", ["excluded", "primary"])
def test_a_newcomer_is_known_to_all_before_it_counts(partitions: str) -> None:
    # BRK-J2
    lab = three(partitions)
    lab.add("b3", seeds=("b2:1",))
    lab.listening = True

    lab.world.start("b3")
    lab.settle_members(["b3"], [])

    welcome = next(at for at, _, target, packet in lab.sent if target == "b3" and type(packet).__name__ == "Welcome")
    acks = [at for at, _, _, packet in lab.sent if type(packet).__name__ == "DirectoryAck"]
    assert acks
    assert min(acks) < welcome
    assert all("b3" in known(disk) for disk in lab.disks.values())


def test_until_it_has_joined_a_newcomer_takes_neither_children_nor_clients_and_never_claims() -> None:
    lab = three()
    lab.add("b3", seeds=("b0:1",))
    lab.world.add("c", "client", lambda wires, _: Guest(wires, "b3:1"))
    lab.world.start("b3")
    lab.run(16)
    newcomer = lab.overlay("b3")
    assert (newcomer.member, newcomer.may_claim) == (False, False)

    for node in THREE:
        lab.world.crash(node)
    lab.world.start("c")
    lab.run(30_000)

    assert newcomer.seeking
    guest = lab.world.machine("c")
    assert isinstance(guest, Guest)
    assert guest.ended


def test_a_newcomer_is_a_broker_like_any_other() -> None:
    lab = three()
    lab.add("b3", seeds=("b0:1",))
    lab.world.start("b3")
    lab.settle_members(["b3"], [])

    for node in THREE:
        lab.world.crash(node)
    lab.settle()

    assert lab.root() == "b3"


def test_joins_happen_one_at_a_time_and_all_succeed() -> None:
    lab = three()
    new = [f"b{number}" for number in range(3, 9)]
    for node in new:
        lab.add(node, seeds=("b0:1", "b1:1"))
        lab.world.start(node)

    lab.settle_members(new, [])

    assert lab.overlay("b0").book.known().settled == (1, 6)


@pytest.mark.parametrize("partitions", ["excluded", "primary"])
@pytest.mark.parametrize("leaver", ["b0", "b1", "b2"])
def test_a_broker_that_leaves_hands_over_its_children_and_is_forgotten(leaver: str, partitions: str) -> None:
    """BRK-J3; a root abdicates first."""
    lab = three(partitions)

    lab.world.act(leaver, lab.overlay(leaver).leave)
    lab.settle_members([], [leaver])

    assert leaver not in lab.tree()
    assert [node for _, node, kind, _ in lab.notes if kind == "leave"] == [leaver]
    if leaver == "b1":
        assert [info["why"] for _, node, kind, info in lab.notes if (node, kind) == ("b2", "repair_start")] == [
            "handover"
        ]
        assert lab.tree()["b2"] == "b0"


@pytest.mark.parametrize("partitions", ["excluded", "primary"])
@pytest.mark.parametrize("after_ms", range(5, 60, 5))
def test_a_newcomer_that_leaves_before_it_is_welcome_is_forgotten(after_ms: int, partitions: str) -> None:
    """Whoever has asked for a place may have it without knowing: a majority would count it for ever."""
    lab = three(partitions)
    for node in ("b3", "b4"):  # One has to wait until the other is in.
        lab.add(node, seeds=("b1:1",))
        lab.world.start(node)
    lab.run(after_ms)
    for node in ("b3", "b4"):
        if lab.overlay(node).counted_on:
            lab.world.act(node, lab.overlay(node).leave)
        else:
            lab.world.crash(node)
    lab.settle_members([], ["b3", "b4"])

    assert all(known(lab.disks[node]).keys() <= THREE.keys() for node in THREE)


def test_the_last_broker_leaves_at_once() -> None:
    lab = Lab({"b0": None}, BrokerSettings(partitions="excluded"))

    lab.world.act("b0", lab.overlay("b0").leave)
    lab.run(1)

    assert lab.overlay("b0").left


def test_a_majority_is_counted_in_the_directory_of_today() -> None:
    """Two of three that are left are a majority; two of the five that were would not be."""
    lab = Lab({f"b{i}": None if i == 0 else "b0" for i in range(5)}, BrokerSettings(), latency=same_everywhere(5.0))
    for node in ("b3", "b4"):
        lab.world.act(node, lab.overlay(node).leave)
    lab.settle_members([], ["b3", "b4"])

    lab.world.crash("b0")
    lab.settle()

    assert set(lab.tree()) == {"b1", "b2"}


def test_score_prefers_the_near_broker_with_the_topics() -> None:
    """BRK-O19: after the pings of five seconds 3 knows that its uncle is nearer than its grandparent."""
    tree: dict[str, str | None] = {"b0": None, "b1": "b0", "b2": "b0", "b3": "b1"}
    latency = by_region({}, {}, both_ways({("b0", "b3"): 150.0}), default=5.0)
    found = {}
    for order in ("ancestors-first", "score"):
        settings = BrokerSettings(partitions="excluded", view_order=order)  # type: ignore[arg-type]
        lab = Lab(tree, settings, latency=latency, topics=dict.fromkeys(tree, ("t",)))
        lab.run(12_000)
        lab.listening = True
        lab.world.crash("b1")
        lab.settle()
        found[order] = lab.requests("b3")
        rtt = lab.overlay("b3").round_trips.rtt_ms
        if order == "score":
            assert rtt[NodeId("b0")] > 250 > rtt[NodeId("b2")]

    assert found == {"ancestors-first": ["b0"], "score": ["b2"]}


def test_a_leaver_that_nobody_can_dismiss_any_more_lets_its_children_elect() -> None:
    """BRK-J3: the root has struck it off and dies before it can say so; those below would wait for it for ever."""
    lab = Lab({"b0": None, "b1": "b0", "b2": "b1", "b3": "b2"}, BrokerSettings(partitions="excluded"))
    lab.settle()
    vars(lab.overlay("b0").joining)["_conclude"] = lambda *_: None
    lab.world.act("b1", lab.overlay("b1").leave)
    lab.run(1000)
    assert "b1" not in lab.overlay("b3").directory
    lab.world.crash("b0")
    lab.run(5000)

    assert lab.overlay("b2").is_root
    assert lab.overlay("b3").parent_name == "b2"
    assert lab.overlay("b1").left


@pytest.mark.parametrize("partitions", ["excluded", "primary"])
def test_a_dead_broker_is_removed_and_counts_no_more(partitions: str) -> None:
    """BRK-J5: of five two die and are removed; then another one dies, and the two that are left decide."""
    five = {f"b{i}": None if i == 0 else "b0" for i in range(5)}
    lab = Lab(five, BrokerSettings(partitions=partitions), latency=same_everywhere(5.0), durable=True)  # type: ignore[arg-type]
    for victim in ("b3", "b4"):
        lab.world.crash(victim)
        lab.run(6000)
        assert removal(lab, "b0", victim) == ""
        lab.run(1000)
    lab.settle_members([], ["b3", "b4"])

    lab.world.crash("b0")
    lab.settle()
    lab.run(5000)

    assert lab.overlay(lab.root()).decides


def test_only_a_root_with_a_majority_removes_and_never_one_that_lives() -> None:
    """BRK-J5."""
    lab = three("primary")
    assert "only the root strikes off; it is b0" in removal(lab, "b1", "b2")
    assert "it is alive" in removal(lab, "b0", "b2")
    assert "it is alive" in removal(lab, "b0", "b0")
    assert removal(lab, "b0", "b7") == "no broker of the directory has that name"

    lab.world.crash("b1")
    lab.world.crash("b2")
    lab.run(1)

    assert lab.overlay("b0").decides
    assert "it is alive" in removal(lab, "b0", "b2")  # Its answers are not old enough to count it out.
    lab.run(10_000)
    assert removal(lab, "b0", "b2") != ""
    assert set(lab.overlay("b0").directory) == {"b0", "b1", "b2"}


def test_one_that_was_removed_alive_joins_again() -> None:
    """BRK-J5: cut off for long, it is taken for dead; when it is back it is a member like any other."""
    lab = three("primary")
    lab.world.crash("b2")
    lab.run(5000)
    assert removal(lab, "b0", "b2") == ""
    lab.run(2000)
    assert "b2" not in lab.overlay("b1").directory

    lab.world.start("b2")
    lab.run(5000)
    lab.settle_members([], [])


def test_any_broker_passes_the_word_on_that_one_is_to_leave() -> None:
    """BRK-J4."""
    lab = three("primary")
    said = []

    lab.world.act("b2", lambda: said.append(lab.overlay("b2").ask_to_leave(NodeId("b1"))))
    lab.settle_members([], ["b1"])

    assert said == [""]


def test_the_last_broker_is_not_told_to_leave() -> None:
    lab = Lab({"b0": None}, BrokerSettings())
    said = []
    lab.world.act("b0", lambda: said.append(lab.overlay("b0").ask_to_leave(NodeId("b0"))))
    assert "just stop it" in said[0]


def removal(lab: Lab, root: str, victim: str) -> str:
    said: list[str] = []
    lab.world.act(root, lambda: said.append(lab.overlay(root).remove(NodeId(victim))))
    return said[0]


def test_a_client_that_comes_is_no_work_for_those_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pushed: list[Connection] = []
    push = Views._push

    def counted(self: Views, line: Connection, view: TreeView | View) -> None:
        pushed.append(line)
        push(self, line, view)

    monkeypatch.setattr(Views, "_push", counted)
    clients = {f"c{i}": "b0" for i in range(40)}
    lab = Lab({"b0": None, "b1": "b0"}, BrokerSettings(partitions="excluded"), clients=clients)
    lab.world.add("late", "client", lambda wires, _: Guest(wires, "b0:1"))
    pushed.clear()

    lab.world.start("late")
    lab.run(200)
    assert len(pushed) < 10

    lab.world.crash("b1")  # Then all have something to learn, the latest too.
    lab.run(3000)
    last = [guest.views[-1] for name in ("c0", "c39", "late") if isinstance(guest := lab.world.machine(name), Guest)]
    assert len(last) == 3
    assert all(view.neighbours == () for view in last)
