"""Any tree, any changes, any bad weather: groups and leaves that change cost no message and no order. More by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ordercast.core.errors import PeerError
from ordercast.protocols.locamu.node import Locamu
from ordercast.protocols.locamu.variants import LOCAMU
from ordercast.scenario.brokers import Join, Leave
from ordercast.scenario.load import parse_scenario
from ordercast.scenario.model import Crash, Schedule, Suspicion
from ordercast.sim import simulate
from ordercast.verify.judge import judge_path
from ordercast.verify.verdict import HELD
from tests.mutants.locamu_membership_mutants import ForgetsTooEarly, RoutesByTheNewest
from tests.properties.locamu_dynamic_swarm import judge_seed, swarm_scenario
from tests.support.seeds import batch_name, batches

SEEDS_PER_TEST = 4


@pytest.mark.parametrize("seeds", batches(SEEDS_PER_TEST, SEEDS_PER_TEST, SEEDS_PER_TEST), ids=batch_name)
@pytest.mark.parametrize("f", [1, 2])
def test_the_promise_is_kept_whatever_changes(f: int, seeds: list[int], tmp_path: Path) -> None:
    """LCM-P1 to LCM-P3, LCM-N7, LCM-E3 to LCM-E5, LCM-V2 to LCM-V6: the promise, and what the oracle sees."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        verdict, oracle = judge_seed(seed, f, tmp_path / "run")
        replay = f"python -m tests.properties.locamu_dynamic_swarm --seeds 1 --first {seed} --f {f}"
        assert verdict.exit_code() == HELD, f"{verdict}\nagain: {replay}"
        counts += oracle.counts
    assert counts["joined"]
    assert counts["left"]
    assert counts["lists"]


@pytest.mark.parametrize(("mutant", "seed"), [(RoutesByTheNewest, 1), (ForgetsTooEarly, 13)])
def test_the_swarm_breaks_what_is_broken(mutant: type[Locamu], seed: int, tmp_path: Path) -> None:
    """Other mutants need events in an order that chance hardly finds: see the machine's own tests."""
    with pytest.raises((AssertionError, PeerError)):
        judge_seed(seed, 1, tmp_path / "run", mutant)


def test_a_new_leaf_keeps_lists_that_messages_to_it_still_go_by(tmp_path: Path) -> None:
    """LCM-V4: here the list is out of date when the leaf begins, and a message by it comes later."""
    verdict, _ = judge_seed(30_070, 2, tmp_path / "run")
    assert verdict.exit_code() == HELD


def test_a_new_leaf_forgets_lists_when_it_hears_itself_that_nobody_goes_by_them(tmp_path: Path) -> None:
    """LCM-V4, LCM-E5: here its parent has heard that before it hands them over."""
    verdict, _ = judge_seed(30_055, 2, tmp_path / "run")
    assert verdict.exit_code() == HELD


def test_the_swarm_contains_every_change() -> None:
    scenarios = [swarm_scenario(seed, 1) for seed in range(30)]
    assert {type(fault) for scenario in scenarios for fault in scenario.fault} == {Crash, Join, Leave, Suspicion}
    steps = [step for s in scenarios for load in s.workload if isinstance(load, Schedule) for step in load.steps]
    assert {step.do for step in steps} == {"publish", "subscribe", "unsubscribe"}
    assert {s.link.loss > 0 for s in scenarios} == {s.link.fifo for s in scenarios} == {True, False}


def test_changes_stay_pending_while_a_node_is_down_and_nobody_is_wronged(tmp_path: Path) -> None:
    """LCM-E5, LCM-E6: the list is never stable; the new member gets messages all the same."""
    steps = [
        {"node": "n1", "do": "subscribe", "topic": "g", "at_ms": 300},
        {"node": "n4", "do": "unsubscribe", "topic": "g", "at_ms": 600},
    ]
    scenario = parse_scenario(
        {
            "name": "down",
            "overlay": {"kind": "line", "nodes": 6},
            "protocol": "locamu",
            "duration_ms": 1000,
            "groups": {"kind": "explicit", "members": {"g": ["n0", "n4"]}},
            "workload": [
                {"kind": "open", "rate_per_s": 50, "topics": ["g"], "publishers": ["n0", "n1", "n5"]},
                {"kind": "schedule", "steps": steps},
            ],
            "fault": [{"kind": "crash", "node": "n3", "at_ms": 100}],
        }
    )
    simulate(scenario, LOCAMU, out=tmp_path / "run")
    (verdict,) = judge_path(tmp_path / "run")
    assert verdict.exit_code() == HELD, verdict
    rows = pq.read_table(tmp_path / "run" / "events", columns=["node", "kind", "info"]).to_pylist()
    noted = [(row["node"], row["kind"], row["info"]) for row in rows if row["kind"] in {"subscribe", "unsubscribe"}]
    pending = [("pending", "true")]
    assert sorted(noted) == [("n1", "subscribe", pending), ("n4", "unsubscribe", pending)]
    assert any(row["node"] == "n1" and row["kind"] == "deliver" for row in rows)
