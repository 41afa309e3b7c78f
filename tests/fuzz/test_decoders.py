"""Every decoder takes any bytes: it returns a value or raises its one error, in a time that the length bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.engine import CORPUS, hunt
from tests.fuzz.targets import TARGETS
from tests.support.seeds import fixed_and_todays

SEEDS = fixed_and_todays(1, 1)
CRASHERS = sorted(CORPUS.glob("*/*.bin"))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", TARGETS)
def test_wounded_input_is_a_value_or_the_decoders_one_error(name: str, seed: int) -> None:
    hunt(TARGETS[name], seed, TARGETS[name].cases)


@pytest.mark.parametrize("path", CRASHERS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_once_came_through_does_so_no_more(path: Path) -> None:
    assert TARGETS[path.parent.name].fault(path.read_bytes()) == ""


@pytest.mark.parametrize("name", TARGETS)
def test_the_inputs_begin_with_valid_ones(name: str) -> None:
    """Wounds of what is refused anyway would try nothing."""
    target = TARGETS[name]
    accepted = 0
    for data in target.seeds:
        try:
            target.decode(data)
        except target.errors:
            continue
        accepted += 1
    assert accepted > 0


def test_a_run_of_the_suite_tries_a_hundred_thousand_inputs() -> None:
    assert len(SEEDS) * sum(target.cases for target in TARGETS.values()) >= 100_000
