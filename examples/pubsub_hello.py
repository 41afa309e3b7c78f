"""Publish and read: one broker inside this program, two clients.

Run: python examples/pubsub_hello.py
"""

from __future__ import annotations

import asyncio

import ordercast
from ordercast.testing import cluster


async def main() -> None:
    async with (
        cluster(brokers=1) as brokers,
        ordercast.connect(brokers.address, client_id="alice") as alice,
        ordercast.connect(brokers.address, client_id="bob") as bob,
    ):
        inbox = await bob.subscribe("accounts.*")
        await alice.publish("accounts.PT", b"deposit 10", key="162550483", guarantee="causal")
        await alice.publish("accounts.PT", b"interest", key="162550483", guarantee="total")
        for _ in range(2):
            message = await inbox.get(timeout=10)
            print(f"{message.publisher} {message.topic} {message.key}: {message.payload.decode()}")


if __name__ == "__main__":
    asyncio.run(main())
