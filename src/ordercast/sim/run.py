"""One run: build the world, let it live, let it drain, write down what happened."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from ordercast.core.registry import ProtocolInfo
from ordercast.scenario.checking import check_times
from ordercast.scenario.choosing import claimed_guarantee
from ordercast.scenario.model import Scenario
from ordercast.sim.clock import Scheduler, ns
from ordercast.sim.links.detector import FailureDetector
from ordercast.sim.links.faults import FaultPlan
from ordercast.sim.links.world import World
from ordercast.sim.workload import start_workload
from ordercast.trace.recorder import Recorder
from ordercast.trace.store import Manifest
from ordercast.trace.writer import RunWriter

_SLICES = 100

Progress = Callable[[float], None]
Drive = Callable[[World], tuple[int, bool]]
"""Lets a fresh world live; returns how many events there were and whether it came to rest."""


class Timed(Protocol):
    """Port to a simulated world: all that the frame around a run needs."""

    @property
    def clock(self) -> Scheduler: ...


W = TypeVar("W", bound=Timed)


class Simulation(msgspec.Struct, frozen=True):
    """The outcome of a simulation, apart from its trace."""

    path: Path | None
    manifest: Manifest
    events: int
    hops: int
    published: int
    delivered: int
    virtual_ns: int


def simulate(
    scenario: Scenario,
    protocol: ProtocolInfo,
    *,
    seed: int | None = None,
    out: Path | None = None,
    progress: Progress | None = None,
    drive: Drive | None = None,
) -> Simulation:
    """Run `scenario`; with `out`, leave its trace there. Same arguments, same trace, byte for byte.

    A study that looks into the run while it goes on brings a `drive` of its own.
    """
    check_times(scenario)
    kind = KIND._replace(live=drive or partial(live, progress=progress))
    return recorded(kind, scenario, protocol, seed, out, packets=scenario.trace.record == "all")


class WorldKind(NamedTuple, Generic[W]):
    """A kind of world: nodes with links, or brokers and clients with connections."""

    build: Callable[[Scenario, ProtocolInfo, int, Recorder | None], W]
    live: Callable[[W], tuple[int, bool]]
    """Returns how many events there were and whether the world came to rest."""
    manifest_of: Callable[..., Manifest]


def recorded(
    kind: WorldKind[W], scenario: Scenario, protocol: ProtocolInfo, seed: int | None, out: Path | None, *, packets: bool
) -> Simulation:
    """One run of a world of any kind, with its trace; a run that fails leaves nothing behind."""
    seed = scenario.seed if seed is None else seed
    run_id = f"{scenario.name}-{protocol.name}-{seed}"
    recorder = Recorder(RunWriter(out), run_id, packets=packets) if out is not None else None
    try:
        world = kind.build(scenario, protocol, seed, recorder)
        events, drained = kind.live(world)
        manifest = kind.manifest_of(world, run_id, drained=drained)
        if recorder is not None:
            recorder.finish(manifest)
    except BaseException:
        if recorder is not None:
            recorder.abort()
        raise
    totals = manifest.totals
    return Simulation(
        path=out,
        manifest=manifest,
        events=events,
        hops=totals.get("hops", totals["sends"]),
        published=totals["published"],
        delivered=totals["deliveries"],
        virtual_ns=world.clock.now,
    )


def pass_time(clock: Scheduler, duration_ns: int, progress: Progress | None) -> int:
    """The run up to its drain; returns how many events there were."""
    events = 0
    for i in range(1, _SLICES + 1):
        events += clock.run_until(duration_ns * i // _SLICES)
        if progress is not None:
            progress(i / _SLICES)
    return events


def live(world: World, progress: Progress | None = None) -> tuple[int, bool]:
    """Let a fresh world live and drain; returns how many events there were and whether it came to rest."""
    clock = world.clock
    faults = FaultPlan(world, FailureDetector(world))
    start_workload(world)
    with rare_collections():
        for host in world.hosts.values():
            host.start()
        duration = ns(world.scenario.duration_ms)
        events = pass_time(clock, duration, progress)
        faults.end_all()
        events += clock.run_to_rest(duration + ns(world.scenario.drain_ms))
    return events, clock.at_rest


@contextmanager
def rare_collections() -> Iterator[None]:
    """Simulations make millions of short-lived tuples and no cycles: look for cycles rarely."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, 50, 1000)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def manifest_of(world: World, run_id: str, *, drained: bool) -> Manifest:
    """The manifest of the trace of a world that has lived."""
    scenario, channels = world.scenario, world.channels()
    return Manifest(
        run_id=run_id,
        protocol=world.protocol.name,
        guarantee=claimed_guarantee(scenario.workload, world.protocol.guarantee),
        scope=world.protocol.scope,
        seed=world.seed,
        scenario=scenario.name,
        nodes=list(world.graph.nodes),
        groups={topic: list(members) for topic, members in world.groups.items()},
        version=version("ordercast"),
        clock="global",
        drained=drained,
        # Who took part shows only in the packets: a run that leaves them out cannot claim it.
        genuine=world.protocol.genuine and scenario.trace.record == "all",
        records=scenario.trace.record,
        faults=dict(sorted(world.faults.items())),
        totals={
            "published": world.published,
            "deliveries": sum(host.delivered for host in world.hosts.values()),
            "sends": sum(channel.sent for channel in channels),
            "hops": sum(channel.arrived for channel in channels),
            "drops": sum(channel.dropped for channel in channels),
        },
        options=scenario.options,
    )


KIND = WorldKind(World, live, manifest_of)
"""Nodes with links."""
