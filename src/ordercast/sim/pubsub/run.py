"""One run of brokers and clients under virtual time: let it live, let it come to rest, write down what happened."""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from pathlib import Path

from ordercast.core.errors import UsageError
from ordercast.core.registry import ProtocolInfo
from ordercast.pubsub.settings import BrokerSettings
from ordercast.scenario.checking import check_times
from ordercast.scenario.choosing import claimed_guarantee
from ordercast.scenario.model import Detector, Everyone, NodeCapacity, Scenario
from ordercast.sim.clock import ns
from ordercast.sim.pubsub.faults import PubsubFaults
from ordercast.sim.pubsub.parts import Parts
from ordercast.sim.pubsub.rest import unrest
from ordercast.sim.pubsub.world import PubsubWorld
from ordercast.sim.run import Progress, Simulation, WorldKind, pass_time, rare_collections, recorded
from ordercast.sim.workload import start_workload
from ordercast.trace.recorder import Recorder
from ordercast.trace.store import Manifest

_LOOK = ns(20)
"""How often a draining run is asked whether it has come to rest."""
CLAIMS = ["total-topic", "real-time"]
"""BRK-G5 and BRK-G6, beyond what the guarantees of single publications say."""


def simulate_pubsub(
    scenario: Scenario,
    protocol: ProtocolInfo,
    *,
    seed: int | None = None,
    out: Path | None = None,
    progress: Progress | None = None,
) -> Simulation:
    """Run `scenario`; with `out`, leave its trace there. Same arguments, same trace, byte for byte."""
    kind = KIND._replace(live=partial(live, progress=progress))
    return recorded(kind, scenario, protocol, seed, out, packets=False)


def build_world(
    scenario: Scenario, protocol: ProtocolInfo, seed: int, recorder: Recorder | None, parts: Parts | None = None
) -> PubsubWorld:
    """The world of a scenario that makes sense, or a UsageError."""
    check_times(scenario)
    for name, default in (("detector", Detector()), ("node", NodeCapacity()), ("nodes", []), ("groups", Everyone())):
        if getattr(scenario, name) != default:
            raise UsageError(f"{name}: not for protocol {protocol.name!r}; see the tables of its overlay")
    settings: BrokerSettings = protocol.parse_options(scenario.options)
    return PubsubWorld(scenario, settings, seed, recorder, parts)


def live(world: PubsubWorld, progress: Progress | None = None) -> tuple[int, bool]:
    """Let a fresh world live and drain; returns how many events there were and whether it came to rest."""
    clock, scenario = world.clock, world.scenario
    PubsubFaults(world)
    start_workload(world)
    duration = ns(scenario.duration_ms)
    with rare_collections():
        start_everybody(world)
        events = pass_time(clock, duration, progress)
        deadline = duration + ns(scenario.drain_ms)
        while clock.now < deadline and unrest(world):
            events += clock.run_until(min(deadline, clock.now + _LOOK))
    return events, not unrest(world)


def start_everybody(world: PubsubWorld) -> None:
    """Brokers first, parents before children, as anybody would start them; then the clients."""
    for broker in world.layout.parents:
        if broker not in world.layout.late:
            world.start_broker(broker)
    for name, client in world.clients.items():
        if name not in world.layout.late:
            client.start()


def manifest_of(world: PubsubWorld, run_id: str, *, drained: bool) -> Manifest:
    scenario = world.scenario
    counters = {
        f"{broker}.{name}": count
        for broker in world.layout.parents
        for name, count in sorted(world.processes.processes[broker].counters.items())
    }
    return Manifest(
        run_id=run_id,
        protocol="broker",
        guarantee=claimed_guarantee(scenario.workload, world.default_guarantee),
        scope="topic",
        order_scope=world.settings.order_scope,
        seed=world.seed,
        scenario=scenario.name,
        nodes=[*world.layout.parents, *world.layout.clients],
        version=version("ordercast"),
        clock="global",
        drained=drained,
        uniform=False,
        leavers_pass_on=True,
        claims=CLAIMS,
        records="app",
        faults=dict(sorted(world.faults.items())),
        totals={
            "published": sum(client.published for client in world.clients.values()),
            "deliveries": sum(client.delivered for client in world.clients.values()),
            "sends": world.packets.total(),
            **{f"sends.{kind}": count for kind, count in sorted(world.packets.items())},
            **counters,
        },
        options=scenario.options,
    )


KIND = WorldKind(build_world, live, manifest_of)
"""Brokers and clients with connections."""
