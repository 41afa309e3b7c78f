"""Scenarios of the preventive broadcast by hand: mediators that fail, parts that meet again, forgetting."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ordercast.core.ids import NodeId, Origin, Topic, origin_of
from ordercast.core.messages import Message, Packet
from ordercast.overlay.sampling import Contact
from ordercast.protocols import lookup
from ordercast.protocols.preventive.node import Preventive
from ordercast.protocols.preventive.packets import Bye, Data, DigestAsk, Lock, LockFailed, SafeMark
from ordercast.scenario.load import parse_scenario
from ordercast.sim.overlays.run import live
from ordercast.sim.overlays.world import OverlayWorld
from tests.mutants.preventive_mutants import NoHolds
from tests.sources.test_preventive_corrections import LINE, a_world, judged, machine, published, run_to

DIAMOND = [["n0", "n1"], ["n1", "n2"], ["n0", "n3"], ["n2", "n3"]]


class Tap:
    """Writes down who said what to whom, and when."""

    def __init__(self, world: Any) -> None:
        self.said: list[tuple[float, str, str, Packet]] = []
        world.processes.tap = lambda source, target, packet: self.said.append(
            (world.clock.now / 1e6, source, target, packet)
        )

    def between(self, source: str, target: str, *kinds: type[Packet]) -> list[Packet]:
        return [packet for _, one, other, packet in self.said if (one, other) == (source, target)
                and isinstance(packet, kinds)]  # fmt: skip


def numbers(world: Any, name: str) -> dict[str, int]:
    return dict(machine(world, name).broadcast.log.received)


def test_t6_a_mediator_that_crashes_with_the_lock_is_replaced_when_the_time_is_up() -> None:
    """Nothing is put on the new link before the second attempt was answered."""
    world = a_world(
        "preventive", overlay={"kind": "edges", "edges": DIAMOND}, options={"script": ["n0 opens n2 at 1100 via n1"]},
        fault=[{"kind": "crash", "node": "n1", "at_ms": 1107, "survive": "none"}], **published(1050, 1105, 1300),
    )  # fmt: skip
    tap = Tap(world)
    run_to(world, 4000)
    assert not tap.between("n0", "n2", Data)
    assert world.processes.processes["n0"].counters["lock_restarts"] == 0
    run_to(world, 6000)
    assert world.processes.processes["n0"].counters["lock_restarts"] == 1
    assert machine(world, "n0").links.out["n2"].safe
    assert isinstance(tap.between("n0", "n2", Data, SafeMark)[0], SafeMark)
    assert numbers(world, "n2") == {"n0": 3}


def test_t5_a_mediator_whose_own_link_is_not_safe_says_so_and_another_one_is_tried() -> None:
    """C8: n3's link to n2 is pending when n0's lock comes; n2 names n1, and the lock goes that way."""
    world = a_world(
        "preventive", overlay={"kind": "edges", "edges": [*LINE, ["n0", "n3"]]},
        links=[{"between": ["n1", "n2"], "latency_ms": 100}],
        options={"script": ["n3 opens n2 at 1100 via n0", "n0 opens n2 at 1110 via n3"], "fallback": "hint"},
        **published(1050, 1105, 1200, 1300),
    )  # fmt: skip
    tap = Tap(world)
    run_to(world, 4000)
    routes = [packet.route for packet in tap.between("n0", "n3", Lock) + tap.between("n0", "n1", Lock)]
    assert ("n0", "n3", "n2") in routes
    assert ("n0", "n1", "n2") in routes
    assert tap.between("n3", "n0", LockFailed)
    assert not tap.between("n0", "n2", DigestAsk)
    assert machine(world, "n0").links.out["n2"].safe
    assert isinstance(tap.between("n0", "n2", Data, SafeMark)[0], SafeMark)
    assert numbers(world, "n2") == {"n0": 4}


def handed_over(kind: type[Preventive] = Preventive) -> tuple[Any, Tap]:
    """T11: n1 gives its neighbour n2 to n0, and everybody drops its arcs at once, before any lock has passed."""
    world = a_world("preventive", kind, links=[], options={"script": []}, **published(1050, 1105, 1300))
    run_to(world, 1100)
    tap = Tap(world)
    p, q, y = (machine(world, name).links for name in ("n0", "n1", "n2"))
    for links in (p, q, y):
        links.sampler.neighbours.clear()
    world.processes.act("n1", lambda: (q.hold("n0", "n2"), q.hold("n2", "n0"), q.unwant("n2"), q.unwant("n0")))
    world.processes.act("n0", lambda: (p.want(Contact("n2", "n2"), ("n1",)), p.unwant("n1")))
    world.processes.act("n2", lambda: y.unwant("n1"))
    run_to(world, 4000)
    return world, tap


def test_t11_a_mediator_lets_its_links_go_only_after_both_locks_have_passed() -> None:
    """PRV-8.3: two hops each, over links that nobody wants any more."""
    world, tap = handed_over()
    passed = [at for at, source, _, packet in tap.said if source == "n1" and isinstance(packet, Lock)]
    goodbyes = [at for at, source, _, packet in tap.said if source == "n1" and isinstance(packet, Bye)]
    assert len(passed) == len(goodbyes) == 2
    assert max(passed) <= min(goodbyes)
    assert machine(world, "n1").links.out == {}
    assert machine(world, "n0").links.is_safe("n2")
    assert numbers(world, "n2") == {"n0": 3}


def test_c19_without_promises_a_lock_finds_no_way() -> None:
    """The exchange deletes the two hops of the route: the way back is made safe by a digest only."""
    _, tap = handed_over(NoHolds)
    passed = [packet for _, source, _, packet in tap.said if source == "n1" and isinstance(packet, Lock)]
    assert len(passed) < 2
    assert tap.between("n2", "n0", DigestAsk) or tap.between("n0", "n2", DigestAsk)


def test_t11_nobody_says_goodbye_while_a_lock_is_promised_to_pass(tmp_path: Path) -> None:
    """PRV-8.3 in a network that Spray moves all the time: at no goodbye does its sender owe anybody a lock."""
    edges = [[f"n{i}", f"n{(i + step) % 16}"] for i in range(16) for step in (1, 3)]
    scenario = parse_scenario(
        {
            "name": "t11", "protocol": "preventive", "overlay": {"kind": "edges", "edges": edges}, "duration_ms": 4000,
            "link": {"latency_ms": 20}, "options": {"sampling": "spray", "period_ms": 500, "ack_ms": 400},
            "workload": [{"kind": "open", "rate_per_s": 20, "payload_bytes": 8}],
        }
    )  # fmt: skip
    world = OverlayWorld(scenario, lookup("preventive"), 0, None)
    goodbyes, hops = 0, Counter[int]()

    def tap(source: str, target: str, packet: Packet) -> None:
        nonlocal goodbyes
        if isinstance(packet, Bye):
            goodbyes += 1
            promised = machine(world, source).links.holds
            assert not any(origin_of(NodeId(target), 0) in pair for pair in promised), (source, target, promised)
        elif isinstance(packet, Lock):
            hops[packet.hop] += 1

    world.processes.tap = tap
    live(world)
    assert goodbyes > 50
    assert hops[1] > 0.99 * hops[0] > 500


def test_t9_two_parts_that_meet_again_while_both_go_on_talking_have_the_same_in_order(tmp_path: Path) -> None:
    """PRV-6.8: by digests in both directions, each side gets what it missed."""
    edges = [*LINE, ["n2", "n3"]]
    steps = [
        {"node": node, "topic": "t0", "payload_bytes": 8, "at_ms": at + shift}
        for shift, node in enumerate(("n0", "n3"))
        for at in (*range(1200, 1700, 100), *range(2000, 2600, 20))
    ]
    scenario = {
        "name": "t9", "protocol": "preventive", "overlay": {"kind": "edges", "edges": edges}, "duration_ms": 3000,
        "link": {"latency_ms": 5}, "options": {"retry_ms": 50, "ack_ms": 200},
        "fault": [{"kind": "partition", "sides": [["n0", "n1"], ["n2", "n3"]], "at_ms": 1100, "until_ms": 2100}],
        "workload": [{"kind": "schedule", "steps": steps}],
    }  # fmt: skip
    assert judged(parse_scenario(scenario), "preventive", tmp_path / "run") == set()


# Forgetting


def test_an_origin_that_was_silent_for_two_periods_is_forgotten_everywhere_and_may_speak_again() -> None:
    """PRV-9.1: what is kept depends on who spoke lately, and its next number follows."""
    world = a_world("preventive", links=[], options={"forget_ms": 500, "log_keep": 0}, **published(1050, 1060, 3900))
    world.processes.after_event = None  # Vectors of neighbours differ while one of them has forgotten and one not.
    run_to(world, 1400)
    assert numbers(world, "n2") == {"n0": 2}
    run_to(world, 3800)
    assert [numbers(world, f"n{i}") for i in range(3)] == [{}, {}, {}]
    run_to(world, 3950)
    assert [numbers(world, f"n{i}") for i in range(3)] == [{"n0": 3}] * 3
    assert world.processes.processes["n2"].counters["forgotten_origins"] == 1
    assert not world.processes.peer_errors


def test_with_forgetting_off_nobody_is_forgotten() -> None:
    world = a_world("preventive", links=[], options={"forget_ms": 0}, **published(1050))
    run_to(world, 60_000)
    assert numbers(world, "n2") == {"n0": 1}


# Cost


class CountedLooks(dict[str, int]):
    """A received vector that counts who looks into it."""

    looks = 0

    def get(self, key: str, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)


@pytest.mark.parametrize("origins", [1, 1000])
def test_a_copy_costs_one_look_whoever_has_published(origins: int) -> None:
    """PRV-P7: and a delivery two, however many origins there are."""
    world = a_world("preventive", links=[], **published(1050))
    run_to(world, 2000)
    process = machine(world, "n1")
    process.broadcast.log.received = process.received = counted = CountedLooks({f"x{i}": 1 for i in range(origins)})
    news = Data(Message(Origin("x0"), 2, Topic("t0"), b""))
    process.on_packets(process.links.at["n0"], [news])
    assert counted.looks == 2
    process.on_packets(process.links.at["n0"], [news] * 10)
    assert counted.looks == 2 + 10
    assert process.duplicates == 10
