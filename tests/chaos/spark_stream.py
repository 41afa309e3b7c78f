"""A streaming query that is killed again and again, and brokers under it, by SIGKILL: every message once.

    python -m tests.chaos.spark_stream [--kills 3] [--messages 60000]      (make stream-test)

Three broker processes keep a topic twice. A query in a process of its own copies it to Parquet files, whose sink writes
each micro-batch once. The query is killed in the middle several times, each time with a broker that keeps the topic,
which comes back later; messages are published all along. In the end what was written is counted. Then a query publishes
what it read, its last batch twice, and `ordercast monitor` watches clients, one of whom a mutant broker misleads.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds

import ordercast
from ordercast.client.deliveries import Deliveries
from ordercast.pubsub.keeping import KeepTable
from ordercast.streaming.monitor import start_monitor
from ordercast.testing import EmbeddedCluster, cluster
from ordercast.verify.online import Alarm, OrderWatch
from tests.streaming.test_monitor import mixed_up, talk
from tests.support.kept_thread import kept_cluster, published, until
from tests.support.spark_queries import ended

TOPIC = "kept.t"
_QUERY = """
import sys
from ordercast.verify.spark.session import session
addresses, out, limit, now = sys.argv[1:5]
spark = session("local[2]", quick=True, memory="1g", conf={"spark.sql.shuffle.partitions": "2"})
where = {"brokers": addresses, "subscribe": "kept.t", "startingOffsets": "earliest", "maxOffsetsPerTrigger": limit}
frame = spark.readStream.format("ordercast").options(**where).load().selectExpr("number", "value")
writer = frame.writeStream.format("parquet").options(checkpointLocation=out + "/checkpoint", path=out + "/rows")
writer = writer.trigger(availableNow=True) if now == "now" else writer.trigger(processingTime="0 seconds")
writer.start().awaitTermination()
"""


async def publish(address: list[str], count: int) -> None:
    async with ordercast.connect(address, "writer") as client:
        for number in range(count):
            client.publish_soon(TOPIC, b"%d" % number)
            if number % 200 == 199:
                await client.drain()
                await asyncio.sleep(0.05)
        await client.flush(timeout=60)


def start(addresses: str, out: Path, limit: int, *, now: bool) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _QUERY, addresses, str(out), str(limit), "now" if now else "on"]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )


async def killed(brokers: EmbeddedCluster, out: Path, limit: int, chance: random.Random) -> None:
    """Run the query until it has written something new, then kill it with all its processes, and a broker."""
    before = _batches(out)
    query = start(",".join(brokers.addresses), out, limit, now=False)
    deadline = time.monotonic() + 180
    while _batches(out) <= before + chance.randrange(2):
        assert query.poll() is None, "the query ended by itself"
        assert time.monotonic() < deadline, "the query writes nothing"
        await asyncio.sleep(0.05)
    victim = chance.choice(brokers.ids)
    _kill(query)
    await brokers.kill(victim)
    print(f"killed the query after {_batches(out)} micro-batches, and broker {victim}", flush=True)
    await asyncio.sleep(1)
    await brokers.restart(victim)


def _kill(query: subprocess.Popen[str]) -> None:
    """The driver and the Java process it started, at once."""
    os.killpg(query.pid, signal.SIGKILL)
    query.wait()


def _batches(out: Path) -> int:
    return len(list((out / "checkpoint" / "commits").glob("[0-9]*")))


async def main(kills: int, messages: int, seed: int) -> int:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="ordercast-") as scratch:
        directory, limit = Path(scratch), max(1000, messages // 20)
        keep = (KeepTable(filter="kept.>", copies=2),)
        async with cluster(3, data=directory / "brokers", keep=keep, fsync="never", processes=True) as brokers:
            publishing = asyncio.create_task(publish(brokers.addresses, messages))
            for _ in range(kills):
                await killed(brokers, directory / "out", limit, chance)
            await publishing
            await brokers.settle()
            async with ordercast.connect(brokers.addresses) as reader:
                while sum((await reader.read(TOPIC).bounds())[1].of(TOPIC).values()) < messages:
                    await asyncio.sleep(0.2)
            last = await asyncio.to_thread(
                start(",".join(brokers.addresses), directory / "out", limit, now=True).wait, 300
            )
        rows = ds.dataset(_written(directory / "out" / "rows"), format="parquet").to_table(["value"])
        counted = Counter(int(value) for value in rows.column("value").to_pylist())
    lost, twice = messages - len(counted), sum(count > 1 for count in counted.values())
    print(f"{messages} messages, {kills} kills: {lost} lost, {twice} twice; the last run ended with {last}")
    with tempfile.TemporaryDirectory(prefix="ordercast-") as scratch:
        again = await asyncio.to_thread(published_again, Path(scratch))
    with tempfile.TemporaryDirectory(prefix="ordercast-") as scratch:
        found = await asyncio.to_thread(watched, Path(scratch))
    return int(bool(lost or twice or last or again or not found))


def published_again(directory: Path) -> int:
    """How many rows a subscriber is handed twice, or never, when a batch of a sink is tried twice."""
    from ordercast.verify.spark.session import session

    spark = session("local[2]", quick=True, memory="1g", conf={"spark.sql.shuffle.partitions": "2"})
    with kept_cluster(directory / "brokers") as brokers, brokers.connect("ann") as ann:
        inbox = ann.subscribe("kept.out")
        published(ann, "kept.in", 1, 500)

        def publish_all() -> None:
            where = {"brokers": brokers.addresses, "subscribe": "kept.in", "startingOffsets": "earliest"}
            frame = spark.readStream.format("ordercast").options(**where).load().selectExpr("key", "value")
            sink = frame.writeStream.format("ordercast").options(brokers=brokers.addresses, topic="kept.out")
            sink = sink.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True)
            ended(sink.start)

        publish_all()
        for log in ("0", ".0.crc"):  # As if the driver had died before it wrote this down.
            (directory / "checkpoint" / "commits" / log).unlink()
        publish_all()
        ann.publish("kept.out", b"end")
        found = [inbox.get(20)]
        while found[-1].payload != b"end":
            found.append(inbox.get(20))
        where = {"brokers": brokers.addresses, "subscribe": "kept.out"}
        until(lambda: spark.read.format("ordercast").options(**where).load().where("dedup IS NOT NULL").count() >= 1000)
    counted = Counter(message.payload for message in found[:-1])
    wrong = 500 - len(counted) + sum(count > 1 for count in counted.values())
    print(f"a batch of 500 rows published twice: {wrong} rows handed over twice or never")
    return wrong


def watched(run: Path) -> int:
    """How many alarms the monitor raises about a client that a mutant broker misleads; 0 if about anybody else."""
    from ordercast.verify.spark.session import session

    mutant, Deliveries.entries = Deliveries.entries, mixed_up  # type: ignore[method-assign]
    try:
        asyncio.run(talk(run))
    finally:
        Deliveries.entries = mutant  # type: ignore[method-assign]
    watch, found = OrderWatch(), list[Alarm]()
    ended(lambda: start_monitor(session("local[2]"), run, watch, found.append, every_s=None))
    print(
        f"{watch.counts['delivered']} deliveries watched, {len(found)} alarms, the first: {found[0] if found else None}"
    )
    return len(found) if {alarm.node for alarm in found} == {"victim"} else 0


def _written(rows: Path) -> list[str]:
    """The files that the sink's log names: what a killed attempt left beside them does not count."""
    named = []
    for log in (rows / "_spark_metadata").glob("[0-9]*"):
        if log.suffix in ("", ".compact"):
            named += [json.loads(line)["path"] for line in log.read_text().splitlines()[1:]]
    return sorted({path.removeprefix("file://") for path in named})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--messages", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    sys.exit(asyncio.run(main(asked.kills, asked.messages, asked.seed)))
