"""A cluster that keeps topics, on a loop of its own thread: for tests that block, such as those of Spark queries."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import uvloop

from ordercast import blocking
from ordercast.pubsub.keeping import KeepTable
from ordercast.testing import InProcessCluster, cluster

T = TypeVar("T")
PATIENCE_S = 30.0


class KeptCluster:
    """Three brokers; `kept.>` has two copies."""

    def __init__(self, loop: asyncio.AbstractEventLoop, inner: InProcessCluster) -> None:
        self._loop = loop
        self.inner = inner

    @property
    def addresses(self) -> str:
        return ",".join(self.inner.addresses)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def connect(self, name: str) -> blocking.Client:
        return blocking.connect(self.inner.addresses, name)

    def copies_of(self, topic: str) -> list[str]:
        """The brokers that keep the topic."""
        return [n for n, p in self.inner.processes.items() if topic in p.broker.topics.kept.archives]

    def kill(self, broker: str) -> None:
        self.call(self.inner.kill(broker))


@contextmanager
def kept_cluster(directory: Path, **more: Any) -> Iterator[KeptCluster]:
    """The cluster, until the block ends."""
    ready: list[KeptCluster] = []
    started = threading.Event()
    loop = uvloop.new_event_loop()
    ended = asyncio.Event()

    async def live() -> None:
        try:
            keep = (KeepTable(filter="kept.>", copies=2),)
            async with cluster(3, data=directory, keep=keep, fsync="never", **more) as running:
                ready.append(KeptCluster(loop, cast("InProcessCluster", running)))
                started.set()
                await ended.wait()
        finally:
            started.set()

    thread = threading.Thread(target=loop.run_until_complete, args=(live(),), daemon=True)
    thread.start()
    try:
        assert started.wait(PATIENCE_S)
        assert ready, "the cluster did not start"
        yield ready[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(PATIENCE_S)
        loop.close()


def published(client: blocking.Client, topic: str, first: int, last: int, **options: Any) -> None:
    """Publish numbers, and wait until a copy has them all."""
    before = sum(client.read(topic).bounds()[1].of(topic).values())
    for number in range(first, last + 1):
        client.publish_soon(topic, b"%d" % number, **options)
    client.flush(timeout=PATIENCE_S)
    wanted = before + last + 1 - first
    until(lambda: sum(client.read(topic).bounds()[1].of(topic).values()) >= wanted)


def until(holds: Callable[[], bool]) -> None:
    """Ask until it holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it does not come to hold"
        time.sleep(0.01)
