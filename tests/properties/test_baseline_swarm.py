"""The baselines keep their promises on any small tree, whatever happens within their assumptions."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from ordercast.protocols import lookup
from ordercast.scenario.model import Scenario
from ordercast.sim import simulate
from ordercast.verify.verdict import HELD
from tests.properties.baseline_swarm import BASELINES, baseline_scenario, judge_seed
from tests.support.seeds import batch_name, batches
from tests.support.sim_lab import Lab

SEEDS_PER_TEST = 10


@pytest.mark.parametrize("seeds", batches(30, 10, SEEDS_PER_TEST), ids=batch_name)
@pytest.mark.parametrize("name", BASELINES)
def test_the_promise_is_kept_whatever_happens(name: str, seeds: list[int], tmp_path: Path) -> None:
    for seed in seeds:
        verdict = judge_seed(lookup(name), seed, tmp_path / "run")
        replay = f"python -m tests.properties.baseline_swarm --seeds 1 --first {seed} --protocol {name}"
        assert verdict.exit_code() == HELD, f"{verdict}\nagain: {replay}"


@pytest.mark.parametrize("name", BASELINES)
def test_the_swarm_contains_every_fault(name: str) -> None:
    fired: set[str] = set()
    for seed in range(20):
        fired |= set(simulate(baseline_scenario(name, seed), lookup(name), seed=seed).manifest.faults)
    assert fired >= {"crash", "recover", "pause", "partition", "suspicion", "duplicate", "lost", "cut"}


def outside_all_groups(scenario: Scenario) -> bool:
    members = getattr(scenario.groups, "members", None)
    nodes = getattr(scenario.overlay, "nodes", 0)
    return members is not None and len({node for names in members.values() for node in names}) < nodes


@pytest.mark.parametrize("name", BASELINES)
def test_the_swarm_contains_publishers_that_are_members_of_nothing(name: str) -> None:
    assert any(outside_all_groups(baseline_scenario(name, seed)) for seed in range(20))


@pytest.mark.parametrize("seeds", batches(30, 10, SEEDS_PER_TEST), ids=batch_name)
def test_who_is_never_suspected_misses_nothing_although_others_are_skipped(seeds: list[int]) -> None:
    """Delta-Neighbourhood as published: order and completeness for who is not skipped, and no duplicates anywhere."""
    for seed in seeds:
        known = baseline_scenario("delta-neighbourhood", seed)
        lab = Lab(replace(known, options={**known.options, "waits": False}), lookup("delta-neighbourhood"), seed)
        suspected = {row["peer"] for row in lab.of("suspect")}
        for node in lab.manifest.nodes:
            delivered = lab.messages("deliver", node)
            assert len(delivered) == len(set(delivered))
            if node not in suspected:
                owed = {row["msg"] for row in lab.of("publish") if node in lab.manifest.groups[row["topic"]]}
                assert set(delivered) == owed, f"seed {seed}, {node}"
                assert in_order(delivered), f"seed {seed}, {node}"


def in_order(delivered: list[str]) -> bool:
    last: dict[str, int] = {}
    for origin, _, number in (message.partition("#") for message in delivered):
        if int(number) <= last.get(origin, 0):
            return False
        last[origin] = int(number)
    return True
