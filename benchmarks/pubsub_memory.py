"""What a broker keeps in memory per idle client and per message that it holds, and what a header weighs on the wire.

    python benchmarks/pubsub_memory.py [--clients 1000] [--messages 40000]

Memory is the resident size of the broker's process. Held messages: published to a subscriber that does not read.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
from pathlib import Path

import uvloop
from pubsub_cluster import brokers, chain, pids

import ordercast
from ordercast.client.machine import CLIENT_CODEC
from ordercast.core.ids import Origin, Topic
from ordercast.core.messages import Guarantee
from ordercast.pubsub.client_packets import Entries
from ordercast.pubsub.publications import Publication

PAYLOAD = bytes(64)
AT_A_TIME = 40


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def idle(address: str, pid: int, clients: int, *, subscribed: bool) -> float:
    """Bytes of the broker per client."""
    async with contextlib.AsyncExitStack() as stack:
        warm = [await stack.enter_async_context(ordercast.connect(address)) for _ in range(AT_A_TIME)]
        if subscribed:
            await asyncio.gather(*(client.subscribe("news") for client in warm))
        before = resident_bytes(pid)
        for _ in range(clients // AT_A_TIME):
            some = [stack.enter_async_context(ordercast.connect(address)) for _ in range(AT_A_TIME)]
            joined = await asyncio.gather(*some)
            if subscribed:
                await asyncio.gather(*(client.subscribe("news") for client in joined))
        return (resident_bytes(pid) - before) / (clients // AT_A_TIME * AT_A_TIME)


async def held(address: str, pid: int, messages: int) -> float:
    """Bytes of the broker per message in its log."""
    async with ordercast.connect(address) as reader, ordercast.connect(address) as writer:
        await reader.subscribe("held")
        await writer.publish("held", PAYLOAD)
        before = resident_bytes(pid)
        for sent in range(messages):
            writer.publish_soon("held", PAYLOAD)
            if sent % 256 == 0:
                await asyncio.sleep(0)
        await writer.flush("edge")
        return (resident_bytes(pid) - before) / messages


def header_bytes(batch: int) -> float:
    """What a publication of 64 bytes adds to its payload, frame included, in packets of so many."""
    origin, topic, causal, now_ns = Origin("client-0123456789"), Topic("accounts"), Guarantee.CAUSAL, 1 << 60
    entries = tuple(Publication(origin, 100_000 + i, topic, PAYLOAD, causal, ("4711",), now_ns) for i in range(batch))
    frame = CLIENT_CODEC.encode(Entries(topic, entries))
    return (len(frame) + 5) / batch - len(PAYLOAD)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--messages", type=int, default=40_000)
    options = parser.parse_args()
    print(f"header of a publication: {header_bytes(1):.0f} bytes alone, {header_bytes(1000):.1f} in packets of 1,000")
    with brokers(chain(1)) as (cluster, (address,)):
        print(f"a broker that has just started: {resident_bytes(pids(cluster)[0]) / 2**20:.0f} MiB")
        each = uvloop.run(held(address, pids(cluster)[0], options.messages))
        print(f"a held message of {len(PAYLOAD)} bytes: {each:.0f} bytes ({options.messages} of them)")
    for subscribed in (False, True):
        with brokers(chain(1)) as (cluster, (address,)):
            each = uvloop.run(idle(address, pids(cluster)[0], options.clients, subscribed=subscribed))
            what = "subscribed" if subscribed else "connected"
            print(f"an idle client, {what}: {each / 1024:.1f} KiB ({options.clients} of them)")


if __name__ == "__main__":
    main()
