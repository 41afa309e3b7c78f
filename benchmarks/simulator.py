"""The same flood in SimPy and in our simulator: hops a second, the ratio between them, and memory over run length.

Run: python benchmarks/simulator.py [--messages N] [--rounds N]

A binary tree of 511 nodes, 5 ms a link, publishers in turn at 1000 messages a second; every node relays what it has
not seen to all neighbours but the one it came from, and counts a delivery. That is 510 hops a message for everybody.
SimPy runs it in two forms, and the faster one counts: a process per node that waits on its Store (the textbook form),
and callbacks on timeouts (no processes: the leanest use of its event loop that the public interface allows). Ours runs
it as a bare flood machine, and as the `flood` protocol with its acknowledgements and retransmission. No traces; all
under the same garbage collector settings; each round runs everything once, and the best round of each counts.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from typing import Any, ClassVar

import simpy

from ordercast.core.ids import NodeId
from ordercast.core.machine import Machine, Outbox, Place
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.registry import NoOptions, ProtocolInfo
from ordercast.overlay.graphs import build_graph
from ordercast.protocols.flood.flood import FLOOD
from ordercast.scenario.load import parse_scenario
from ordercast.scenario.model import Tree
from ordercast.sim import simulate

NODES = 511
LATENCY_MS = 5.0
GAP_MS = 1.0
HOPS_PER_MESSAGE = NODES - 1

TARGET_RATIO = 1.5
TARGET_HOPS = 100_000


class Data(Packet, frozen=True, array_like=True, gc=False, tag=1):
    message: Message
    identity: tuple[str, int]
    """Made once and shared by everybody who has seen it, like the message of the SimPy forms."""
    carries: ClassVar[str | None] = "message"


class BareFlood(Machine):
    """The machine that does exactly what the two SimPy forms do."""

    def __init__(self, place: Place, options: NoOptions) -> None:
        self.neighbours = place.neighbours
        self.seen: set[tuple[str, int]] = set()

    def on_publish(self, message: Message, out: Outbox) -> None:
        packet = Data(message, (message.origin, message.number))
        self.seen.add(packet.identity)
        for other in self.neighbours:
            out.send(other, packet)
        out.deliver(message)

    def on_receive(self, peer: NodeId, packet: Data, out: Outbox) -> None:  # type: ignore[override]
        identity = packet.identity
        if identity in self.seen:
            return
        self.seen.add(identity)
        for other in self.neighbours:
            if other != peer:
                out.send(other, packet)
        out.deliver(packet.message)


BARE_FLOOD = ProtocolInfo(
    name="bare-flood",
    summary="for this benchmark",
    source="",
    guarantee=Guarantee.EVENTUAL,
    overlay="any",
    faults="none",
    metadata="",
    genuine=False,
    build=BareFlood,
    packets=(Data,),
)


def neighbours() -> list[list[int]]:
    """The tree as every form sees it, nodes by number."""
    graph = build_graph(Tree(nodes=NODES), 0)
    return [[int(other[1:]) for other in graph.neighbours[node]] for node in graph.nodes]


def simpy_processes(messages: int) -> int:
    """A process per node that takes from its Store; a packet on its way is a timeout that puts it there."""
    env = simpy.Environment()
    stores = [simpy.Store(env) for _ in range(NODES)]
    near = neighbours()
    delivered = 0

    def arrive(timeout: Any) -> None:
        target, source, message = timeout.value
        stores[target].put((source, message))

    def node(me: int) -> Generator[Any, Any, None]:
        nonlocal delivered
        seen: set[tuple[int, int]] = set()
        while True:
            source, message = yield stores[me].get()
            if message in seen:
                continue
            seen.add(message)
            for other in near[me]:
                if other != source:
                    env.timeout(LATENCY_MS, (other, me, message)).callbacks.append(arrive)
            delivered += 1

    def publish() -> Generator[Any, Any, None]:
        for i in range(messages):
            stores[i % NODES].put((-1, (i % NODES, i)))
            yield env.timeout(GAP_MS)

    for me in range(NODES):
        env.process(node(me))
    env.process(publish())
    env.run()
    return delivered


def simpy_callbacks(messages: int) -> int:
    """No processes: a packet on its way is a timeout whose callback is the receiver."""
    env = simpy.Environment()
    near = neighbours()
    seen: list[set[tuple[int, int]]] = [set() for _ in range(NODES)]
    delivered = 0
    timeout = env.timeout

    def take(me: int, source: int, message: tuple[int, int]) -> None:
        nonlocal delivered
        mine = seen[me]
        if message in mine:
            return
        mine.add(message)
        for other in near[me]:
            if other != source:
                timeout(LATENCY_MS, (other, me, message)).callbacks.append(arrive)
        delivered += 1

    def arrive(event: Any) -> None:
        take(*event.value)

    def publish(event: Any) -> None:
        i = event.value
        take(i % NODES, -1, (i % NODES, i))
        if i + 1 < messages:
            timeout(GAP_MS, i + 1).callbacks.append(publish)

    timeout(0, 0).callbacks.append(publish)
    env.run()
    return delivered


def ours(protocol: ProtocolInfo, messages: int) -> int:
    scenario = parse_scenario(
        {
            "name": "benchmark",
            "overlay": {"kind": "tree", "nodes": NODES},
            "link": {"latency_ms": LATENCY_MS},
            "workload": [{"kind": "open", "rate_per_s": 1000 / GAP_MS, "arrival": "regular", "limit": messages}],
            "duration_ms": messages * GAP_MS + 1,
        }
    )
    return simulate(scenario, protocol).delivered


FORMS: dict[str, Callable[[int], int]] = {
    "SimPy, processes and stores": simpy_processes,
    "SimPy, callbacks on timeouts": simpy_callbacks,
    "Ordercast, bare flood": lambda messages: ours(BARE_FLOOD, messages),
    "Ordercast, protocol flood": lambda messages: ours(FLOOD, messages),
}


def timed(form: Callable[[int], int], messages: int) -> float:
    """Seconds of processor time, which others on the machine disturb less than the clock on the wall."""
    gc.collect()
    gc.set_threshold(200_000, 50, 1000)
    start = time.process_time()
    delivered = form(messages)
    spent = time.process_time() - start
    if delivered != messages * NODES:
        raise SystemExit(f"{delivered} deliveries instead of {messages * NODES}: the forms do not do the same work")
    return spent


def peak_mb(form: str, messages: int) -> float:
    """Peak memory of a process of its own that runs one form."""
    command = [sys.executable, __file__, "--only", form, "--messages", str(messages)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def report(messages: int, rounds: int) -> bool:
    print(f"{messages} messages, {messages * HOPS_PER_MESSAGE:,} hops, best of {rounds} rounds")
    print(
        f"Python {platform.python_version()}, SimPy {simpy.__version__}, {os.cpu_count()} cores, {platform.machine()}\n"
    )
    best = dict.fromkeys(FORMS, float("inf"))
    for _ in range(rounds):
        for name, form in FORMS.items():
            best[name] = min(best[name], timed(form, messages))
    print(f"{'form':32}{'seconds':>10}{'hops/s':>12}{'peak MB':>10}{'4x as long':>12}")
    speed = {name: messages * HOPS_PER_MESSAGE / seconds for name, seconds in best.items()}
    for name in FORMS:
        short, long = peak_mb(name, messages), peak_mb(name, 4 * messages)
        print(f"{name:32}{best[name]:10.2f}{speed[name]:12,.0f}{short:10.0f}{long:12.0f}")
    peer = max(speed[name] for name in FORMS if name.startswith("SimPy"))
    ratio = speed["Ordercast, bare flood"] / peer
    hops = speed["Ordercast, protocol flood"]
    print(f"\nbare flood against the faster SimPy form: {ratio:.2f} times (target {TARGET_RATIO})")
    print(
        f"protocol flood: {hops:,.0f} hops of messages a second, acknowledgements not counted (target {TARGET_HOPS:,})"
    )
    return ratio >= TARGET_RATIO and hops >= TARGET_HOPS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=FORMS, help="run one form and print the peak memory of the process in MB")
    arguments = parser.parse_args()
    if arguments.only:
        timed(FORMS[arguments.only], arguments.messages)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    sys.exit(0 if report(arguments.messages, arguments.rounds) else 1)


if __name__ == "__main__":
    main()
