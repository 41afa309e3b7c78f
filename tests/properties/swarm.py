"""A swarm of small random runs: any overlay, any faults that the protocol says it survives, judged every time.

    python -m tests.properties.swarm --seeds 1000 --protocol fifo

A seed is a whole run: overlay, links, faults, workload and every draw in it. A failing one prints its verdict, the
scenario as TOML and the command that runs it again.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ordercast.core.chance import mix, salt, unit
from ordercast.core.registry import ProtocolInfo
from ordercast.overlay.graphs import Graph, build_graph
from ordercast.protocols import lookup
from ordercast.scenario.load import parse_scenario
from ordercast.scenario.model import Scenario
from ordercast.sim import simulate
from ordercast.verify.verdict import Verdict
from tests.support.swarm_command import Family, judged, run_seeds, swarm_parser

PROTOCOLS = ("fifo", "flood", "sequencer", "vector")
DURATION_MS = 800


class Dice:
    """Draws in a row from one seed."""

    def __init__(self, seed: int, *identity: object) -> None:
        self._salt = salt(seed, "swarm", *identity)
        self._drawn = 0

    def below(self, limit: int) -> int:
        self._drawn += 1
        return mix(self._salt, self._drawn) % limit

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.below(len(options))]

    def chance(self, share: float) -> bool:
        self._drawn += 1
        return unit(mix(self._salt, self._drawn)) < share

    def between(self, low: float, high: float) -> float:
        self._drawn += 1
        return round(low + (high - low) * unit(mix(self._salt, self._drawn)), 3)

    def sample(self, options: Iterable[str], most: int) -> list[str]:
        left, chosen = list(options), []
        while left and len(chosen) < most:
            chosen.append(left.pop(self.below(len(left))))
        return chosen


def swarm_scenario(protocol: ProtocolInfo, seed: int) -> Scenario:
    """The scenario that belongs to the seed, with no fault beyond what the protocol says it survives."""
    dice = Dice(seed, protocol.name)
    overlay = _overlay(dice)
    graph = build_graph(parse_scenario({"name": "", "overlay": overlay, "workload": []}).overlay, seed)
    options = _options(dice, protocol, graph)
    return parse_scenario(
        {
            "name": f"swarm-{seed}",
            "overlay": overlay,
            "protocol": protocol.name,
            "options": options,
            "duration_ms": DURATION_MS,
            "groups": _groups(dice, graph),
            "link": _link(dice),
            "detector": {"delay_ms": dice.pick([1, 20, 100, 300])},
            "workload": _workload(dice, graph),
            "fault": _faults(dice, protocol, graph, options),
            "trace": {"record": "app"},
        }
    )


def _overlay(dice: Dice) -> dict[str, Any]:
    kind = dice.pick(["clique", "line", "ring", "star", "tree", "random-tree", "regular"])
    nodes = 2 + dice.below(7)
    if kind == "regular":
        return {"kind": kind, "nodes": max(4, nodes) // 2 * 2, "degree": 3}
    return {"kind": kind, "nodes": nodes}


def _options(dice: Dice, protocol: ProtocolInfo, graph: Graph) -> dict[str, Any]:
    options: dict[str, Any] = {
        "f": dice.pick([0, 1, 1, 2]),
        "ack_ms": dice.pick([1, 20, 100]),
        "retransmit_ms": dice.pick([30, 200]),
    }
    if protocol.name == "sequencer":
        options |= {"sequencer": dice.pick(graph.nodes), "batch_ms": dice.pick([0, 0, 10])}
    return options


def _groups(dice: Dice, graph: Graph) -> dict[str, Any]:
    if dice.chance(0.4):
        return {"kind": "everyone", "topics": 1 + dice.below(3)}
    members = {f"t{i}": dice.sample(graph.nodes, 1 + dice.below(len(graph.nodes))) for i in range(3)}
    return {"kind": "explicit", "members": members}


def _link(dice: Dice) -> dict[str, Any]:
    latency: Any = dice.pick(
        [
            5.0,
            {"kind": "uniform", "low_ms": 1, "high_ms": 60},
            {"kind": "exponential", "mean_ms": 20},
            {"kind": "lognormal", "median_ms": 5, "sigma": 1.5},
        ]
    )
    return {
        "latency_ms": latency,
        "fifo": dice.chance(0.3),
        "loss": dice.pick([0, 0, 0.05, 0.3]),
        "duplicate": dice.pick([0, 0, 0.05, 0.3]),
    }


def _workload(dice: Dice, graph: Graph) -> list[dict[str, Any]]:
    common = {"topics": "any", "keys": dice.pick([0, 3]), "payload_bytes": 8, "limit": 60}
    loads: list[dict[str, Any]] = [
        dice.pick(
            [
                {"kind": "open", "rate_per_s": dice.pick([30, 100]), **common},
                {"kind": "burst", "size": 3, "every_ms": 150, **common},
                {"kind": "closed", "outstanding": 2, "until": "self", "think_ms": 20, **common},
            ]
        )
    ]
    if dice.chance(0.7):
        loads.append({"kind": "reply", "probability": 0.3, "delay_ms": dice.pick([0, 10]), **common})
    if dice.chance(0.4):
        loads.append({"kind": "schedule", "steps": [_membership_step(dice, graph) for _ in range(4)]})
    return loads


def _membership_step(dice: Dice, graph: Graph) -> dict[str, Any]:
    return {
        "node": dice.pick(graph.nodes),
        "do": dice.pick(["subscribe", "unsubscribe"]),
        "topic": "t0",
        "at_ms": dice.between(0, DURATION_MS),
    }


def _faults(dice: Dice, protocol: ProtocolInfo, graph: Graph, options: dict[str, Any]) -> list[dict[str, Any]]:
    passing = [_passing_fault(dice, graph) for _ in range(dice.below(4))]
    # Two faults of one kind at one node must not overlap; the second gives way.
    firsts = {(fault["kind"], str(fault.get("node", i))): fault for i, fault in reversed(list(enumerate(passing)))}
    faults = list(firsts.values())
    returning = dice.sample(graph.nodes, dice.below(3))
    for node in returning:
        start = dice.between(0, DURATION_MS * 0.7)
        faults.append(_crash(dice, node, start) | {"recover_ms": start + dice.between(1, DURATION_MS * 0.25)})
    most = min(options["f"], *map(len, graph.neighbours.values()))
    if any(fault["kind"] in {"crash", "partition", "suspicion"} for fault in faults):
        # Somebody will be suspected who is not gone for good: docs/protocols/flood.md, "Assumptions".
        most = min(most, int(len(graph.nodes) - 1 > options["f"]))
    victims = _victims(dice, graph, {*returning, str(options.get("sequencer"))}, most)
    return faults + [_final_crash(dice, protocol, node) for node in victims]


def _victims(dice: Dice, graph: Graph, spared: set[str], most: int) -> list[str]:
    """Nodes whose loss leaves the overlay connected."""
    victims: list[str] = []
    for node in dice.sample([node for node in graph.nodes if node not in spared], dice.below(most + 1)):
        rest = [other for other in graph.nodes if other not in {*victims, node}]
        if rest and len(graph.reachable(rest[0], without=[*victims, node])) == len(rest):  # type: ignore[list-item]
            victims.append(node)
    return victims


def _final_crash(dice: Dice, protocol: ProtocolInfo, node: str) -> dict[str, Any]:
    start = dice.between(0, DURATION_MS * 0.9)
    crash = _crash(dice, node, start)
    if protocol.readmits and dice.chance(0.6):
        crash |= {"state": "lost", "recover_ms": start + dice.between(1, DURATION_MS * 0.1)}
    return crash


def _crash(dice: Dice, node: str, start: float) -> dict[str, Any]:
    return {"kind": "crash", "node": node, "at_ms": start, "survive": dice.pick(["all", "none", "random"])}


def passing_fault(kind: str, dice: Dice, graph: Graph, node: str, times: dict[str, float]) -> dict[str, Any]:
    """A fault of this kind that is over at its end: of the node, or of a drawn part of the network."""
    match kind:
        case "pause":
            return {"kind": "pause", "node": node, **times}
        case "suspicion":
            return {"kind": "suspicion", "node": node, **times}
        case "partition":
            side = dice.sample(graph.nodes, 1 + dice.below(len(graph.nodes) - 1))
            return {"kind": "partition", "sides": [side, [n for n in graph.nodes if n not in side]], **times}
        case _:
            return {"kind": "suspicion", "node": node, "by": dice.pick(graph.neighbours[node]), **times}  # type: ignore[index]


def _passing_fault(dice: Dice, graph: Graph) -> dict[str, Any]:
    start = dice.between(0, DURATION_MS * 0.7)
    times = {"at_ms": start, "until_ms": start + dice.between(1, DURATION_MS * 0.3)}
    node = dice.pick(graph.nodes)
    match dice.pick(["pause", "slow", "partition", "suspicion", "one-way"]):
        case "pause":
            return {"kind": "pause", "node": node, **times}
        case "slow":
            return {"kind": "slow", "node": node, "extra_ms": 3, **times}
        case "suspicion":
            return {"kind": "suspicion", "node": node, **times}
        case kind:
            side = dice.sample(graph.nodes, 1 + dice.below(len(graph.nodes) - 1))
            other = [node for node in graph.nodes if node not in side]
            return {"kind": "partition", "sides": [side, other], "one_way": kind == "one-way", **times}


def drawn_groups(dice: Dice, graph: Graph, *, everyone: float) -> dict[str, Any]:
    """Everyone in every group, in that share of the runs, or a few groups of anybody."""
    if dice.chance(everyone):
        return {"kind": "everyone", "topics": 1 + dice.below(2)}
    members = {f"t{i}": dice.sample(graph.nodes, 1 + dice.below(len(graph.nodes))) for i in range(2 + dice.below(3))}
    return {"kind": "explicit", "members": members}


def drawn_link(dice: Dice, *, fifo: float, duplicate: Sequence[float]) -> dict[str, Any]:
    latency: Any = dice.pick(
        [5.0, {"kind": "uniform", "low_ms": 1, "high_ms": 60}, {"kind": "exponential", "mean_ms": 20}]
    )
    return {
        "latency_ms": latency,
        "fifo": dice.chance(fifo),
        "loss": dice.pick([0, 0, 0.05, 0.2]),
        "duplicate": dice.pick(duplicate),
    }


def drawn_workload(dice: Dice, *, rates_per_s: Sequence[float], burst: int, limit: int) -> list[dict[str, Any]]:
    """A steady load or bursts, and mostly replies to it."""
    common = {"topics": "any", "payload_bytes": 16, "limit": limit}
    loads: list[dict[str, Any]] = [
        dice.pick(
            [
                {"kind": "open", "rate_per_s": dice.pick(rates_per_s), **common},
                {"kind": "burst", "size": burst, "every_ms": 200, **common},
            ]
        )
    ]
    if dice.chance(0.8):
        loads.append({"kind": "reply", "probability": 0.4, "delay_ms": dice.pick([0, 10]), **common})
    return loads


def judge_seed(protocol: ProtocolInfo, seed: int, out: Path) -> Verdict:
    """Run the seed and judge what it left behind."""
    from ordercast.verify.judge import judge_path  # Late: it compiles kernels, which who only simulates can do without.

    simulate(swarm_scenario(protocol, seed), protocol, seed=seed, out=out)
    (verdict,) = judge_path(out)
    return verdict


def main() -> int:
    """Run seeds of every protocol; 0 if none fails."""
    arguments = swarm_parser(__doc__, PROTOCOLS).parse_args()
    return run_seeds(arguments, [_family(lookup(name), name) for name in arguments.protocol or PROTOCOLS])


def _family(protocol: ProtocolInfo, name: str) -> Family:
    def attempt(seed: int, out: Path) -> tuple[str, Counter[str]]:
        return judged(judge_seed(protocol, seed, out))

    return Family(name, attempt, partial(swarm_scenario, protocol), f"--protocol {name}")


if __name__ == "__main__":
    sys.exit(main())
