"""One run of an overlay that changes under virtual time: let it live, let it come to rest, write down what happened."""

from __future__ import annotations

from collections import Counter
from functools import partial
from importlib.metadata import version
from pathlib import Path

from ordercast.core.registry import ProtocolInfo
from ordercast.scenario.checking import check_times
from ordercast.scenario.choosing import claimed_guarantee
from ordercast.scenario.model import Scenario
from ordercast.sim.clock import ns
from ordercast.sim.overlays.faults import OverlayFaults
from ordercast.sim.overlays.world import OverlayWorld
from ordercast.sim.run import Progress, Simulation, WorldKind, pass_time, rare_collections, recorded
from ordercast.sim.workload import start_workload
from ordercast.trace.store import Manifest


def simulate_overlay(
    scenario: Scenario,
    protocol: ProtocolInfo,
    *,
    seed: int | None = None,
    out: Path | None = None,
    progress: Progress | None = None,
) -> Simulation:
    """Run `scenario`; with `out`, leave its trace there. Same arguments, same trace, byte for byte."""
    check_times(scenario)
    kind = KIND._replace(live=partial(live, progress=progress))
    return recorded(kind, scenario, protocol, seed, out, packets=scenario.trace.record == "all")


def live(world: OverlayWorld, progress: Progress | None = None) -> tuple[int, bool]:
    """Let a fresh world live and drain; returns how many events there were and whether it came to rest."""
    clock = world.clock
    OverlayFaults(world)
    start_workload(world)
    with rare_collections():
        start_everybody(world)
        duration = ns(world.scenario.duration_ms)
        events = pass_time(clock, duration, progress)
        world.end_faults()
        events += drain(world)
    return events, clock.at_rest


def start_everybody(world: OverlayWorld) -> None:
    """All that the network begins with, at once."""
    for node in world.nodes.values():
        if not node.late:
            node.start()


def drain(world: OverlayWorld) -> int:
    """To rest; returns how many events that took.

    In a large network something periodic is always under way. If that is all that is left after half of the time,
    nothing periodic begins any more, and what is under way ends.
    """
    clock, half = world.clock, ns(world.scenario.drain_ms) // 2
    events = clock.run_to_rest(clock.now + half)
    if not clock.at_rest:
        clock.drop_background()
        events += clock.run_to_rest(clock.now + half)
    return events


def manifest_of(world: OverlayWorld, run_id: str, *, drained: bool) -> Manifest:
    """The manifest of the trace of a world that has lived."""
    scenario = world.scenario
    processes = world.processes.processes.values()
    counters: Counter[str] = Counter()
    for process in processes:
        counters.update(process.counters)
    return Manifest(
        run_id=run_id,
        protocol=world.protocol.name,
        guarantee=claimed_guarantee(scenario.workload, world.protocol.guarantee),
        scope=world.protocol.scope,
        uniform=world.protocol.uniform,
        seed=world.seed,
        scenario=scenario.name,
        nodes=list(world.names),
        version=version("ordercast"),
        clock="global",
        drained=drained,
        records=scenario.trace.record,
        faults=dict(sorted(world.faults.items())),
        totals={
            "published": world.published,
            "deliveries": sum(node.delivered for node in world.nodes.values()),
            "sends": sum(process.sent for process in processes),
            "hops": sum(process.received for process in processes),
            **dict(sorted(counters.items())),
        },
        claims=world.protocol.claims(world.protocol.parse_options(scenario.options)),
        options=scenario.options,
    )


KIND = WorldKind(OverlayWorld, live, manifest_of)
"""Nodes that choose their neighbours."""
