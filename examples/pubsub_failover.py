"""Brokers die, the stream goes on: nothing lost, nothing twice.

Run: python examples/pubsub_failover.py
"""

from __future__ import annotations

import asyncio

import ordercast
from ordercast.testing import cluster

MESSAGES = 200


async def publish_slowly(client: ordercast.Client) -> None:
    for i in range(MESSAGES):
        client.publish_soon("ticks", str(i).encode(), guarantee="fifo")
        await asyncio.sleep(0.005)
    await client.flush()


async def main() -> None:
    async with (
        cluster(brokers=5) as brokers,
        brokers.connect("alice", broker="b1") as alice,
        brokers.connect("bob", broker="b2") as bob,
    ):
        bob.on_event(lambda event: print(f"bob: {event.kind} {event.detail}"))
        inbox = await bob.subscribe("ticks")
        publishing = asyncio.create_task(publish_slowly(alice))
        got = []
        for _ in range(MESSAGES):
            message = await inbox.get(timeout=30)
            got.append(int(message.payload))
            if len(got) == 50:
                await brokers.kill("b2")  # Bob's broker.
            if len(got) == 100:
                await brokers.kill("b1")  # Alice's.
        await publishing
        print(f"{len(got)} messages, in order: {got == list(range(MESSAGES))}")


if __name__ == "__main__":
    asyncio.run(main())
