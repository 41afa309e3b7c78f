"""Any tree, any suspicions, any bad weather: LoCaMu keeps causal order and delivers once. More seeds by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.core.ids import NodeId
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols import lookup
from ordercast.protocols.locamu.node import Locamu
from ordercast.scenario.model import Crash, Partition, Pause, Suspicion
from ordercast.sim import simulate
from ordercast.verify.verdict import HELD
from tests.mutants import locamu_mutants
from tests.properties.locamu_storm import Storm
from tests.properties.locamu_swarm import judge_seed, noted, only_the_fallen_know, swarm_scenario
from tests.support.seeds import batch_name, batches, fixed_and_todays

SEEDS_PER_TEST = 5
MUTANT_SEEDS = 60


@pytest.mark.parametrize("seeds", batches(15, 10, SEEDS_PER_TEST), ids=batch_name)
@pytest.mark.parametrize("f", [1, 2])
def test_the_promise_is_kept_whatever_happens(f: int, seeds: list[int], tmp_path: Path) -> None:
    for seed in seeds:
        verdict = judge_seed(lookup("locamu"), seed, f, tmp_path / "run")
        replay = f"python -m tests.properties.locamu_swarm --seeds 1 --first {seed} --f {f}"
        assert verdict.exit_code() == HELD, f"{verdict}\nagain: {replay}"


@pytest.mark.parametrize(("f", "seed"), [(1, 62), (1, 168), (2, 266), (2, 369)])
def test_a_node_that_falls_for_good_blocks_nobody_because_links_reorder(f: int, seed: int, tmp_path: Path) -> None:
    """LCM-P4, LCM-H5: members stayed blocked in these runs when a session that was given up took its copies with it."""
    assert judge_seed(lookup("locamu"), seed, f, tmp_path / "run").exit_code() == HELD


def test_a_number_that_a_forwarder_had_not_said_when_it_fell_is_known_to_nobody_who_lives(tmp_path: Path) -> None:
    """LCM-P4: the exception that it names, with names that wait `push_ms`; order and integrity hold all the same."""
    machines: dict[NodeId, Locamu] = {}
    scenario = swarm_scenario(710_738, 2)
    outcome = simulate(scenario, noted(lookup("locamu"), machines), seed=710_738, out=tmp_path / "run")
    assert outcome.manifest.drained is False
    assert only_the_fallen_know(machines, {NodeId("n1")})
    assert not only_the_fallen_know(machines, set()), "nobody has fallen, so somebody knows"
    assert judge_seed(lookup("locamu"), 710_738, 2, tmp_path / "again").exit_code() == HELD


@pytest.mark.parametrize("f", [1, 2, 3])
def test_no_order_of_packets_and_suspicions_breaks_an_invariant(f: int) -> None:
    """LCM-P1, LCM-P2, LCM-P3 and LCM-N1 to LCM-N9, at nodes that only pass messages on, too."""
    for seed in fixed_and_todays(6, 3) if f < 3 else fixed_and_todays(2, 1):
        try:
            Storm(seed, f, check=True).run()
        except AssertionError as error:
            raise AssertionError(f"python -m tests.properties.locamu_storm --seeds 1 --first {seed} --f {f}") from error


@pytest.mark.parametrize(
    "mutant",
    [
        locamu_mutants.JUMPS_UNSAFELY,
        locamu_mutants.MERGES_NOTHING,
        locamu_mutants.ADOPTS_WITHOUT_FENCE,
        locamu_mutants.SEES_TOO_LITTLE,
    ],
    ids=lambda value: value.name,
)
def test_the_storm_breaks_what_is_broken(mutant: ProtocolInfo) -> None:
    assert any(_is_broken_by(seed, mutant) for seed in range(MUTANT_SEEDS))


def _is_broken_by(seed: int, mutant: ProtocolInfo) -> bool:
    try:
        Storm(seed, 1, mutant).run()
    except AssertionError:
        return True
    return False


def test_the_swarm_contains_every_fault() -> None:
    scenarios = [swarm_scenario(seed, 1) for seed in range(40)]
    faults = [fault for scenario in scenarios for fault in scenario.fault]
    assert {type(fault) for fault in faults} == {Crash, Partition, Pause, Suspicion}
    assert {fault.recover_ms is None for fault in faults if isinstance(fault, Crash)} == {True, False}
    assert {fault.by is None for fault in faults if isinstance(fault, Suspicion)} == {True, False}
    assert {scenario.link.loss > 0 for scenario in scenarios} == {True, False}
    assert {scenario.link.fifo for scenario in scenarios} == {True, False}
