"""Spray and Cyclon: views that stay whole, connected and mixed while processes exchange them, die and come."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId, Origin
from ordercast.overlay.cyclon import CyclonWalk
from ordercast.overlay.sampling import Contact
from ordercast.overlay.spray import SprayAsk
from ordercast.overlay.views import ViewSampler, holds_arc
from ordercast.protocols.preventive.node import Preventive
from ordercast.protocols.preventive.variants import PREVENTIVE
from ordercast.scenario.brokers import Join
from ordercast.scenario.model import Crash, Link, OpenLoad, Regular, Scenario
from ordercast.sim.clock import ns
from ordercast.sim.overlays.faults import OverlayFaults
from ordercast.sim.overlays.run import start_everybody
from ordercast.sim.overlays.world import OverlayWorld
from ordercast.sim.workload import start_workload

NODES = 40
DEGREE = 8
PERIOD_MS = 500.0
KINDS = ["spray", "cyclon"]
QUIET = Scenario(
    name="sampling",
    overlay=Regular(nodes=NODES, degree=DEGREE),
    link=Link(latency_ms=10.0),
    workload=[OpenLoad(rate_per_s=5.0, publishers=["n0"])],
    options={"period_ms": PERIOD_MS, "view_size": 6, "exchange_length": 3, "ack_ms": 500.0, "hold_ms": 500.0},
    duration_ms=8_000.0,
)


def lived(kind: str, seed: int, scenario: Scenario = QUIET) -> OverlayWorld:
    """A world at the end of its time, before the drain."""
    value = msgspec.structs.replace(scenario, options={**scenario.options, "sampling": kind})
    world = OverlayWorld(value, PREVENTIVE, seed, None)
    OverlayFaults(world)
    start_workload(world)
    start_everybody(world)
    world.clock.run_until(ns(value.duration_ms))
    assert world.processes.peer_errors == []
    return world


def samplers(world: OverlayWorld) -> dict[NodeId, ViewSampler]:
    found = {name: node.machine for name, node in world.nodes.items() if node.alive}
    return {
        name: machine.sampler
        for name, machine in found.items()
        if isinstance(machine, Preventive) and isinstance(machine.sampler, ViewSampler)
    }


def counters(world: OverlayWorld) -> Counter[str]:
    found = Counter[str]()
    for process in world.processes.processes.values():
        found.update(process.counters)
    return found


def reached(world: OverlayWorld) -> set[str]:
    """Everybody that the first process reaches over arcs, in whichever direction they lead."""
    near: dict[str, set[str]] = {name: set() for name in samplers(world)}
    for name, sampler in samplers(world).items():
        for contact, _ in sampler.view:
            if contact.address in near:
                near[name].add(contact.address)
                near[contact.address].add(name)
    seen, todo = {"n0"}, ["n0"]
    while todo:
        new = near[todo.pop()] - seen
        seen |= new
        todo += sorted(new)
    return seen


@pytest.mark.parametrize("seed", [1, 2])
def test_an_exchange_of_spray_neither_makes_nor_loses_arcs(seed: int) -> None:
    world = lived("spray", seed)
    under_way = sum(sampler.partner is not None for sampler in samplers(world).values())
    arcs = sum(len(sampler.view) for sampler in samplers(world).values())
    assert counters(world)["exchanges"] > 10 * NODES, "hardly anything was exchanged"
    assert abs(arcs - NODES * DEGREE / 2) <= DEGREE * under_way  # Half of an exchange may be done.


@pytest.mark.parametrize("seed", [1, 2])
def test_views_of_cyclon_are_full_and_name_nobody_twice(seed: int) -> None:
    for name, sampler in samplers(lived("cyclon", seed)).items():
        names = [contact.address for contact, _ in sampler.view]
        assert len(names) == len(set(names)) <= 6
        assert name not in names


@pytest.mark.parametrize("kind", KINDS)
def test_exchanges_mix_the_network_and_keep_it_connected(kind: str) -> None:
    world = lived(kind, 3)
    assert reached(world) == set(world.names)
    begun = {name: set(node._contacts) for name, node in world.nodes.items()}
    kept = [contact.address in begun[name] for name, one in samplers(world).items() for contact, _ in one.view]
    assert sum(kept) / len(kept) < 0.5, "most neighbours are those of the beginning"
    known = Counter(contact.address for one in samplers(world).values() for contact, _ in one.view)
    assert max(known.values()) <= 6 * sum(known.values()) / NODES, "somebody is known to far more than others"


@pytest.mark.parametrize("kind", KINDS)
def test_who_hands_a_neighbour_over_keeps_the_way_for_locks_open(kind: str) -> None:
    """Make before break: without the promise most links need a digest, because no lock finds a way."""
    promised = counters(lived(kind, 4))
    at_once = msgspec.structs.replace(QUIET, options={**QUIET.options, "hold_ms": 0.001})
    broken = counters(lived(kind, 4, at_once))
    assert promised["exchanges"] > 10 * NODES
    assert promised["repaired_links"] < 0.25 * broken["repaired_links"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_network_survives_the_death_of_a_quarter_at_once(kind: str) -> None:
    dead = [f"n{i}" for i in range(5, 15)]
    faults = [Crash(node=name, at_ms=4_000.0) for name in dead]
    world = lived(kind, 5, msgspec.structs.replace(QUIET, fault=faults, duration_ms=12_000.0))
    assert reached(world) == set(world.names) - set(dead)
    named = {contact.address for sampler in samplers(world).values() for contact, _ in sampler.view}
    assert not named & set(dead), "the dead are still in views"


@pytest.mark.parametrize("kind", KINDS)
def test_who_joins_becomes_known_to_several(kind: str) -> None:
    joins = [Join(node=name, at_ms=1_000.0 + 300 * i) for i, name in enumerate(["n7", "n19", "n33"])]
    world = lived(kind, 6, msgspec.structs.replace(QUIET, fault=joins))
    assert reached(world) == set(world.names)
    known = Counter(contact.address for one in samplers(world).values() for contact, _ in one.view)
    assert all(known[fault.node] >= 2 for fault in joins)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_views(kind: str) -> None:
    short = msgspec.structs.replace(QUIET, duration_ms=2_000.0)
    first, second = ({name: one.view for name, one in samplers(lived(kind, 7, short)).items()} for _ in range(2))
    assert first == second


def test_of_two_that_know_each_other_exactly_one_has_the_arc() -> None:
    names = [f"n{i}" for i in range(50)]
    shares = [holds_arc(a, b) for a in names for b in names if a < b]
    assert all(holds_arc(a, b) != holds_arc(b, a) for a in names for b in names if a != b)
    assert 0.4 < sum(shares) / len(shares) < 0.6


@pytest.mark.parametrize(
    ("kind", "nonsense"),
    [
        ("spray", SprayAsk(1, ((Contact(Origin("n1"), "n1"), -1),))),
        ("spray", SprayAsk(1, tuple((Contact(Origin(f"x{i}"), "x"), 0) for i in range(5_000)))),
        ("spray", CyclonWalk(Contact(Origin("n9"), "n9"), 1, ())),
        ("cyclon", CyclonWalk(Contact(Origin("n9"), "n9"), 1, ())),
        ("cyclon", CyclonWalk(Contact(Origin("n9"), "n9"), 1, tuple(Origin("n1") for _ in range(99)))),
    ],
)
def test_a_sample_that_is_none_is_the_peers_fault(kind: str, nonsense: SprayAsk | CyclonWalk) -> None:
    world = lived(kind, 8, msgspec.structs.replace(QUIET, duration_ms=500.0))
    sampler = samplers(world)[NodeId("n0")]
    peer = sampler.view[0][0].pid
    with pytest.raises(PeerError):
        sampler.on_packet(peer, nonsense)
