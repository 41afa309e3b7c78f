"""What a hop of LoCaMu costs: CPU time and header bytes in the simulator, beside flooding and CBCAST on the same tree.

    python benchmarks/locamu_hops.py --nodes 511 --publishers 1 --groups 1

A hop is a copy of a message that some node receives. All protocols run in one process, one after the other, so that the
ratio means something on a busy machine, too; with --sizes the bytes of first copies are counted instead of time.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from ordercast.protocols import lookup
from ordercast.scenario.load import parse_scenario
from ordercast.sim.links.world import World
from ordercast.sim.run import live

MESSAGES = 100
LATENCY_MS = 1.0
NO_LIMIT_MBPS = 1e6


def build(protocol: str, arguments: argparse.Namespace, options: dict[str, Any]) -> World:
    """Publishers spread over the tree take turns, a thousand messages a second over all."""
    step = max(1, arguments.nodes // arguments.publishers)
    publishers = [f"n{i * step}" for i in range(arguments.publishers)]
    raw: dict[str, Any] = {
        "name": "hops",
        "overlay": {"kind": "tree", "nodes": arguments.nodes},
        "duration_ms": arguments.messages,
        "link": {"latency_ms": LATENCY_MS},
        "options": options,
        "workload": [
            {"kind": "open", "arrival": "regular", "rate_per_s": 1000, "publishers": publishers, "payload_bytes": 32}
        ],
        "trace": {"record": "app"},
    }
    if arguments.sizes:
        raw["node"] = {"bandwidth_mbps": NO_LIMIT_MBPS}  # Bytes are counted where there is a limit.
    if arguments.groups > 1:
        raw["groups"] = {"kind": "subtrees"}
    return World(parse_scenario(raw), lookup(protocol), arguments.seed, None)


def hops(world: World) -> int:
    """Deliveries but those at publishers. With groups, nodes between pass messages on, too; these are not counted."""
    return sum(host.delivered for host in world.hosts.values()) - world.published


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=511)
    parser.add_argument("--publishers", type=int, default=1)
    parser.add_argument("--groups", type=int, default=1, help="1: everybody; more: one per subtree")
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--f", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--protocols", default="flood,locamu,cbcast")
    parser.add_argument("--sizes", action="store_true", help="header bytes of LoCaMu's copies instead of time")
    arguments = parser.parse_args()
    if arguments.sizes:
        sizes(arguments)
    else:
        times(arguments)


def times(arguments: argparse.Namespace) -> None:
    first = 0.0
    for protocol in arguments.protocols.split(","):
        world = build(protocol, arguments, {"f": arguments.f} if protocol == "locamu" else {})
        started = time.process_time()
        live(world)
        each = (time.process_time() - started) / hops(world) * 1e6
        first = first or each
        print(f"{protocol:<8} {each:7.1f} us a hop, {each / first:5.1f} times {arguments.protocols.split(',')[0]}")


def sizes(arguments: argparse.Namespace) -> None:
    world = build("locamu", arguments, {"f": arguments.f, "tally": True})
    live(world)
    traffic = [host.traffic for host in world.hosts.values()]
    copies, header, control = (
        sum(getattr(part, name) for part in traffic) for name in ("copies", "header_bytes", "control_bytes")
    )
    tallies = [host.machine.tally for host in world.hosts.values()]  # type: ignore[attr-defined]
    first = sum(tally.copies for tally in tallies)
    names, past = (sum(getattr(tally, part) for tally in tallies) / first for part in ("vector_bytes", "past_bytes"))
    print(
        f"{copies} copies: {header / copies:.1f} bytes of header on the wire, {names + past:.1f} by the source's count"
    )
    print(f"  ({names:.1f} vectors, {past:.1f} past); {control / copies:.1f} bytes a copy for acknowledgements")


if __name__ == "__main__":
    main()
