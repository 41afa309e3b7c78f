"""Replicated groups while one replica of every group crashes, leaders too: nothing is lost and nothing reordered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ordercast.core.chance import mix, salt, unit
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols import lookup
from ordercast.scenario.load import parse_scenario
from ordercast.scenario.model import Scenario, Suspicion
from ordercast.sim import simulate
from ordercast.verify.judge import judge_path
from ordercast.verify.verdict import PASS, Verdict
from tests.properties import replicated_swarm
from tests.support.seeds import batch_name, batches, fixed_and_todays

PROTOCOLS: list[tuple[str, dict[str, Any]]] = [
    ("replicated-skeen", {}),
    ("replicated-delporte-fauconnier", {}),
    ("replicated-daisy-chain", {}),
    ("replicated-daisy-chain", {"rule": "cover", "flush_every": 5}),
    ("replicated-daisy-chain-real-time", {}),
]
CHECKS = replicated_swarm.CHECKS
LIMIT = 90
CRASHES_BY_MS = 250
REPLICAS = replicated_swarm.REPLICAS


def names(group: int) -> list[str]:
    return [f"n{group * REPLICAS + i}" for i in range(REPLICAS)]


def faults(dice: int, groups: int, how: str) -> list[dict[str, Any]]:
    """One replica of every group: mostly the leader, gone for good, back with its state, or wrongly suspected.

    Where replicas are gone for good, so is a client, most likely with a request on its way.
    """
    planned: list[dict[str, Any]] = []
    for group in range(groups):
        bits = mix(dice, 50, group)
        victim = names(group)[0 if bits % 3 else bits % REPLICAS]
        at = 5.0 + (CRASHES_BY_MS - 5) * unit(bits)
        if how == "crash":
            planned.append({"kind": "crash", "node": victim, "at_ms": at, "survive": "random"})
        elif how in ("recover", "loss"):
            planned.append({"kind": "crash", "node": victim, "at_ms": at, "recover_ms": at + 5 + bits % 100})
        else:
            planned.append({"kind": "suspicion", "node": victim, "at_ms": at, "until_ms": at + 5 + bits % 100})
    if how == "crash":
        planned.append({"kind": "crash", "node": "c3", "at_ms": 20.0 + mix(dice, 60) % 100})
    return planned


def a_scenario(seed: int, options: dict[str, Any], how: str) -> Scenario:
    dice = salt(seed, "replicated-swarm")
    groups = 2 + mix(dice, 1) % 3
    sets = [
        [name for group in range(groups) if chosen >> group & 1 for name in names(group)]
        for chosen in range(1, 1 << groups)
    ]
    to = [{"kind": "explicit", "sets": sets}, {"kind": "any"}, {"kind": "random", "count": 4}]
    lossy = {"loss": 0.03, "duplicate": 0.03, "fifo": False} if how == "loss" else {}
    return parse_scenario(
        {
            "name": "replicated-swarm",
            "overlay": {"kind": "servers", "nodes": groups * REPLICAS, "clients": 4},
            "duration_ms": 20_000.0,
            "detector": {"delay_ms": 10.0 + mix(dice, 2) % 40},
            "link": {"latency_ms": {"kind": "exponential", "min_ms": 0.2, "mean_ms": 3.0}, **lossy},
            "workload": [
                {
                    "kind": "closed",
                    "publishers": "clients",
                    "outstanding": 1 + mix(dice, 3) % 3,
                    "until": "completed",
                    "limit": LIMIT,
                    "to": to[mix(dice, 4) % 3],
                }
            ],
            "fault": faults(dice, groups, how),
            "options": {"check_invariants": True, "replicas": REPLICAS, **options},
        }
    )


def judged(protocol: ProtocolInfo, asked: Scenario, seed: int, out: Path) -> tuple[int, Verdict]:
    outcome = simulate(asked, protocol, seed=seed, out=out)
    assert outcome.manifest.drained
    (verdict,) = judge_path(out, checks=CHECKS)
    return outcome.published, verdict


@pytest.mark.parametrize("how", ["crash", "recover", "suspicion", "loss"])
@pytest.mark.parametrize(("protocol", "options"), PROTOCOLS, ids=lambda value: str(value))
def test_one_fault_in_every_group_loses_and_reorders_nothing(
    protocol: str, options: dict[str, Any], how: str, tmp_path: Path
) -> None:
    for seed in fixed_and_todays(2, 2):
        published, verdict = judged(lookup(protocol), a_scenario(seed, options, how), seed, tmp_path / "run")
        assert published == LIMIT, f"seed {seed}: a client still waits for its answer"
        assert {result.verdict for result in verdict.results} == {PASS}, f"seed {seed}: {verdict}"


def storm(seed: int) -> Scenario:
    """Groups of five that lose two replicas each, with loss, pauses, a partition and many wrong suspicions besides."""
    dice = salt(seed, "storm")
    size = 5
    planned: list[dict[str, Any]] = []

    def draw(kind: int, place: int, limit: int) -> int:
        return mix(dice, kind, place) % limit

    for base in (0, size):
        victims = (base + draw(1, base, 2), base + 2 + draw(2, base, 3))
        planned += [{"kind": "crash", "node": f"n{i}", "at_ms": 10 + draw(3, i, 300)} for i in victims]
        for i in range(base, base + 4):
            target, observer = base + draw(4, i, size), base + draw(5, i, size)
            if target != observer:
                lie = {"kind": "suspicion", "node": f"n{target}", "by": f"n{observer}"}
                at = 5 + draw(6, i, 400)
                planned.append({**lie, "at_ms": at, "until_ms": at + 20 + draw(7, i, 200)})
        at = 5 + draw(8, base, 300)
        planned.append({"kind": "pause", "node": f"n{base + draw(9, base, size)}", "at_ms": at, "until_ms": at + 50})
    servers = [f"n{i}" for i in range(2 * size)]
    cut = [server for i, server in enumerate(servers) if i % size in (0, 3)]
    sides = [cut, [server for server in servers if server not in cut]]
    at = 5 + draw(10, 0, 300)
    planned.append({"kind": "partition", "sides": sides, "at_ms": at, "until_ms": at + 10 + draw(11, 0, 150)})
    latency = {"kind": "exponential", "min_ms": 0.2, "mean_ms": 3.0}
    load = {"kind": "closed", "publishers": "clients", "outstanding": 2, "until": "completed", "limit": LIMIT}
    sets = [servers[:size], servers[size:], servers]
    return parse_scenario(
        {
            "name": "storm",
            "overlay": {"kind": "servers", "nodes": 2 * size, "clients": 4},
            "duration_ms": 30_000.0,
            "detector": {"delay_ms": 15.0},
            "link": {"latency_ms": latency, "loss": 0.02, "duplicate": 0.02, "fifo": False},
            "workload": [{**load, "to": {"kind": "explicit", "sets": sets}}],
            "fault": planned,
            "options": {"check_invariants": True, "replicas": size, "retry_ms": 60.0},
        }
    )


@pytest.mark.parametrize("protocol", ["replicated-skeen", "replicated-daisy-chain-real-time"])
def test_everything_at_once_loses_and_reorders_nothing(protocol: str, tmp_path: Path) -> None:
    for seed in fixed_and_todays(3, 2):
        published, verdict = judged(lookup(protocol), storm(seed), seed, tmp_path / "run")
        assert published == LIMIT, f"seed {seed}: a client still waits for its answer"
        assert {result.verdict for result in verdict.results} == {PASS}, f"seed {seed}: {verdict}"


ONCE_BROKEN = [51, 234, 236]
"""A Prepare that came late, a publisher that died with a gap, a lost Append while the log was empty."""


@pytest.mark.parametrize("seeds", [*batches(40, 20, 20), ONCE_BROKEN], ids=batch_name)
@pytest.mark.parametrize("name", replicated_swarm.PROTOCOLS)
def test_nothing_but_time_is_lost_whatever_happens(name: str, seeds: list[int], tmp_path: Path) -> None:
    for seed in seeds:
        wrong, _ = replicated_swarm.complaint(lookup(name), seed, tmp_path / "run")
        again = f"python -m tests.properties.replicated_swarm --seeds 1 --first {seed} --protocol {name}"
        assert not wrong, f"{wrong}\nagain: {again}"


def test_the_swarm_contains_every_fault() -> None:
    fired: set[str] = set()
    reordering = short = 0
    for seed in range(20):
        scenario = replicated_swarm.replicated_scenario("replicated-skeen", seed)
        fired |= set(simulate(scenario, lookup("replicated-skeen"), seed=seed).manifest.faults)
        reordering += not scenario.link.fifo
        short += any(isinstance(fault, Suspicion) and fault.until_ms - fault.at_ms <= 5 for fault in scenario.fault)
    assert fired >= {"crash", "recover", "suspicion", "duplicate", "lost"}
    assert reordering > 5
    assert short > 5
