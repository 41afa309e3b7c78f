"""What a hop of the protocols on trees costs: CPU time, and header bytes by the source's count and on the wire.

Run: python benchmarks/baselines.py [--protocol P]... [--publishers N]... [--seed N]... [--groups one|subtrees] [--wire]

A binary tree of 511 nodes, 1 ms a link, no limits of bandwidth; every publisher, one of a random sample, publishes a
message of 32 bytes every 10 ms, from a random time on, to the group of all or to one of the 255 groups of subtrees that
it is in. After a warm-up a window is measured: CPU time a hop, acknowledgements included; mean header bytes a copy and
next to it the mean that an independent prototype had, where there is one. `--wire` also encodes every packet and shows
its bytes; that is then part of the CPU time.
"""

from __future__ import annotations

import argparse
import gc
import random
import time

from ordercast.protocols import lookup
from ordercast.scenario.load import parse_scenario
from ordercast.sim.clock import ns
from ordercast.sim.links.world import World
from ordercast.sim.workload import start_workload

NODES = 511
RATE_PER_S = 100
SLICES = 10
"""The window is measured in so many parts, and the best one counts: other work on the machine only ever adds."""
PROTOCOLS = ("cbcast", "causal-barriers", "delta-neighbourhood")
REFERENCES = {
    ("cbcast", "one"): {1: 12, 5: 29, 20: 88, 50: 199, 100: 353, 200: 701, 511: 1816},
    ("cbcast", "subtrees"): {1: 31, 20: 241, 100: 691, 511: 2861},
    ("causal-barriers", "one"): {1: 8176, 5: 24528, 20: 48034},
}


def build(protocol: str, publishers: int, groups: str, arrival: str, seed: int, options: dict[str, object]) -> World:
    dice = random.Random(seed)
    loads = [
        {
            "kind": "open",
            "publishers": [f"n{node}"],
            "rate_per_s": RATE_PER_S,
            "payload_bytes": 32,
            "arrival": arrival,
            "start_ms": dice.uniform(0, 1000 / RATE_PER_S),
        }
        for node in dice.sample(range(NODES), publishers)
    ]
    scenario = parse_scenario(
        {
            "name": "baselines",
            "overlay": {"kind": "tree", "nodes": NODES},
            "groups": {"kind": "everyone" if groups == "one" else "subtrees"},
            "link": {"latency_ms": 1.0},
            "options": {"tally": True, **options},
            "duration_ms": 600_000,
            "workload": loads,
        }
    )
    world = World(scenario, lookup(protocol), seed, None)
    start_workload(world)
    for host in world.hosts.values():
        host.start()
    return world


def counted(world: World) -> tuple[int, int, int]:
    """Hops, copies and header bytes so far."""
    tallies = [host.machine.tally for host in world.hosts.values()]  # type: ignore[attr-defined]
    hops = sum(channel.arrived for channel in world.channels())
    return hops, sum(tally.copies for tally in tallies), sum(tally.header_bytes for tally in tallies)


def encode_everything(world: World) -> list[int]:
    """From now on every packet that is sent is encoded, too; the list holds packets with a message and their bytes."""
    totals = [0, 0]

    def encoding(send, facts):  # type: ignore[no-untyped-def]
        def send_encoded(peer, packet):  # type: ignore[no-untyped-def]
            facts.look(packet)
            if facts.msg is not None:
                totals[0] += 1
                totals[1] += facts.header_bytes
            send(peer, packet)

        return send_encoded

    for host in world.hosts.values():
        host.send = encoding(host.send, world.facts)  # type: ignore[method-assign]
    return totals


def measure(protocol: str, publishers: int, seed: int, arguments: argparse.Namespace) -> str:
    options = {"retransmit_ms": 600_000.0}  # Nothing is lost.
    world = build(protocol, publishers, arguments.groups, arguments.arrival, seed, options)
    wire = encode_everything(world) if arguments.wire else [0, 0]
    world.clock.run_until(ns(arguments.warm_up_ms))
    start = before = counted(world)
    wire[:] = [0, 0]
    costs = []
    for i in range(1, SLICES + 1):
        started = time.process_time()
        world.clock.run_until(ns(arguments.warm_up_ms + arguments.ms * i / SLICES))
        spent = time.process_time() - started
        now = counted(world)
        if now[0] > before[0]:
            costs.append(1e6 * spent / (now[0] - before[0]))
        before = now
    hops, copies, header_bytes = (now - then for now, then in zip(before, start, strict=True))
    mean = header_bytes / max(copies, 1)
    line = f"{protocol:20} {arguments.groups:9} {publishers:4} publishers, seed {seed} {hops:8} hops"
    line += f"  {min(costs):6.1f} us a hop (median {sorted(costs)[len(costs) // 2]:.1f})  header {mean:9.1f} B"
    reference = REFERENCES.get((protocol, arguments.groups), {}).get(publishers)
    if reference is not None:
        line += f" (prototype {reference}: {100 * (mean / reference - 1):+.1f} %)"
    return line + (f"  wire {wire[1] / max(wire[0], 1):9.1f} B" if arguments.wire else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--protocol", action="append")
    parser.add_argument("--publishers", action="append", type=int)
    parser.add_argument("--groups", choices=("one", "subtrees"), default="one")
    parser.add_argument("--arrival", choices=("poisson", "regular"), default="regular")
    parser.add_argument("--ms", type=float, default=30.0)
    parser.add_argument("--warm-up-ms", type=float, default=60.0)
    parser.add_argument("--seed", action="append", type=int)
    parser.add_argument("--wire", action="store_true")
    arguments = parser.parse_args()
    gc.set_threshold(200_000, 50, 1000)
    for protocol in arguments.protocol or PROTOCOLS:
        for publishers in arguments.publishers or (1, 20, 100, 511):
            for seed in arguments.seed or (1,):
                print(measure(protocol, publishers, seed, arguments), flush=True)


if __name__ == "__main__":
    main()
