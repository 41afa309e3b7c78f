"""A swarm of small random LoCaMu runs in the simulator, judged every time.

    python -m tests.properties.locamu_swarm --seeds 1000 --f 2

Lines, binary, random, comb and zig-zag trees; overlapping groups; links that lose, double and reorder; crashes with
recovery, partitions, pauses, false suspicions, and nodes that stay down within the fault assumption (LCM-P4), from the
beginning or from some time on.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ordercast.core.ids import NodeId
from ordercast.core.machine import Machine, Place
from ordercast.core.registry import ProtocolInfo
from ordercast.overlay.extended import Routes
from ordercast.overlay.graphs import Graph, build_graph
from ordercast.protocols import lookup
from ordercast.protocols.locamu.node import Locamu
from ordercast.scenario.load import parse_scenario
from ordercast.scenario.model import Crash, Scenario
from ordercast.sim import simulate
from ordercast.verify.verdict import UNDECIDED, Verdict
from tests.properties.swarm import Dice, drawn_groups, drawn_link, drawn_workload, passing_fault
from tests.support.swarm_command import Family, judged, run_seeds, swarm_parser

_PUSH_MS = (0, 2, 10)
"""In turn: names that go on at once, and in smaller and larger bundles."""
DURATION_MS = 800
_CHECKS = ("integrity", "agreement", "fifo", "causal")


def drawn_options(dice: Dice, seed: int, f: int) -> dict[str, Any]:
    return {
        "f": f,
        "delta": dice.chance(0.5),
        "ack_ms": dice.pick([20, 50, 100]),
        "push_ms": _PUSH_MS[seed % 3],
        "check": True,
    }


def swarm_scenario(seed: int, f: int) -> Scenario:
    """The scenario that belongs to the seed."""
    dice = Dice(seed, "locamu", f)
    overlay = _overlay(dice, f)
    graph = build_graph(parse_scenario({"name": "", "overlay": overlay, "workload": []}).overlay, seed)
    overlay = {"kind": "edges", "edges": [list(edge) for edge in graph.edges], "tree": True}
    raw = {
        "name": f"locamu-swarm-{f}-{seed}",
        "overlay": overlay,
        "protocol": "locamu",
        "options": drawn_options(dice, seed, f),
        "duration_ms": DURATION_MS,
        "groups": drawn_groups(dice, graph, everyone=0.3),
        "link": drawn_link(dice, fifo=0.3, duplicate=[0, 0, 0.05, 0.2]),
        "detector": {"delay_ms": dice.pick([1, 20, 100])},
        "workload": drawn_workload(dice, rates_per_s=[20, 60], burst=2, limit=40),
        "fault": _faults(dice, graph, f),
        "trace": {"record": "app"},
    }
    _fall_later(raw, graph, Dice(seed, "locamu, later", f))
    return parse_scenario(raw)


def _fall_later(raw: dict[str, Any], graph: Graph, dice: Dice) -> None:
    """Let nodes that stay down pass messages on for a while.

    They have no messages of their own, and all that they pass on arrives: others would wait for what only they know.
    So nothing is lost on links, and nobody is suspected wrongly; but links reorder as they did.
    """
    standing = [fault for fault in raw["fault"] if fault["kind"] == "crash" and "recover_ms" not in fault]
    if not standing or dice.chance(0.3):
        return
    raw["link"]["loss"] = 0
    if dice.chance(0.5):  # More of them are on their way, in any order, when the node falls.
        raw["link"] |= {"latency_ms": {"kind": "uniform", "low_ms": 1, "high_ms": 100}, "fifo": False}
        raw["workload"].append({"kind": "open", "rate_per_s": 120, "topics": "any", "payload_bytes": 16, "limit": 60})
    raw["fault"] = standing
    for fault in standing:
        fault |= {"at_ms": dice.between(0, DURATION_MS * 0.7), "survive": "all"}
    others = [node for node in graph.nodes if node not in {fault["node"] for fault in standing}]
    groups = raw["groups"]
    members = groups.get("members") or {f"t{i}": others for i in range(groups["topics"])}
    kept = {topic: [node for node in nodes if node in others] or others[:1] for topic, nodes in members.items()}
    raw["groups"] = {"kind": "explicit", "members": kept}
    for load in raw["workload"]:
        load["publishers"] = others


def _overlay(dice: Dice, f: int) -> dict[str, Any]:
    nodes = max(5, f + 3) + dice.below(6)
    kind = dice.pick(["line", "tree", "random-tree", "comb", "zigzag"])
    if kind in {"line", "tree"}:
        return {"kind": kind, "nodes": max(nodes, 7)}
    if kind == "random-tree":
        return {"kind": kind, "nodes": nodes + 2, "degree": 3}
    trunk = 6 if kind == "zigzag" else 4 + dice.below(3)
    edges = [[f"n{i}", f"n{i + 1}"] for i in range(trunk - 1)]
    edges += [[f"n{i}", f"t{i}"] for i in range(trunk)]
    if kind == "zigzag":
        edges.append(["n0", "u0"])
    return {"kind": "edges", "edges": edges}


def _faults(dice: Dice, graph: Graph, f: int) -> list[dict[str, Any]]:
    faults: list[dict[str, Any]] = []
    standing = _standing(dice, graph, f) if dice.chance(0.25) else []
    faults += [{"kind": "crash", "node": node, "at_ms": 0.0} for node in standing]
    others = [node for node in graph.nodes if node not in standing]
    if not standing:
        for node in dice.sample(others, dice.below(3)):
            start = dice.between(0, DURATION_MS * 0.6)
            survive = dice.pick(["all", "none", "random"])
            end = start + dice.between(1, DURATION_MS * 0.3)
            faults.append({"kind": "crash", "node": node, "at_ms": start, "recover_ms": end, "survive": survive})
    for _ in range(dice.below(6)):
        start = dice.between(0, DURATION_MS * 0.7)
        times = {"at_ms": start, "until_ms": start + dice.between(1, DURATION_MS * 0.3)}
        node = dice.pick(others)
        kind = dice.pick(["pause", "suspicion", "suspicion by one", "suspicion by one", "partition"])
        faults.append(passing_fault(kind, dice, graph, node, times))
    firsts = {(fault["kind"], str(fault.get("node")), fault["at_ms"]): fault for fault in faults}
    return _without_overlaps(list(firsts.values()))


def _without_overlaps(faults: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One node cannot pause twice at a time."""
    kept: list[dict[str, Any]] = []
    paused: set[str] = set()
    for fault in faults:
        if fault["kind"] == "pause":
            if fault["node"] in paused:
                continue
            paused.add(fault["node"])
        kept.append(fault)
    return kept


