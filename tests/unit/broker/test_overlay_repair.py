"""The tree of the source's evaluation, and what becomes of it when brokers die."""

from __future__ import annotations

from collections import Counter

import pytest

from ordercast.core.ids import NodeId
from ordercast.core.messages import Packet
from ordercast.pubsub.client_packets import Ping, Subscribe
from ordercast.pubsub.settings import BrokerSettings
from ordercast.pubsub.tree_packets import Bye, ParentRequest, ParentResponse, RootElection
from ordercast.sim.connections import same_everywhere
from tests.support.overlay_lab import EIGHT, EIGHT_CLIENTS, EIGHT_TOPICS, FakeTopics, Guest, Lab

SOURCE = BrokerSettings(partitions="excluded", total_degree=3)


def eight(settings: BrokerSettings = SOURCE) -> Lab:
    lab = Lab(EIGHT, settings, topics=EIGHT_TOPICS, clients=EIGHT_CLIENTS, latency=same_everywhere(10.0))
    assert lab.tree() == EIGHT
    lab.listening = True
    return lab


def seen(lab: Lab, node: str) -> dict[str, tuple[int, str]]:
    return {entry.node: (entry.hops, entry.kind) for entry in lab.overlay(node).view}


def refusals(lab: Lab, node: str) -> list[str]:
    """Why the broker was refused, in order."""
    return [packet.reason for _, _, target, packet in lab.sent
            if target == node and isinstance(packet, ParentResponse) and not packet.accepted]  # fmt: skip


def test_a_view_reaches_three_hops_and_names_kinds() -> None:
    """F-VIEW-1, and E2 of the source."""
    lab = eight()

    assert seen(lab, "b4") == {
        "b0": (2, "ancestor"), "b5": (2, "sibling"), "b2": (3, "uncle"), "b3": (3, "uncle"),
    }  # fmt: skip
    assert seen(lab, "b7") == {"b0": (2, "ancestor"), "b1": (3, "uncle"), "b2": (3, "uncle")}


def test_residual_degree_counts_parent_children_and_clients() -> None:
    """E4 of the source: see tests/sources/test_ginger.py."""
    lab = eight()
    expected = {"b0": 0, "b1": 0, "b2": 1, "b3": 1, "b4": 1, "b5": 1, "b6": 0, "b7": 1}
    assert {node: lab.overlay(node).residual for node in EIGHT} == expected

    lab.world.crash("b3")
    lab.run(13)

    assert lab.overlay("b7").residual == 2
    assert lab.overlay("b7").rank == (-2, "b7")


def test_children_of_a_dead_root_elect_the_one_with_most_room_and_the_lowest_name() -> None:
    """E5, scenario S2: 1, 2 and 3 have room for 1, 2 and 2."""
    lab = eight()

    lab.world.crash("b0")
    lab.settle()

    ranks = {packet.rank for _, _, _, packet in lab.sent if isinstance(packet, RootElection)}
    assert ranks == {(-1, "b1"), (-2, "b2"), (-2, "b3")}
    assert lab.root() == "b2"
    assert lab.tree() == {
        "b1": "b2", "b2": None, "b3": "b2", "b4": "b1", "b5": "b1", "b6": "b2", "b7": "b3",
    }  # fmt: skip
    assert {overlay.term for overlay in lab.living().values()} == {lab.overlay("b2").term}


def test_an_orphan_asks_its_grandparent_first() -> None:
    """E6 of the source: see tests/sources/test_ginger.py."""
    lab = eight()

    lab.world.crash("b3")
    lab.settle()

    assert lab.requests("b7") == ["b0"]
    assert lab.tree()["b7"] == "b0"


