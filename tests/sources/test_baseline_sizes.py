"""Mean header bytes of the baselines by the source's count, against those of an independent prototype.

In a binary tree of 511 nodes with links of 1 ms, publishers publish every 10 ms, from random times on. Larger points
take minutes: python benchmarks/baselines.py.
"""

from __future__ import annotations

import pytest

from ordercast.core.chance import mix, salt, unit
from ordercast.protocols import lookup
from ordercast.scenario.load import parse_scenario
from ordercast.sim.clock import ns
from ordercast.sim.links.world import World
from ordercast.sim.workload import start_workload

NODES = 511
GAP_MS = 10
WARM_UP_MS, END_MS = 60, 90


def world_of(protocol: str, publishers: int, seed: int) -> World:
    salted = salt(seed, "sizes")
    chosen = sorted(range(NODES), key=lambda node: mix(salted, node))[:publishers]
    loads = [
        {
            "kind": "open",
            "publishers": [f"n{node}"],
            "rate_per_s": 1000 / GAP_MS,
            "arrival": "regular",
            "start_ms": GAP_MS * unit(mix(salted, node, 1)),
        }
        for node in chosen
    ]
    scenario = {"name": "sizes", "overlay": {"kind": "tree", "nodes": NODES}, "link": {"latency_ms": 1.0}}
    return World(
        parse_scenario({**scenario, "options": {"tally": True}, "workload": loads}), lookup(protocol), seed, None
    )


def mean_header_bytes(protocol: str, publishers: int, seed: int) -> float:
    world = world_of(protocol, publishers, seed)
    start_workload(world)
    counts = []
    for end in (WARM_UP_MS, END_MS):
        world.clock.run_until(ns(end))
        tallies = [host.machine.tally for host in world.hosts.values()]  # type: ignore[attr-defined]
        counts.append((sum(tally.copies for tally in tallies), sum(tally.header_bytes for tally in tallies)))
    (copies_before, bytes_before), (copies, header_bytes) = counts
    return float((header_bytes - bytes_before) / (copies - copies_before))


@pytest.mark.parametrize(
    ("protocol", "publishers", "prototype"),
    [("cbcast", 1, 12), ("cbcast", 5, 29), ("causal-barriers", 1, 8176), ("causal-barriers", 5, 24_528)],
)
def test_headers_are_as_large_as_those_of_the_prototype(protocol: str, publishers: int, prototype: float) -> None:
    seeds = (1, 2) if (protocol, publishers) == ("cbcast", 5) else (1,)
    mean = sum(mean_header_bytes(protocol, publishers, seed) for seed in seeds) / len(seeds)
    assert mean == pytest.approx(prototype, rel=0.1)


def test_the_list_of_delta_neighbourhood_is_full_almost_everywhere() -> None:
    """Eight bytes for each of 2f + 1 nodes; next to the publisher there are fewer."""
    assert 23 < mean_header_bytes("delta-neighbourhood", 5, 1) <= 24
