"""Broken replication: the judge, or an invariant, rejects each; the original passes the same run."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.core.errors import InvariantError
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols import lookup
from ordercast.sim import simulate
from ordercast.verify.judge import judge_path
from ordercast.verify.verdict import FAIL
from tests.mutants import replicated_mutants as mutants
from tests.properties.replicated_swarm import complaint
from tests.properties.test_replicated_swarm import CHECKS, a_scenario


def failed_checks(protocol: ProtocolInfo, seed: int, out: Path) -> set[str]:
    simulate(a_scenario(seed, {}, "crash"), protocol, seed=seed, out=out)
    (verdict,) = judge_path(out, checks=CHECKS)
    return {result.check for result in verdict.results if result.verdict == FAIL}


@pytest.mark.parametrize(
    ("mutant", "seed", "check"),
    [
        (mutants.COMMITS_ALONE, 5, "prefix"),
        (mutants.COMMITS_ALONE, 5, "agreement"),
        (mutants.FOLLOWERS_KEEP_NOTHING, 10, "agreement"),
        (mutants.FORGETS_ENTRIES, 3, "prefix"),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_the_judge_rejects_the_mutant_and_accepts_the_original(
    mutant: ProtocolInfo, seed: int, check: str, tmp_path: Path
) -> None:
    assert check in failed_checks(mutant, seed, tmp_path / "run")
    assert failed_checks(lookup("replicated-daisy-chain"), seed, tmp_path / "run") == set()


@pytest.mark.parametrize(
    ("mutant", "seed", "problem"),
    [
        (mutants.HIDES_AN_EMPTY_LOG, 33, "did not come to rest"),
        (mutants.WAITS_FOR_THE_DEAD, 109, "did not come to rest"),
        (mutants.PROMISES_ANEW, 297, "wants entries from"),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_the_swarm_finds_the_mutant(mutant: ProtocolInfo, seed: int, problem: str, tmp_path: Path) -> None:
    original = lookup("replicated-daisy-chain")
    assert problem in complaint(mutant, seed, tmp_path / "run", name=original.name)[0]
    assert complaint(original, seed, tmp_path / "run")[0] == ""


def test_an_invariant_stops_a_leader_that_forgets_committed_entries() -> None:
    asked = a_scenario(6, {}, "crash")
    with pytest.raises(InvariantError, match="lacks committed entries"):
        simulate(asked, mutants.FORGETS_ENTRIES, seed=6)
    simulate(asked, lookup("replicated-daisy-chain"), seed=6)
