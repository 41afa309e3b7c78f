"""A client as a process of its own, to be killed and stopped: `python -m tests.support.chaos_client ORDERS`.

It publishes and reads as its orders say. On standard output it tells how far it is: `ready`, `settled` (everything that
it published was taken by every subscriber), `lost` (its session was given up), and `got N` for every line of input. It
ends in good order when its input ends.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from pathlib import Path

import msgspec
import uvloop

from ordercast.api import Client, Inbox, SessionLost, connect
from ordercast.client.settings import ClientSettings
from ordercast.testing import QUICK_LIMITS

GUARANTEES = ("eventual", "fifo", "causal", "total")
LEVELS = ("soon", "soon", "soon", "edge", "safe", "delivered")
_KEYS = 4
_LONG_S = 300.0


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """All that a client is told when it starts."""

    name: str
    addresses: list[str]
    reads: list[str]
    """Topics and filters."""
    writes: list[str]
    trace: str
    safe: str
    """A file for the ids of publications that were called safe."""
    data: str | None = None
    count: int = 60
    pause_s: float = 0.05
    seed: str = ""


class Chatter:
    """One life of the client."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.got = 0
        self.chance = random.Random(f"{orders.seed}/{orders.name}/{time.time_ns()}")
        self.acknowledged: list[asyncio.Task[None]] = []

    async def live(self) -> None:
        orders = self.orders
        client = await connect(
            orders.addresses, orders.name, trace=orders.trace, data=orders.data, timeout=_LONG_S,
            settings=ClientSettings(request_ms=1000, retry_ms=100, ping_ms=500, silence_ms=2000, stability_ms=50),
            wire=QUICK_LIMITS,
        )  # fmt: skip
        reading = [
            asyncio.create_task(self._read(await client.subscribe(pattern, timeout=_LONG_S)))
            for pattern in orders.reads
        ]
        say("ready")
        talking = asyncio.create_task(self._talk(client))
        answering = asyncio.create_task(self._answer())
        try:
            await answering
        finally:
            for task in (*reading, talking, *self.acknowledged):
                task.cancel()
            await asyncio.gather(*reading, talking, *self.acknowledged, return_exceptions=True)
            await client.close(timeout=_LONG_S)  # It stays: all that was published before is owed to it.

    async def _read(self, inbox: Inbox) -> None:
        try:
            async for _ in inbox:
                self.got += 1
        except SessionLost:
            say("lost")

    async def _talk(self, client: Client) -> None:
        chance, orders = self.chance, self.orders
        try:
            for _ in range(orders.count):
                self._say_something(client)
                await asyncio.sleep(orders.pause_s * 2 * chance.random())
            await asyncio.gather(*self.acknowledged)
            await client.flush(ack="delivered", timeout=_LONG_S)
            say("settled")
        except SessionLost:
            say("lost")

    def _say_something(self, client: Client) -> None:
        chance = self.chance
        topic = chance.choice(self.orders.writes)
        keys = [f"k{i}" for i in chance.sample(range(_KEYS), chance.choice((0, 1, 1, 1, 2)))]
        level = chance.choice(LEVELS)
        payload = bytes(chance.choice((0, 10, 10, 100, 20_000)))
        guarantee = chance.choice(GUARANTEES)
        if level == "soon":
            client.publish_soon(topic, payload, keys=keys, guarantee=guarantee)
            return

        async def acknowledged() -> None:
            message = await client.publish(topic, payload, keys=keys, guarantee=guarantee, ack=level)
            if level != "edge":
                with Path(self.orders.safe).open("a") as safe:
                    safe.write(f"{message}\n")

        self.acknowledged.append(asyncio.create_task(acknowledged()))

    async def _answer(self) -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while await reader.readline():
            say(f"got {self.got}")


def say(word: str) -> None:
    print(word, flush=True)


def main() -> None:
    orders = msgspec.json.decode(sys.argv[1], type=Orders)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Chatter(orders).live())


if __name__ == "__main__":
    main()
