"""Atomic multicast under random workloads and latencies: the judge finds nothing, and no invariant breaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ordercast.core.chance import mix, salt
from ordercast.protocols import lookup
from ordercast.scenario.load import parse_scenario
from ordercast.scenario.model import Scenario
from ordercast.sim import simulate
from ordercast.verify.judge import judge_path
from ordercast.verify.verdict import PASS
from tests.support.seeds import fixed_and_todays

PROTOCOLS: list[tuple[str, dict[str, Any]]] = [
    ("skeen", {}),
    ("delporte-fauconnier", {}),
    ("delporte-fauconnier", {"delivery": "end"}),
    ("daisy-chain", {"rule": "strict"}),
    ("daisy-chain", {"rule": "lite"}),
    ("daisy-chain", {"rule": "lite", "reduced": False}),
    ("daisy-chain", {"rule": "cover"}),
    ("daisy-chain", {"rule": "cover", "flush_every": 5}),
]
CHECKS = ["integrity", "agreement", "prefix", "acyclic"]


def a_scenario(seed: int, options: dict[str, Any]) -> Scenario:
    dice = salt(seed, "atomic-swarm")
    servers = 2 + mix(dice, 1) % 7
    to = [
        {"kind": "any"},
        {"kind": "random", "count": 1 + mix(dice, 2) % servers},
        {"kind": "tpcc", "warehouses_per_node": 1 + mix(dice, 3) % 3},
        {"kind": "groups", "size": servers // 2 if servers % 2 == 0 else servers, "random": 0.2},
    ]
    latency = [
        {"kind": "exponential", "min_ms": 0.1, "mean_ms": 5.0},
        {"kind": "uniform", "low_ms": 0.0, "high_ms": 9.0},
    ]
    clients = mix(dice, 4) % 8
    return parse_scenario(
        {
            "name": "atomic-swarm",
            "overlay": {"kind": "servers", "nodes": servers, "clients": clients},
            "duration_ms": 20_000.0,
            "link": {"latency_ms": latency[mix(dice, 5) % 2]},
            "workload": [
                {
                    "kind": "closed",
                    "publishers": "clients",
                    "outstanding": 1 + mix(dice, 6) % 3,
                    "think_ms": 0.5,
                    "until": "completed",
                    "limit": 120,
                    "to": to[mix(dice, 7) % 4],
                }
            ],
            "fault": [{"kind": "pause", "node": "n0", "at_ms": 20, "until_ms": 60}],
            "options": {"check_invariants": True, **options},
        }
    )


@pytest.mark.parametrize(("protocol", "options"), PROTOCOLS, ids=lambda value: str(value))
def test_what_is_promised_holds(protocol: str, options: dict[str, Any], tmp_path: Path) -> None:
    info = lookup(protocol)
    checks = [*CHECKS, "genuine"] if info.genuine else CHECKS
    for seed in fixed_and_todays(9, 5):
        outcome = simulate(a_scenario(seed, options), info, seed=seed, out=tmp_path / "run")
        (verdict,) = judge_path(tmp_path / "run", checks=checks)
        assert outcome.published == 120, f"seed {seed}: a client still waits for its answer"
        assert {result.verdict for result in verdict.results} == {PASS}, f"seed {seed}: {verdict}"
