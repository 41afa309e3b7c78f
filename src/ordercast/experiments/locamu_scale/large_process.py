"""The process of one configuration: parameters on standard input, measurements on standard output.

It runs the configuration twice. The first run is left alone, for time and memory; in the second every packet is looked
at, and what was delivered is judged.
"""

from __future__ import annotations

import sys
import time

import msgspec

from ordercast.core.registry import ProtocolInfo
from ordercast.experiments.kit.study import Row
from ordercast.experiments.locamu_scale.footprint import own_bytes, reachable, resident_bytes
from ordercast.experiments.locamu_scale.large import ONE, scenario
from ordercast.experiments.locamu_scale.simulated import Sizes, by_tally, lived
from ordercast.protocols import lookup
from ordercast.sim.links.world import World
from ordercast.sim.run import live

_LOOKED_AT = 64
"""Nodes whose machines are taken apart."""


def main() -> None:
    parameters = msgspec.json.decode(sys.stdin.buffer.read(), type=Row)
    protocol = lookup(str(parameters["protocol"]))
    row = {**_left_alone(parameters, protocol), **_looked_at(parameters, protocol)}
    sys.stdout.buffer.write(msgspec.json.encode(row))


def _left_alone(parameters: Row, protocol: ProtocolInfo) -> Row:
    planned = scenario(parameters, tally=False)
    before, start = resident_bytes(), time.process_time()
    world = World(planned, protocol, planned.seed, None)
    built, ready = time.process_time(), resident_bytes()
    live(world)
    done, after = time.process_time(), resident_bytes()
    nodes = len(world.hosts)
    return {
        "published": world.published,
        "delivered": sum(host.delivered for host in world.hosts.values()),
        "packets": sum(channel.arrived for channel in world.channels()),
        "rested": world.clock.at_rest,
        "build_cpu_s": built - start,
        "run_cpu_s": done - built,
        "built_bytes_per_node": (ready - before) / nodes,
        "resident_bytes_per_node": (after - before) / nodes,
        # Tables of groups are shared by some nodes and not by others: with many groups nobody's own is well defined.
        "own_bytes_per_node": _own(world) if parameters["groups"] == ONE else None,
    }


def _own(world: World) -> float:
    """Of machines all over the tree. What the first one refers to, too, all of them share."""
    first, *others = world.hosts.values()
    shared = reachable(first.machine)
    chosen = others[:: max(1, len(others) // _LOOKED_AT)]
    return sum(own_bytes(host.machine, shared) for host in chosen) / len(chosen)


def _looked_at(parameters: Row, protocol: ProtocolInfo) -> Row:
    counted = parameters["protocol"] == "locamu"
    sizes = Sizes(protocol, by_tally if counted else None)
    run = lived(scenario(parameters, tally=counted), sizes.protocol)
    return {**sizes.row(), **run.judged}


if __name__ == "__main__":
    main()
