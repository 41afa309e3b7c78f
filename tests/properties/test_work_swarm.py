"""Shared work in the broker simulator: the client library itself, killed at every step while brokers crash."""

from __future__ import annotations

import pytest

from tests.mutants.work_mutants import MUTANTS, Patch
from tests.properties.work_swarm import FAMILIES, run_group

SEEDS = {
    "members": 4,
    "leaders": 1,
    "usurpers": 326,
    "brokers": 20,
    "connections": 11,
    "filters": 3,
    "copies": 1,
    "gaps": 1,
    "above": 5,
    "hangs": 2,
}
SEAM = 910_009
"""In this run of `members` a leader stands still while it reads the past, and goes on reading at another copy."""
IN_A_LOG = 1040
"""In this run of `gaps` a copy had the last record in its log alone when it crashed (ARC-10)."""


@pytest.mark.parametrize(
    ("name", "seed"), [*((name, SEEDS[name]) for name in FAMILIES), ("members", SEAM), ("gaps", IN_A_LOG)]
)
def test_the_promises_hold_whatever_happens_to_members_and_brokers(name: str, seed: int) -> None:
    stage = run_group(seed, name)

    assert not stage.problems(), f"python -m tests.properties.work_swarm --family {name} --first {seed} --seeds 1"
    assert len(stage.owed()) > 10
    assert len(stage.workers) + len(stage.former) > 2


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_rule_that_is_missing_is_found_out(mutant: str, monkeypatch: Patch) -> None:
    bend, name, seed = MUTANTS[mutant]
    bend(monkeypatch)

    assert run_group(seed, name).problems()
