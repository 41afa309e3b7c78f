"""How fast Spark reads a kept topic, beside the replay of the same topic into a plain client, in one run.

    python benchmarks/spark_source.py [messages]

One broker process keeps a topic of messages of 64 bytes. It is read (1) by a plain client, message batch by message
batch, and (2) by a streaming query on one core (`local[1]`, AvailableNow) that counts its rows and drops them. Figures
are per CPU second of whoever reads, the broker left out (Java's start and a first query, which compiles, are left out
too); ways alternate, medians are shown. Beside them what the broker can replay in a CPU second of its own, and by the
clock, for a quiet machine.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pubsub_cluster import brokers, chain, pids

import ordercast
from ordercast import blocking
from ordercast.verify.spark.session import session

TOPIC, PAYLOAD, ROUNDS = "kept.t", bytes(64), 5


def cpu_of_tree(root: int, without: list[int]) -> float:
    """CPU seconds of a process and its descendants, those that have ended and were waited for included."""
    parents, spent = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(stat.parent.name)
        parents[pid] = int(fields[1])
        spent[pid] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    wanted = {root}
    while grown := {pid for pid, parent in parents.items() if parent in wanted} - wanted - {*without}:
        wanted |= grown
    return sum(spent.get(pid, 0.0) for pid in wanted)


async def fill(address: str, count: int) -> None:
    async with ordercast.connect(address, "writer", outbox_limit=200_000) as client:
        for start in range(0, count, 1000):
            for _ in range(min(1000, count - start)):
                client.publish_soon(TOPIC, PAYLOAD)
            await client.drain()
        await client.flush(timeout=300)
    async with ordercast.connect(address) as client:
        while sum((await client.read(TOPIC).bounds())[1].of(TOPIC).values()) < count:
            await asyncio.sleep(0.1)


def plain(address: str) -> int:
    with blocking.connect(address) as client:
        return sum(len(batch) for batch in client.read(TOPIC).batches())


def streamed(spark: Any, address: str) -> int:
    source = spark.readStream.format("ordercast").options(
        brokers=address, subscribe=TOPIC, startingOffsets="earliest"
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            source.load().writeStream.format("noop").option("checkpointLocation", checkpoint)
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        return sum(progress["numInputRows"] for progress in query.recentProgress)


def measured(read: Callable[[], int], count: int, brokers: list[int]) -> tuple[float, float, float]:
    """Rows per CPU second of the reader, per CPU second of the brokers, and per second of the clock."""
    begun, serving, clock = cpu_of_tree(os.getpid(), brokers), _cpu_of(brokers), time.perf_counter()
    found = read()
    assert found == count, (found, count)
    reading = cpu_of_tree(os.getpid(), brokers) - begun
    return count / reading, count / (_cpu_of(brokers) - serving), count / (time.perf_counter() - clock)


def _cpu_of(brokers: list[int]) -> float:
    return sum(cpu_of_tree(broker, []) for broker in brokers)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
    found: dict[str, list[tuple[float, float, float]]] = {"plain client": [], "Spark stream": []}
    with tempfile.TemporaryDirectory() as data:
        settings = (f'data = "{data}"', '[[keep]]\nfilter = "kept.>"\ncopies = 1')
        with brokers(chain(1), *settings) as (cluster, (address,)):
            asyncio.run(fill(address, count))
            spark = session("local[1]", conf={"spark.sql.shuffle.partitions": "1"})
            ways = {"plain client": lambda: plain(address), "Spark stream": lambda: streamed(spark, address)}
            ways["Spark stream"]()
            for _ in range(ROUNDS):
                for way, rates in found.items():
                    rates.append(measured(ways[way], count, pids(cluster)))
            spark.stop()
    for way, rates in found.items():
        cpu, served, clock = (statistics.median(column) for column in zip(*rates, strict=True))
        print(f"{way:14} {cpu:>12,.0f} rows per CPU second, {served:>12,.0f} of the broker's; {clock:>12,.0f} a second")


if __name__ == "__main__":
    main()
