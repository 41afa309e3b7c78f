"""The published LoCaMu fails in each scenario of the library, the corrected one holds, and one correction mends it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ordercast.protocols import lookup
from ordercast.scenario.load import load_scenario
from ordercast.sim import simulate
from ordercast.verify.judge import judge_path
from ordercast.verify.verdict import FAIL, HELD, Verdict

LIBRARY = Path(__file__).parents[2] / "scenarios"

CASES: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    # Without LCM-C11 the printed algorithm loses m here, which would hide what LCM-C7 is about.
    ("locamu-s-gap", "causal", {"corrections": ["C11"]}, {"corrections": ["C7", "C11"]}),
    ("locamu-s-proxy", "causal", {}, {"corrections": ["C9"]}),
    ("locamu-s-late", "agreement", {}, {"corrections": ["C10"]}),
    ("locamu-s-fence", "agreement", {}, {"corrections": ["C11"]}),
    ("locamu-s-spider", "causal", {}, {"profile": "corrected"}),
    ("locamu-s-zigzag", "causal", {}, {"profile": "corrected"}),
]


def judged(name: str, protocol: str, options: dict[str, Any], out: Path) -> Verdict:
    scenario = load_scenario(LIBRARY / f"{name}.toml")
    scenario = msgspec.structs.replace(scenario, options={**scenario.options, **options})
    simulate(scenario, lookup(protocol), out=out)
    (verdict,) = judge_path(out)
    return verdict


def failed(verdict: Verdict) -> set[str]:
    return {result.check for result in verdict.results if result.verdict == FAIL}


@pytest.mark.parametrize(("name", "check", "options", "mended"), CASES, ids=[case[0] for case in CASES])
def test_a_defect_of_the_printed_algorithm_and_what_mends_it(
    name: str, check: str, options: dict[str, Any], mended: dict[str, Any], tmp_path: Path
) -> None:
    assert check in failed(judged(name, "locamu-published", {}, tmp_path / "printed"))
    assert check in failed(judged(name, "locamu-published", options, tmp_path / "alone"))
    assert check not in failed(judged(name, "locamu-published", mended, tmp_path / "mended"))
    assert judged(name, "locamu", {}, tmp_path / "corrected").exit_code() == HELD
