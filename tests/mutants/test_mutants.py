"""The judge rejects every deliberately broken protocol, for the right reason, and accepts the original in its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ordercast.core.registry import ProtocolInfo
from ordercast.protocols import lookup
from ordercast.scenario.load import parse_scenario
from ordercast.sim import simulate
from ordercast.verify.judge import judge_path
from ordercast.verify.verdict import FAIL, HELD
from tests.mutants import flood_mutants, ordering_mutants

SEED = 1

MESH: dict[str, Any] = {
    "name": "mesh",
    "overlay": {"kind": "regular", "nodes": 8, "degree": 3},
    "duration_ms": 400,
    "groups": {"kind": "everyone", "topics": 2},
    "link": {"latency_ms": {"kind": "exponential", "mean_ms": 20}, "fifo": False, "loss": 0.1, "duplicate": 0.1},
    "workload": [
        {"kind": "open", "rate_per_s": 100, "keys": 2},
        {"kind": "reply", "probability": 0.5, "depth": 2, "limit": 60},
    ],
    "trace": {"record": "app"},
}
"""Packets overtake each other on ways of different length, and answers race with their questions."""

TREE = MESH | {"name": "tree", "overlay": {"kind": "tree", "nodes": 7}}
GROUPS = MESH | {
    "name": "groups",
    "groups": {"kind": "explicit", "members": {"a": ["n0", "n1", "n2"], "b": ["n2", "n3"]}},
    "workload": [{"kind": "open", "rate_per_s": 100, "topics": "any"}],
}
SUDDEN_DEATH = {
    "name": "sudden-death",
    "overlay": {"kind": "clique", "nodes": 3},
    "duration_ms": 100,
    "workload": [
        {"kind": "schedule", "steps": [{"node": "n0", "at_ms": 10}, {"node": "n1", "at_ms": 50}]},
    ],
    "fault": [{"kind": "crash", "node": "n0", "at_ms": 11, "survive": "none"}],
}
"""The publisher dies before anyone has its message."""
WRONG_SUSPICIONS = SUDDEN_DEATH | {
    "name": "wrong-suspicions",
    "fault": [
        {"kind": "suspicion", "node": "n1", "by": "n0", "at_ms": 5, "until_ms": 40},
        {"kind": "suspicion", "node": "n2", "by": "n0", "at_ms": 5, "until_ms": 40},
        {"kind": "crash", "node": "n0", "at_ms": 30, "survive": "none"},
    ],
}
ONE_AFTER_THE_OTHER = {
    "name": "one-after-the-other",
    "overlay": {"kind": "line", "nodes": 4},
    "options": {"f": 2},
    "duration_ms": 400,
    "detector": {"delay_ms": 10},
    "links": [{"between": ["n1", "n2"], "latency_ms": 100}],
    "workload": [{"kind": "schedule", "steps": [{"node": "n0", "at_ms": 10}, {"node": "n3", "at_ms": 150}]}],
    "fault": [
        {"kind": "crash", "node": "n0", "at_ms": 20, "survive": "none"},
        {"kind": "crash", "node": "n1", "at_ms": 60, "survive": "none"},
    ],
}
"""The publisher dies, then the only one who has its message, while that is still on its way to the next."""
RESURRECTION = SUDDEN_DEATH | {
    "name": "resurrection",
    "fault": [{"kind": "crash", "node": "n0", "at_ms": 11, "survive": "none", "recover_ms": 60}],
}
RESTARTS = MESH | {
    "name": "restarts",
    "fault": [
        {"kind": "crash", "node": "n2", "at_ms": 100, "recover_ms": 160},
        {"kind": "crash", "node": "n5", "at_ms": 200, "recover_ms": 230},
    ],
}
LOST_STATE = MESH | {
    "name": "lost-state",
    "fault": [{"kind": "crash", "node": "n3", "at_ms": 100, "recover_ms": 150, "state": "lost"}],
}

CASES: list[tuple[ProtocolInfo, str, dict[str, Any], str]] = [
    (flood_mutants.DELIVERS_TWICE, "flood", MESH, "integrity"),
    (flood_mutants.DELIVERS_TO_STRANGERS, "flood", GROUPS, "integrity"),
    (flood_mutants.FORGES, "flood", MESH, "integrity"),
    (flood_mutants.SKIPS_A_NEIGHBOUR, "flood", TREE, "agreement"),
    (flood_mutants.NEVER_RESENDS, "flood", TREE, "agreement"),
    (flood_mutants.WAITS_FOR_NOBODY, "flood", SUDDEN_DEATH, "agreement"),
    (flood_mutants.TRUSTS_ITS_SUSPICIONS, "flood", WRONG_SUSPICIONS, "agreement"),
    (flood_mutants.COUNTS_THE_DEAD, "flood", ONE_AFTER_THE_OTHER, "agreement"),
    (flood_mutants.FORGETS_WHAT_IT_SAW, "flood", RESTARTS, "integrity"),
    (flood_mutants.FORGETS_WHAT_WAITS, "flood", RESURRECTION, "agreement"),
    (ordering_mutants.NO_HOLD_BACK, "fifo", MESH, "fifo"),
    (ordering_mutants.NEWCOMER_WAITS_FOR_THE_PAST, "fifo", LOST_STATE, "agreement"),
    (ordering_mutants.WELCOME_PROMISES_TOO_MUCH, "fifo", LOST_STATE, "agreement"),
    (ordering_mutants.IGNORES_ONE_ENTRY, "vector", MESH, "causal"),
    (ordering_mutants.IGNORES_ITS_OWN_GAP, "vector", MESH, "fifo"),
    (ordering_mutants.STAMPS_LATE, "vector", MESH, "causal"),
    (ordering_mutants.SETTLES_FOR_ANY_ENTRY, "vector", MESH, "causal"),
    (ordering_mutants.TWO_SEQUENCERS, "sequencer", MESH, "total"),
    (ordering_mutants.DELIVERS_IN_LOCAL_ORDER, "sequencer", MESH, "total"),
    (ordering_mutants.NUMBERS_ON_ARRIVAL, "sequencer", MESH, "fifo"),
    (ordering_mutants.IGNORES_GAPS, "sequencer", MESH, "total"),
]


def failed_checks(protocol: ProtocolInfo, raw: dict[str, Any], out: Path) -> set[str]:
    simulate(parse_scenario(raw), protocol, seed=SEED, out=out)
    (verdict,) = judge_path(out)
    return {result.check for result in verdict.results if result.verdict == FAIL}


@pytest.mark.parametrize(
    ("mutant", "original", "scenario", "check"), CASES, ids=[f"{case[1]}-{case[0].name}" for case in CASES]
)
def test_the_judge_rejects_the_mutant(
    mutant: ProtocolInfo, original: str, scenario: dict[str, Any], check: str, tmp_path: Path
) -> None:
    assert mutant.guarantee == lookup(original).guarantee
    assert check in failed_checks(mutant, scenario, tmp_path / "run")


@pytest.mark.parametrize(
    ("original", "scenario"),
    sorted({(case[1], case[2]["name"]) for case in CASES}),
)
def test_the_judge_accepts_the_original_in_the_same_run(original: str, scenario: str, tmp_path: Path) -> None:
    raw = next(case[2] for case in CASES if case[2]["name"] == scenario)
    simulate(parse_scenario(raw), lookup(original), seed=SEED, out=tmp_path / "run")
    (verdict,) = judge_path(tmp_path / "run")
    assert verdict.exit_code() == HELD, verdict


def test_the_judge_rejects_the_protocol_that_only_claims_causal_order(tmp_path: Path) -> None:
    lossless = MESH | {"link": MESH["link"] | {"loss": 0}}
    assert failed_checks(lookup("unordered"), lossless, tmp_path / "run") >= {"causal", "fifo"}
    assert "agreement" in failed_checks(lookup("unordered"), TREE, tmp_path / "run")
