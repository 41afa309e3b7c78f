"""The judge rejects each baseline with any one rule broken, in a run of the swarm that the original holds in."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.core.registry import ProtocolInfo
from ordercast.protocols import lookup
from ordercast.verify.verdict import FAIL, HELD
from tests.mutants.baseline_mutants import BARRIER_MUTANTS, CBCAST_MUTANTS, DELTA_MUTANTS
from tests.properties.baseline_swarm import judge_seed

EXPECTED = {
    "looks-at-one-group": (4, "causal"),
    "learns-nothing": (5, "causal"),
    "ignores-gaps": (4, "fifo"),
    "maximises": (4, "agreement"),
    "reads-out-of-turn": (52, "agreement"),
    "forgets-its-clock": (0, "agreement"),
    "forgets-its-references": (1, "agreement"),
    "ignores-barriers": (3, "causal"),
    "forgets-what-others-wait-for": (5, "causal"),
    "replaces-too-much": (3, "causal"),
    "prunes-too-much": (5, "causal"),
    "forgets-its-barriers": (23, "causal"),
    "forgets-what-it-delivered": (0, "agreement"),
    "compares-with-the-highest": (0, "agreement"),
    "pipelines": (0, "fifo"),
    "acknowledges-at-once": (0, "agreement"),
    "jumps-unsafely": (58, "integrity"),
    "numbers-anew": (0, "integrity"),
    "never-resends": (1, "agreement"),
    "raises-the-low-mark-too-far": (0, "fifo"),
    "forgets-values": (0, "integrity"),
}
"""The seed, and the check that fails there."""
CASES = [
    *[("cbcast", mutant) for mutant in CBCAST_MUTANTS],
    *[("causal-barriers", mutant) for mutant in BARRIER_MUTANTS],
    *[("delta-neighbourhood", mutant) for mutant in DELTA_MUTANTS],
]


@pytest.mark.parametrize(("original", "mutant"), CASES, ids=[mutant.name for _, mutant in CASES])
def test_the_judge_rejects_the_mutant(original: str, mutant: ProtocolInfo, tmp_path: Path) -> None:
    seed, check = EXPECTED[mutant.name]
    verdict = judge_seed(mutant, seed, tmp_path / "run", name=original)
    assert check in {result.check for result in verdict.results if result.verdict == FAIL}


SAME_RUNS = sorted({(original, EXPECTED[mutant.name][0]) for original, mutant in CASES})


@pytest.mark.parametrize(("original", "seed"), SAME_RUNS)
def test_the_judge_accepts_the_original_in_the_same_run(original: str, seed: int, tmp_path: Path) -> None:
    verdict = judge_seed(lookup(original), seed, tmp_path / "run")
    assert verdict.exit_code() == HELD, verdict
