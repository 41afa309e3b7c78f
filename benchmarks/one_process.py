"""CPU of a publication from end to end: publisher, brokers in a chain and subscriber in one process and one loop.

    python benchmarks/one_process.py [--messages 40000] [--rounds 1]

For comparing two source trees on a busy machine: nothing waits for another process. The least of `--rounds` counts.
It only uses `ordercast.testing` and the client, so that it runs on older versions too (see before_after.py).
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import NamedTuple

import uvloop

from ordercast import testing

TOPIC = "bench"


class Load(NamedTuple):
    """What is published, and through how many brokers."""

    guarantee: str
    brokers: int
    size: int
    keys: int = 1
    part: int = 1
    """Only one in so many of the messages asked for: they are expensive."""


LOADS = (
    Load("causal", 1, 64), Load("causal", 3, 64), Load("total", 3, 64, keys=1000, part=4),
    Load("causal", 1, 1 << 14, part=8), Load("causal", 1, 1 << 18, part=80),
)  # fmt: skip


async def cpu_s(load: Load, messages: int) -> float:
    """CPU seconds from the first publication to the last delivery."""
    payload, keys = bytes(load.size), [str(number) for number in range(load.keys)]
    async with (
        testing.cluster(load.brokers, shape="line") as brokers,
        brokers.connect("publisher", broker="b0") as publisher,
        brokers.connect("subscriber", broker=f"b{load.brokers - 1}") as subscriber,
    ):
        inbox = await subscriber.subscribe(TOPIC)
        begun = time.process_time()
        reading = asyncio.create_task(_read(inbox, messages))
        for i in range(messages):
            publisher.publish_soon(TOPIC, payload, key=keys[i % len(keys)], guarantee=load.guarantee)
            if i % 256 == 0:
                await publisher.drain()
        await publisher.flush()
        await reading
        return time.process_time() - begun


async def _read(inbox: object, messages: int) -> None:
    async for _ in inbox:  # type: ignore[attr-defined]
        messages -= 1
        if not messages:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    for load in LOADS:
        count = options.messages // load.part
        spent = []
        for _ in range(options.rounds):
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                spent.append(runner.run(cpu_s(load, count)))
        name = f"{load.guarantee}, {load.brokers} broker{'s' * (load.brokers > 1)}, {load.size} bytes"
        print(f"{name:32} {min(spent) / count * 1e6:10.2f} us", flush=True)


if __name__ == "__main__":
    main()
