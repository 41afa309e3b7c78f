"""A swarm of small random clusters, watched after every step and judged at the end.

    python -m tests.properties.cluster_swarm --seeds 1000

Datagrams that are lost, doubled and overtaken, slow links, crashes with and without memory, pauses, partitions, joins,
leaves; entries that change hands, managers that die and forget; observers that begin and end to keep the order; buffers
of a few places. Whatever is drawn: never out of causal order, never twice, nothing held for too long, never two makers
of one epoch.
"""

from __future__ import annotations

import signal
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ordercast.core.registry import ProtocolInfo
from ordercast.protocols import lookup
from ordercast.protocols.cluster.machine import ClusterMachine
from ordercast.scenario.load import parse_scenario
from ordercast.scenario.model import Pause, Scenario
from ordercast.sim.clock import ns
from ordercast.sim.overlays.run import KIND, live
from ordercast.sim.overlays.world import OverlayWorld
from ordercast.sim.run import recorded
from ordercast.verify.verdict import NOT_APPLICABLE, PASS
from tests.properties.swarm import Dice
from tests.support.cluster_watch import ClusterWatch
from tests.support.swarm_command import Family, run_seeds, swarm_parser

DURATION_MS = 1_500
CLUSTER = "t0"
SEED_CPU_S = 60.0
"""A run that takes longer hangs: most take less than one."""


def cluster_scenario(seed: int) -> Scenario:
    """The scenario that belongs to the seed."""
    dice = Dice(seed, "cluster")
    names = [f"n{i}" for i in range(3 + dice.below(10))]
    faults = _faults(dice, names)
    joins = any(fault["kind"] == "join" for fault in faults)
    return parse_scenario(
        {
            "name": f"cluster-swarm-{seed}",
            "overlay": {"kind": "clique" if joins else dice.pick(["clique", "ring"]), "nodes": len(names)},
            "protocol": "cluster",
            "options": _options(dice, names),
            "duration_ms": DURATION_MS,
            "drain_ms": 4_000,
            "link": _link(dice),
            "workload": [_load(dice, names)],
            "fault": faults,
            "trace": {"record": "app"},
        }
    )


def total_scenario(seed: int) -> Scenario:
    """The same with a total order: updates are held for longer than most take, or for far too short."""
    scenario = cluster_scenario(seed)
    rounds = Dice(seed, "cluster", "total").pick([1, 4, 20])
    return msgspec.structs.replace(scenario, options={**scenario.options, "total_rounds": rounds})


def _options(dice: Dice, names: list[str]) -> dict[str, Any]:
    entries = dice.pick([1, 2, 3, 6])
    options = {
        "entries": entries,
        "round_ms": dice.pick([10, 20, 40]),
        "fanout": dice.pick([1, 2, 4]),
        "rounds": dice.pick([2, 4, 7]),
        "events": dice.pick([2, 20]),
        "buffer": dice.pick([3, 100]),
        "history": dice.pick([2, 10, 200]),
        "members": dice.pick([2, 10]),
        "view": dice.pick([3, 50]),
        "recovery": dice.pick(["none", "source", "k", "k+source"]),
        "recovery_buffer": dice.pick([1, 5, 200]),
        "replacement": dice.pick(["fifo", "age"]),
        "terminate_rounds": dice.pick([0, 0, 1]),
        "recover_rounds": dice.pick([1, 4]),
        "digest_every": dice.pick([0, 1, 3]),
        "held": dice.pick([2, 200]),
        "proposals": dice.pick([2, 50]),
        "observers": dice.sample(names[1:], dice.pick([0, 0, 0, 2])),
        "join_ms": 60,
    }
    if dice.chance(0.3):
        return options | {"coordinators": dice.sample(names, entries)}
    tolerated = dice.pick([0, 1]) if len(names) > 3 else 1
    managers = {"managers": names[: 2 * tolerated + 1 + dice.below(2)], "tolerated": tolerated}
    if len(managers["managers"]) > len(names):
        managers["managers"] = names
    return options | managers | {
        "lease_ms": dice.pick([200, 400]), "claim_ms": dice.pick([60, 150]), "catch_up_ms": dice.pick([1, 100]),
        "idle_leases": dice.pick([0, 1]), "drift": dice.pick([0.0, 0.05]),
    }  # fmt: skip


def _link(dice: Dice) -> dict[str, Any]:
    latency = [
        2.0, {"kind": "uniform", "low_ms": 1, "high_ms": 30}, {"kind": "exponential", "min_ms": 0.5, "mean_ms": 8},
        {"kind": "lognormal", "median_ms": 5, "sigma": 1.5},
    ]  # fmt: skip
    loss, twice = dice.pick([0, 0.01, 0.1, 0.4]), dice.pick([0, 0.1, 0.4])
    return {"latency_ms": dice.pick(latency), "loss": loss, "duplicate": twice}


