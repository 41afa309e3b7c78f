"""How fast the TCP runtime is, against what asyncio with uvloop can do at all, in one run on one machine.

    python benchmarks/tcp.py [--seconds 4] [--protocols flood,fifo,skeen]

Four nodes, one process each, all connected. Every node keeps 64 messages of 64 bytes on their way. A message of a
broadcast goes to everyone, one of an atomic multicast to two nodes. The limit is the same traffic without any protocol:
frames with a length, split and counted by the receiver, acknowledged once per batch; no journal, no decoding, no order.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import struct
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

import uvloop

from ordercast.core.messages import Guarantee
from ordercast.net.supervise.cluster import run_processes
from ordercast.protocols import lookup
from ordercast.scenario.model import Clique, ClosedLoad, Detector, Scenario, Trace

NODES = 4
WINDOW = 64
PAYLOAD = 64
_LENGTH = struct.Struct(">I")
_ACK = struct.Struct(">IQ")
_ACK_MARK = 0xFFFFFFFF


class RawPeer(asyncio.Protocol):
    """One connection of the limit: sends frames, counts frames, acknowledges batches."""

    def __init__(self, node: RawNode) -> None:
        self.node = node
        self.sent = self.acked = self.received = 0
        self.rest = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.node.joined(self)

    def data_received(self, data: bytes) -> None:
        buffer = self.rest + data if self.rest else data
        start, size, fresh = 0, len(buffer), 0
        while size - start >= 4:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if length == _ACK_MARK:
                if size - start < _ACK.size:
                    break
                self.acked = _ACK.unpack_from(buffer, start)[1]
                start += _ACK.size
                continue
            if size - start < 4 + length:
                break
            fresh += len(buffer[start + 4 : start + 4 + length]) > 0
            start += 4 + length
        self.rest = buffer[start:]
        if fresh:
            self.received += fresh
            self.write(_ACK.pack(_ACK_MARK, self.received))
        self.node.go_on()

    def write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)


class RawNode:
    """Keeps a window of messages on their way to all peers."""

    def __init__(self) -> None:
        self.peers: list[RawPeer] = []
        self.published = 0
        self.running = False
        self.frame = _LENGTH.pack(PAYLOAD + 24) + bytes(PAYLOAD + 24)
        self.complete = asyncio.Event()

    def joined(self, peer: RawPeer) -> None:
        self.peers.append(peer)
        if len(self.peers) == NODES - 1:
            self.complete.set()

    def go_on(self) -> None:
        if self.running:
            room = WINDOW - (self.published - min(peer.acked for peer in self.peers))
            if room > 0:
                self.published += room
                for peer in self.peers:
                    peer.write(self.frame * room)


async def _raw_node(rank: int, pipe: Connection, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    node = RawNode()
    server = await loop.create_server(lambda: RawPeer(node), "127.0.0.1", 0)
    pipe.send(server.sockets[0].getsockname()[:2])
    for host, port in pipe.recv()[rank + 1 :]:
        await loop.create_connection(lambda: RawPeer(node), host, port)
    await node.complete.wait()
    pipe.send("ready")
    pipe.recv()
    node.running = True
    begun = time.perf_counter()
    node.go_on()
    await asyncio.sleep(seconds)
    node.running = False
    took = time.perf_counter() - begun
    received = sum(peer.received for peer in node.peers)
    pipe.send((node.published / took, (received + node.published) / took, received / took))
    pipe.recv()
    server.close()


def _raw_process(rank: int, pipe: Connection, seconds: float) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_raw_node(rank, pipe, seconds))


Rates = tuple[float, float, float]
"""Messages, deliveries and packets a second, over all nodes."""


def raw_limit(seconds: float) -> Rates:
    """What there is to be had without any protocol."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for rank in range(NODES):
        mine, its = context.Pipe()
        process = context.Process(target=_raw_process, args=(rank, its, seconds))
        process.start()
        pipes.append(mine)
        processes.append(process)
    addresses = [pipe.recv() for pipe in pipes]
    for step in (addresses, "go"):
        for pipe in pipes:
            pipe.send(step)
        results = [pipe.recv() for pipe in pipes]
    for pipe in pipes:
        pipe.send("stop")
    for process in processes:
        process.join()
    messages, deliveries, packets = (sum(rates) for rates in zip(*results, strict=True))
    return messages, deliveries, packets


def ordercast(protocol: str, seconds: float) -> Rates:
    """The same with a protocol, from what the journals say."""
    atomic = lookup(protocol).guarantee is Guarantee.ATOMIC
    scenario = Scenario(
        name="throughput",
        overlay=Clique(nodes=NODES),
        protocol=protocol,
        duration_ms=seconds * 1000,
        detector=Detector(delay_ms=5_000),
        trace=Trace(record="app"),
        workload=[
            ClosedLoad(outstanding=WINDOW, payload_bytes=PAYLOAD, until="completed", destinations=2 if atomic else 0)
        ],
    )
    with tempfile.TemporaryDirectory() as directory:
        outcome = run_processes(scenario, out=Path(directory) / "run")
    if not outcome.manifest.drained:
        sys.exit(f"{protocol} did not come to rest")
    return outcome.published / seconds, outcome.delivered / seconds, outcome.manifest.totals["hops"] / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--protocols", default="flood,fifo,skeen")
    options = parser.parse_args()
    limit = raw_limit(options.seconds)
    print(f"{'':20}{'messages/s':>12}{'deliveries/s':>14}{'packets/s':>12}   shares of the limit (deliveries, packets)")
    print(f"{'asyncio and uvloop':20}{limit[0]:12,.0f}{limit[1]:14,.0f}{limit[2]:12,.0f}")
    for protocol in options.protocols.split(","):
        rates = ordercast(protocol, options.seconds)
        shares = f"{rates[1] / limit[1]:.3f} {rates[2] / limit[2]:.3f}"
        print(f"{protocol:20}{rates[0]:12,.0f}{rates[1]:14,.0f}{rates[2]:12,.0f}   {shares}")


if __name__ == "__main__":
    main()
