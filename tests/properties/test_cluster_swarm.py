"""Clusters under every fault that datagrams, processes and wishes can have: watched, and judged from the trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.protocols import lookup
from ordercast.scenario.load import parse_scenario
from ordercast.scenario.model import Scenario
from tests.properties.cluster_swarm import Watched, complaint
from tests.support.cluster_watch import OrderOracle
from tests.support.seeds import batch_name, batches


@pytest.mark.parametrize("seeds", batches(10, 8, 6), ids=batch_name)
def test_never_out_of_order_never_twice_never_two_makers(seeds: list[int], tmp_path: Path) -> None:
    for seed in seeds:
        wrong, _ = complaint(lookup("cluster"), seed, tmp_path / "run")
        assert wrong == "", f"python -m tests.properties.cluster_swarm --seeds 1 --first {seed}"


def thirty(recovery: str, **options: object) -> Scenario:
    """S14: thirty processes, a tenth of all datagrams lost."""
    makers = [f"n{i}" for i in range(6)]
    settings = {"entries": 6, "coordinators": makers, "rounds": 4, "round_ms": 20, "recovery": recovery}
    return parse_scenario(
        {
            "name": "thirty",
            "overlay": {"kind": "clique", "nodes": 30},
            "protocol": "cluster",
            "options": settings | options,
            "duration_ms": 1_000,
            "drain_ms": 4_000,
            "link": {"latency_ms": {"kind": "uniform", "low_ms": 1, "high_ms": 18}, "loss": 0.1},
            "workload": [{"kind": "open", "rate_per_s": 100, "publishers": makers}],
        }
    )


def lost(run: Watched) -> float:
    published, delivered = run.outcome.published, run.outcome.delivered
    return 1 - delivered / (published * 30)


def test_at_equal_load_recovery_loses_less_than_none_and_more_sources_less_than_one() -> None:
    """S14, L5: 10 % loss; the same publications in all runs."""
    runs = {how: Watched(lookup("cluster"), thirty(how), 5, None) for how in ("none", "source", "k", "k+source")}
    assert len({run.outcome.published for run in runs.values()}) == 1
    share = {how: lost(run) for how, run in runs.items()}
    assert share["none"] > 0.01
    assert share["k"] < share["source"] < share["none"] / 2
    assert share["k+source"] < share["source"]


def test_gossip_alone_breaks_the_order_at_the_same_load() -> None:
    """S15: what the layer is there for."""
    observers = [f"n{i}" for i in range(6, 30)]
    run = Watched(lookup("cluster"), thirty("k", observers=observers), 5, None)
    assert run.watch.oracle.inversions > 20


def test_without_loss_and_delay_everybody_delivers_everything_and_nobody_asks() -> None:
    """O7."""
    scenario = thirty("k+source", rounds=6)
    calm = parse_scenario(
        {
            "name": "calm", "overlay": {"kind": "clique", "nodes": 10}, "protocol": "cluster",
            "options": scenario.options, "duration_ms": 1_000, "drain_ms": 4_000, "link": {"latency_ms": 2.0},
            "workload": [{"kind": "open", "rate_per_s": 60, "publishers": ["n0", "n1", "n2"]}],
        }
    )  # fmt: skip
    run = Watched(lookup("cluster"), calm, 3, None)
    assert run.outcome.delivered == run.outcome.published * 10
    assert "ranges_asked" not in run.outcome.manifest.totals


def test_the_oracle_sees_what_it_is_there_for() -> None:
    """Non-vacuity of the watch's own judge."""
    from tests.support.cluster_lab import event

    oracle = OrderOracle()
    first, second = event("a1", "1 0 0").message, event("b1", "1 1 0").message
    oracle.deliver(("p", 0), first, ordered=True)
    oracle.deliver(("p", 0), second, ordered=True)
    oracle.deliver(("q", 0), second, ordered=True)
    with pytest.raises(AssertionError, match="O1"):
        oracle.deliver(("q", 0), first, ordered=True)
    with pytest.raises(AssertionError, match="O2"):
        oracle.deliver(("p", 0), second, ordered=True)
