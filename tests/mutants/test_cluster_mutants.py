"""Broken clusters: the watched swarm or a scenario of the specification rejects each; the original passes the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ordercast.protocols import lookup
from tests.mutants import cluster_mutants as mutants
from tests.properties.cluster_swarm import Watched, cluster_scenario
from tests.sources import test_cluster_corrections as corrections
from tests.sources import test_cluster_scenarios as scenarios
from tests.support.cluster_watch import BrokenError


def watched(seed: int, out: Path | None = None) -> Watched:
    return Watched(lookup("cluster"), cluster_scenario(seed), seed, out)


@pytest.mark.parametrize(
    ("mutant", "seed", "promise"),
    [
        (mutants.WAITS_FOR_NOBODY, 0, "O1"),
        (mutants.DELIVERS_ALONE, 0, "O4"),
        (mutants.FORGETS_DELIVERIES, 8, "O2"),
        (mutants.too_early, 0, "O6"),
    ],
    ids=["waits for nobody", "delivers alone", "forgets deliveries", "reuses an entry too early"],
)
def test_the_watched_swarm_rejects_the_mutant(mutant: mutants.Mutant, seed: int, promise: str) -> None:
    with mutant(), pytest.raises(BrokenError, match=promise):
        watched(seed)
    assert watched(seed).watch.oracle.deliveries > 0


@pytest.mark.parametrize(
    ("mutant", "scenario"),
    [
        (
            mutants.BEFORE_THE_TIMEOUT,
            scenarios.test_without_an_answer_the_wait_ends_and_what_comes_later_is_dropped_but_kept_for_others,
        ),
        (
            mutants.FORGETS_ITS_LIVES,
            corrections.test_c1_a_new_owner_never_makes_an_update_with_the_id_of_one_under_way,
        ),
        (
            mutants.FORGETS_AT_THE_SWITCH,
            corrections.test_c19_what_was_delivered_without_order_is_behind_whoever_begins_to_keep_it,
        ),
        (mutants.REFRESHES, scenarios.test_a_buffer_of_three_keeps_an_update_as_long_as_two_others_come),
    ],
    ids=["delivers before the timeout", "forgets its lives", "forgets at the switch", "refreshes its buffer"],
)
def test_a_scenario_rejects_the_mutant(mutant: mutants.Mutant, scenario: Callable[[], None]) -> None:
    scenario()
    with mutant(), pytest.raises(AssertionError):
        scenario()


def test_the_judge_alone_rejects_who_waits_for_nobody(tmp_path: Path) -> None:
    """Without the watch: from the trace."""
    from ordercast.sim import simulate
    from ordercast.verify.judge import judge_path

    with mutants.WAITS_FOR_NOBODY():
        simulate(cluster_scenario(7), lookup("cluster"), seed=7, out=tmp_path / "run")
    (verdict,) = judge_path(tmp_path / "run", checks=["optimistic-causal"])
    assert [result.verdict for result in verdict.results] == ["fail"]
