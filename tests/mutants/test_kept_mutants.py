"""The judge sees it when one rule of kept topics is missing."""

from __future__ import annotations

import pytest

from tests.mutants.kept_mutants import MUTANTS
from tests.properties.kept_swarm import try_seed


@pytest.mark.parametrize("name", MUTANTS)
def test_a_missing_rule_is_found_out(name: str) -> None:
    parts, family = MUTANTS[name]
    for seed in range(20):
        finding = try_seed(seed, family, parts)
        if isinstance(finding, str) or finding.problems:
            return
    pytest.fail(f"nobody noticed in 20 runs of {family}: {name}")
