"""What watching costs: a broker's processor time per message with its live page open, and without, in turn.

    python benchmarks/live_page.py [--messages 400000] [--rounds 15]

A publisher and a subscriber are two clients in one process, the broker is another; the page is a reader of /live,
which is what a browser reads. The ratio is the throughput that is left if the broker is what limits it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from pubsub_peers import free_port, running

import ordercast


def cpu_s(pid: int) -> float:
    """Of all its threads, to the nanosecond: a run is shorter than a few hundred of the ticks that `stat` counts in."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


@contextlib.asynccontextmanager
async def watched(port: int, *, open_page: bool) -> AsyncIterator[None]:
    """A page that reads all the time, if there is one."""
    if not open_page:
        yield
        return
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /live HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())

    async def read() -> None:
        while await reader.read(1 << 16):
            pass

    reading = asyncio.create_task(read())
    yield
    reading.cancel()
    writer.close()


async def send(address: str, messages: int) -> None:
    async with ordercast.connect(address) as publisher, ordercast.connect(address) as subscriber:
        inbox = await subscriber.subscribe("bench")
        got = 0

        async def take() -> None:
            nonlocal got
            async for batch in inbox.batches():
                got += len(batch)
                if got >= messages:
                    return

        taking = asyncio.create_task(take())
        for number in range(messages):
            publisher.publish_soon("bench", bytes(64))
            if number % 500 == 499:
                await publisher.drain()
        await taking


def cost_us(messages: int, *, open_page: bool) -> float:
    """Of one message, at the broker."""
    port, web = free_port(), free_port()
    command = [sys.executable, "-m", "ordercast", "broker", "--id", "b0", "--listen", f"127.0.0.1:{port}"]
    with running([*command, "--web", f"127.0.0.1:{web}"], web) as server:

        async def main() -> float:
            async with watched(web, open_page=open_page):
                await send(f"127.0.0.1:{port}", messages // 10)  # Warm.
                before = cpu_s(server.pids[0])
                await send(f"127.0.0.1:{port}", messages)
                return cpu_s(server.pids[0]) - before

        return asyncio.run(main()) / messages * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    costs: dict[bool, list[float]] = {False: [], True: []}
    for number in range(options.rounds):
        for open_page in (False, True) if number % 2 else (True, False):
            costs[open_page].append(cost_us(options.messages, open_page=open_page))
    alone, seen = statistics.median(costs[False]), statistics.median(costs[True])
    print(
        f"{options.messages:,} messages of 64 bytes, medians of {options.rounds} rounds, processor time of the broker"
    )
    print(f"no page       {alone:.2f} µs a message")
    print(f"page open     {seen:.2f} µs a message")
    print(f"ratio         {alone / seen:.2f}")


if __name__ == "__main__":
    main()
