"""What shared work costs: a kept topic, a group of workers, many keys; beside it the same topic with one subscriber.

    python benchmarks/shared_work.py [--messages 50000] [--workers 8] [--keys 1000] [--rounds 3]

Publisher, broker, leader and workers are in this process and one loop: figures per second of its CPU time are not
changed by other work on the machine, those by the clock are. Medians of `--rounds`; the two ways alternate.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from ordercast import testing
from ordercast.client.work.leader import WorkSettings
from ordercast.pubsub.keeping import KeepTable
from ordercast.pubsub.settings import BrokerSettings

TOPIC = "orders"
PAYLOAD = bytes(64)
KEEP = (KeepTable(filter=TOPIC), KeepTable(filter="groups.>", compact="key"))


class Count:
    """How many messages are dealt with."""

    def __init__(self, wanted: int) -> None:
        self.left = wanted
        self.all = asyncio.Event()

    def one(self) -> None:
        self.left -= 1
        if not self.left:
            self.all.set()


async def publish(client: Any, count: int, keys: int) -> None:
    names = [f"k{number}" for number in range(keys)]
    for i in range(count):
        client.publish_soon(TOPIC, PAYLOAD, key=names[i % keys])
        if i % 256 == 0:
            await client.drain()
    await client.flush(timeout=120)


async def work(inbox: Any, count: Count) -> None:
    async for message in inbox:
        message.done()
        count.one()


async def read(inbox: Any, count: Count) -> None:
    async for _ in inbox:
        count.one()


class Rates(NamedTuple):
    """Messages in a second."""

    cpu: float
    clock: float


async def rate(messages: int, workers: int, keys: int) -> Rates:
    """How fast they are dealt with; without workers, one subscriber reads them all."""
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        brokers = await stack.enter_async_context(
            testing.cluster(1, data=Path(directory), keep=KEEP, fsync="interval", settings=BrokerSettings())
        )
        publisher = await stack.enter_async_context(brokers.connect("publisher"))
        count = Count(messages)
        readers = []
        for number in range(workers or 1):
            client = await stack.enter_async_context(brokers.connect(f"worker{number}"))
            if workers:
                inbox: Any = await client.subscribe(TOPIC, group="workers", work=WorkSettings(silent_ms=5_000))
                while not inbox.joined:
                    await asyncio.sleep(0.05)
                readers.append(asyncio.create_task(work(inbox, count)))
            else:
                readers.append(asyncio.create_task(read(await client.subscribe(TOPIC), count)))
        begun, at = time.process_time(), time.perf_counter()
        await publish(publisher, messages, keys)
        await count.all.wait()
        spent, passed = time.process_time() - begun, time.perf_counter() - at
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        return Rates(messages / spent, messages / passed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("messages", 50_000), ("workers", 8), ("keys", 1000), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    told = parser.parse_args()
    shared, plain = [], []
    for _ in range(told.rounds):
        shared.append(uvloop.run(rate(told.messages, told.workers, told.keys)))
        plain.append(uvloop.run(rate(told.messages, 0, told.keys)))
    one, other = _medians(shared), _medians(plain)
    rates = f"{one.cpu:,.0f} messages/s of CPU time, {one.clock:,.0f} by the clock"
    print(f"{told.workers} workers, {told.keys} keys: {rates}")
    print(f"one subscriber:        {other.cpu:,.0f} messages/s of CPU time, {other.clock:,.0f} by the clock")
    print(f"shared work is {one.cpu / other.cpu:.2f} of one subscriber, in CPU time")


def _medians(rates: list[Rates]) -> Rates:
    return Rates(*map(statistics.median, zip(*rates, strict=True)))


if __name__ == "__main__":
    main()