@pytest.mark.parametrize(
    ("order", "asked", "refused"),
    [("ancestors-first", ["b0", "b2"], ["DEGREE"]), ("hop-order", ["b0", "b4", "b2"], ["DEGREE", "TOPIC"])],
)
def test_the_second_orphan_finds_no_room_at_the_root(order: str, asked: list[str], refused: list[str]) -> None:
    """E7, scenario S1, in both orders of the view."""
    settings = BrokerSettings(partitions="excluded", total_degree=3, view_order=order)  # type: ignore[arg-type]
    lab = eight(settings)

    lab.world.crash("b1")
    lab.settle()

    assert lab.requests("b4") == ["b0"]
    assert lab.requests("b5") == asked
    assert refusals(lab, "b5") == refused
    assert lab.tree() == {
        "b0": None, "b2": "b0", "b3": "b0", "b4": "b0", "b5": "b2", "b6": "b2", "b7": "b3",
    }  # fmt: skip


@pytest.mark.parametrize("partitions", ["excluded", "primary"])
@pytest.mark.parametrize(
    "victims", [("b1",), ("b0",), ("b1", "b4"), ("b0", "b1"), ("b1", "b2", "b3")], ids=["S1", "S2", "S3", "S4", "S5"]
)
def test_a_refused_broker_always_ends_attached(victims: tuple[str, ...], partitions: str) -> None:
    """E8 and the shape that scenario S1 to scenario S5 must end in: one tree of all that live."""
    lab = eight(BrokerSettings(partitions=partitions, total_degree=3))  # type: ignore[arg-type]

    for victim in victims:
        lab.world.crash(victim)
    lab.settle()

    assert set(lab.tree()) == set(EIGHT) - set(victims)
    assert lab.root() == ("b2" if "b0" in victims else "b0")
    assert lab.world.peer_errors == []


def test_only_break_degree_exceeds_the_limit() -> None:
    """scenario S5, BRK-G8: three fit at 0, the fourth goes below another or breaks the degree."""
    lab = eight()

    for victim in ("b1", "b2", "b3"):
        lab.world.crash(victim)
    lab.settle()

    below = Counter(lab.tree().values())
    at_it = Counter(EIGHT_CLIENTS.values())
    broken = {node: lab.world.processes[node].counters["broke_degree"] for node in lab.living()}
    assert below["b0"] in (3, 4)
    assert all(1 + below[node] + at_it[node] <= 3 for node in ("b4", "b5", "b6", "b7"))
    assert broken == {"b0": below["b0"] - 3, "b4": 0, "b5": 0, "b6": 0, "b7": 0}


def test_a_dead_broker_disappears_from_every_view() -> None:
    """F-VIEW-3, and E3 of the source."""
    lab = eight()

    lab.world.crash("b2")
    lab.settle()
    lab.run(500)

    assert all("b2" not in seen(lab, node) for node in lab.living())
    assert all(overlay.status()["known_dead"] == ["b2"] for overlay in lab.living().values())


def test_clients_see_the_tree_around_their_edge_change() -> None:
    """E1, BRK-O17: parent, children and view of the edge, one hop farther."""
    lab = eight()
    guest = lab.world.machine("c4")
    assert isinstance(guest, Guest)
    first = {entry.node: (entry.hops, entry.kind) for entry in guest.views[-1].neighbours}
    assert first == {"b3": (2, "parent"), "b0": (3, "ancestor"), "b1": (4, "uncle"), "b2": (4, "uncle")}
    assert dict(guest.views[-1].directory) == {node: f"{node}:1" for node in EIGHT}

    lab.world.crash("b3")
    lab.settle()
    lab.run(100)

    assert {entry.node for entry in guest.views[-1].neighbours if entry.kind == "parent"} == {"b0"}


def test_a_late_acceptance_is_answered_with_bye_and_does_no_harm() -> None:
    # F-REQ-4, BRK-O10, BRK-O11
    lab = eight()
    overlay = lab.overlay("b7")
    lab.world.act("b7", overlay.neighbours.say, "b0", Ping(0))
    lab.run(100)
    line = overlay.neighbours.line_to(NodeId("b0"))
    assert line is not None

    lab.world.act("b7", overlay.receive, line, ParentResponse(99, True, (1, NodeId("b0"))))
    lab.world.act("b7", lambda: overlay.wires.send(overlay.parent or 0, Bye(98)))  # Of a request long forgotten.
    lab.run(100)

    assert [packet for _, source, target, packet in lab.sent if (source, target) == ("b7", "b0")][1:] == [Bye(99)]
    assert lab.tree() == EIGHT
    assert lab.defects() == []


