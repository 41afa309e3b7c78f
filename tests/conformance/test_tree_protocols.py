"""Protocols for trees keep their promises in the simulator and over TCP, where connections are cut again and again.

And where processes are killed and come back with their state.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pyarrow.dataset
import pytest

from ordercast.core.errors import UsageError
from ordercast.net.supervise.cluster import run_processes
from ordercast.overlay.graphs import build_graph
from ordercast.overlay.groups import build_groups
from ordercast.protocols import CATALOGUE, lookup
from ordercast.scenario.brokers import Join, Leave
from ordercast.scenario.load import load_scenario
from ordercast.scenario.model import (
    Clique,
    Crash,
    Detector,
    Edges,
    Explicit,
    Fault,
    LineGraph,
    OpenLoad,
    ReplyLoad,
    Scenario,
    Schedule,
    Step,
    Tree,
)
from ordercast.scenario.model import Overlay as OverlayModel
from ordercast.sim import simulate
from ordercast.trace.schema import EVENTS
from ordercast.trace.store import read_manifest
from ordercast.verify.judge import judge_path
from tests.conformance.test_protocols import WRONG, check, scenario

SCENARIOS = Path(__file__).parents[2] / "scenarios"
ON_TREES = sorted(name for name, info in CATALOGUE.items() if info.reach is not None and name not in WRONG)
BASE = build_graph(Tree(nodes=7), 0)
OVERLAPPING = Explicit(members={"all": list(BASE.nodes), "low": ["n3", "n4", "n5", "n6"], "left": ["n1", "n3", "n4"]})


@pytest.mark.parametrize("runtime", ["simulator", "tcp"])
@pytest.mark.parametrize("protocol", ON_TREES)
def test_a_tree_keeps_what_the_protocol_promises(protocol: str, runtime: str, tmp_path: Path) -> None:
    check(scenario(protocol, Tree(nodes=7)), runtime, tmp_path / "run")


@pytest.mark.parametrize("runtime", ["simulator", "tcp"])
@pytest.mark.parametrize("protocol", ON_TREES)
def test_overlapping_groups_and_publishers_outside_them(protocol: str, runtime: str, tmp_path: Path) -> None:
    value = scenario(protocol, Tree(nodes=7))
    loads = [msgspec.structs.replace(load, topics="any") for load in value.workload]
    value = msgspec.structs.replace(value, groups=OVERLAPPING, workload=loads)
    assert set(build_groups(OVERLAPPING, BASE, 0)) == {"all", "low", "left"}
    check(value, runtime, tmp_path / "run")


def killing(protocol: str, overlay: OverlayModel, *faults: Fault, **options: object) -> Scenario:
    if protocol == "delta-neighbourhood":
        options["waits"] = True  # Without it, a node that was suspected may miss messages.
    return Scenario(
        name="killing",
        overlay=overlay,
        protocol=protocol,
        options=options,
        duration_ms=2_000,
        drain_ms=60_000,
        detector=Detector(delay_ms=250),
        workload=[OpenLoad(rate_per_s=120), ReplyLoad(probability=0.2, depth=2, stop_ms=1_900)],
        fault=list(faults),
    )


TWICE_AND_ONCE = (
    Crash(node="n1", at_ms=300, recover_ms=600),
    Crash(node="n5", at_ms=500, recover_ms=550),
    Crash(node="n1", at_ms=1_200, recover_ms=1_300),
)


def judged(value: Scenario, runtime: str, out: Path) -> list[dict[str, object]]:
    """Run, judge, and return the events."""
    if runtime == "tcp":
        run_processes(value, seed=5, out=out, processes=1)
    else:
        simulate(value, lookup(value.protocol), seed=5, out=out)
    (verdict,) = judge_path(out)
    problems = [msgspec.to_builtins(result) for result in verdict.results if result.violations]
    assert verdict.exit_code() == 0, problems or verdict
    manifest = read_manifest(out)
    assert manifest.drained
    assert manifest.faults["recover"] == len(value.fault)
    columns = ["node", "seq", "kind", "msg", "time_ns"]
    events: list[dict[str, object]] = pyarrow.dataset.dataset(out / EVENTS).to_table(columns=columns).to_pylist()
    return events


@pytest.mark.parametrize("runtime", ["simulator", "tcp"])
@pytest.mark.parametrize("protocol", ON_TREES)
def test_killed_nodes_come_back_with_their_state(protocol: str, runtime: str, tmp_path: Path) -> None:
    events = judged(killing(protocol, Tree(nodes=7), *TWICE_AND_ONCE), runtime, tmp_path / "run")
    published = Counter(event["msg"] for event in events if event["kind"] == "publish")
    own = [event["msg"] for event in events if event["kind"] == "publish" and event["node"] == "n1"]
    assert set(published.values()) == {1}
    assert sorted(own, key=lambda msg: int(str(msg).split("#")[1])) == [f"n1#{i + 1}" for i in range(len(own))]


@pytest.mark.parametrize("runtime", ["simulator", "tcp"])
def test_two_adjacent_nodes_of_a_line_may_be_killed_where_f_is_2(runtime: str, tmp_path: Path) -> None:
    both = (Crash(node="n2", at_ms=300, recover_ms=1_500), Crash(node="n3", at_ms=320, recover_ms=1_600))
    again = (Crash(node="n3", at_ms=1_700, recover_ms=1_800),)
    judged(killing("locamu", LineGraph(nodes=6), *both, *again, f=2), runtime, tmp_path / "run")


@pytest.mark.parametrize("name", ["locamu-groups-change", "locamu-join-leave"])
def test_groups_and_leaves_change_over_tcp_while_processes_are_killed(name: str, tmp_path: Path) -> None:
    value = load_scenario(SCENARIOS / f"{name}.toml")
    possible = [fault for fault in value.fault if isinstance(fault, Crash | Join | Leave)]
    assert any(isinstance(fault, Crash) for fault in possible)
    value = msgspec.structs.replace(value, fault=possible, drain_ms=60_000)
    run_processes(value, seed=5, out=tmp_path / "run", processes=1)
    (verdict,) = judge_path(tmp_path / "run")
    problems = [msgspec.to_builtins(result) for result in verdict.results if result.violations]
    assert verdict.exit_code() == 0, problems or verdict
    assert read_manifest(tmp_path / "run").drained


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"overlay": Clique(nodes=4)}, "needs a tree, and this graph has a cycle"),
        ({"overlay": Edges(edges=[("a", "b"), ("c", "d")])}, "not connected"),
        ({"overlay": Edges(edges=[("a", "b"), ("b", "b")])}, "edge b - b is a loop"),
        ({"options": {"f": 4}}, r"options.f: 4 is too large for locamu on this tree"),
        ({"options": {"g": 1}}, "unknown option of locamu 'g'"),
        ({"workload": [OpenLoad(rate_per_s=1, topics=["x"])]}, r"workload\[0\].topics: unknown topic 'x'"),
        ({"workload": [Schedule(steps=[Step(node="n0", at_ms=1, topic="x")])]}, r"steps\[0\].topic: unknown topic 'x'"),
        ({"groups": Explicit(members={"t": ["n99"]})}, "n99"),
        ({"fault": [Crash(node="n1", at_ms=1, recover_ms=5, state="lost")]}, "cannot take back a node that lost"),
    ],
)
def test_bad_input_is_refused_as_in_the_simulator(change: dict[str, object], complaint: str, tmp_path: Path) -> None:
    value = msgspec.structs.replace(killing("locamu", Tree(nodes=7)), **change)
    with pytest.raises(UsageError, match=complaint) as real:
        run_processes(value, out=tmp_path / "run")
    with pytest.raises(UsageError) as simulated:
        simulate(value, lookup("locamu"), out=tmp_path / "run")
    assert str(real.value) == str(simulated.value)
    assert "\n" not in str(real.value)
    assert not (tmp_path / "run").exists()


def test_a_refused_publication_is_one_line_and_not_a_bug(tmp_path: Path) -> None:
    value = msgspec.structs.replace(killing("locamu", Tree(nodes=7)), workload=[OpenLoad(rate_per_s=9, destinations=2)])
    with pytest.raises(UsageError, match="locamu multicasts to groups"):
        run_processes(value, out=tmp_path / "run", processes=1)
    assert not (tmp_path / "run").exists()
