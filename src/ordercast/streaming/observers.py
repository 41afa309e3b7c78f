"""Subscribers of the monitor's own, one at each broker: their deliveries become journals that a query reads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop

from ordercast.api import Inbox, connect
from ordercast.pubsub.publications import Publication
from ordercast.streaming.options import Connection
from ordercast.trace.journal import Journal, journal_path
from ordercast.trace.schema import JOURNALS, STATE_KEPT

_PAGE_BYTES = 1 << 24
"""A journal that is longer is followed by another one, so that what was read can be removed."""


class Observers:
    """A subscriber at each of the brokers, in a thread of their own, until they are stopped."""

    def __init__(self, run: Path, connection: Connection, topics: Sequence[str]) -> None:
        self._directory = run / JOURNALS
        self._directory.mkdir(parents=True, exist_ok=True)
        self._connection, self._topics = connection, topics
        self._ready: Future[None] = Future()
        self._over: Future[None] = Future()
        self._task: asyncio.Task[None] | None = None
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="observers", daemon=True)

    def start(self) -> None:
        """Return when all of them have subscribed; raises what keeps one from it."""
        self._thread.start()
        self._ready.result()

    def check(self) -> None:
        """Raises what ended one of them."""
        if self._over.done():
            self._over.result()

    def stop(self) -> None:
        """Take leave of the brokers, so that nobody waits for an observer."""
        if self._task is not None and not self._over.done():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                runner.run(self._observe())
            except asyncio.CancelledError:
                self._over.set_result(None)
            except BaseException as error:  # noqa: BLE001 - It is raised where somebody waits for this thread.
                self._over.set_exception(error)
                if not self._ready.done():
                    self._ready.set_exception(error)

    async def _observe(self) -> None:
        self._task = asyncio.current_task()
        at = self._connection
        async with AsyncExitStack() as stack:
            reading: list[tuple[Inbox, Pages]] = []
            for broker in at.brokers:
                client = await stack.enter_async_context(
                    connect(broker, token=at.token, user=at.user, tls=at.tls, cluster=at.cluster, timeout=at.timeout_s)
                )
                pages = Pages(self._directory, f"observer at {broker}")
                stack.callback(pages.close)
                reading += [(await client.subscribe(topic, raw=True), pages) for topic in self._topics]
            self._ready.set_result(None)
            async with asyncio.TaskGroup() as group:
                for inbox, pages in reading:
                    group.create_task(_record(inbox, pages))


async def _record(inbox: Inbox, pages: Pages) -> None:
    async for batch in inbox.batches():
        pages.write(batch)


class Pages:
    """The journal of one observer, as files of bounded length: lives that keep their state."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory, self._name, self._page = directory, name, 0
        self._journal = self._turned()

    def write(self, batch: Sequence[Publication]) -> None:
        self._journal.witness_many(time.monotonic_ns(), batch)
        self._journal.flush()
        if self._journal.length > _PAGE_BYTES:
            self._journal.close()
            self._page += 1
            self._journal = self._turned()

    def close(self) -> None:
        self._journal.close()

    def _turned(self) -> Journal:
        journal = Journal(journal_path(self._directory, self._name, self._page), packets=False)
        journal.begin(time.monotonic_ns(), life=self._page, state=STATE_KEPT if self._page else None)
        journal.flush()
        return journal
