"""Deliveries for HTTP: an endless stream of server-sent events, and history as a JSON object a line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing

import msgspec

from ordercast.api.client import Client
from ordercast.api.errors import HistoryLost, SessionLost
from ordercast.api.history import newest_of
from ordercast.api.inbox import Inbox
from ordercast.api.starts import parsed_start
from ordercast.core.errors import PeerError, UsageError
from ordercast.doors.web.forms import form_of
from ordercast.net import http
from ordercast.net.wire.settings import WireSettings, seconds
from ordercast.pubsub.publications import Publication

_QUIET_S = 15.0
"""After so long without a delivery a comment is sent, so that nobody on the way gives the connection up."""
_MOST_LINES = 10_000


class EventStream:
    """One GET /subscribe: what its inboxes get goes out as events, in the order in which they get it."""

    def __init__(self, client: Client, settings: WireSettings, writer: asyncio.StreamWriter) -> None:
        self._client = client
        self._settings = settings
        self._writer = writer
        self._inboxes: list[Inbox] = []

    async def subscribe(self, topics: list[str], start: str) -> None:
        """Returns when the tree has confirmed all of them."""
        for topic in dict.fromkeys(topics):
            self._inboxes.append(await self._client.subscribe(topic, start=parsed_start(start)))

    async def run(self, fields: list[tuple[str, str]]) -> None:
        """Write until the other end goes, does not read, or the session is lost."""
        own = [("Content-Type", "text/event-stream"), ("Cache-Control", "no-store"), ("Connection", "close")]
        self._writer.write(http.response_head(200, [*own, *fields]))
        await self._send(b": subscribed\n\n")
        async with asyncio.TaskGroup() as tasks:
            readers = [tasks.create_task(self._read(inbox)) for inbox in self._inboxes]
            quiet = tasks.create_task(self._keep_alive())
            await asyncio.wait(readers, return_when=asyncio.FIRST_COMPLETED)
            for task in (*readers, quiet):
                task.cancel()

    async def _read(self, inbox: Inbox) -> None:
        try:
            async for batch in inbox.batches():
                await self._send(b"".join([_event(entry) for entry in batch]))
        except (SessionLost, HistoryLost) as error:
            await self._send(b"event: lost\ndata: " + msgspec.json.encode(str(error)) + b"\n\n")

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(_QUIET_S)
            await self._send(b": quiet\n\n")

    async def _send(self, data: bytes) -> None:
        await send(self._writer, data, self._settings)


async def send(writer: asyncio.StreamWriter, data: bytes, settings: WireSettings) -> None:
    """Write; a PeerError for one that does not read for too long."""
    writer.write(data)
    try:
        async with asyncio.timeout(seconds(settings.slow_consumer_ms)):
            await writer.drain()
    except TimeoutError:
        writer.transport.abort()
        raise PeerError("guest", f"reads nothing for {settings.slow_consumer_ms:g} ms") from None


def _event(entry: Publication) -> bytes:
    return b"id: " + entry.id.encode() + b"\ndata: " + msgspec.json.encode(form_of(entry)) + b"\n\n"


async def history_lines(client: Client, topic: str, start: str, last: str, most_bytes: int) -> bytes:
    """Kept messages of a topic as lines, or the last so many of them."""
    number = int(last) if last.isascii() and last.isdigit() and len(last) <= len(str(_MOST_LINES)) else 0
    if not 0 < number <= _MOST_LINES:
        raise UsageError(f"last: how many? 1 to {_MOST_LINES}")
    history = client.read(topic, parsed_start(start))
    if start == "earliest":
        newest: Iterable[Publication] = await history.last(number, most_bytes=most_bytes)
    else:
        async with aclosing(history.batches()) as batches:
            newest = await newest_of(batches, number, most_bytes)
    lines = [msgspec.json.encode(form_of(entry)) + b"\n" for entry in newest]
    return b"".join(lines)
