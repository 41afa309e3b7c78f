"""A swarm of small random runs of the baselines on trees, judged every time.

    python -m tests.properties.baseline_swarm --seeds 1000 --protocol cbcast

Lines, binary and random trees; overlapping groups, with publishers that are members of none; links that lose, double
and reorder; crashes with recovery, partitions, pauses and false suspicions, as far as a protocol says it survives.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from ordercast.core.registry import ProtocolInfo
from ordercast.overlay.extended import Routes
from ordercast.overlay.graphs import Graph, build_graph
from ordercast.protocols import lookup
from ordercast.scenario.load import parse_scenario
from ordercast.scenario.model import Scenario
from ordercast.sim import simulate
from ordercast.verify.verdict import Verdict
from tests.properties.swarm import Dice, drawn_groups, drawn_link, drawn_workload, passing_fault
from tests.support.swarm_command import Family, judged, run_seeds, swarm_parser

DURATION_MS = 800
UNNOTICED_MS = 2 * DURATION_MS
"""The delay of a detector that suspects nobody before the end of the run."""
BASELINES = ("cbcast", "causal-barriers", "delta-neighbourhood")


def baseline_scenario(protocol: str, seed: int) -> Scenario:
    """The scenario that belongs to the seed."""
    dice = Dice(seed, "baseline", protocol)
    overlay = {"kind": dice.pick(["line", "tree", "random-tree"]), "nodes": 5 + dice.below(6)}
    graph = build_graph(parse_scenario({"name": "", "overlay": overlay, "workload": []}).overlay, seed)
    options, quiet = _options(dice, protocol)
    if "f" in options:
        options["f"] = min(options["f"], Routes(graph, None).diameter() - 1)
    faults = [fault for fault in _faults(dice, graph) if not (quiet and fault["kind"] in {"suspicion", "partition"})]
    return parse_scenario(
        {
            "name": f"{protocol}-swarm-{seed}",
            "overlay": overlay,
            "protocol": protocol,
            "options": options,
            "duration_ms": DURATION_MS,
            "groups": drawn_groups(dice, graph, everyone=0.2),
            "link": drawn_link(dice, fifo=0.2, duplicate=[0, 0.05, 0.2]),
            "detector": {"delay_ms": UNNOTICED_MS if quiet else dice.pick([1, 20, 100])},
            "workload": drawn_workload(dice, rates_per_s=[30, 80], burst=3, limit=50),
            "fault": faults,
            "trace": {"record": "app"},
        }
    )


def _options(dice: Dice, protocol: str) -> tuple[dict[str, Any], bool]:
    """Settings, and whether nobody may be suspected in the run."""
    options: dict[str, Any] = {"retransmit_ms": dice.pick([30, 100])}
    if protocol == "cbcast":
        return options | {"delta": dice.chance(0.5), "ack_ms": dice.pick([1, 20])}, False
    if protocol == "causal-barriers":
        return options | {"prune": dice.chance(0.5), "ack_ms": dice.pick([1, 20])}, False
    waits = dice.chance(0.6)
    return options | {"f": dice.pick([0, 1, 1, 2]), "waits": waits}, not waits


def _faults(dice: Dice, graph: Graph) -> list[dict[str, Any]]:
    faults: list[dict[str, Any]] = []
    for node in dice.sample(graph.nodes, dice.below(4)):
        start = dice.between(0, DURATION_MS * 0.6)
        end = start + dice.between(1, DURATION_MS * 0.3)
        survive = dice.pick(["all", "none", "random"])
        faults.append({"kind": "crash", "node": node, "at_ms": start, "recover_ms": end, "survive": survive})
    for node in dice.sample(graph.nodes, dice.below(5)):
        start = dice.between(0, DURATION_MS * 0.7)
        times = {"at_ms": start, "until_ms": start + dice.between(1, DURATION_MS * 0.3)}
        kind = dice.pick(["pause", "suspicion", "suspicion by one", "partition"])
        faults.append(passing_fault(kind, dice, graph, node, times))
    return faults


def judge_seed(protocol: ProtocolInfo, seed: int, out: Path, *, name: str | None = None) -> Verdict:
    """Run the seed and judge what it left behind; `name` is the protocol whose scenarios a variant is put through."""
    from ordercast.verify.judge import judge_path  # Late: it compiles kernels, which who only simulates can do without.

    simulate(baseline_scenario(name or protocol.name, seed), protocol, seed=seed, out=out)
    (verdict,) = judge_path(out)
    return verdict


def main() -> int:
    arguments = swarm_parser(__doc__, BASELINES).parse_args()
    return run_seeds(arguments, [_family(name) for name in arguments.protocol or BASELINES])


def _family(name: str) -> Family:
    def attempt(seed: int, out: Path) -> tuple[str, Counter[str]]:
        return judged(judge_seed(lookup(name), seed, out))

    return Family(name, attempt, partial(baseline_scenario, name), f"--protocol {name}")


if __name__ == "__main__":
    sys.exit(main())
