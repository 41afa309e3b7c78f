"""What many short sessions leave behind at a broker: time each, memory, its log, and how long it reads at a restart.

    python benchmarks/pubsub_sessions.py [--sessions 20000] [--kept]

Each session connects, publishes one message of 16 bytes on the same topic and leaves, as `ordercast pub` does; one
subscriber reads along all the time. The broker keeps its log on disk (`data`, without fsync). Times are the CPU of the
broker's process per session, of the first and of the last tenth: where nothing grows, they are the same. Memory is
looked at after half of the sessions and at the end, each time when what had ended is folded (twice `fold_ms`): it must
not grow with the number of sessions, so what is measured here holds for a million of them as far as nothing grows.

`--kept`: the topic is kept, one copy. Then the length of `str(position)` is looked at too, at the same times, and at
last what the manifest of the archive has beside the messages, and how long it takes to open it at a restart.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path

import msgspec
import uvloop
from pubsub_cluster import brokers, chain, pids
from pubsub_memory import resident_bytes

import ordercast
from ordercast.broker.archive.topic_archive import TopicArchive
from ordercast.core.ids import Topic
from ordercast.net.brokers.archive import ArchiveFiles
from ordercast.net.brokers.ledger import DiskBrokerLedger
from ordercast.pubsub.settings import BrokerSettings

PAYLOAD = bytes(16)
AT_A_TIME = 20
TOPIC = "news"
FOLDED_S = BrokerSettings().fold_ms / 1000 * 2.5


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def session(address: str) -> None:
    async with ordercast.connect(address) as client:
        await client.publish(TOPIC, PAYLOAD)


async def tenth(address: str, pid: int, sessions: int) -> float:
    """CPU seconds of the broker per session."""
    before = cpu_s(pid)
    for _ in range(sessions // AT_A_TIME):
        await asyncio.gather(*(session(address) for _ in range(AT_A_TIME)))
    return (cpu_s(pid) - before) / sessions


async def read_along(address: str) -> None:
    async with ordercast.connect(address) as reader:
        async for _ in await reader.subscribe(TOPIC):
            pass


async def position_of(address: str) -> str:
    async with ordercast.connect(address) as client:
        return str((await client.read(TOPIC).bounds())[1])


async def age(address: str, pid: int, sessions: int, *, kept: bool) -> tuple[list[float], list[int]]:
    """CPU seconds a session, of every tenth of them; bytes of memory at first, after half of them and at the end."""
    reader = asyncio.create_task(read_along(address))
    await asyncio.sleep(0.5)
    tenths, memory = [], [resident_bytes(pid)]
    try:
        for half in range(2):
            tenths += [await tenth(address, pid, sessions // 10) for _ in range(5)]
            await asyncio.sleep(FOLDED_S)
            memory.append(resident_bytes(pid))
            print(f"half {half + 1}: {memory[-1] / 2**20:.1f} MiB", flush=True)
            if kept:
                print(f"a position is {len(await position_of(address))} characters long", flush=True)
        await session(address)  # Its record says which sessions were closed before.
        await asyncio.sleep(1)
        return tenths, memory
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)


def look_at_archive(data: Path) -> None:
    """What the manifest of the topic says, and how long its archive takes to open."""
    began = time.perf_counter()
    files = ArchiveFiles(data, fsync="never")
    archive = TopicArchive(Topic(TOPIC), files, files.saved()[Topic(TOPIC)])
    opened_s = time.perf_counter() - began
    size = len(msgspec.msgpack.encode(archive.manifest))
    files.abandon()
    status = archive.status()
    print(f"archive: {status['messages']} messages, {status['bytes'] / 2**20:.1f} MiB, {status['segments']} segments;")
    print(f"its manifest has {size} bytes, its end {len(archive.end)} names; opened at a restart in {opened_s:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=20_000)
    parser.add_argument("--kept", action="store_true", help="the topic is kept")
    options = parser.parse_args()
    keep = [f'keep = [{{ filter = "{TOPIC}", copies = 1 }}]'] if options.kept else []
    with (
        tempfile.TemporaryDirectory() as data,
        brokers(chain(1), f'data = "{data}"', 'fsync = "never"', *keep) as (cluster, (address,)),
    ):
        (pid,) = pids(cluster)
        tenths, (first, half, last) = uvloop.run(age(address, pid, options.sessions, kept=options.kept))
        written = sum(file.stat().st_size for file in Path(data).rglob("*") if file.is_file())
        cluster.down()
        began = time.perf_counter()
        saved = DiskBrokerLedger(Path(data) / "b0").saved()
        read_s = time.perf_counter() - began
        if options.kept:
            look_at_archive(Path(data) / "b0")
    print(f"{options.sessions} sessions: {tenths[0] * 1e3:.2f} ms of CPU each at first, {tenths[-1] * 1e3:.2f} at last")
    each = [2 * grown / options.sessions for grown in (half - first, last - half)]
    print(f"memory: {each[0]:.0f} bytes a session in the first half, {each[1]:.0f} in the second")
    intervals = sum(len(bounds) // 2 for bounds in saved.closed.values())
    base = len(saved.base.get(Topic(TOPIC), {}))
    print(f"log on disk: {written / 2**20:.1f} MiB; read again at a restart in {read_s:.2f} s: {base} publishers in")
    print(f"the base, {len(saved.fenced)} fences, {intervals} intervals of closed sessions")


if __name__ == "__main__":
    main()
