"""Places, repairs and failovers of a tree of brokers, from the rows that brokers and clients write."""

from __future__ import annotations

import pytest

from ordercast.verify.metrics.overlay import ToldOfTree, digests_of, natural, repairs_of, spread_of, topology_of
from ordercast.verify.metrics.values import ReplicaDigest

MS = 1_000_000


class Rows(list[ToldOfTree]):
    """Rows as they are written; numbers each node's own."""

    def add(self, at_ms: int, node: str, kind: str, topic: str | None = None, **info: str) -> Rows:
        seq = sum(row.node == node for row in self)
        self.append(ToldOfTree(node, seq, kind, at_ms * MS, topic, None, info))
        return self


@pytest.fixture
def rows() -> Rows:
    """b0 is the root of b1 and b2, and crashes; b1 becomes root, b2 its child; cho moves from b2 to b1."""
    made = Rows().add(0, "b0", "join", parent="", role="root").add(1, "b1", "join", parent="b0")
    made.add(2, "b2", "join", parent="b0").add(3, "cho", "subscribe", "t", broker="b2")
    made.add(100, "b0", "crash")
    made.add(110, "b1", "repair_start", lost="b0", why="gone").add(111, "b2", "repair_start", lost="b0")
    made.add(150, "b1", "repair_end", parent="", role="root", rounds="1", election_ms="39.5", term="2:b1")
    made.add(160, "b2", "repair_start", lost="b0")
    made.add(170, "b2", "repair_end", parent="b1", role="child", rounds="2", term="2:b1")
    made.add(190, "b2", "repair_end", phase="synchronised", ms="79")
    return made.add(200, "cho", "repair_start", lost="b2").add(230, "cho", "repair_end", broker="b1")


def test_a_repair_lasts_from_the_loss_to_the_new_parent_and_to_the_synchronised_topics(rows: Rows) -> None:
    found = {repair.node: repair for repair in repairs_of(rows, first_ns=0)}
    assert list(found) == ["b1", "b2", "cho"]
    root, child = found["b1"], found["b2"]
    assert (root.lost, root.parent, root.role, root.election_ms, root.attached_ms) == ("b0", "", "root", 39.5, 40)
    assert root.synchronised_ms is None
    assert (child.parent, child.rounds, child.attached_ms, child.synchronised_ms) == ("b1", 2, 59, 79)


def test_a_client_that_finds_another_edge_fails_over(rows: Rows) -> None:
    (failover,) = [repair for repair in repairs_of(rows, first_ns=0) if repair.client]
    assert (failover.node, failover.lost, failover.parent, failover.attached_ms) == ("cho", "b2", "b1", 30)


def test_a_crash_abandons_the_repair_that_the_broker_had_begun(rows: Rows) -> None:
    rows.add(300, "b2", "repair_start", lost="b1").add(310, "b2", "crash").add(400, "b2", "repair_end", parent="b1")
    abandoned = repairs_of(rows, first_ns=0)[-1]
    assert (abandoned.node, abandoned.attached_ms) == ("b2", None)


@pytest.mark.parametrize("one_clock", [True, False])
def test_the_tree_before_the_first_fault_and_at_the_end(rows: Rows, one_clock: bool) -> None:
    topology = topology_of(rows, one_clock=one_clock)
    assert topology is not None
    assert topology.before == {"b0": "", "b1": "b0", "b2": "b0"}
    assert topology.after == {"b1": "", "b2": "b1"}
    assert (topology.clients_before, topology.clients_after) == ({"cho": "b2"}, {"cho": "b1"})
    assert topology.dead == ["b0"]


def test_a_broker_that_joins_after_the_fault_was_not_there_before(rows: Rows) -> None:
    topology = topology_of(rows.add(400, "b3", "join", parent="b2"), one_clock=True)
    assert topology is not None
    assert "b3" not in topology.before
    assert topology.after["b3"] == "b2"


def test_a_broker_that_came_back_is_where_it_went_then(rows: Rows) -> None:
    rows.add(500, "b0", "recover", state="lost").add(510, "b0", "repair_end", parent="b2")
    topology = topology_of(rows, one_clock=True)
    assert topology is not None
    assert (topology.dead, topology.after["b0"]) == ([], "b2")


def test_a_run_without_brokers_has_no_tree() -> None:
    assert topology_of(Rows().add(0, "n0", "crash"), one_clock=True) is None


def test_the_last_digest_of_each_replica_counts() -> None:
    rows = Rows().add(0, "ann", "repair_end", "t", digest="old").add(1, "ann", "repair_end", "t", digest="new")
    assert digests_of(rows) == [ReplicaDigest("ann", "t", "new")]


def test_quantiles_are_values_that_occurred() -> None:
    spread = spread_of([30.0, 10.0, 20.0])
    assert spread is not None
    assert (spread.count, spread.mean, spread.p50, spread.max) == (3, 20, 20, 30)
    assert spread_of([]) is None


def test_names_are_in_the_order_in_which_people_count() -> None:
    assert sorted(["b10", "b2", "a", "2b", "b"], key=natural) == ["2b", "a", "b", "b2", "b10"]