def _standing(dice: Dice, graph: Graph, f: int) -> list[str]:
    """Nodes that are down from the start, at most f on every path of 2f + 1."""
    routes = Routes(graph, None)
    down: list[str] = []
    for node in dice.sample(graph.nodes, 1 + dice.below(3)):
        near = [other for other in down if routes.distance(routes.rank[other], routes.rank[node]) <= 2 * f]  # type: ignore[index]
        if len(near) < f and len(down) < len(graph.nodes) - 2:
            down.append(node)
    return down if f == 1 or len(down) <= 1 else down[:1]


def judge_seed(protocol: ProtocolInfo, seed: int, f: int, out: Path) -> Verdict:
    """The verdict; without agreement where whoever is blocked waits for what only the fallen know (LCM-P4)."""
    from ordercast.verify.judge import judge_path  # Late: it compiles kernels, which who only simulates can do without.

    scenario = swarm_scenario(seed, f)
    machines: dict[NodeId, Locamu] = {}
    simulate(scenario, noted(protocol, machines), seed=seed, out=out)
    (verdict,) = judge_path(out)
    fallen = {fault.node for fault in scenario.fault if isinstance(fault, Crash) and fault.recover_ms is None}
    if verdict.exit_code() == UNDECIDED and only_the_fallen_know(machines, fallen):
        (verdict,) = judge_path(out, checks=[check for check in _CHECKS if check != "agreement"])
    return verdict


def noted(protocol: ProtocolInfo, machines: dict[NodeId, Locamu]) -> ProtocolInfo:
    """The same; its machines are there to be looked at, of each node the last one."""

    def build(place: Place, options: Any) -> Machine:
        machine = protocol.build(place, options)
        assert isinstance(machine, Locamu)
        machines[place.node] = machine
        return machine

    return msgspec.structs.replace(protocol, build=build)


def only_the_fallen_know(machines: dict[NodeId, Locamu], fallen: set[NodeId]) -> bool:
    """Whether everybody who lives and holds something back waits for a number that no living node knows.

    A forwarder says some numbers up to `push_ms` after others that presuppose them (LCM-M5), and may fall in between.
    """
    rank = next(iter(machines.values())).here.routes.rank
    known = {
        (shape.forwarder, numbered, number)
        for node, machine in machines.items()
        if node not in fallen
        for entry in machine.store.entries.values()
        for shape, numbers, _ in entry.vectors
        for numbered, number in zip(shape.nodes, numbers, strict=True)
    }
    blocked = [node for node, machine in machines.items() if node not in fallen and machine.held.copies]
    return bool(blocked) and all(
        any(
            (rank[forwarder], rank[node], number) not in known
            for forwarder in fallen
            for number in _missing(machines[node], rank[forwarder])
        )
        for node in blocked
    )


def _missing(machine: Locamu, forwarder: int) -> list[int]:
    """The numbers of the forwarder that what is held back waits for."""
    processed = machine.processed
    last = max(
        (number for copy in machine.held.copies.values() for who, number in copy.wants if who == forwarder), default=0
    )
    beyond = processed.sparse.get(forwarder, set())
    return [number for number in range(processed.prefix.get(forwarder, 0) + 1, last + 1) if number not in beyond]


def main() -> int:
    parser = swarm_parser(__doc__)
    parser.add_argument("--f", type=int, default=1)
    parser.add_argument("--protocol", default="locamu")
    arguments = parser.parse_args()
    protocol, f = lookup(arguments.protocol), arguments.f

    def attempt(seed: int, out: Path) -> tuple[str, Counter[str]]:
        return judged(judge_seed(protocol, seed, f, out))

    again = f"--f {f} --protocol {arguments.protocol}"
    return run_seeds(arguments, [Family(f"{protocol.name}, f = {f}", attempt, partial(swarm_scenario, f=f), again)])


if __name__ == "__main__":
    sys.exit(main())
