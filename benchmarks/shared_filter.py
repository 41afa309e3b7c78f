"""What a group on a filter costs, by the number of its topics: `python benchmarks/shared_filter.py [--topics N]`.

One broker, a publisher, and one member that also leads every topic, all in one process. Figures are processor time,
which other programs on the machine disturb less than they do the clock.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from pathlib import Path

from ordercast.api import Client, WorkInbox
from ordercast.pubsub.keeping import KeepTable
from ordercast.testing import cluster

KEEP = (KeepTable(filter="orders.>"), KeepTable(filter="groups.>", compact="key"))
_IDLE_S = 10.0


async def join(member: Client, topics: int) -> WorkInbox:
    """Until a message of every topic was handed over."""
    begun, spent, memory = time.monotonic(), time.process_time(), _memory_mb()
    inbox = await member.subscribe("orders.>", group="workers", start="earliest")
    found: set[str] = set()
    while len(found) < topics:
        message = await inbox.get(300)
        found.add(message.topic)
        message.done()
    cost = f"{time.process_time() - spent:.2f} s of processor time, {time.monotonic() - begun:.1f} s in all"
    print(f"{topics} topics joined and led: {cost}, {_memory_mb() - memory:.0f} MB, {_descriptors()} descriptors")
    return inbox


async def idle() -> None:
    await asyncio.sleep(2)
    begun, spent = time.monotonic(), time.process_time()
    await asyncio.sleep(_IDLE_S)
    share = (time.process_time() - spent) / (time.monotonic() - begun)
    print(f"nothing to do: {share:.1%} of a core, for broker, leaders and member")


async def work(publisher: Client, inbox: WorkInbox, topics: int, units: int) -> None:
    spent = time.process_time()
    for number in range(units):
        publisher.publish_soon(f"orders.t{number % topics}", b"%d" % number, key=f"k{number % 10}")
        if not number % 100:
            await publisher.drain()
    for _ in range(units):
        (await inbox.get(300)).done()
    print(f"{units} units: {(time.process_time() - spent) / units * 1e6:.0f} µs of processor time each")


async def measure(topics: int, units: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with (
            cluster(1, data=Path(directory), keep=KEEP, fsync="never") as brokers,
            brokers.connect("publisher") as publisher,
            brokers.connect("member") as member,
        ):
            for number in range(topics):
                await publisher.publish(f"orders.t{number}", b"first", key="k")
            inbox = await join(member, topics)
            await idle()
            await work(publisher, inbox, topics, units)


def _memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--units", type=int, default=5000)
    options = parser.parse_args()
    asyncio.run(measure(options.topics, options.units))


if __name__ == "__main__":
    main()
