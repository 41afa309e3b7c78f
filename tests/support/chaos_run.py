"""Brokers and clients as real processes, faults from a seed, and the judge's word on what was seen."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import msgspec
import pyarrow as pa

from ordercast import testing
from ordercast.net.brokers.cluster import BrokerCluster
from ordercast.net.brokers.cluster_file import BrokerEntry, ClusterFile
from ordercast.net.turn_ports import address_of, lasting_door
from ordercast.net.wire.credentials import join_address, split_address
from ordercast.sim.pubsub.run import CLAIMS
from ordercast.trace.arrow_schema import EVENT_SCHEMA
from ordercast.trace.collect import describe_run, journal_tables
from ordercast.verify.verdict import Verdict
from tests.support.chaos_client import Orders
from tests.support.proxy import Proxy
from tests.support.pubsub_lab import TableWriter, judge_the_living

ROOT = Path(__file__).parents[2]
SETTINGS = msgspec.structs.replace(testing.QUICK, member_timeout_ms=8000, lease_ms=800)
_NODE, _KIND, _MSG, _TOPIC, _TIME = (
    EVENT_SCHEMA.names.index(name) for name in ("node", "kind", "msg", "topic", "time_ns")
)
_STEP_S = 0.05
_QUIET_S = 1.0
"""Nobody has got anything for so long: nothing is on its way."""


async def behind_proxies(directory: Path, trace: Path, count: int, **config: Any) -> tuple[BrokerCluster, list[Proxy]]:
    """A cluster whose brokers, and clients, reach each broker through a proxy of its own. Brokers hang in twos."""
    doors = [lasting_door() for _ in range(count)]
    listens = [address_of(door) for door in doors]
    proxies = [Proxy(split_address(listen)) for listen in listens]
    entries = []
    for i, (listen, proxy) in enumerate(zip(listens, proxies, strict=True)):
        advertise = join_address(*await proxy.start())
        entries.append(
            BrokerEntry(id=f"b{i}", listen=listen, advertise=advertise, parent=f"b{(i - 1) // 2}" if i else "")
        )
    for door in doors:
        door.close()
    options = {"settings": testing.QUICK, "limits": testing.QUICK_LIMITS, **config}
    file = ClusterFile(broker=tuple(entries), trace=str(trace), **options)
    path = directory / "cluster.json"
    path.write_bytes(msgspec.json.encode(file))
    return BrokerCluster(path, bound=True), proxies


class ClientProcess:
    """A client under test, life after life."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.words: list[str] = []
        self.process: asyncio.subprocess.Process | None = None
        self._hearing: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def start(self) -> None:
        self.words = []
        with (Path(self.orders.safe).parent / f"{self.orders.name}.err").open("ab") as errors:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.support.chaos_client", msgspec.json.encode(self.orders).decode(),
                cwd=ROOT, env={**os.environ, "PYTHONPATH": "src"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=errors,
            )  # fmt: skip
        self._hearing = asyncio.create_task(self._hear())

    async def _hear(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self.words.append(line.decode().strip())

    async def until(self, word: str, timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        while word not in self.words:
            if not self.running:
                raise AssertionError(f"{self.orders.name} ended: {self._last_words()}")
            if "lost" in self.words:
                raise AssertionError(f"{self.orders.name} lost its session")
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.orders.name} is not {word} after {timeout_s:g} s; it said {self.words}")
            await asyncio.sleep(_STEP_S)

    async def count(self) -> int:
        """How many messages it has got."""
        assert self.process is not None
        assert self.process.stdin is not None
        before = len(self.words)
        self.process.stdin.write(b"\n")
        async with asyncio.timeout(60):
            while len(self.words) == before:
                await asyncio.sleep(_STEP_S)
        return int(self.words[-1].split()[1])

    def signal(self, number: signal.Signals) -> None:
        if self.running:
            assert self.process is not None
            self.process.send_signal(number)

    async def kill(self) -> None:
        self.signal(signal.SIGKILL)
        await self._end()

    async def finish(self) -> None:
        if self.running:
            assert self.process is not None
            assert self.process.stdin is not None
            self.process.stdin.close()
        await self._end()

    async def _end(self) -> None:
        if self.process is not None:
            async with asyncio.timeout(30):
                await self.process.wait()
        if self._hearing is not None:
            await self._hearing
        if self.process is not None:
            cast("Any", self.process)._transport.close()

    def _last_words(self) -> str:
        lines = (Path(self.orders.safe).parent / f"{self.orders.name}.err").read_text().strip().splitlines()
        return lines[-1] if lines else "without a word"


async def come_to_rest(clients: list[ClientProcess], timeout_s: float) -> None:
    """Until everything that the living published was taken by every subscriber, and nobody gets anything more."""
    deadline = time.monotonic() + timeout_s
    for client in clients:
        await client.until("settled", max(1.0, deadline - time.monotonic()))
    counts: list[int] = []
    while counts != (counts := [await client.count() for client in clients]):
        await asyncio.sleep(_QUIET_S)


def judge_living(run: Path) -> tuple[Verdict | None, list[tuple[Any, ...]]]:
    """The verdict on a run that came to rest, without the last moments of clients that died; and all its rows."""
    manifest, _ = describe_run(run)
    manifest = msgspec.structs.replace(manifest, drained=True, claims=CLAIMS)
    table = pa.concat_tables(journal_tables(run, manifest.run_id))
    rows = list(zip(*(table.column(field.name).to_pylist() for field in EVENT_SCHEMA), strict=True))
    writer = TableWriter()
    writer.rows = rows
    return judge_the_living(writer, manifest, witnesses=2), rows


def lost_although_safe(directory: Path, rows: list[tuple[Any, ...]], readers: list[str]) -> list[str]:
    """Publications that were called safe and never came to one of these clients, who were members and stayed."""
    safe = [line for path in sorted(directory.glob("*.safe")) for line in path.read_text().split()]
    published = {row[_MSG]: row for row in rows if row[_KIND] == "publish"}
    lost = []
    for reader in readers:
        own = [row for row in rows if row[_NODE] == reader]
        since = {row[_TOPIC]: row[_TIME] for row in reversed(own) if row[_KIND] == "subscribe"}
        got = {row[_MSG] for row in own if row[_KIND] == "deliver"}
        for message in safe:
            row = published[message]
            member = row[_TOPIC] in since and since[row[_TOPIC]] < row[_TIME]
            if member and message not in got:
                lost.append(f"{message} was safe and never came to {reader}")
    return lost


def draws(seed: int, what: str) -> random.Random:
    """Chance by identity: one part of a plan does not move another."""
    return random.Random(f"{seed}/{what}")
