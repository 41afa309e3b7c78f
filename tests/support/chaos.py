"""Clients that publish and read while brokers are killed under them, and the judge's word on what they saw."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import msgspec

from ordercast.api import Client, connect
from ordercast.trace.collect import describe_run
from ordercast.trace.store import MANIFEST
from ordercast.verify.judge import judge_path
from ordercast.verify.verdict import Verdict

GUARANTEES = ("eventual", "fifo", "causal", "total")


class Talker:
    """A client that publishes on every topic and reads them all."""

    def __init__(self, client: Client, topics: list[str], seed: str) -> None:
        self.client = client
        self.topics = topics
        self.published: list[str] = []
        self.got: list[str] = []
        self.answers = asyncio.Event()
        self._chance = random.Random(seed)
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def join(cls, addresses: list[str], name: str, topics: list[str], trace: Path) -> Talker:
        client = await connect(addresses, name, trace=trace, timeout=20)
        talker = cls(client, topics, name)
        for topic in topics:
            inbox = await client.subscribe(topic)
            talker._tasks.append(asyncio.create_task(talker._read(inbox)))
        return talker

    async def _read(self, inbox: object) -> None:
        async for message in inbox:  # type: ignore[attr-defined]
            self.got.append(message.id)

    async def talk(self, count: int, pause_s: float) -> None:
        """Publish so many messages, about every fourth of each guarantee."""
        for i in range(count):
            topic = self._chance.choice(self.topics)
            key = f"k{self._chance.randrange(5)}"
            guarantee = self._chance.choice(GUARANTEES)
            message = self.client.publish_soon(topic, f"{i}".encode(), key=key, guarantee=guarantee)
            self.published.append(message)
            await asyncio.sleep(pause_s * (0.5 + self._chance.random()))
        await self.client.flush(timeout=30)

    async def leave(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.client.close()


async def everybody_has_everything(talkers: list[Talker], timeout_s: float = 30.0) -> None:
    """Wait until every message is with everyone; what is missing is said."""
    wanted = {message for talker in talkers for message in talker.published}
    try:
        async with asyncio.timeout(timeout_s):
            while any(len(talker.got) < len(wanted) for talker in talkers):
                await asyncio.sleep(0.02)
    except TimeoutError:
        lacking = {talker.client.client_id: sorted(wanted - set(talker.got))[:5] for talker in talkers}
        raise AssertionError(f"never delivered: {lacking}") from None


def judge_drained(run: Path) -> Verdict:
    """The verdict on a run of which everybody waited for the end."""
    manifest, _ = describe_run(run)
    (run / MANIFEST).write_bytes(msgspec.json.encode(msgspec.structs.replace(manifest, drained=True)))
    (verdict,) = judge_path(run)
    return verdict
