"""Any overlay, any churn, any bad weather: causal order holds and nothing is lost. More by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ordercast.scenario.brokers import Cut, Join, Leave
from ordercast.scenario.model import Crash, Partition, Pause
from ordercast.verify.verdict import HELD
from tests.mutants.preventive_mutants import EmptyHanded, NoPhase
from tests.properties.preventive_swarm import judge_seed, swarm_scenario
from tests.support.seeds import batch_name, batches


@pytest.mark.parametrize("seeds", batches(8, 8, 8), ids=batch_name)
def test_the_promise_is_kept_whatever_changes(seeds: list[int], tmp_path: Path) -> None:
    """PRV-P1 to PRV-P6 by the judge, and the invariants PRV-I1 to PRV-I7 after every event."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        verdict = judge_seed(seed, tmp_path / "run", counts=counts)
        again = f"python -m tests.properties.preventive_swarm --seeds 1 --first {seed}"
        assert verdict.exit_code() == HELD, f"{verdict}\nagain: {again}"
    assert min(counts["I1"], counts["I3"], counts["I4"]) > 0
    assert min(counts["lock_restarts"], counts["repaired_links"], counts["stale_acks"]) > 0


@pytest.mark.parametrize(("mutant", "seed"), [(NoPhase, 1), (EmptyHanded, 1)])
def test_the_swarm_breaks_what_is_broken(mutant: type, seed: int, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        judge_seed(seed, tmp_path / "run", mutant)


def test_the_swarm_contains_every_change() -> None:
    scenarios = [swarm_scenario(seed) for seed in range(40)]
    kinds = {type(fault) for scenario in scenarios for fault in scenario.fault}
    assert kinds == {Crash, Cut, Join, Leave, Partition, Pause}
    assert {scenario.options["max_buffer"] for scenario in scenarios} == {0, 1, 2, 8, 1024}
    assert {scenario.options["fallback"] for scenario in scenarios} == {"digest", "flood", "hint"}
    crashes = [fault for scenario in scenarios for fault in scenario.fault if isinstance(fault, Crash)]
    assert {(crash.recover_ms is None, crash.state) for crash in crashes} >= {(False, "kept"), (False, "lost")}


def test_who_stands_between_two_parts_does_not_go_to_and_fro(tmp_path: Path) -> None:
    """PRV-6.8: both parts have equally many messages, and neither keeps what the other lacks: one of them gives way."""
    counts: Counter[str] = Counter()
    assert judge_seed(1600, tmp_path / "run", counts=counts).exit_code() == HELD
    assert 0 < counts["stranded"] < 20


def test_a_session_that_has_ended_owes_nothing_though_a_sender_that_stands_still_has_not_heard_of_it(
    tmp_path: Path,
) -> None:
    """PRV-I1 is about live sessions: here a partition ends one while the sender is paused, with messages on it."""
    assert judge_seed(9111605, tmp_path / "run").exit_code() == HELD
