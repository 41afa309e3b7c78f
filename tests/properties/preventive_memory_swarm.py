"""A swarm of small runs of the preventive broadcast that remembers links and no vector.

    python -m tests.properties.preventive_memory_swarm --seeds 1000

Processes join, leave and crash, links come and go all the time, connections break. Every decision whether a message is
a copy is compared with a vector that only the test keeps, the invariants are looked at after every event, and the judge
looks for a broken order or a message that was delivered twice. Whoever is cut off begins anew, and takes along what it
alone had; a network that has parted into pieces stays parted (PRV-9.3). So agreement is asked for only where nothing
failed and the safe links connect all at the end; `parted` counts the runs where they do not.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from ordercast.protocols.preventive.remembering import Remembering
from ordercast.scenario.load import parse_scenario
from ordercast.scenario.model import Scenario
from ordercast.sim.overlays.run import KIND
from ordercast.sim.overlays.world import OverlayWorld
from ordercast.sim.run import recorded
from ordercast.verify.verdict import FAIL, Verdict
from tests.properties.preventive_swarm import (
    DURATION_MS,
    MOST,
    _graph,
    _joins,
    _leaves,
    _workload,
    is_connected,
    live,
    protocol,
)
from tests.properties.swarm import Dice
from tests.support.remembering_lab import Watched
from tests.support.swarm_command import Family, run_seeds, swarm_parser


def memory_scenario(seed: int) -> Scenario:
    """The scenario that belongs to the seed; every fourth has links that stay as they are."""
    dice = Dice(seed, "preventive-memory")
    static = seed % 4 == 0
    nodes = [f"n{i}" for i in range(3 + dice.below(MOST - 2))]
    later = {} if static else {node: dice.between(1, DURATION_MS * 0.6) for node in nodes[2:] if dice.chance(0.3)}
    edges = _graph(dice, nodes, later)
    options = _options(dice, static)
    faults = [] if static or dice.chance(0.3) else _faults(dice, nodes, later)
    return parse_scenario(
        {
            "name": f"preventive-memory-{seed}",
            "overlay": {"kind": "edges", "edges": edges},
            "protocol": "preventive",
            "options": options,
            "duration_ms": DURATION_MS,
            "link": {"latency_ms": dice.pick([5.0, 20.0, {"kind": "uniform", "low_ms": 1, "high_ms": 60}])},
            "detector": {"delay_ms": dice.pick([1, 20, 100])},
            "workload": _workload(dice, nodes),
            "fault": [*_joins(later), *faults],
            "trace": {"record": "app"},
        }
    )


def _options(dice: Dice, static: bool) -> dict[str, Any]:
    return {
        "memory": "counting" if static else "links",
        "sampling": "fixed" if static else "restless",
        "skip_sender": False,
        "fallback": "hint",
        "max_buffer": dice.pick([2, 8, 1024]),
        "max_attempts": dice.pick([2, 4]),
        "ack_ms": dice.pick([260, 1000]),
        "hold_ms": dice.pick([50, 500]),
        "join_ms": 300,
        "leave_ms": 20_000,
        "retry_ms": dice.pick([20, 50]),
        "log_keep": 4096 if static else dice.pick([0, 8, 64, 4096]),
    }


def _faults(dice: Dice, nodes: list[str], later: dict[str, float]) -> list[dict[str, Any]]:
    faults = _leaves(dice, nodes, later)
    for node in dice.sample(nodes[1:], dice.below(3)):
        start = dice.between(later.get(node, 0), DURATION_MS * 0.8) + 0.1
        crash = {"kind": "crash", "node": node, "at_ms": start, "survive": dice.pick(["all", "none", "random"])}
        if dice.chance(0.7):
            crash |= {"recover_ms": start + dice.between(1, DURATION_MS * 0.15), "state": dice.pick(["kept", "lost"])}
        faults.append(crash)
    for _ in range(dice.below(4)):
        one, other = dice.sample(nodes, 2)
        faults.append({"kind": "cut", "between": [one, other], "at_ms": dice.between(0, DURATION_MS)})
    return faults


def _live(world: OverlayWorld, counts: Counter[str]) -> tuple[int, bool]:
    """Then, where nothing failed and all is connected: nothing is remembered any more."""
    told: Counter[str] = Counter()
    events, at_rest = live(world, told)
    told["parted"] += not is_connected(world)
    machines = [node.machine for node in world.nodes.values() if node.alive]
    remembered = sum(machine.broadcast.memory.entries for machine in machines if isinstance(machine, Remembering))
    if not world.scenario.fault and at_rest and not told["failed_links"]:
        assert not remembered, f"{remembered} messages are remembered at rest"
        told["empty_memories"] += len(machines)
    counts += told
    return events, at_rest


def judge_memory_seed(
    seed: int, out: Path, machine: type[Remembering] = Watched, counts: Counter[str] | None = None
) -> Verdict:
    """Run and judge; raises what the comparison and the invariants find wrong."""
    from ordercast.verify.judge import judge_path  # Late: it compiles kernels.

    kind = KIND._replace(live=partial(_live, counts=counts if counts is not None else Counter()))
    recorded(kind, memory_scenario(seed), protocol(seed, machine), seed, out, packets=False)
    (verdict,) = judge_path(out)
    return verdict


def broken(verdict: Verdict, seed: int, counts: Counter[str]) -> list[str]:
    """The checks that failed; agreement counts only where nobody was cut off."""
    excused = {"agreement"} if memory_scenario(seed).fault or counts["parted"] else set()
    return [result.check for result in verdict.results if result.verdict == FAIL and result.check not in excused]


def main() -> int:
    def attempt(seed: int, out: Path) -> tuple[str, Counter[str]]:
        counts: Counter[str] = Counter()
        wrong = broken(judge_memory_seed(seed, out, counts=counts), seed, counts)
        return ", ".join(wrong), counts

    return run_seeds(swarm_parser(__doc__).parse_args(), [Family("memory", attempt, memory_scenario)])


if __name__ == "__main__":
    sys.exit(main())
