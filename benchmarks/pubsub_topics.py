"""What a topic costs: one client publishes once on each of many new topics, at the lower of two brokers.

    python benchmarks/pubsub_topics.py [500 1000 2000] [--restart]

CPU of the two broker processes and of the client, until every publication is safe, and of the brokers per second of
doing nothing afterwards. The target is 0.5 ms a topic for the two brokers, with 20,000 topics. Then the memory that a
topic takes at the lower broker while the client is there, and half a minute after it has gone.

`--restart`: the brokers have data directories (without fsync); the lower one is killed while all topics are there, and
the time until it is a part of the tree again is told.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import time
from collections.abc import Iterator

import uvloop
from pubsub import cpu_s
from pubsub_cluster import brokers, chain, pids
from pubsub_memory import resident_bytes

import ordercast
from ordercast.net.brokers.cluster import BrokerCluster
from ordercast.pubsub.settings import BrokerSettings

_IDLE_S = 3.0
_GONE_S = 3 * BrokerSettings().fold_ms / 1000
_RETURN_S = 300.0


async def measure(cluster: BrokerCluster, address: str, topics: int, *, restart: bool) -> str:
    """CPU until all is safe, of brokers and client; of the brokers per idle second; memory; perhaps a restart."""
    running = pids(cluster)
    empty = resident_bytes(running[-1])
    async with ordercast.connect(address, client_id="many") as client:
        before, begun = cpu_s(running), time.process_time()
        for number in range(topics):
            client.publish_soon(f"many.{number}", b"x")
        await client.flush(timeout=1800)
        busy, mine = cpu_s(running) - before, time.process_time() - begun
        before = cpu_s(running)
        await asyncio.sleep(_IDLE_S)
        idle = (cpu_s(running) - before) / _IDLE_S
        full = resident_bytes(running[-1]) - empty
        back_s = await returned(cluster) if restart else None
    if back_s is None:
        await asyncio.sleep(_GONE_S)
        left = f"{(resident_bytes(running[-1]) - empty) / topics:9.0f}"
    else:
        left = f"back after {back_s:.1f} s"
    return (
        f"{busy / topics * 1e3:15.2f} {mine / topics * 1e3:7.2f} {idle * 1e3:18.1f} {full / topics:18.0f} {left}"
    )  # fmt: skip


async def returned(cluster: BrokerCluster) -> float:
    """Seconds from the start of the killed broker's process until all are in one tree again."""
    name = cluster.config.broker[-1].id
    await asyncio.to_thread(cluster.kill, name)
    began = time.perf_counter()
    await asyncio.to_thread(cluster.restart, name, _RETURN_S)
    if not await asyncio.to_thread(cluster.await_tree, _RETURN_S):
        raise TimeoutError(f"{name} is not back")
    return time.perf_counter() - began


@contextlib.contextmanager
def stage(topics: int, *, restart: bool) -> Iterator[tuple[BrokerCluster, list[str]]]:
    limits = ["[settings]", f"topics_per_client = {topics}", f"topics_limit = {2 * topics}"]
    with tempfile.TemporaryDirectory() as data:
        durable = [f'data = "{data}"', 'fsync = "never"'] if restart else []
        with brokers(chain(2), *durable, *limits) as found:
            yield found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topics", type=int, nargs="*", default=[500, 1000, 2000])
    parser.add_argument("--restart", action="store_true")
    options = parser.parse_args()
    print("topics  CPU ms a topic: brokers, client  ms an idle second  bytes a topic: full, after the client has gone")
    for topics in options.topics:
        with (
            stage(topics, restart=options.restart) as (cluster, addresses),
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            told = runner.run(measure(cluster, addresses[-1], topics, restart=options.restart))
        print(f"{topics:6} {told}", flush=True)


if __name__ == "__main__":
    main()