def test_a_broker_in_a_new_life_is_not_its_former_self() -> None:
    """F-NET-2, BRK-O18, BRK-J1: it seeks, asks its configured parent first, and its old children come back to it."""
    lab = eight()

    lab.world.crash("b1")
    lab.run(2)
    lab.world.start("b1")
    lab.settle()
    lab.run(3000)

    assert lab.requests("b1")[0] == "b0"
    assert lab.tree()["b1"] is not None
    moved = [node for _, node, kind, info in lab.notes if kind == "repair_start" and info["why"] == "move"]
    assert sorted(moved) == sorted(set(moved)), "at most one move a minute"
    assert lab.defects() == []


def test_repairs_are_recorded_with_rounds_and_parents() -> None:
    """From the loss of the parent to the last SyncEnd."""
    lab = eight()
    lab.notes.clear()

    lab.world.crash("b1")
    lab.settle()

    starts = {node: info for _, node, kind, info in lab.notes if kind == "repair_start"}
    ends = {node: info for _, node, kind, info in lab.notes if kind == "repair_end"}
    suspects = [(node, info["peer"]) for _, node, kind, info in lab.notes if kind == "suspect"]
    assert starts == {node: {"lost": "b1", "why": "down"} for node in ("b4", "b5")}
    assert (ends["b4"]["parent"], ends["b4"]["rounds"]) == ("b0", "1")
    assert (ends["b5"]["parent"], ends["b5"]["rounds"]) == ("b2", "2")
    assert sorted(suspects) == [("b0", "b1"), ("b4", "b1"), ("b5", "b1")]


@pytest.mark.parametrize("packet", [ParentRequest(1, (), False, (0, "evil")), RootElection(9, (0, "evil"))])  # type: ignore[arg-type]
def test_a_client_can_never_join_the_overlay(packet: Packet) -> None:
    lab = eight()
    lab.world.add("evil", "client", lambda wires, _: Guest(wires, "b0:1", packet))

    lab.world.start("evil")
    lab.run(500)

    assert [(blamed, why) for _, blamed, why in lab.world.peer_errors] == [
        ("evil", f"a client must not send {type(packet).__name__}")
    ]
    assert lab.tree() == EIGHT


def test_a_client_is_told_to_attach_first() -> None:
    lab = eight()
    overlay = lab.overlay("b4")
    (client,) = overlay.clients

    overlay.check_client(client, Subscribe("t"))  # type: ignore[arg-type]
    with pytest.raises(Exception, match="c0: a client must not send Bye"):
        overlay.check_client(client, Bye(1))
    del overlay.clients[client]
    with pytest.raises(Exception, match="c0: must send Attach first"):
        overlay.check_client(client, Subscribe("t"))  # type: ignore[arg-type]


def test_a_client_is_never_refused_for_degree_and_its_end_is_told() -> None:
    # F-DEG-2, BRK-M1, BRK-M8
    lab = eight()
    for name in ("d1", "d2", "d3"):
        lab.world.add(name, "client", lambda wires, _: Guest(wires, "b0:1"))
        lab.world.start(name)
    lab.run(200)
    assert lab.overlay("b0").residual == -3

    lab.world.crash("d1")
    lab.world.stop("d2")
    lab.run(200)

    topics = lab.overlay("b0").topics
    assert isinstance(topics, FakeTopics)
    assert len(topics.clients) == 1
    assert lab.overlay("b0").residual == -1


def test_status_says_where_a_broker_stands() -> None:
    status = eight().overlay("b3").status()

    assert (status["role"], status["parent"], status["children"]) == ("attached", "b0", ["b7"])
    assert (status["term"], status["residual"], status["known_dead"]) == ([1, "b0"], 1, [])
