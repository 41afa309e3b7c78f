"""The source's overlay of eight brokers in three regions, and its scenarios S0 to S5: what must come out (E1 to E14).

Shortened: 120 publications per client, the faults in their midst. `ordercast simulate scenarios/ginger-s2.toml` runs
the whole.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from ordercast.broker.node import Broker
from ordercast.client.machine import ClientMachine
from ordercast.core.ids import NodeId
from ordercast.scenario.load import load_scenario
from ordercast.verify.verdict import PASS
from tests.support.pubsub_lab import Finding, run_pubsub

LIBRARY = Path(__file__).parents[2] / "scenarios"
SHORT = ["workload.0.start_ms=8500", "workload.0.limit=600"]
FAILING = {0: (), 1: ("b1",), 2: ("b0",), 3: ("b1", "b4"), 4: ("b0", "b1"), 5: ("b1", "b2", "b3")}
EVERY = pytest.mark.parametrize("number", FAILING)
FAULTY = pytest.mark.parametrize("number", [1, 2, 3, 4, 5])


@cache
def played(number: int) -> Finding:
    return run_pubsub(load_scenario(LIBRARY / f"ginger-s{number}.toml", SHORT), seed=1)


def brokers(number: int) -> dict[NodeId, Broker]:
    return played(number).world.brokers()


def clients(number: int) -> dict[str, ClientMachine]:
    machines = {name: client.machine for name, client in played(number).world.clients.items()}
    return {name: machine for name, machine in machines.items() if machine is not None}


def rows(number: int, kind: str) -> list[dict[str, str]]:
    found = [row for row in played(number).rows if row[3] == kind]
    return [{"node": row[1], **dict(row[-1] or ())} for row in found]


@EVERY
def test_nothing_is_wrong_with_the_run_and_it_comes_to_rest(number: int) -> None:
    assert played(number).problems == []


@EVERY
def test_e1_every_view_is_the_one_that_the_tree_as_it_is_now_gives(number: int) -> None:
    tree = brokers(number)
    for name, broker in tree.items():
        parent = tree.get(broker.tree.parent_name) if broker.tree.parent_name is not None else None
        if parent is None:
            continue
        expected = {neighbour.node for neighbour in parent.tree.view if neighbour.hops < 3}
        expected |= {child for child in parent.tree.children.values() if child != name}
        if parent.tree.parent_name is not None:
            expected.add(parent.tree.parent_name)
        seen = {neighbour.node for neighbour in broker.tree.view}
        assert seen - {parent.tree.node} == expected - {name}, name


@FAULTY
def test_e3_a_dead_broker_disappears_from_every_view(number: int) -> None:
    for name, broker in brokers(number).items():
        assert not {neighbour.node for neighbour in broker.tree.view} & set(FAILING[number]), name
    for client, machine in clients(number).items():
        view = machine.edge.candidates.view
        assert view is not None
        assert not {neighbour.node for neighbour in view.neighbours} & set(FAILING[number]), client


@EVERY
def test_e9_nothing_is_lost_or_doubled(number: int) -> None:
    verdict = played(number).verdict
    assert verdict is not None
    results = {result.check: result for result in verdict.results}
    assert results["integrity"].verdict == results["agreement"].verdict == PASS
    members = {"topic1": 3, "topic2": 2}
    published = [row[6] for row in played(number).rows if row[3] == "publish"]
    assert len(published) == 600
    assert results["agreement"].deliveries == sum(members[topic] for topic in published)


@FAULTY
def test_e11_totals_that_the_fault_interrupted_complete(number: int) -> None:
    world = played(number).world
    totals = {row[5]: row[4] for row in played(number).rows if row[3] == "publish" and row[8] == "total"}
    first: dict[str, int] = {}
    for row in played(number).rows:
        if row[3] == "deliver" and row[5] in totals:
            first[row[5]] = min(first.get(row[5], row[4]), row[4])
    fault_ns = 11_500_000_000
    interrupted = [msg for msg, published in totals.items() if published < fault_ns < first[msg]]
    assert interrupted, "no total was under way"
    assert set(first) == set(totals)
    assert all(not node.pending.entries for broker in world.brokers().values() for node in broker.topics.nodes.values())


@EVERY
def test_e12_and_e13_the_order_holds_also_for_what_arrives_during_a_repair(number: int) -> None:
    verdict = played(number).verdict
    assert verdict is not None
    results = {result.check: result.verdict for result in verdict.results}
    for check in ("fifo", "causal", "total", "total-topic", "real-time"):
        assert results[check] == PASS, check


@FAULTY
def test_e13_a_repair_brings_what_was_missed(number: int) -> None:
    ends = [row for row in rows(number, "repair_end") if row.get("phase") == "synchronised"]
    seekers = {row["node"] for row in rows(number, "repair_start")} & set(brokers(number))
    attached = {name for name in seekers if not brokers(number)[NodeId(name)].tree.is_root}
    assert attached == {row["node"] for row in ends} - {name for name in seekers if name not in attached}
    assert sum(int(row["received"]) for row in ends) > 0


def test_e14_the_client_of_a_dead_broker_ends_attached_and_loses_nothing() -> None:
    machine = clients(3)["c0"]
    assert machine.edge.attached
    assert machine.edge.broker not in ("b1", "b4", "")
    assert all(not membership.outbox for membership in machine.topics.values())
    mine = {row[5] for row in played(3).rows if row[3] == "publish" and row[1] == "c0"}
    for client in ("c0", "c3", "c4"):
        assert mine <= {row[5] for row in played(3).rows if row[3] == "deliver" and row[1] == client}


def test_s2_elects_the_broker_with_the_most_room_and_the_others_attach_to_it() -> None:
    tree = brokers(2)
    assert tree[NodeId("b2")].tree.is_root
    assert tree[NodeId("b1")].tree.parent_name == tree[NodeId("b3")].tree.parent_name == "b2"


def test_s4_elects_b2_and_everybody_finds_a_place() -> None:
    tree = brokers(4)
    assert tree[NodeId("b2")].tree.is_root
    assert all(not broker.tree.seeking for broker in tree.values())


def test_s5_at_most_three_fit_below_the_root_unless_the_degree_is_broken() -> None:
    tree = brokers(5)
    assert tree[NodeId("b0")].tree.is_root
    below = [name for name, broker in tree.items() if broker.tree.parent_name == "b0"]
    processes = played(5).world.processes.processes
    assert len(below) in (3, 4)
    assert {name: processes[name].counters["broke_degree"] for name in tree} == {
        "b0": len(below) - 3, "b4": 0, "b5": 0, "b6": 0, "b7": 0,
    }  # fmt: skip
