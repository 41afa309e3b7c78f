"""A swarm of small random runs of replicated groups, judged every time.

    python -m tests.properties.replicated_swarm --seeds 1000 --protocol replicated-skeen

Few messages, so that groups are often caught with an empty log; links that lose, double and reorder; wrong suspicions
from one millisecond on, by one node or by all, from the first moment on; replicas that crash for good or come back, as
many as a group survives; publishers that die with packets on their way. Whatever is drawn, the run comes to rest and
nothing is lost or reordered.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from ordercast.core.errors import InvariantError, PeerError
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols import lookup
from ordercast.scenario.load import parse_scenario
from ordercast.scenario.model import Scenario
from ordercast.sim import simulate
from ordercast.verify.verdict import NOT_APPLICABLE, PASS
from tests.properties.swarm import Dice
from tests.support.swarm_command import Family, run_seeds, swarm_parser

PROTOCOLS = (
    "replicated-skeen",
    "replicated-delporte-fauconnier",
    "replicated-daisy-chain",
    "replicated-daisy-chain-real-time",
)
CHECKS = ["integrity", "agreement", "prefix", "acyclic"]
REPLICAS = 3
CLIENTS = ("c0", "c1", "c2")
FAULTS_BY_MS = 300


def replicated_scenario(protocol: str, seed: int) -> Scenario:
    """The scenario that belongs to the seed."""
    dice = Dice(seed, "replicated", protocol)
    servers = [f"n{i}" for i in range(REPLICAS * (1 + dice.below(2)))]
    return parse_scenario(
        {
            "name": f"{protocol}-swarm-{seed}",
            "overlay": {"kind": "servers", "nodes": len(servers), "clients": len(CLIENTS)},
            "protocol": protocol,
            "options": {"check_invariants": True, "replicas": REPLICAS, "retry_ms": dice.pick([20, 100, 500])},
            "duration_ms": 1_000,
            "link": _link(dice),
            "detector": {"delay_ms": dice.pick([1, 10, 40])},
            "workload": [_load(dice)],
            "fault": [*_lies(dice, servers), *_crashes(dice, servers)],
            "trace": {"record": "app"},
        }
    )


def _link(dice: Dice) -> dict[str, Any]:
    latency = [{"kind": "exponential", "min_ms": 0.2, "mean_ms": 5}, {"kind": "lognormal", "median_ms": 1, "sigma": 2}]
    return {
        "latency_ms": dice.pick([1.0, *latency, {"kind": "uniform", "low_ms": 0.5, "high_ms": 30}]),
        "fifo": dice.chance(0.3),
        "loss": dice.pick([0, 0, 0.05, 0.2]),
        "duplicate": dice.pick([0, 0, 0.05, 0.3]),
    }


def _load(dice: Dice) -> dict[str, Any]:
    common = {
        "publishers": dice.pick(["clients", "all"]),
        "start_ms": dice.pick([0, 0, 50, 200]),
        "limit": dice.pick([1, 4, 60]),
        "to": {"kind": "any"},
    }
    kinds = [
        {"kind": "open", "rate_per_s": dice.pick([30, 400])},
        {"kind": "burst", "size": 4, "every_ms": 60},
        {"kind": "closed", "outstanding": 2, "until": "completed"},
    ]
    return dice.pick(kinds) | common


def _lies(dice: Dice, servers: list[str]) -> list[dict[str, Any]]:
    """Wrong suspicions, mostly of a first replica, and mostly so short that the next packet contradicts them."""
    lies = []
    for node in dice.sample([*servers[::REPLICAS], *servers[::REPLICAS], *servers, *CLIENTS], dice.below(5)):
        at = dice.between(0, FAULTS_BY_MS)
        lie = {"kind": "suspicion", "node": node, "at_ms": at, "until_ms": at + dice.pick([1, 5, 5, 20, 80])}
        observers = [server for server in servers if server != node]
        lies.append(lie | ({"by": dice.pick(observers)} if dice.chance(0.6) else {}))
    # Two wrong suspicions of one node must not overlap; the second gives way.
    return list({lie["node"]: lie for lie in reversed(lies)}.values())


def _crashes(dice: Dice, servers: list[str]) -> list[dict[str, Any]]:
    """At most one replica of a group, and some clients, for good or for a while."""
    victims = [servers[first + dice.below(REPLICAS)] for first in range(0, len(servers), REPLICAS)]
    crashes = []
    for node in dice.sample([*victims, *CLIENTS], dice.pick([0, 0, 1, 2])):
        at = dice.between(0, FAULTS_BY_MS)
        crash = {"kind": "crash", "node": node, "at_ms": at, "survive": dice.pick(["all", "none", "random"])}
        crashes.append(crash | ({"recover_ms": at + dice.between(1, 200)} if dice.chance(0.4) else {}))
    return crashes


def complaint(protocol: ProtocolInfo, seed: int, out: Path, *, name: str | None = None) -> tuple[str, int]:
    """What is wrong with the run of the seed, empty if nothing is; and how many deliveries were judged."""
    from ordercast.verify.judge import judge_path  # Late: it compiles kernels, which who only simulates can do without.

    try:
        outcome = simulate(replicated_scenario(name or protocol.name, seed), protocol, seed=seed, out=out)
    except (PeerError, InvariantError) as error:
        return f"{type(error).__name__}: {error}", 0
    if not outcome.manifest.drained:
        return "the run did not come to rest", 0
    (verdict,) = judge_path(out, checks=CHECKS)
    fine = {PASS, NOT_APPLICABLE}  # A run in which everybody who publishes dies first has nothing to judge.
    wrong = [f"{result.check}: {result.verdict}" for result in verdict.results if result.verdict not in fine]
    return ", ".join(wrong), max(result.deliveries for result in verdict.results)


def main() -> int:
    arguments = swarm_parser(__doc__, PROTOCOLS).parse_args()
    return run_seeds(arguments, [_family(name) for name in arguments.protocol or PROTOCOLS])


def _family(name: str) -> Family:
    def attempt(seed: int, out: Path) -> tuple[str, Counter[str]]:
        wrong, deliveries = complaint(lookup(name), seed, out)
        return wrong, Counter(deliveries=deliveries)

    return Family(name, attempt, partial(replicated_scenario, name), f"--protocol {name}")


if __name__ == "__main__":
    sys.exit(main())
