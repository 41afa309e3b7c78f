"""Our brokers beside nats-server, redis and mosquitto: throughput and latency, in one run on one machine.

    python benchmarks/pubsub.py [--messages 200000] [--size 64] [--rate 5000] [--repeat 3] [--only ordercast,nats]
        [--peer-token T]

One publisher process, one subscriber process, Python clients whose modules are loaded. Throughput: from the publisher's
connecting to the last delivery. Latency: at a fixed rate, each payload carrying the time of its publication. CPU: what
each process used per message in the throughput run, which says more than the clock on a busy machine. The peers deliver
at most once and in the order of one connection; what our guarantees add is in docs/guarantees.md. The best of
`--repeat` runs counts for everybody.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import struct
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import uvloop
from pubsub_cluster import brokers, chain, pids
from pubsub_peers import PEERS, TOPIC, Ready, Received, Server, pause

_STAMP = struct.Struct(">q")
PATIENCE_S = 120
_KEYS = [str(number) for number in range(1000)]


class Ours:
    """One or more brokers in a chain, one process each; publisher at the first, subscriber at the last."""

    module = "ordercast.api"
    peer_token = ""
    """With one, brokers seal what they hand to readers."""

    def __init__(self, guarantee: str, brokers: int = 1, keys: int = 1) -> None:
        self.guarantee = guarantee
        self.brokers = brokers
        self.keys = _KEYS[:keys]
        self.name = f"ordercast {guarantee}, {brokers} broker{'s' * (brokers > 1)}"
        self.how = f"publish_soon() per message, flush at the end; {keys} key{'s' * (keys > 1)}"

    def missing(self) -> str:
        return ""

    @contextlib.contextmanager
    def server(self) -> Iterator[Server]:
        token = [f'peer_token = "{self.peer_token}"'] if self.peer_token else []
        with brokers(chain(self.brokers), *token) as (cluster, addresses):
            yield Server(addresses, pids(cluster))

    async def publish(self, addresses: list[str], payloads: Iterator[bytes], rate: float) -> None:
        import ordercast

        async with ordercast.connect(addresses[0]) as client:
            keys = self.keys
            begun = time.perf_counter()
            for sent, payload in enumerate(payloads):
                if rate:
                    await pause(sent, begun, rate)
                client.publish_soon(TOPIC, payload, key=keys[sent % len(keys)], guarantee=self.guarantee)
                if sent % 256 == 0:
                    await client.drain()
            await client.flush()

    async def subscribe(self, addresses: list[str], ready: Ready, received: Received) -> None:
        import ordercast

        async with ordercast.connect(addresses[-1]) as client:
            inbox = await client.subscribe(TOPIC)
            ready()
            async for message in inbox:
                if received(message.payload):
                    break


SYSTEMS = (
    Ours("eventual"),
    Ours("causal"),
    *PEERS,
    Ours("causal", brokers=3),
    Ours("total", brokers=3, keys=1000),
)


class Load(NamedTuple):
    """What is published."""

    messages: int
    size: int
    rate: float = 0.0
    """Messages a second; 0: as fast as it goes."""


def _payloads(messages: int, size: int) -> Iterator[bytes]:
    rest = bytes(size - _STAMP.size)
    for _ in range(messages):
        yield _STAMP.pack(time.monotonic_ns()) + rest


def _publisher(system: Any, server: Any, load: Load, pipe: Connection) -> None:
    import_module(system.module)
    pipe.recv()
    begun = time.monotonic_ns()
    used = time.process_time()
    uvloop.run(system.publish(server, _payloads(load.messages, load.size), load.rate))
    pipe.send((begun, time.process_time() - used))


def _subscriber(system: Any, server: Any, messages: int, pipe: Connection) -> None:
    latencies = np.zeros(messages, np.int64)
    arrived = 0

    def received(payload: bytes) -> bool:
        nonlocal arrived
        if arrived == messages:
            return True  # nats-core hands some out twice.
        latencies[arrived] = time.monotonic_ns() - _STAMP.unpack_from(payload)[0]
        arrived += 1
        return arrived == messages

    import_module(system.module)
    used = time.process_time()
    uvloop.run(system.subscribe(server, lambda: pipe.send("ready"), received))
    pipe.send((time.monotonic_ns(), np.percentile(latencies, [50, 99]).tolist(), time.process_time() - used))


class Measured(NamedTuple):
    """One run. CPU is of all threads of a process, and per message."""

    rate: float
    median_ms: float
    late_ms: float
    publisher_us: float
    server_us: float
    subscriber_us: float


def cpu_s(pids: list[int]) -> float:
    """What the processes have used so far."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(system: Any, load: Load) -> Measured:
    messages = load.messages
    with system.server() as server:
        ours, theirs = multiprocessing.Pipe()
        reading = multiprocessing.Process(target=_subscriber, args=(system, server.address, messages, theirs))
        reading.start()
        if not ours.poll(PATIENCE_S) or ours.recv() != "ready":
            raise TimeoutError(f"{system.name}: the subscriber is not ready within {PATIENCE_S} s")
        gate, publishing = multiprocessing.Pipe()
        writing = multiprocessing.Process(target=_publisher, args=(system, server.address, load, publishing))
        writing.start()
        before = cpu_s(server.pids)
        gate.send("go")
        if not ours.poll(PATIENCE_S):
            writing.kill()
            reading.kill()
            raise TimeoutError(f"{system.name}: not all of {messages} messages arrived within {PATIENCE_S} s")
        ended, (median, late), reader_s = ours.recv()
        begun, writer_s = gate.recv()
        server_s = cpu_s(server.pids) - before
        writing.join()
        reading.join()
    per_message = [seconds / messages * 1e6 for seconds in (writer_s, server_s, reader_s)]
    return Measured(messages / (ended - begun) * 1e9, median / 1e6, late / 1e6, *per_message)


