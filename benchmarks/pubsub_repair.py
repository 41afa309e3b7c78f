"""How long a tree of broker processes takes to mend after one of them is killed, detection excluded.

    python benchmarks/pubsub_repair.py [--rounds 5] [--brokers 7]

Every round kills one inner broker of a binary tree while a client publishes; from the journals of the others: the time
from `repair_start`, when a broker notices, to `repair_end`, when it has a parent again, and to the end of the repair of
its topics; and how many rounds of asking that took. The killed broker comes back before the next round.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

import numpy as np
import uvloop
from pubsub_cluster import brokers

import ordercast
from ordercast.net.brokers.cluster import BrokerCluster
from ordercast.trace.journal import Row, read_journal

TOPIC = "repair"


async def kill_in_turn(cluster: BrokerCluster, addresses: list[str], rounds: int) -> None:
    inner = [f"b{i}" for i in range(1, (len(addresses) - 1) // 2)]
    async with ordercast.connect(addresses[-1]) as writer, ordercast.connect(addresses[-2]) as reader:
        await reader.subscribe(TOPIC)
        publishing = asyncio.create_task(publish(writer))
        for number in range(rounds):
            victim = inner[number % len(inner)]
            await asyncio.sleep(1.0)
            await asyncio.to_thread(cluster.kill, victim)
            await asyncio.sleep(2.0)
            await asyncio.to_thread(cluster.restart, victim)
            await asyncio.to_thread(cluster.await_tree)
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)


async def publish(writer: ordercast.Client) -> None:
    while True:
        writer.publish_soon(TOPIC, bytes(64))
        await asyncio.sleep(0.002)


def repairs(rows: list[Row]) -> list[tuple[float, float, int]]:
    """Of one broker: ms to a parent, ms to complete topics, rounds of asking."""
    found = []
    began, parent_ms, rounds = 0, 0.0, 0
    for row in rows:
        info = row.info or {}
        if row.kind == "repair_start":
            began, parent_ms = row.time_ns, 0.0
        elif row.kind == "repair_end" and began:
            took_ms = (row.time_ns - began) / 1e6
            if info.get("phase") == "synchronised":
                found.append((parent_ms or took_ms, took_ms, rounds))
                began = 0
            else:
                parent_ms, rounds = took_ms, int(info.get("rounds", "1"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--brokers", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        parents = [None, *((i - 1) // 2 for i in range(1, options.brokers))]
        with brokers(parents, f'trace = "{scratch}"') as (cluster, addresses):
            uvloop.run(kill_in_turn(cluster, addresses, options.rounds))
        journals = sorted(path for path in Path(scratch).rglob("b*") if path.is_file())
        all_repairs = [repair for path in journals for repair in repairs(list(read_journal(path)))]
    if not all_repairs:
        raise SystemExit("no repair was recorded")
    parent_ms, whole_ms, rounds = (np.array(column) for column in zip(*all_repairs, strict=True))
    print(
        f"{options.brokers} brokers, {options.rounds} killed in turn, {len(all_repairs)} repairs, ms without detection"
    )
    for what, values in (("to a new parent", parent_ms), ("to complete topics", whole_ms)):
        print(f"{what:20} median {np.median(values):7.1f}   worst {values.max():7.1f}")
    print(f"{'rounds of asking':20} median {np.median(rounds):7.0f}   worst {rounds.max():7d}")
    print(f"{'per round':20} median {np.median(whole_ms / np.maximum(rounds, 1)):7.1f}", end="   ")
    print(f"worst {(whole_ms / np.maximum(rounds, 1)).max():7.1f}")


if __name__ == "__main__":
    main()
