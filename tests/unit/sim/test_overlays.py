"""Protocols that choose their neighbours under virtual time: who comes, goes and is judged, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from ordercast.core.errors import UsageError
from ordercast.protocols import OVERLAYS, lookup
from ordercast.runs import shrink_failing
from ordercast.scenario.brokers import Join
from ordercast.scenario.load import load_scenario
from ordercast.scenario.model import (
    Edges,
    Explicit,
    LineGraph,
    Link,
    LinkOverride,
    NodeCapacity,
    OpenLoad,
    Scenario,
    Schedule,
    Step,
    Suspicion,
)
from ordercast.sim import simulate
from ordercast.verify.judge import judge_path

ROOT = Path(__file__).parents[3]
CHURN = load_scenario(ROOT / "scenarios" / "overlay-churn.toml")
SPRAY = {"sampling": "spray", "period_ms": 200.0, "ack_ms": 200.0}


def rows_of(run: Path) -> list[dict[str, Any]]:
    return pq.read_table(run / "events").to_pylist()


@pytest.mark.parametrize("sampling", ["fixed", "spray", "cyclon"])
def test_one_seed_is_one_trace_byte_for_byte(sampling: str, tmp_path: Path) -> None:
    scenario = msgspec.structs.replace(CHURN, options={**SPRAY, "sampling": sampling}, duration_ms=1500.0)
    for name in ("one", "two"):
        simulate(scenario, lookup("preventive"), seed=5, out=tmp_path / name)
    first, second = (sorted((tmp_path / name).rglob("*.*")) for name in ("one", "two"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_with_churn_holds_what_its_protocol_promises(seed: int, tmp_path: Path) -> None:
    scenario = msgspec.structs.replace(CHURN, options=SPRAY)
    simulate(scenario, lookup("preventive"), seed=seed, out=tmp_path / "run")
    (verdict,) = judge_path(tmp_path / "run")
    assert verdict.exit_code() == 0, verdict


def late_link(protocol: str) -> Scenario:
    """While the first messages of `a` are slow on their way to `b`, `d` joins through `b` and gets a link to `a`."""
    return Scenario(
        name="late-link",
        overlay=Edges(edges=[("b", "a"), ("b", "d"), ("a", "d")]),
        protocol=protocol,
        workload=[OpenLoad(rate_per_s=40.0, publishers=["a"], start_ms=50.0, stop_ms=400.0, guarantee="causal")],
        links=[LinkOverride(between=("a", "b"), latency_ms=500.0)],
        fault=[Join(node="d", at_ms=100.0)],
    )


def test_a_link_that_appears_breaks_the_order_of_flooding_and_not_of_preventive_broadcast(tmp_path: Path) -> None:
    for protocol, expected in (("flood-overlay", "fail"), ("preventive", "pass")):
        simulate(late_link(protocol), lookup(protocol), seed=7, out=tmp_path / protocol)
        (verdict,) = judge_path(tmp_path / protocol)
        assert [result.verdict for result in verdict.results if result.check == "causal"] == [expected]


def test_a_failing_run_shrinks_to_what_it_is_made_of() -> None:
    small, failing = shrink_failing(late_link("flood-overlay"), lookup("flood-overlay"), seed=7, check="causal")
    assert failing == "causal"
    (schedule,) = small.workload
    assert isinstance(schedule, Schedule)
    assert len(schedule.steps) == 2
    assert [type(fault) for fault in small.fault] == [Join]


def test_the_trace_tells_who_came_who_went_and_which_links_changed(tmp_path: Path) -> None:
    simulate(CHURN, lookup("preventive"), seed=1, out=tmp_path / "run")
    rows = rows_of(tmp_path / "run")
    assert {row["node"] for row in rows if row["kind"] == "join"} == {"n3", "n7", "n9"}
    assert [row["node"] for row in rows if row["kind"] == "leave"] == ["n5"]
    states = {dict(row["info"])["state"] for row in rows if row["kind"] == "link"}
    assert {"safe", "closed"} <= states
    assert all(row["peer"] for row in rows if row["kind"] == "link")


def test_who_joins_later_is_owed_nothing_of_before(tmp_path: Path) -> None:
    steps = [Step(node="n0", at_ms=10.0), Step(node="n0", at_ms=900.0)]
    scenario = Scenario(
        name="late", overlay=LineGraph(nodes=3), workload=[Schedule(steps=steps)], fault=[Join(node="n2", at_ms=500.0)]
    )
    simulate(scenario, lookup("preventive"), out=tmp_path / "run")
    got = [row["msg"] for row in rows_of(tmp_path / "run") if row["kind"] == "deliver" and row["node"] == "n2"]
    assert got == ["n0#2"]
    assert judge_path(tmp_path / "run")[0].exit_code() == 0


PLAIN = Scenario(name="plain", overlay=LineGraph(nodes=3), workload=[OpenLoad(rate_per_s=1.0)])


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"link": Link(loss=0.1)}, "link: connections neither lose"),
        ({"node": NodeCapacity(bandwidth_mbps=1.0)}, "node: nodes of protocol 'preventive' have no limits"),
        ({"groups": Explicit(members={"t": ["n0"]})}, "groups: with protocol 'preventive' everybody gets everything"),
        ({"fault": [Join(node="n1", at_ms=1.0)]}, "without those that join later, n2 cannot be reached from n0"),
        ({"fault": [Join(node="x", at_ms=1.0)]}, "unknown node 'x'"),
        ({"fault": [Suspicion(node="n1", at_ms=1.0, until_ms=2.0)]}, "'suspicion' is not for protocol 'preventive'"),
        ({"options": {"sampling": "sprya"}}, "unknown sampling 'sprya'; did you mean 'spray'"),
        ({"options": {"script": ["n0 opens x at 5"]}}, r"options.script\[0\]: unknown node 'x'"),
        ({"options": {"script": ["n0 opens n2 at 5 via y"]}}, r"options.script\[0\]: unknown node 'y'"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_field(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        simulate(msgspec.structs.replace(PLAIN, **changes), lookup("preventive"))


def test_an_overlay_file_with_a_bad_line_or_unknown_nodes_is_named(tmp_path: Path) -> None:
    file = tmp_path / "edges.txt"
    file.write_text("a b\nb c d\n")
    with pytest.raises(UsageError, match=r"edges.txt:2: expected two node names"):
        simulate(msgspec.structs.replace(PLAIN, overlay=Edges(file=str(file))), lookup("preventive"))
    file.write_text("a b\nb c\n")
    load = OpenLoad(rate_per_s=1.0, publishers=["z"])
    with pytest.raises(UsageError, match="publishers: unknown node 'z'"):
        simulate(msgspec.structs.replace(PLAIN, overlay=Edges(file=str(file)), workload=[load]), lookup("preventive"))


def test_the_catalogue_of_overlays_is_sorted_and_has_no_fixed_machine() -> None:
    assert list(OVERLAYS) == sorted(OVERLAYS)
    assert all(info.build_overlay is not None for info in OVERLAYS.values())
