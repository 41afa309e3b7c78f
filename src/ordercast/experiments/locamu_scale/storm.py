"""Crashes everywhere, as many as f = 1 allows: who is down when, and the scenario around it."""

from __future__ import annotations

from typing import Any, cast

from ordercast.core.chance import shuffled
from ordercast.experiments.kit.study import Row
from ordercast.scenario.model import Crash, Detector, Fault, Link, NodeCapacity, OpenLoad, Scenario, Trace, Tree

EVERY_MS = 200.0
DOWN_MS = 150.0
DETECTOR_MS = 50.0
LATENCY_MS = 1.0
BANDWIDTH_MBPS = 2.0
"""Little, so that half of it is few enough messages to simulate: queues depend on the share of it that is used."""
QUARTER, SINGLE = "quarter", "single"
"""How many are down together: the most that f = 1 allows, or one."""
PUBLISHERS = 8
PAYLOAD = 32
COLOURS = 4
_FIRST_MS = 400.0
"""Undisturbed at the beginning, for comparison."""
_LAST_MS = 300.0
"""Undisturbed at the end, while publishers go on."""
DRAIN_MS = 60_000.0


def colours(nodes: int) -> list[int]:
    """A colour for each node of a binary tree, such that no path of three nodes has one of them twice.

    The nodes of one colour are the most that may be down together with f = 1: one on every path of three.
    """
    found: list[int] = []
    for node in range(nodes):
        parent = (node - 1) // 2
        near = {found[parent]} if node else set()
        if parent > 0:
            near.add(found[(parent - 1) // 2])
        if node and not node % 2:
            near.add(found[node - 1])
        found.append(min(set(range(COLOURS)) - near))
    return found


def children(node: int, nodes: int) -> list[int]:
    return [child for child in (2 * node + 1, 2 * node + 2) if child < nodes]


def crashes(nodes: int, duration_ms: float, together: str) -> list[Crash]:
    """Every round, all nodes of the next colour, or the next interior node in an order of chance."""
    colour_of = colours(nodes)
    order = shuffled(range(nodes // 2), 0, "crash")
    found: list[Crash] = []
    start, turn = _FIRST_MS, 0
    while start + DOWN_MS <= duration_ms - _LAST_MS:
        same = [node for node in range(nodes) if colour_of[node] == turn % COLOURS]
        chosen = same if together == QUARTER else [order[turn % len(order)]]
        found += [Crash(node=f"n{node}", at_ms=start, recover_ms=start + DOWN_MS) for node in chosen]
        start, turn = start + EVERY_MS, turn + 1
    return found


def publishers(nodes: int, seed: int) -> list[str]:
    return [f"n{node}" for node in sorted(shuffled(range(nodes), seed, "publisher")[:PUBLISHERS])]


def scenario(parameters: Row, rate_per_s: float, *, duration_ms: float, limited: bool, stormy: bool) -> Scenario:
    """One group of all nodes on a binary tree, publishers anywhere in it."""
    nodes, seed = cast("int", parameters["nodes"]), cast("int", parameters["seed"])
    faults: list[Fault] = list(crashes(nodes, duration_ms, str(parameters["together"]))) if stormy else []
    load = OpenLoad(
        rate_per_s=rate_per_s, arrival="regular", publishers=publishers(nodes, seed), payload_bytes=PAYLOAD
    )  # fmt: skip
    return Scenario(
        name="locamu-faults",
        protocol=str(parameters["protocol"]),
        options=_options(str(parameters["protocol"])),
        overlay=Tree(nodes=nodes),
        link=Link(latency_ms=LATENCY_MS),
        node=NodeCapacity(bandwidth_mbps=BANDWIDTH_MBPS, shared=True) if limited else NodeCapacity(),
        detector=Detector(delay_ms=DETECTOR_MS),
        workload=[load],
        fault=faults,
        duration_ms=duration_ms,
        drain_ms=DRAIN_MS,
        trace=Trace(record="app"),
        seed=seed,
    )


def _options(protocol: str) -> dict[str, Any]:
    # Delta-Neighbourhood forgets whom it skipped, unless its publishers wait for them.
    return {"waits": True} if protocol == "delta-neighbourhood" else {}
