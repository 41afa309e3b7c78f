"""Publications that somebody waits for: `await client.publish`, beside `publish_async` of nats JetStream, in one run.

    python benchmarks/pubsub_awaited.py [--messages 100000] [--in-flight 5000] [--size 64] [--rounds 3]

A publisher in this process, a server in another; so many publications are under way at a time, and each of them is
acknowledged by itself. Both servers keep what they are sent in files and sync them now and then (JetStream: every two
minutes; ours: `fsync = "interval"`, every 100 ms). Ours is used by as many tasks, each of which publishes and waits,
again and again; nats by its own call for this, which waits for room in a window. Ways alternate, and the medians count.
CPU is of all threads of a process, per message, and says more than the clock on a busy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import uvloop
from pubsub import cpu_s
from pubsub_cluster import brokers, chain, pids
from pubsub_peers import Server, free_port, running

import ordercast

TOPIC = "kept.bench"


class Load(NamedTuple):
    """What is published."""

    messages: int
    in_flight: int
    payload: bytes


class Way(Protocol):
    """One system, and how it is used."""

    name: str

    def server(self) -> contextlib.AbstractContextManager[Server]: ...

    async def publish(self, server: Server, load: Load) -> tuple[float, float]:
        """Seconds by the clock and of this process's CPU, from the first publication to the last acknowledgement."""


class Ours:
    """One broker with a data directory; the topic is kept, or not."""

    def __init__(self, *, kept: bool) -> None:
        self.name = f"ordercast, await publish, topic {'kept' if kept else 'not kept'}"
        rule = ("[[keep]]", 'filter = "kept.>"', "copies = 1")
        self._settings = ('data = "data"', 'fsync = "interval"', *(rule if kept else ()))

    @contextlib.contextmanager
    def server(self) -> Iterator[Server]:
        with brokers(chain(1), *self._settings) as (cluster, addresses):
            yield Server(addresses, pids(cluster))

    async def publish(self, server: Server, load: Load) -> tuple[float, float]:
        async with ordercast.connect(server.address[0]) as client:
            await client.publish(TOPIC, load.payload)
            begun = time.perf_counter(), time.process_time()
            left = iter(range(load.messages))

            async def again() -> None:
                for _ in left:
                    await client.publish(TOPIC, load.payload)

            await asyncio.gather(*(again() for _ in range(load.in_flight)))
            return time.perf_counter() - begun[0], time.process_time() - begun[1]


class JetStream:
    """One server, one stream in files; acknowledgements are futures."""

    name = "nats JetStream, publish_async"

    @contextlib.contextmanager
    def server(self) -> Iterator[Server]:
        port = free_port()
        with tempfile.TemporaryDirectory() as directory:
            command = ["nats-server", "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", directory]
            with running(command, port) as server:
                yield server

    async def publish(self, server: Server, load: Load) -> tuple[float, float]:
        import nats
        from nats.js.api import StorageType

        client = await nats.connect(f"nats://127.0.0.1:{server.address}")
        stream = client.jetstream(publish_async_max_pending=load.in_flight)
        await stream.add_stream(name="bench", subjects=[TOPIC], storage=StorageType.FILE)
        await stream.publish(TOPIC, load.payload)
        begun = time.perf_counter(), time.process_time()
        for _ in range(load.messages):
            await stream.publish_async(TOPIC, load.payload, wait_stall=60)
        await stream.publish_async_completed()
        spent = time.perf_counter() - begun[0], time.process_time() - begun[1]
        await client.close()
        return spent


WAYS: tuple[Way, ...] = (Ours(kept=True), Ours(kept=False), JetStream())


class Measured(NamedTuple):
    """One run."""

    rate: float
    publisher_us: float
    server_us: float


def measure(way: Way, load: Load) -> Measured:
    with way.server() as server:
        before = cpu_s(server.pids)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            clock, mine = runner.run(way.publish(server, load))
        theirs = cpu_s(server.pids) - before
    return Measured(load.messages / clock, mine / load.messages * 1e6, theirs / load.messages * 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--in-flight", type=int, default=5000)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    load = Load(options.messages, options.in_flight, bytes(options.size))
    ways = [way for way in WAYS if "nats" not in way.name or shutil.which("nats-server")]
    found: dict[str, list[Measured]] = {way.name: [] for way in ways}
    for _ in range(options.rounds):
        for way in ways:
            found[way.name].append(measure(way, load))
    told = ", ".join(f"{part:.1f}" for part in os.getloadavg())
    print(f"{load.messages:,} messages of {options.size} bytes, {load.in_flight:,} in flight, medians of", end=" ")
    print(f"{options.rounds} rounds, load of the machine {told}")
    print(f"{'':44} {'acknowledged/s':>15} {'CPU us: publisher':>18} {'server':>7}")
    for name, runs in found.items():
        rate, publisher, server = (statistics.median(figures) for figures in zip(*runs, strict=True))
        print(f"{name:44} {rate:>15,.0f} {publisher:>18.1f} {server:>7.1f}")


if __name__ == "__main__":
    main()
