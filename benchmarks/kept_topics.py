"""What keeping a topic costs, and how fast it is read back: always against the same topic not kept, in one run.

    python benchmarks/kept_topics.py [live] [replay] [startup] [reader]

Client and brokers are in this process and the figures are per second of its CPU time, so that other work on the machine
does not count; ways alternate, and medians are shown. `startup` writes ten million messages first (about a gigabyte).
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from ordercast import testing
from ordercast.broker.archive.topic_archive import TopicArchive
from ordercast.core.ids import Origin, Topic
from ordercast.net.brokers.archive import ArchiveFiles
from ordercast.pubsub.keeping import KeepTable
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.settings import BrokerSettings

T = TypeVar("T")
PAYLOAD = bytes(64)
KEPT, PLAIN = "kept.t", "plain.t"
LIVE = 100_000
ROUNDS = 5
MANY = 10_000_000


def cluster(directory: str) -> Any:
    keep = (KeepTable(filter="kept.>", copies=1),)
    return testing.cluster(1, data=Path(directory), keep=keep, fsync="interval", settings=BrokerSettings())


async def publish(client: Any, topic: str, count: int) -> None:
    for start in range(0, count, 1000):
        for _ in range(min(1000, count - start)):
            client.publish_soon(topic, PAYLOAD)
        await client.drain()
    await client.flush(timeout=120)


async def live() -> None:
    """Messages per CPU second from publish until the subscriber has them, kept and not."""
    found: dict[str, list[float]] = {KEPT: [], PLAIN: []}
    with tempfile.TemporaryDirectory() as directory:
        async with cluster(directory) as brokers, brokers.connect("pub") as pub, brokers.connect("sub") as sub:
            inboxes = {topic: await sub.subscribe(topic) for topic in found}
            for _ in range(ROUNDS):
                for topic, rates in found.items():
                    taking = asyncio.create_task(take(inboxes[topic], LIVE))
                    begun = time.process_time()
                    await publish(pub, topic, LIVE)
                    await taking
                    rates.append(LIVE / (time.process_time() - begun))
    plain, kept = statistics.median(found[PLAIN]), statistics.median(found[KEPT])
    print(f"live: {plain:,.0f} messages per CPU second not kept, {kept:,.0f} kept: {kept / plain:.2f}")


async def take(inbox: Any, count: int) -> None:
    taken = 0
    async for batch in inbox.batches():
        taken += len(batch)
        if taken >= count:
            return


async def replay() -> None:
    """Messages per CPU second out of the archive into one client, the broker's part included."""
    with tempfile.TemporaryDirectory() as directory:
        async with cluster(directory) as brokers, brokers.connect("pub") as pub:
            await publish(pub, KEPT, 3 * LIVE)
            while sum([len(batch) async for batch in pub.read(KEPT).batches()]) < 3 * LIVE:
                await asyncio.sleep(0.1)
            rates = []
            for _ in range(ROUNDS):
                begun, read = time.process_time(), 0
                async for batch in pub.read(KEPT).batches():
                    read += len(batch)
                assert read == 3 * LIVE
                rates.append(read / (time.process_time() - begun))
            one_by_one = time.process_time()
            count = 0
            async for _ in pub.read(KEPT):
                count += 1
            one_by_one = count / (time.process_time() - one_by_one)
    print(f"replay: {statistics.median(rates):,.0f} messages per CPU second in batches, {one_by_one:,.0f} one by one")


async def reader() -> None:
    """Live traffic on one topic while another client reads a long history over and over, and without it."""
    found: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as directory:
        async with cluster(directory) as brokers, brokers.connect("pub") as pub, brokers.connect("sub") as sub:
            await publish(pub, KEPT, 3 * LIVE)
            inbox = await sub.subscribe(PLAIN)
            for _ in range(ROUNDS):
                for reading, rates in found.items():
                    load = Load(pub, reading=reading)
                    taking = asyncio.create_task(take(inbox, LIVE))
                    begun = time.process_time()
                    await publish(pub, PLAIN, LIVE)
                    await taking
                    rates.append(LIVE / (time.process_time() - begun))
                    await load.stop()
    alone, beside = statistics.median(found[False]), statistics.median(found[True])
    print(f"reader: {alone:,.0f} live messages per CPU second, {beside:,.0f} beside a reader: {beside / alone:.2f}")


class Load:
    """A client that reads the history from its beginning again and again; its own CPU time counts too."""

    def __init__(self, client: Any, *, reading: bool) -> None:
        self._client = client
        self._task = asyncio.create_task(self._read()) if reading else None

    async def _read(self) -> None:
        while True:
            async for _ in self._client.read(KEPT).batches():
                pass

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


async def startup() -> None:
    """Ten million messages: how long a broker's archive takes to open, and how much memory it has then."""
    with tempfile.TemporaryDirectory() as directory:
        files = ArchiveFiles(Path(directory), fsync="never")
        archive = TopicArchive(Topic(KEPT), files)
        origin = Origin("pub~1")
        begun = time.process_time()
        for first in range(1, MANY, 1000):
            numbers = range(first, first + 1000)
            archive.append([Publication(origin, n, Topic(KEPT), PAYLOAD, keys=("",)) for n in numbers])
            files.flush()
        wrote = time.process_time() - begun
        size = archive.status()["bytes"]
        files.close()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begun = time.process_time()
        files = ArchiveFiles(Path(directory), fsync="never")
        opened = TopicArchive(Topic(KEPT), files, files.saved()[Topic(KEPT)])
        took = time.process_time() - begun
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert opened.cut == {origin: MANY}
        print(
            f"startup: {MANY:,} messages, {size / 1e9:.2f} GB, written at {MANY / wrote:,.0f} per CPU second; opened in"
            f" {took:.2f} CPU seconds; memory {before // 1024} MB before, {after // 1024} MB after"
        )
        files.abandon()


PARTS = {"live": live, "replay": replay, "reader": reader, "startup": startup}


def run(part: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(part)


def main() -> None:
    for name in sys.argv[1:] or list(PARTS):
        run(PARTS[name]())


if __name__ == "__main__":
    main()
