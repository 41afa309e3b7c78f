"""Real-time order under random workloads: with answers and requests as edges the delivery orders have no cycle."""

from __future__ import annotations

from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

import pytest

from ordercast.core.chance import mix, salt
from ordercast.core.messages import Message
from ordercast.protocols import lookup
from ordercast.scenario.load import parse_scenario
from ordercast.scenario.model import Scenario
from ordercast.sim.links.host import Host
from ordercast.sim.links.packets import time_asked
from ordercast.sim.links.world import World
from ordercast.sim.run import live
from tests.support.seeds import fixed_and_todays

LIMIT = 80


def scenario(protocol: str, seed: int) -> Scenario:
    dice = salt(seed, "real-time")
    replicated = protocol.startswith("replicated")
    servers = 6 if replicated else 3 + mix(dice, 1) % 4
    crashes = [{"kind": "crash", "node": node, "at_ms": 40 + mix(dice, 2) % 100} for node in ("n0", "n4")]
    return parse_scenario(
        {
            "name": "real-time",
            "overlay": {"kind": "servers", "nodes": servers, "clients": 5},
            "duration_ms": 20_000.0,
            "detector": {"delay_ms": 20.0},
            "link": {"latency_ms": {"kind": "exponential", "min_ms": 0.1, "mean_ms": 5.0}},
            "workload": [
                {
                    "kind": "closed",
                    "publishers": "clients",
                    "until": "completed",
                    "think_ms": 0.5,
                    "limit": LIMIT,
                    "to": {"kind": "random", "count": 2},
                },
                {
                    "kind": "closed",
                    "publishers": ["c0", "c1"],
                    "until": "completed",
                    "think_ms": 0.5,
                    "limit": LIMIT,
                    "to": {"kind": "explicit", "sets": [["n0"], ["n0"], ["n0"], ["n1"]]},
                },
            ],
            "fault": crashes if replicated else [],
        }
    )


def keeps_real_time(protocol: str, seed: int) -> bool:
    """Whether one order of all messages agrees with every server and with every client's watch."""
    world = World(scenario(protocol, seed), lookup(protocol), seed, None)
    orders: defaultdict[str, list[str]] = defaultdict(list)
    asked: dict[str, int] = {}
    completed: dict[str, int] = {}

    def delivered(host: Host, message: Message) -> None:
        orders[host.node].append(message.id)
        asked[message.id] = time_asked(message) or 0

    world.delivery_watchers.append(delivered)
    world.completion_watchers.append(lambda _host, message: completed.setdefault(message, world.clock.now))
    live(world)
    assert len(completed) == 2 * LIMIT
    graph: TopologicalSorter[Any] = TopologicalSorter()
    for order in orders.values():
        for earlier, later in pairwise(order):
            graph.add(later, earlier)
    moments = sorted({*asked.values(), *completed.values()})
    for earlier_ns, later_ns in pairwise(moments):
        graph.add(("after", later_ns), ("after", earlier_ns))
    for message, time in completed.items():
        graph.add(("after", time), message)
    for message, time in asked.items():
        past = max((moment for moment in moments if moment < time), default=None)
        if past is not None:
            graph.add(message, ("after", past))
    try:
        graph.prepare()
    except CycleError:
        return False
    return True


@pytest.mark.parametrize(
    "protocol",
    ["daisy-chain-real-time", "skeen-real-time", "delporte-fauconnier", "replicated-daisy-chain-real-time"],
)
def test_what_follows_an_answer_is_ordered_after_what_was_answered(protocol: str) -> None:
    assert [seed for seed in fixed_and_todays(24, 6) if not keeps_real_time(protocol, seed)] == []


@pytest.mark.parametrize("protocol", ["daisy-chain", "skeen", "replicated-daisy-chain"])
def test_the_plain_protocols_do_not_keep_it(protocol: str) -> None:
    assert not all(keeps_real_time(protocol, seed) for seed in range(60))
