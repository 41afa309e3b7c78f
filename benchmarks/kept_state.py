"""What it costs a node over TCP to survive the death of its process, and how long it takes to come back.

    python benchmarks/kept_state.py [--messages 3000] [--rounds 5] [--protocols locamu,fifo]

Three nodes in a line, all in this process, so that their processor time is one number that other work on the machine
does not change. Each keeps 32 messages of 100 bytes on their way to everybody. Without a log, with one, and with one
that waits for the disk in every turn; then one node repeats its log.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

import msgspec
import uvloop

from ordercast.core.ids import NodeId
from ordercast.net.nodes.node import NodeHost, NodePlace
from ordercast.net.nodes.replay import ToldEvents
from ordercast.net.nodes.settings import NodeSettings
from ordercast.net.nodes.state_log import StateLog, belongs_to
from ordercast.net.supervise.process import ProcessLayout
from ordercast.protocols import lookup
from ordercast.scenario.model import LineGraph, OpenLoad, Scenario
from ordercast.trace.journal import Journal

NODES = 3
WINDOW = 32
PAYLOAD = bytes(100)
TOPIC = "t0"


class Mode(msgspec.Struct, frozen=True):
    name: str
    durable: bool
    settings: NodeSettings


MODES = [
    Mode("no log", False, NodeSettings(suspect_ms=60_000)),
    Mode("log", True, NodeSettings(suspect_ms=60_000, snapshot_bytes=1 << 30)),
    Mode("log, begun anew every 256 KiB", True, NodeSettings(suspect_ms=60_000, snapshot_bytes=1 << 18)),
    Mode("log, fsync in every turn", True, NodeSettings(suspect_ms=60_000, state_fsync="always")),
]


def build(
    layout: ProcessLayout, protocol: str, node: NodeId, mode: Mode, directory: Path, *, life: int = 0, heard: int = 0
) -> NodeHost:
    """A node whose application has heard of so many deliveries."""
    info = lookup(protocol)
    place, settings = layout.place(node, 0), mode.settings
    log = None
    if mode.durable:
        whose = belongs_to(place, info, layout.options)
        log = StateLog(directory / node, whose, fsync=settings.state_fsync, least_bytes=settings.snapshot_bytes)
    journal = Journal(directory / f"{node}.{life}.jsonl", packets=False)
    net = NodePlace("bench", b"token", life)
    told = ToldEvents(deliveries=heard)
    return NodeHost(place, info, layout.options, net, settings=settings, journal=journal, log=log, told=told)


async def run(protocol: str, mode: Mode, messages: int, directory: Path) -> tuple[float, int]:
    """Processor time for one message at all nodes together, and how many there were."""
    scenario = Scenario(
        name="bench",
        overlay=LineGraph(nodes=NODES),
        protocol=protocol,
        duration_ms=1,
        workload=[OpenLoad(rate_per_s=1)],
    )
    layout = ProcessLayout(scenario, lookup(protocol), 0)
    hosts = [build(layout, protocol, node, mode, directory) for node in layout.graph.nodes]
    addresses = {host.node: await host.listen() for host in hosts}
    for i, host in enumerate(hosts):
        later = list(addresses)[i + 1 :]
        await host.start({peer: addresses[peer] for peer in later if peer in host.place.neighbours})
    await asyncio.sleep(0.2)
    each = messages // NODES
    began = time.process_time()

    async def publisher(host: NodeHost) -> None:
        for _ in range(each // WINDOW):
            await host.publish(TOPIC, PAYLOAD)

    await asyncio.gather(*(publisher(host) for host in hosts for _ in range(WINDOW)))
    total = each // WINDOW * WINDOW * NODES
    while any(host.delivered < total for host in hosts):
        await asyncio.sleep(0.001)
    spent = time.process_time() - began
    await asyncio.gather(*(host.close() for host in hosts))
    return spent / total, total


def repeat(protocol: str, mode: Mode, directory: Path, heard: int) -> tuple[float, int]:
    """Time to build a node from its log, and the log's size."""
    scenario = Scenario(
        name="bench",
        overlay=LineGraph(nodes=NODES),
        protocol=protocol,
        duration_ms=1,
        workload=[OpenLoad(rate_per_s=1)],
    )
    layout = ProcessLayout(scenario, lookup(protocol), 0)
    node = layout.graph.nodes[1]
    size = sum(path.stat().st_size for path in (directory / node).glob("*.log"))

    async def go() -> float:
        began = time.process_time()
        host = build(layout, protocol, node, mode, directory, life=1, heard=heard)
        spent = time.process_time() - began
        await host.close()
        return spent

    return uvloop.run(go()), size


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=5, help="the best of so many counts")
    parser.add_argument("--protocols", default="locamu,fifo")
    arguments = parser.parse_args()
    print("protocol  mode                            cpu us/message  messages/cpu s   back in    log")
    for protocol in arguments.protocols.split(","):
        best: dict[str, float] = {}
        back: dict[str, str] = {}
        for _ in range(arguments.rounds):
            for mode in MODES:
                with tempfile.TemporaryDirectory() as scratch:
                    cpu, heard = uvloop.run(run(protocol, mode, arguments.messages, Path(scratch)))
                    best[mode.name] = min(cpu, best.get(mode.name, cpu))
                    if mode.durable:
                        took, size = repeat(protocol, mode, Path(scratch), heard)
                        back[mode.name] = f" {took:7.2f} s {size / 1e6:6.2f} MB"
        for name, cpu in best.items():
            print(f"{protocol:9} {name:31} {cpu * 1e6:14.0f} {1 / cpu:15,.0f}{back.get(name, '')}", flush=True)


if __name__ == "__main__":
    main()
