"""The configurations of the study, and how one of them is run and measured."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from ordercast.experiments.kit.claims import judged
from ordercast.experiments.kit.study import Row
from ordercast.experiments.kit.trace_costs import trace_costs
from ordercast.scenario.model import Link, OpenLoad, Regular, ReplyLoad, Scenario
from ordercast.scenario.tables import Exponential

PROTOCOLS = ("flood", "fifo", "vector")
RATE = 1.0
"""Publications per second and node, answers not counted, where the rate is not what is varied."""
DURATION_MS = 1_000.0
"""Length of the run where it is not what is varied."""
LOAD_NODES = 32
"""Number of nodes where the rate is varied."""
HISTORY_NODES = 8
"""Number of nodes where the length of the run is varied."""

_NODES_IN_ALL = 128
"""Nodes that the runs of one size have together, at least."""
_DEGREE = 4
_LATENCY_MS = 20.0
_ANSWERS = 1.0
"""How many answers a message gets on average; answers are answered, up to three times."""


def _configuration(protocol: str, nodes: int, rate: float, duration_ms: float, seed: int) -> Row:
    return {"protocol": protocol, "nodes": nodes, "rate_per_node": rate, "duration_ms": duration_ms, "seed": seed}


def _scale(sizes: Sequence[int], rates: Sequence[float], durations: Sequence[float], seeds: int) -> list[Row]:
    """Three lines through one space, each varying one parameter; where they cross, a configuration belongs to both.

    A small system says little in one run, so it gets more seeds. Header bytes hardly vary between seeds: fewer do.
    """
    points = [
        (protocol, nodes, RATE, DURATION_MS, seed)
        for protocol in PROTOCOLS
        for nodes in sizes
        for seed in range(max(seeds, _NODES_IN_ALL // nodes))
    ]
    points += [("vector", LOAD_NODES, rate, DURATION_MS, seed) for rate in rates for seed in range(seeds)]
    points += [
        (protocol, HISTORY_NODES, RATE, duration, seed)
        for protocol in ("flood", "vector")
        for duration in durations
        for seed in range(seeds // 2)
    ]
    return [_configuration(*point) for point in dict.fromkeys(points)]


SCALES = {
    "quick": _scale(
        sizes=(8, 16, 32, 64), rates=(0.5, 1.0, 2.0, 4.0), durations=(1_000.0, 20_000.0, 60_000.0), seeds=4
    ),
    "paper": _scale(
        sizes=(8, 16, 32, 64, 128, 256, 512),
        rates=(0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
        durations=(1_000.0, 10_000.0, 30_000.0, 100_000.0, 300_000.0),
        seeds=5,
    ),
}


def measure(parameters: Row) -> Row:
    """Simulate one configuration, measure its trace and have it judged."""
    from ordercast.protocols import lookup
    from ordercast.sim import simulate
    from ordercast.verify.judge import judge_path

    with tempfile.TemporaryDirectory(prefix="ordercast-") as directory:
        run = Path(directory) / "run"
        simulate(scenario(parameters), lookup(str(parameters["protocol"])), out=run)
        (verdict,) = judge_path(run)
        return {**trace_costs(run), **judged(verdict)}


def weigh(parameters: Row) -> float:
    """Hops of the flood, which decide how long a simulation takes; a vector is that much longer to encode."""
    nodes, rate, duration_ms = (cast("float", parameters[name]) for name in ("nodes", "rate_per_node", "duration_ms"))
    entries = nodes if parameters["protocol"] == "vector" else 0
    return nodes * nodes * rate * duration_ms * (1 + entries / 200)


def scenario(parameters: Row) -> Scenario:
    """The scenario of one configuration."""
    nodes = cast("int", parameters["nodes"])
    return Scenario(
        name="vector-overhead",
        overlay=Regular(nodes=nodes, degree=_DEGREE),
        link=Link(latency_ms=Exponential(mean_ms=_LATENCY_MS), fifo=False),
        workload=[
            OpenLoad(rate_per_s=cast("float", parameters["rate_per_node"]) * nodes),
            ReplyLoad(probability=_ANSWERS / (nodes - 1)),
        ],
        duration_ms=cast("float", parameters["duration_ms"]),
        seed=cast("int", parameters["seed"]),
    )
