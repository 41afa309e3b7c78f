"""Shared work of real processes under random faults; `make chaos` runs many more seeds, and kills copies together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.work import try_seed
from tests.support.seeds import fixed_and_todays


@pytest.mark.parametrize("seed", fixed_and_todays(1, 1))
def test_all_work_is_done_in_order_whatever_happens_to_the_processes(seed: int, tmp_path: Path) -> None:
    problems, chaos = try_seed(seed, tmp_path, seconds=2.0, spare=True)

    again = f"python -m tests.chaos.work --spare --seconds 2 --seeds 1 --first {seed}"
    assert not problems, "\n".join([*chaos.story, *map(str, problems), f"again: {again}"])