def _row(system: Any, fast: Measured, calm: Measured | None, nats: float) -> str:
    ratio = f"{fast.rate / nats:.2f}" if nats else "-"
    latency = f"{calm.median_ms:>8.2f} {calm.late_ms:>8.2f}" if calm else f"{'-':>8} {'-':>8}"
    cpu = f"{fast.publisher_us:>7.1f} {fast.server_us:>7.1f} {fast.subscriber_us:>7.1f}"
    return f"{system.name:30} {fast.rate:>11,.0f} {ratio:>8} {latency} {cpu}   {system.how}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=64, help="bytes of a payload")
    parser.add_argument("--rate", type=float, default=5000.0)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="", help="parts of names, separated by commas")
    parser.add_argument("--peer-token", default="", help="of our brokers, which then seal what they hand to readers")
    options = parser.parse_args()
    Ours.peer_token = options.peer_token
    wanted = [part for part in options.only.split(",") if part]
    chosen = [system for system in SYSTEMS if not wanted or any(part in system.name for part in wanted)]
    rows = []
    for system in chosen:
        if system.missing():
            print(f"{system.name:30} not measured: {system.missing()}")
            continue
        messages = options.messages if "total" not in system.name else options.messages // 5
        fast = max(measure(system, Load(messages, options.size)) for _ in range(options.repeat))
        calm = None
        if fast.rate > options.rate:
            calm = measure(system, Load(int(options.rate * 4), options.size, options.rate))
        rows.append((system, fast, calm))
    nats = next((fast.rate for system, fast, _ in rows if "nats" in system.name), 0.0)
    load = ", ".join(f"{part:.1f}" for part in os.getloadavg())
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, load of the machine {load}, ", end="")
    print(f"{options.messages} messages of {options.size} bytes")
    print(f"{'':30} {'':>11} {'':>8} {f'ms at {options.rate:g}/s':>17} {'CPU us per message':>23}")
    print(f"{'system':30} {'messages/s':>11} {'of nats':>8} {'p50':>8} {'p99':>8}", end=" ")
    print(f"{'pub':>7} {'server':>7} {'sub':>7}   how")
    for system, fast, calm in rows:
        print(_row(system, fast, calm, nats))


if __name__ == "__main__":
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    main()
