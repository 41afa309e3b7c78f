"""Loads in wall time: over TCP a scenario publishes as many messages as it says, and in the order it says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ordercast.net.supervise.cluster import ClusterOutcome, run_together
from ordercast.scenario.model import (
    BurstLoad,
    Clique,
    ClosedLoad,
    Detector,
    OpenLoad,
    ReplyLoad,
    Scenario,
    Schedule,
    Servers,
    Step,
    Workload,
)
from ordercast.trace.store import event_files
from ordercast.verify.judge import judge_path
from tests.support.loop import run_async


def run(tmp_path: Path, *loads: Workload, protocol: str = "vector", **more: Any) -> ClusterOutcome:
    value = Scenario(
        name="loads",
        overlay=more.pop("overlay", Clique(nodes=3)),
        protocol=protocol,
        duration_ms=more.pop("duration_ms", 20_000),
        detector=Detector(delay_ms=5_000),
        workload=list(loads),
        **more,
    )
    outcome = run_async(lambda: run_together(value, out=tmp_path / "run", seed=1))
    (verdict,) = judge_path(outcome.path)
    assert verdict.exit_code() == 0, verdict
    return outcome


def rows(outcome: ClusterOutcome, *kinds: str) -> list[dict[str, Any]]:
    table = pa.concat_tables(pq.read_table(file) for file in event_files(outcome.path))
    return [row for row in table.to_pylist() if row["kind"] in kinds]


@pytest.mark.parametrize(
    "load",
    [
        OpenLoad(rate_per_s=5_000, limit=50),
        OpenLoad(rate_per_s=5_000, arrival="regular", limit=50),
        ClosedLoad(outstanding=3, until="self", limit=50),
        ClosedLoad(outstanding=3, until="completed", think_ms=1, limit=50),
        BurstLoad(size=4, every_ms=2, limit=50),
    ],
)
def test_a_limit_is_met_exactly_and_shared_evenly(load: Workload, tmp_path: Path) -> None:
    outcome = run(tmp_path, load)
    published = Counter(row["node"] for row in rows(outcome, "publish"))
    assert sorted(published.values()) == [16, 17, 17]
    assert outcome.delivered == 150


def test_a_load_stops_when_its_time_is_over(tmp_path: Path) -> None:
    outcome = run(tmp_path, ClosedLoad(until="self", think_ms=1), duration_ms=150)
    times = [row["time_ns"] for row in rows(outcome, "publish")]
    a_busy_machine = 1_000_000_000  # Nodes begin one after the other; without an end they would go on for ever.
    assert 0 < max(times) - min(times) <= 150_000_000 + a_busy_machine
    assert outcome.published > 3


def test_every_delivery_of_another_is_answered_down_to_the_depth(tmp_path: Path) -> None:
    """One question; two answers; each of them answered by the two who did not give it."""
    question = Schedule(steps=[Step(node="n0", at_ms=0)])
    outcome = run(tmp_path, question, ReplyLoad(probability=1, depth=2))
    assert outcome.published == 1 + 2 + 4


def test_answers_may_take_their_time(tmp_path: Path) -> None:
    question = Schedule(steps=[Step(node="n0", at_ms=0)])
    outcome = run(tmp_path, question, ReplyLoad(probability=1, depth=1, delay_ms=30, publishers=["n2"]))
    asked, answered = rows(outcome, "publish")
    assert answered["node"] == "n2"
    event_loop_granularity = 1_000_000  # libuv counts whole milliseconds, so a timer may fire a fraction early
    assert answered["time_ns"] - asked["time_ns"] >= 30_000_000 - event_loop_granularity


def test_a_schedule_is_followed_step_by_step(tmp_path: Path) -> None:
    steps = [
        Step(node="n2", do="unsubscribe", at_ms=0),
        Step(node="n0", at_ms=40),
        Step(node="n1", after="n0#1"),
        Step(node="n2", do="subscribe", at_ms=600),
        Step(node="n0", at_ms=650),
    ]
    outcome = run(tmp_path, Schedule(steps=steps), protocol="flood")
    done = rows(outcome, "subscribe", "unsubscribe", "publish", "deliver")
    at_n1 = [(row["kind"], row["msg"]) for row in done if row["node"] == "n1"]
    assert at_n1.index(("deliver", "n0#1")) < at_n1.index(("publish", "n1#1"))
    at_n2 = [(row["kind"], row["msg"]) for row in done if row["node"] == "n2"]
    assert at_n2 == [("unsubscribe", None), ("subscribe", None), ("deliver", "n0#2")]


def test_clients_ask_and_servers_deliver(tmp_path: Path) -> None:
    load = ClosedLoad(publishers="clients", until="completed", outstanding=2, limit=40, destinations=2)
    outcome = run(tmp_path, load, protocol="skeen", overlay=Servers(nodes=3, clients=2))
    assert {row["node"] for row in rows(outcome, "publish")} == {"c0", "c1"}
    assert {row["node"] for row in rows(outcome, "deliver")} == {"n0", "n1", "n2"}
    assert (outcome.published, outcome.delivered) == (40, 80)
