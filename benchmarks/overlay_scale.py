"""Ten thousand processes on an overlay that moves: message hops a second, memory, and work per message by size.

Run: python benchmarks/overlay_scale.py [--processes N] [--seconds S] [--churn PERCENT] [--compare]

Preventive causal broadcast over Spray, 20 neighbours each, 50 ms a link; while messages flood, views are exchanged and
processes join, leave and crash. Traces are off. In the same run, as limits: a bare loop that takes the same number of
copies off a calendar and looks each up in a dict (what plain Python can do at best), and the same protocol with 100
processes (what a delivery costs where everything fits the cache). Times are processor times of this process.

With --compare: whether a larger network has more to do is told by calls of functions, which are counted; whether it
waits for memory is told by networks of 100 processes that take turns and together have as many processes: each is as
small as before, and nothing fits the cache any more.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import time
from heapq import heappop, heappush
from typing import Any

from ordercast.protocols import lookup
from ordercast.scenario.brokers import Join, Leave
from ordercast.scenario.model import Crash, Fault, Link, OpenLoad, Regular, Scenario
from ordercast.sim.clock import ns
from ordercast.sim.overlays.faults import OverlayFaults
from ordercast.sim.overlays.run import start_everybody
from ordercast.sim.overlays.world import OverlayWorld
from ordercast.sim.run import rare_collections
from ordercast.sim.workload import start_workload

DEGREE = 20
LATENCY_MS = 50.0
PERIOD_MS = 60_000.0
RATE = 4.0
ORIGINS = 50
TARGET_HOPS = 150_000
WARM_MS = 2_000.0
SMALL = 100
STILL_MS = 86_400_000.0
TURN_MS = 25.0


def scenario(processes: int, seconds: float, churn: float, period_ms: float) -> Scenario:
    """`churn`: percent of the processes that come, and as many that go, a minute."""
    changes = round(processes * churn / 100 * seconds / 60)
    total = processes + changes
    total += total * DEGREE % 2
    faults: list[Fault] = []
    for i in range(changes):
        at = WARM_MS + (i + 0.5) * 900 * seconds / max(changes, 1)
        faults.append(Join(node=f"n{processes + i}", at_ms=at))
        gone = f"n{processes - 1 - i}"
        faults.append(Leave(node=gone, at_ms=at) if i % 2 else Crash(node=gone, at_ms=at))
    return Scenario(
        name="overlay-scale",
        overlay=Regular(nodes=total, degree=DEGREE),
        link=Link(latency_ms=LATENCY_MS),
        workload=[
            OpenLoad(rate_per_s=RATE, publishers=[f"n{i}" for i in range(ORIGINS)], start_ms=WARM_MS, payload_bytes=64)
        ],
        fault=faults,
        options={"sampling": "spray", "period_ms": period_ms},
        duration_ms=WARM_MS + 1000 * seconds,
    )


def received(world: OverlayWorld) -> int:
    return sum(process.received for process in world.processes.processes.values())


def memory_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def begun(
    processes: int, seconds: float, churn: float, seed: int = 7, period_ms: float = PERIOD_MS
) -> OverlayWorld:  # fmt: skip
    """A world whose links are open and whose first messages are about to be published."""
    world = OverlayWorld(scenario(processes, seconds, churn, period_ms), lookup("preventive"), seed, None)
    OverlayFaults(world)
    start_workload(world)
    with rare_collections():
        start_everybody(world)
        world.clock.run_until(ns(WARM_MS))
    return world


def run(processes: int, seconds: float, churn: float) -> tuple[int, float, int, int]:
    """Hops while messages flood, the processor time they took, deliveries, and bytes that the world needed."""
    before = memory_bytes()
    world = begun(processes, seconds, churn)
    with rare_collections():
        gc.freeze()
        hops, began = received(world), time.process_time()
        world.clock.run_until(ns(world.scenario.duration_ms))
        took = time.process_time() - began
    assert not world.processes.peer_errors
    delivered = sum(node.delivered for node in world.nodes.values())
    return received(world) - hops, took, delivered, memory_bytes() - before


def calls_per_copy(processes: int, seconds: float) -> float:
    """Calls of functions, of Python and of C, for each copy of a message, where nothing else happens."""
    world = begun(processes, seconds, 0.0, period_ms=STILL_MS)
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        if event in {"call", "c_call"}:
            calls += 1

    before = received(world)
    sys.setprofile(count)
    world.clock.run_until(ns(world.scenario.duration_ms))
    sys.setprofile(None)
    return calls / (received(world) - before)


def taking_turns(networks: int, seconds: float, churn: float) -> float:
    """Seconds a copy where so many small networks live side by side and each is left for the next after a moment."""
    worlds = [begun(SMALL, seconds, churn, seed) for seed in range(networks)]
    hops, steps = sum(map(received, worlds)), int(1000 * seconds / TURN_MS)
    with rare_collections():
        gc.freeze()
        began = time.process_time()
        for step in range(1, steps + 1):
            for world in worlds:
                world.clock.run_until(ns(WARM_MS + step * TURN_MS))
        took = time.process_time() - began
    return took / (sum(map(received, worlds)) - hops)


def bare_loop(copies: int) -> float:
    """Seconds for so many copies off a heap of batches, each looked up once: no connections, no protocol."""
    calendar: list[tuple[int, int]] = []
    seen: dict[str, int] = {f"n{i}": 0 for i in range(ORIGINS)}
    began = time.process_time()
    for i in range(copies):
        heappush(calendar, (i // DEGREE, i))
        if len(calendar) > DEGREE:
            _, number = heappop(calendar)
            seen.get(f"n{number % ORIGINS}", 0)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--churn", type=float, default=1.0)
    parser.add_argument("--compare", action="store_true", help="count calls, and let small networks take turns")
    given = parser.parse_args()
    if given.processes < ORIGINS:
        parser.error(f"--processes {given.processes}: {ORIGINS} of them publish")
    small_hops, small_s, small_delivered, _ = run(SMALL, given.seconds * 10, given.churn)
    hops, seconds, delivered, size = run(given.processes, given.seconds, given.churn)
    if not small_delivered or not delivered:
        parser.error(f"--seconds {given.seconds}: nothing was published in so short a time")
    limit = bare_loop(hops) / hops
    rate = hops / seconds
    print(f"{given.processes:,} processes, {DEGREE} neighbours, {delivered:,} deliveries, {hops:,} hops")
    print(f"{rate:,.0f} hops a second of processor time (target {TARGET_HOPS:,}); {1e6 / rate:.2f} us a hop")
    print(f"{1e6 * seconds / hops / (1e6 * limit):.1f} times a bare loop of {1e6 * limit:.2f} us a copy")
    print(f"{size / given.processes / 1000:.1f} KB a process")
    work, small_work = seconds / hops, small_s / small_hops
    print(
        f"copies per delivery: {small_hops / small_delivered:.1f} with {SMALL} processes, {hops / delivered:.1f} here"
    )
    print(f"time per copy: {1e6 * small_work:.2f} us with {SMALL} processes, {work / small_work:.2f} times that here")
    if given.compare:
        small_calls, calls = (calls_per_copy(size, given.seconds) for size in (SMALL, given.processes))
        print(f"calls per copy: {small_calls:.2f} with {SMALL} processes, {calls / small_calls:.2f} times that here")
        networks = given.processes // SMALL
        turns = taking_turns(networks, given.seconds, given.churn)
        print(f"{networks} networks of {SMALL} in turn: {turns / small_work:.2f} times the time per copy of one")


if __name__ == "__main__":
    main()
