"""A total order in causal clusters (CLU-9): nobody delivers two updates in another order than anybody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ordercast.protocols import lookup
from ordercast.protocols.cluster import delivery
from ordercast.protocols.cluster.events import Event
from ordercast.protocols.cluster.total import TotalQueue
from ordercast.scenario.load import parse_scenario
from ordercast.scenario.model import Scenario
from ordercast.verify.judge import judge_path
from ordercast.verify.verdict import CheckResult
from tests.properties.cluster_swarm import Watched, cluster_scenario, complaint, total_scenario
from tests.support.cluster_lab import OneMember, event
from tests.support.cluster_watch import BrokenError
from tests.support.seeds import batch_name, batches


@pytest.mark.parametrize("seeds", batches(4, 4, 6), ids=batch_name)
def test_all_deliver_in_one_order_that_keeps_the_causal_one(seeds: list[int], tmp_path: Path) -> None:
    for seed in seeds:
        wrong, _ = complaint(lookup("cluster"), seed, tmp_path / "run", total_scenario(seed))
        assert wrong == "", f"python -m tests.properties.cluster_swarm --seeds 1 --first {seed}"


def test_without_it_concurrent_updates_come_in_different_orders() -> None:
    assert sum(_breaks(cluster_scenario(seed), seed) for seed in range(6))


def _breaks(scenario: Scenario, seed: int) -> bool:
    try:
        Watched(lookup("cluster"), scenario, seed, None).watch.one_order.check()
    except BrokenError:
        return True
    return False


class _Forgiving(TotalQueue):
    """Mutant: what comes too late is delivered nevertheless."""

    def add(self, event: Event, due_ns: int) -> bool:
        self.last = (0, 0)
        return super().add(event, due_ns)


def test_a_queue_that_lets_latecomers_in_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "TotalQueue", _Forgiving)
    assert sum(_breaks(total_scenario(seed), seed) for seed in range(6))


def test_the_judge_tells_one_order_from_two_by_the_trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hasty = calm(total_rounds=1)
    right = Watched(lookup("cluster"), hasty, 3, tmp_path / "right")
    assert right.outcome.manifest.claims == ["one-order"]
    assert _one_order(tmp_path / "right").verdict == "pass"
    monkeypatch.setattr(delivery, "TotalQueue", _Forgiving)
    Watched(lookup("cluster"), hasty, 3, tmp_path / "wrong")
    assert _one_order(tmp_path / "wrong").verdict == "fail"


def _one_order(run: Path) -> CheckResult:
    (verdict,) = judge_path(run)
    (found,) = [result for result in verdict.results if result.check == "one-order"]
    assert found.claimed
    assert found.deliveries
    return found


def calm(**options: Any) -> Scenario:
    makers = ["n0", "n1", "n2"]
    return parse_scenario(
        {
            "name": "calm", "overlay": {"kind": "clique", "nodes": 8}, "protocol": "cluster",
            "options": {"entries": 3, "coordinators": makers, "rounds": 5, "round_ms": 20, **options},
            "duration_ms": 600, "drain_ms": 4_000, "link": {"latency_ms": 2.0},
            "workload": [{"kind": "open", "rate_per_s": 60, "publishers": makers}],
        }
    )  # fmt: skip


def test_updates_that_are_held_for_twice_their_time_are_all_delivered_and_for_less_some_are_not() -> None:
    patient = Watched(lookup("cluster"), calm(total_rounds=12), 3, None)
    assert patient.outcome.delivered == patient.outcome.published * 8
    hasty = Watched(lookup("cluster"), calm(total_rounds=1), 3, None)
    hasty.watch.one_order.check()
    assert hasty.outcome.manifest.totals["updates_overtaken"] > 0
    assert hasty.outcome.delivered < hasty.outcome.published * 8


def test_an_update_waits_for_its_time_and_those_below_it_come_first() -> None:
    one = OneMember(total_rounds=5)
    assert one.gossip(event("b1", "0 1 0")) == []
    one.until(2)
    assert one.gossip(event("a1", "1 0 0")) == []
    assert one.until(5) == ["a1", "b1"], "the lower stamp comes first although it came later"
    assert one.until(20) == []


def test_what_comes_after_a_higher_one_was_delivered_is_passed_over_and_told() -> None:
    one = OneMember(total_rounds=3)
    one.gossip(event("b1", "0 1 0"))
    assert one.until(3) == ["b1"]
    assert one.gossip(event("a1", "1 0 0")) == []
    assert one.until(20) == []
    assert one.wires.counts["updates_overtaken"] == 1


def test_who_ends_to_keep_the_order_gets_what_is_held_first() -> None:
    one = OneMember(total_rounds=50)
    one.gossip(event("b1", "0 1 0"), event("a1", "1 0 0"))
    one.machine.join("t0", ordered=False)
    assert one.delivered == ["a1", "b1"]
