"""Groups and trees that change while messages flow, in the simulator and over TCP, with processes that are killed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.dataset
import pytest

from ordercast.net.supervise.cluster import run_processes
from ordercast.protocols import lookup
from ordercast.scenario.brokers import Join, Leave
from ordercast.scenario.model import Crash, Detector, Edges, Explicit, Fault, OpenLoad, Scenario, Schedule, Step
from ordercast.sim import simulate
from ordercast.trace.schema import EVENTS
from ordercast.verify.judge import judge_path
from ordercast.verify.verdict import HELD

STEPS = [
    Step(node="n4", do="subscribe", topic="news", at_ms=300),
    Step(node="n2", do="unsubscribe", topic="news", at_ms=500),
    Step(node="x5", do="subscribe", topic="news", at_ms=700),
    Step(node="x5", topic="talk", at_ms=720),
    Step(node="n2", do="subscribe", topic="talk", at_ms=900),
    Step(node="n4", do="unsubscribe", topic="news", at_ms=1300),
    Step(node="x5", topic="news", at_ms=1500),
]
CHANGES: list[Fault] = [Join(node="x5", at_ms=400), Leave(node="n3", at_ms=1000), Leave(node="x5", at_ms=1900)]
CRASHES: list[Fault] = [Crash(node="n1", at_ms=450, recover_ms=850), Crash(node="n0", at_ms=1300, recover_ms=1700)]


def changing(*faults: Fault) -> Scenario:
    edges = [("n0", "n1"), ("n0", "n2"), ("n1", "n3"), ("n1", "n4"), ("n2", "x5")]
    return Scenario(
        name="changing",
        overlay=Edges(edges=edges, tree=True),
        protocol="locamu",
        duration_ms=2_500,
        drain_ms=60_000,
        detector=Detector(delay_ms=250),
        groups=Explicit(members={"news": ["n2", "n3"], "talk": ["n0", "n3", "n4"]}),
        workload=[
            OpenLoad(rate_per_s=60, publishers=["n0", "n1", "n2", "n4"], topics="any"),
            Schedule(steps=STEPS),
        ],
        fault=[*CHANGES, *faults],
    )


@pytest.mark.parametrize("runtime", ["simulator", "tcp"])
@pytest.mark.parametrize("crashes", [[], CRASHES], ids=["calm", "killed"])
def test_a_tree_that_changes_keeps_its_promise(crashes: list[Fault], runtime: str, tmp_path: Path) -> None:
    scenario, out = changing(*crashes), tmp_path / "run"
    if runtime == "tcp":
        run_processes(scenario, out=out, durable=bool(crashes))
    else:
        simulate(scenario, lookup("locamu"), out=out)
    (verdict,) = judge_path(out)
    assert verdict.exit_code() == HELD, verdict
    rows = pyarrow.dataset.dataset(out / EVENTS).to_table(columns=["node", "kind", "topic", "msg"]).to_pylist()
    done = Counter((row["node"], row["kind"], row["topic"]) for row in rows)
    assert done["x5", "join", None] == done["x5", "leave", None] == done["n3", "leave", None] == 1
    for node, kind, topic in (("n4", "subscribe", "news"), ("n2", "unsubscribe", "news"), ("n2", "subscribe", "talk")):
        assert done[node, kind, topic] == 2, (node, kind)
    delivered = Counter((row["node"], row["msg"]) for row in rows if row["kind"] == "deliver")
    assert delivered["n0", "x5#1"] == 1
    assert any(node == "x5" for node, _ in delivered)
