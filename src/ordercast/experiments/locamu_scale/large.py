"""Thousands of nodes and real messages: what a copy costs in bytes and in time, and what a node costs in memory."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from typing import Any, cast

import msgspec

from ordercast.core.chance import shuffled
from ordercast.core.errors import InvariantError
from ordercast.experiments.kit.study import Row
from ordercast.scenario.model import Everyone, Link, OpenLoad, Scenario, Subtrees, Trace, Tree

ONE, SUBTREES = "one", "subtrees"
PUBLISHERS = 8
MESSAGES = 32
_RATE_PER_S = 100.0
_PAYLOAD = 32
_LATENCY_MS = 1.0
_FLOODED_UP_TO = 2_047
"""Nodes of a run of flood, where every node knows every other one."""


def _configuration(protocol: str, nodes: int, groups: str) -> Row:
    return {"protocol": protocol, "nodes": nodes, "groups": groups, "messages": MESSAGES, "seed": 0}


def _scale(sizes: tuple[int, ...]) -> list[Row]:
    rows = [_configuration("locamu", nodes, groups) for nodes in sizes for groups in (ONE, SUBTREES)]
    return rows + [_configuration("flood", nodes, ONE) for nodes in sizes if nodes <= _FLOODED_UP_TO]


SCALES = {
    "quick": _scale((127, 511, 2_047)),
    "paper": _scale((127, 511, 2_047, 8_191, 16_384)),
}


def measure(parameters: Row) -> Row:
    """In a process of its own: its memory is that of this configuration, and nothing else's."""
    command = [sys.executable, "-m", "ordercast.experiments.locamu_scale.large_process"]
    done = subprocess.run(command, input=msgspec.json.encode(parameters), capture_output=True, check=False)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise InvariantError(f"the process of {parameters['nodes']} nodes failed: {last[0]}")
    return msgspec.json.decode(done.stdout, type=Row)


def weigh(parameters: Row) -> float:
    """Hops."""
    share = 1.0 if parameters["groups"] == ONE else 0.2
    return share * cast("int", parameters["nodes"]) * (3.0 if parameters["protocol"] == "locamu" else 1.0)


def scenario(parameters: Row, *, tally: bool) -> Scenario:
    """Publishers anywhere in a binary tree take turns; groups are everyone, or everyone below an interior node."""
    nodes, messages, seed = (cast("int", parameters[name]) for name in ("nodes", "messages", "seed"))
    options: dict[str, Any] = {"tally": tally} if parameters["protocol"] == "locamu" else {}
    return Scenario(
        name="locamu-scale",
        protocol=str(parameters["protocol"]),
        options=options,
        overlay=Tree(nodes=nodes),
        groups=Subtrees() if parameters["groups"] == SUBTREES else Everyone(),
        link=Link(latency_ms=_LATENCY_MS),
        workload=[
            OpenLoad(
                rate_per_s=_RATE_PER_S,
                arrival="regular",
                publishers=_publishers(nodes, seed),
                payload_bytes=_PAYLOAD,
                limit=messages,
            )
        ],
        duration_ms=1_000.0 * messages / _RATE_PER_S,
        trace=Trace(record="app"),
        seed=seed,
    )


def _publishers(nodes: int, seed: int) -> list[str]:
    """One from each eighth of the nodes in the order of their depth: near the root and far from it."""
    bounds = [nodes * i // PUBLISHERS for i in range(PUBLISHERS + 1)]
    return [f"n{shuffled(range(low, high), seed, 'publisher')[0]}" for low, high in pairwise(bounds)]
