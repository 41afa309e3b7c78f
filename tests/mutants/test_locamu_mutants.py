"""The judge rejects LoCaMu with any one rule broken, and accepts the original in the same run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ordercast.core.registry import ProtocolInfo
from ordercast.protocols import lookup
from ordercast.scenario.load import load_scenario, parse_scenario
from ordercast.scenario.model import Scenario
from ordercast.sim import simulate
from ordercast.verify.judge import judge_path
from ordercast.verify.verdict import FAIL, HELD
from tests.mutants import locamu_mutants

LIBRARY = Path(__file__).parents[2] / "scenarios"
SEED = 1


def suspicion(by: str, node: str, at_ms: float, until_ms: float) -> dict[str, Any]:
    return {"kind": "suspicion", "node": node, "by": by, "at_ms": at_ms, "until_ms": until_ms}


def _line(name: str, group: list[str], faults: list[dict[str, Any]]) -> Scenario:
    return parse_scenario(
        {
            "name": name,
            "overlay": {"kind": "line", "nodes": 5},
            "duration_ms": 300,
            "groups": {"kind": "explicit", "members": {"t": group}},
            "link": {"latency_ms": 1.0},
            "detector": {"delay_ms": 5000},
            "workload": [{"kind": "schedule", "steps": [{"node": "n0", "at_ms": 10}]}],
            "fault": faults,
        }
    )


TWO_JUMPS = _line(
    "two-jumps",
    ["n4"],
    [suspicion("n0", "n1", 0, 30), suspicion("n2", "n3", 0, 200), suspicion("n1", "n2", 0, 200)],
)
"""S-FIG37: two ways to n4 that have no node in common within the window."""
CROSSING = _line("crossing", ["n3", "n4"], [suspicion("n1", "n2", 0, 200), suspicion("n0", "n1", 11.5, 200)])
"""S-FIG36: two ways to n3 that have only n0 in common."""
RESTARTS = parse_scenario(
    {
        "name": "restarts",
        "overlay": {"kind": "tree", "nodes": 7},
        "duration_ms": 400,
        "groups": {"kind": "everyone", "topics": 2},
        "link": {"latency_ms": {"kind": "exponential", "mean_ms": 10}, "fifo": False, "loss": 0.1, "duplicate": 0.1},
        "detector": {"delay_ms": 20},
        "workload": [
            {"kind": "open", "rate_per_s": 100},
            {"kind": "reply", "probability": 0.3, "depth": 2, "limit": 60},
        ],
        "fault": [
            {"kind": "crash", "node": "n1", "at_ms": 100, "recover_ms": 160},
            {"kind": "crash", "node": "n5", "at_ms": 200, "recover_ms": 230},
        ],
        "trace": {"record": "app"},
    }
)


def library(name: str) -> Scenario:
    return load_scenario(LIBRARY / f"{name}.toml")


def short_sighted(name: str) -> Scenario:
    """With f = 2 and the radii as published."""
    known = library(name)
    return msgspec.structs.replace(known, options={**known.options, "profile": "published"})


CASES: list[tuple[ProtocolInfo, Scenario, str]] = [
    (locamu_mutants.JUMPS_UNSAFELY, TWO_JUMPS, "integrity"),
    (locamu_mutants.COUNTS_THE_HIGHEST, library("locamu-s-gap"), "causal"),
    (locamu_mutants.MERGES_NOTHING, library("locamu-s-late"), "agreement"),
    (locamu_mutants.ADOPTS_WITHOUT_FENCE, library("locamu-s-fence"), "agreement"),
    (locamu_mutants.TRIMS, library("locamu-s-proxy"), "causal"),
    (locamu_mutants.SEES_TOO_LITTLE, CROSSING, "integrity"),
    (locamu_mutants.FORGETS_ITS_COLUMNS, RESTARTS, "integrity"),
]


def failed_checks(protocol: ProtocolInfo, scenario: Scenario, out: Path) -> set[str]:
    simulate(scenario, protocol, seed=SEED, out=out)
    (verdict,) = judge_path(out)
    return {result.check for result in verdict.results if result.verdict == FAIL}


@pytest.mark.parametrize(("mutant", "scenario", "check"), CASES, ids=[case[0].name for case in CASES])
def test_the_judge_rejects_the_mutant(mutant: ProtocolInfo, scenario: Scenario, check: str, tmp_path: Path) -> None:
    assert check in failed_checks(mutant, scenario, tmp_path / "run")


@pytest.mark.parametrize("scenario", [TWO_JUMPS, CROSSING, RESTARTS], ids=lambda scenario: scenario.name)
def test_the_judge_accepts_the_original_in_the_same_run(scenario: Scenario, tmp_path: Path) -> None:
    simulate(scenario, lookup("locamu"), seed=SEED, out=tmp_path / "run")
    (verdict,) = judge_path(tmp_path / "run")
    assert verdict.exit_code() == HELD, verdict


@pytest.mark.parametrize("name", ["locamu-s-spider", "locamu-s-zigzag"])
def test_the_judge_rejects_the_published_radii_for_f_2(name: str, tmp_path: Path) -> None:
    assert "causal" in failed_checks(lookup("locamu"), short_sighted(name), tmp_path / "run")
