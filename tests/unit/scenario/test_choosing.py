"""Choosing: every runtime publishes the same messages for the same scenario and seed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.core.messages import Guarantee
from ordercast.overlay.graphs import build_graph
from ordercast.overlay.groups import build_groups
from ordercast.protocols import lookup
from ordercast.scenario.choosing import Chooser, Population, claimed_guarantee, publishers_of
from ordercast.scenario.model import Clique, ClosedLoad, OpenLoad, RandomTo, Scenario, Schedule, Servers, Step, Zipf
from ordercast.sim import simulate
from ordercast.trace.store import event_files

SEED = 11


def people(scenario: Scenario) -> Population:
    graph = build_graph(scenario.overlay, SEED)
    return Population(graph.nodes, graph.servers, graph.clients, build_groups(scenario.groups, graph, SEED))


@pytest.mark.parametrize(
    ("protocol", "load"),
    [
        (
            "flood",
            OpenLoad(
                rate_per_s=300, topics="member", popularity=1.0, keys=5, keys_per_message=2,
                guarantee={"eventual": 1.0, "fifo": 3.0},
            ),
        ),
        ("flood", OpenLoad(rate_per_s=300, topics="any", publishers=["n1", "n2"])),
        ("skeen", OpenLoad(rate_per_s=300, destinations=2)),
        ("skeen", OpenLoad(rate_per_s=300, to=RandomTo(count=3))),
    ],
)  # fmt: skip
def test_the_simulator_publishes_what_the_chooser_chooses(protocol: str, load: OpenLoad, tmp_path: Path) -> None:
    groups = Zipf(count=3)
    scenario = Scenario(name="s", overlay=Clique(nodes=4), groups=groups, workload=[load], duration_ms=500)
    info = lookup(protocol)
    simulate(scenario, info, seed=SEED, out=tmp_path / "run")
    table = pa.concat_tables(pq.read_table(file) for file in event_files(tmp_path / "run"))
    rows = [row for row in table.to_pylist() if row["kind"] == "publish"]
    assert len(rows) > 50
    crowd = people(scenario)
    choosers = {
        node: Chooser(load, "workload[0]", node, crowd, SEED, info.guarantee)
        for node in publishers_of(load, "workload[0]", crowd)
    }
    for row in rows:
        choice = choosers[row["node"]].choose(int(row["msg"].partition("#")[2]))
        assert (row["topic"] or "") == choice.topic
        assert tuple(row["keys"] or ()) == choice.keys
        assert tuple(row["dst"] or ()) == choice.dst
        assert row["guarantee"] == choice.guarantee.label


def test_clients_publish_where_there_are_any() -> None:
    with_clients = Scenario(name="s", overlay=Servers(nodes=2, clients=2), workload=[])
    without = Scenario(name="s", overlay=Clique(nodes=2), workload=[])
    load = OpenLoad(rate_per_s=1, publishers="clients")
    assert publishers_of(load, "w", people(with_clients)) == ["c0", "c1"]
    assert publishers_of(load, "w", people(without)) == ["n0", "n1"]


@pytest.mark.parametrize(
    ("load", "complaint"),
    [
        (OpenLoad(rate_per_s=1, topics=["nope"]), r"w.topics: unknown topic 'nope'"),
        (OpenLoad(rate_per_s=1, guarantee="best"), r"w.guarantee: unknown guarantee 'best'"),
        (OpenLoad(rate_per_s=1, guarantee={"fifo": -1.0}), r"w.guarantee.fifo: -1.0 is negative"),
        (OpenLoad(rate_per_s=1, guarantee={"fifo": 0.0}), "add up to nothing"),
        (OpenLoad(rate_per_s=1, destinations=1, to=RandomTo(count=1)), "either destinations or to"),
    ],
)
def test_what_cannot_be_chosen_is_named_by_its_field(load: OpenLoad, complaint: str) -> None:
    crowd = people(Scenario(name="s", overlay=Clique(nodes=3), workload=[]))
    with pytest.raises(UsageError, match=complaint):
        Chooser(load, "w", NodeId("n0"), crowd, SEED, Guarantee.FIFO)


def test_publishers_must_exist() -> None:
    crowd = people(Scenario(name="s", overlay=Clique(nodes=3), workload=[]))
    for names, complaint in ((["nx"], "unknown node 'nx'"), ([], "nobody publishes")):
        with pytest.raises(UsageError, match=complaint):
            publishers_of(OpenLoad(rate_per_s=1, publishers=names), "w", crowd)


def test_a_run_claims_one_guarantee_or_mixed() -> None:
    default = Guarantee.CAUSAL
    assert claimed_guarantee([OpenLoad(rate_per_s=1)], default) == "causal"
    assert claimed_guarantee([OpenLoad(rate_per_s=1, guarantee="fifo"), ClosedLoad()], default) == "mixed"
    steps = Schedule(steps=[Step(node="n0", at_ms=1, guarantee="total"), Step(node="n0", at_ms=2, do="subscribe")])
    assert claimed_guarantee([steps], default) == "total"