def _load(dice: Dice, names: list[str]) -> dict[str, Any]:
    publishers = dice.sample(names, 1 + dice.below(5))
    return {"kind": "open", "rate_per_s": dice.pick([20, 100, 300]), "publishers": publishers, "limit": 120}


def _faults(dice: Dice, names: list[str]) -> list[dict[str, Any]]:
    """The first node stays, so that newcomers know somebody; each other one meets at most one fault."""
    faults: list[dict[str, Any]] = []
    for node in dice.sample(names[1:], dice.pick([0, 1, 3, 5])):
        at = dice.between(50, DURATION_MS - 300)
        until = at + dice.between(10, 290)
        crash = {"kind": "crash", "node": node, "at_ms": at, "survive": dice.pick(["all", "none", "random"])}
        faults.append(
            dice.pick(
                [
                    crash,
                    crash | {"recover_ms": until, "state": "lost"},
                    crash | {"recover_ms": until, "state": "kept"},
                    {"kind": "leave", "node": node, "at_ms": at},
                    {"kind": "join", "node": node, "at_ms": at},
                    {"kind": "pause", "node": node, "at_ms": at, "until_ms": until},
                    {"kind": "partition", "sides": [[node], [name for name in names if name != node]],
                     "at_ms": at, "until_ms": until},
                ]
            )
        )  # fmt: skip
    return faults


class Wishes:
    """What applications want in between: an entry given back, another way to observe."""

    def __init__(self, world: OverlayWorld, seed: int) -> None:
        self.world = world
        dice = Dice(seed, "cluster", "wishes")
        for _ in range(dice.pick([0, 2, 6])):
            name = dice.pick(world.names)
            wish = dice.pick([self._release, self._release, self._release, self._switch])
            world.clock.at(ns(dice.between(100, DURATION_MS)), wish, name)

    def _release(self, name: str, _: None) -> None:
        machine = self._machine(name)
        if machine is not None:
            self.world.processes.act(name, machine.release, CLUSTER)

    def _switch(self, name: str, _: None) -> None:
        machine = self._machine(name)
        if machine is not None:
            ordered = machine.clusters[CLUSTER].delivery.keeps_order
            self.world.processes.act(name, partial(machine.join, CLUSTER, ordered=not ordered))

    def _machine(self, name: str) -> ClusterMachine | None:
        machine = self.world.processes.machine(name)
        return machine if isinstance(machine, ClusterMachine) else None


class Watched:
    """A run of the seed, and what was seen of it."""

    def __init__(self, protocol: ProtocolInfo, scenario: Scenario, seed: int, out: Path | None) -> None:
        self.scenario = scenario
        kind = KIND._replace(live=self._live)
        self.outcome = recorded(kind, scenario, protocol, seed, out, packets=False)

    def _live(self, world: OverlayWorld) -> tuple[int, bool]:
        timely = not any(isinstance(fault, Pause) for fault in self.scenario.fault)
        self.watch = ClusterWatch(world, timely=timely)
        self.wishes = Wishes(world, world.seed)
        return live(world)


def complaint(protocol: ProtocolInfo, seed: int, out: Path, scenario: Scenario | None = None) -> tuple[str, int]:
    """What is wrong with the run of the seed, empty if nothing is; and how many deliveries were judged."""
    from ordercast.verify.judge import judge_path  # Late: it compiles kernels, which who only simulates can do without.

    scenario = scenario or cluster_scenario(seed)
    try:
        run = Watched(protocol, scenario, seed, out)
        if scenario.options.get("total_rounds"):
            run.watch.one_order.check()
    except Exception as error:  # noqa: BLE001 - a machine that fails is what is looked for
        return f"{type(error).__name__}: {error}", 0
    # Whether it came to rest says nothing: who wants an entry that others keep asks for it for ever.
    (verdict,) = judge_path(out, checks=["integrity", "optimistic-causal", *run.outcome.manifest.claims])
    fine = {PASS, NOT_APPLICABLE}
    wrong = [f"{result.check}: {result.verdict}" for result in verdict.results if result.verdict not in fine]
    return ", ".join(wrong), max(result.deliveries for result in verdict.results)


def _end_seed(_number: int, _frame: Any) -> None:
    raise TimeoutError(f"the run does not end within {SEED_CPU_S} s of processor time")


def main() -> int:
    signal.signal(signal.SIGPROF, _end_seed)

    def attempt(scenario: Callable[[int], Scenario], seed: int, out: Path) -> tuple[str, Counter[str]]:
        signal.setitimer(signal.ITIMER_PROF, SEED_CPU_S)
        wrong, deliveries = complaint(lookup("cluster"), seed, out, scenario(seed))
        signal.setitimer(signal.ITIMER_PROF, 0)
        return wrong, Counter(deliveries=deliveries)

    return run_seeds(
        swarm_parser(__doc__).parse_args(),
        [
            Family("cluster", partial(attempt, cluster_scenario), cluster_scenario),
            Family("cluster-total", partial(attempt, total_scenario), total_scenario),
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
