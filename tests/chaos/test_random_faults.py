"""Random faults on brokers and clients as real processes; `make chaos` runs many more seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.swarm import try_seed
from tests.support.seeds import fixed_and_todays


@pytest.mark.parametrize("seed", [32, *fixed_and_todays(0, 1)])
def test_every_promise_holds_whatever_happens_to_the_processes(seed: int, tmp_path: Path) -> None:
    problems, story = try_seed(seed, tmp_path)
    assert not problems, "\n".join([*story, *problems, f"again: python -m tests.chaos.swarm --seeds 1 --first {seed}"])
