"""What a position across topics costs: two rounds over all brokers, and the wait until it is kept.

    python benchmarks/position_across.py [calls]

Three broker processes that keep two topics; one client publishes 1,000 messages of 64 bytes a second on them, another
receives them, a third asks for a position across both, and in turn for the position of each by itself.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time

from pubsub_cluster import brokers, chain

import ordercast

_TOPICS = ["kept.a", "kept.b"]
_EVERY_S, _MANY = 0.02, 10


async def _publish(client: ordercast.Client) -> None:
    while True:
        for topic in _TOPICS:
            for _ in range(_MANY):
                client.publish_soon(topic, bytes(64))
        await asyncio.sleep(_EVERY_S)


async def _drain(inbox: ordercast.Inbox) -> None:
    async for _ in inbox:
        pass


async def measure(addresses: list[str], calls: int, *, busy: bool) -> tuple[list[float], list[float]]:
    """Seconds of each call: across, and one by one."""
    async with (
        ordercast.connect(addresses[0], client_id="writer") as writer,
        ordercast.connect(addresses[1], client_id="reader") as reader,
        ordercast.connect(addresses[2], client_id="asker") as asker,
    ):
        tasks = [asyncio.create_task(_drain(await reader.subscribe(topic))) for topic in _TOPICS]
        for topic in _TOPICS:
            await writer.publish(topic, b"first")
        if busy:
            tasks.append(asyncio.create_task(_publish(writer)))
        across, alone = [], []
        for _ in range(calls):
            begun = time.perf_counter()
            await asker.position_across(_TOPICS)
            across.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            await asker.position(*_TOPICS)
            alone.append(time.perf_counter() - begun)
        for task in tasks:
            task.cancel()
        return across, alone


def main() -> None:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    print("traffic   ms per call, median (largest): across two topics   each by itself")
    for busy in (False, True):
        with tempfile.TemporaryDirectory() as data:
            settings = (f'data = "{data}"', '[[keep]]\nfilter = "kept.>"')
            with brokers(chain(3), *settings) as (_, addresses):
                across, alone = asyncio.run(measure(addresses, calls, busy=busy))
        told = [f"{statistics.median(found) * 1e3:.1f} ({max(found) * 1e3:.1f})" for found in (across, alone)]
        print(f"{'1,000/s' if busy else 'none':9} {told[0]:>45} {told[1]:>16}", flush=True)


if __name__ == "__main__":
    main()
