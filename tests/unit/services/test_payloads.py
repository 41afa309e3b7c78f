"""Bodies that travel apart: a delivery waits for its body, and what is behind it waits too."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ordercast.core.errors import UsageError
from ordercast.services.local_bus import LocalHub
from ordercast.services.payloads import DirectoryPayloads, MemoryPayloads, PayloadStore
from ordercast.services.wire import Elsewhere
from tests.support.bank_lab import BankNode, rest
from tests.support.loop import run_async


class Slow:
    """Bodies arrive when they are let through."""

    def __init__(self) -> None:
        self.kept = MemoryPayloads()
        self.gate = asyncio.Event()

    async def put(self, body: bytes) -> Elsewhere:
        return await self.kept.put(body)

    async def get(self, where: Elsewhere) -> bytes:
        await self.gate.wait()
        return await self.kept.get(where)


def test_a_delivery_waits_for_its_body_and_nothing_overtakes_it() -> None:
    async def main() -> None:
        hub = LocalHub(interleave=False)
        shared = MemoryPayloads()
        slow = Slow()
        slow.kept = shared
        ann = BankNode(hub.connect("ann"), payloads=shared, inline_bytes=60)
        bob = BankNode(hub.connect("bob"), payloads=slow, inline_bytes=60)
        async with ann.node, bob.node:
            long = "a" * 100
            assert await asyncio.gather(ann.bank.deposit("b", 1), ann.bank.deposit(long, 5), ann.bank.deposit("b", 2))
            await asyncio.sleep(0.02)
            assert [s.arguments[0] for s in bob.steps] == ["b"]
            slow.gate.set()
            await rest(hub)
            assert [s.arguments[0] for s in bob.steps] == ["b", long, "b"] == [s.arguments[0] for s in ann.steps]

    run_async(main)


@pytest.mark.parametrize("kind", ["memory", "directory"])
def test_bodies_come_back_as_they_were_put_whoever_comes_first(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        store: PayloadStore = MemoryPayloads() if kind == "memory" else DirectoryPayloads(tmp_path / "bodies")
        where = await (MemoryPayloads() if kind == "memory" else DirectoryPayloads(tmp_path / "other")).put(b"x" * 1000)
        early = asyncio.ensure_future(store.get(where))
        await asyncio.sleep(0.02)
        assert not early.done()
        assert await store.put(b"x" * 1000) == where
        assert await early == b"x" * 1000

    run_async(main)


def test_a_damaged_file_counts_as_not_yet_there(tmp_path: Path) -> None:
    async def main() -> None:
        store = DirectoryPayloads(tmp_path)
        where = await store.put(b"whole")
        (tmp_path / where.digest.hex()).write_bytes(b"who")
        waiting = asyncio.ensure_future(store.get(where))
        await asyncio.sleep(0.03)
        assert not waiting.done()
        await store.put(b"whole")
        assert await waiting == b"whole"

    run_async(main)


def test_a_directory_that_cannot_be_made_is_named() -> None:
    with pytest.raises(UsageError, match="/proc/nowhere"):
        DirectoryPayloads(Path("/proc/nowhere"))
