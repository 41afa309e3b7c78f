"""Broken atomic multicasts: the judge, or an invariant, rejects each; the original passes the same run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ordercast.core.errors import InvariantError
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols import lookup
from ordercast.scenario.load import parse_scenario
from ordercast.scenario.model import Scenario
from ordercast.sim import simulate
from ordercast.verify.judge import judge_path
from ordercast.verify.verdict import FAIL
from tests.mutants import atomic_mutants as mutants

CONFLICTS = [
    ["n0", "n2"], ["n0", "n3"], ["n2", "n3"], ["n0", "n1", "n3"],
    ["n0", "n2", "n3"], ["n0", "n1", "n2", "n3"], ["n1", "n4"], ["n0", "n3", "n4"],
]  # fmt: skip


def conflicts(**options: Any) -> Scenario:
    """Twelve clients, few different destination sets that overlap a lot, and very uneven latencies."""
    return parse_scenario(
        {
            "name": "conflicts",
            "overlay": {"kind": "servers", "nodes": 5, "clients": 12},
            "duration_ms": 5000.0,
            "link": {"latency_ms": {"kind": "exponential", "min_ms": 0.5, "mean_ms": 5.0}},
            "workload": [
                {
                    "kind": "closed",
                    "publishers": "clients",
                    "until": "completed",
                    "limit": 200,
                    "to": {"kind": "explicit", "sets": CONFLICTS},
                }
            ],
            "options": options,
        }
    )


COVER = {"rule": "cover"}
CASES: list[tuple[ProtocolInfo, str, dict[str, Any], int, str]] = [
    (mutants.CLOCK_DOES_NOT_CATCH_UP, "skeen", {}, 0, "acyclic"),
    (mutants.DELIVERS_OVER_LOWER_PROPOSALS, "skeen", {}, 0, "acyclic"),
    (mutants.DELIVERS_BEFORE_THE_FINAL_TIMESTAMP, "skeen", {}, 0, "prefix"),
    (mutants.LOSES_AN_END, "delporte-fauconnier", {}, 0, "agreement"),
    (mutants.DOES_NOT_WAIT, "delporte-fauconnier", {}, 0, "prefix"),
    (mutants.IGNORES_ONE_EDGE, "daisy-chain", {}, 0, "prefix"),
    (mutants.NEVER_VISITS, "daisy-chain", {}, 0, "acyclic"),
    (mutants.COMPARES_DESTINATIONS_ONLY, "daisy-chain", {"rule": "strict"}, 1, "acyclic"),
    (mutants.LITE_KEEPS_CROSSED_COVERS, "daisy-chain", {}, 0, "agreement"),
    (mutants.COVER_WITHOUT_LOG, "daisy-chain", COVER, 0, "agreement"),
    (mutants.MERGES_REDUCED_CLOCKS, "daisy-chain", COVER, 0, "agreement"),
]


def failed_checks(protocol: ProtocolInfo, asked: Scenario, seed: int, out: Path) -> set[str]:
    simulate(asked, protocol, seed=seed, out=out)
    (verdict,) = judge_path(out)
    return {result.check for result in verdict.results if result.verdict == FAIL}


@pytest.mark.parametrize(
    ("mutant", "original", "options", "seed", "check"), CASES, ids=[f"{case[1]}-{case[0].name}" for case in CASES]
)
def test_the_judge_rejects_the_mutant_and_accepts_the_original(
    mutant: ProtocolInfo, original: str, options: dict[str, Any], seed: int, check: str, tmp_path: Path
) -> None:
    asked = conflicts(**options)
    assert check in failed_checks(mutant, asked, seed, tmp_path / "run")
    assert failed_checks(lookup(original), asked, seed, tmp_path / "run") == set()


@pytest.mark.parametrize(
    ("mutant", "original", "options", "seed"),
    [
        (mutants.CLOCK_DOES_NOT_CATCH_UP, "skeen", {}, 0),
        (mutants.DELIVERS_OVER_LOWER_PROPOSALS, "skeen", {}, 0),
        (mutants.IGNORES_ONE_EDGE, "daisy-chain", {}, 1),
        (mutants.LITE_KEEPS_CROSSED_COVERS, "daisy-chain", {}, 0),
        (mutants.COVER_WITHOUT_LOG, "daisy-chain", COVER, 0),
        (mutants.MERGES_REDUCED_CLOCKS, "daisy-chain", COVER, 0),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_an_invariant_stops_the_mutant_and_not_the_original(
    mutant: ProtocolInfo, original: str, options: dict[str, Any], seed: int
) -> None:
    asked = conflicts(check_invariants=True, **options)
    with pytest.raises(InvariantError):
        simulate(asked, mutant, seed=seed)
    simulate(asked, lookup(original), seed=seed)
