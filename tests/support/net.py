"""Nodes over TCP for tests: hosts in one loop, and a peer that can say anything it likes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from ordercast.core.ids import NodeId, Topic
from ordercast.core.machine import Place
from ordercast.core.messages import Message
from ordercast.net.nodes import handshake
from ordercast.net.nodes.channel import NEVER_MET
from ordercast.net.nodes.frames import GreetingReader, greeting_frame
from ordercast.net.nodes.handshake import Identity, Welcome
from ordercast.net.nodes.host import Host, NetPlace
from ordercast.net.settings import NetSettings
from ordercast.net.wire.greetings import Challenge, encode
from ordercast.protocols import lookup
from ordercast.trace.journal import Journal

CLUSTER = "test"
TOKEN = b"a secret"
HASTY = NetSettings(heartbeat_ms=25, suspect_ms=200, handshake_ms=300, reconnect_ms=2, reconnect_max_ms=50)
"""Timeouts for tests that wait for them to run out."""


class Inbox:
    """What a node delivered, in order."""

    def __init__(self, host: Host) -> None:
        self.messages: list[Message] = []
        host.delivery_watchers.append(lambda _host, message: self.messages.append(message))

    @property
    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.messages]


def build_host(
    node: str,
    nodes: Sequence[str],
    *,
    protocol: str = "fifo",
    life: int = 0,
    settings: NetSettings = HASTY,
    journal: Journal | None = None,
    token: bytes = TOKEN,
    neighbours: Sequence[str] | None = None,
    **options: Any,
) -> Host:
    """A node of a clique, unless its neighbours are given."""
    info = lookup(protocol)
    everyone = tuple(map(NodeId, nodes))
    near = tuple(map(NodeId, neighbours)) if neighbours is not None else tuple(n for n in everyone if n != node)
    place = Place(NodeId(node), near, everyone, {Topic("t"): everyone}, life)
    net = NetPlace(CLUSTER, token, life)
    return Host(place, info, info.parse_options(options), net, settings=settings, journal=journal)


@asynccontextmanager
async def closing(*hosts: Host) -> AsyncIterator[None]:
    """Close the hosts at the end, however it comes."""
    try:
        yield
    finally:
        await asyncio.gather(*(host.close() for host in hosts))


def connected(host: Host, peer: str) -> bool:
    return host.transport.channels[NodeId(peer)].connection is not None


class RawPeer:
    """The other end of a connection to a node, driven byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, address: tuple[str, int]) -> RawPeer:
        return cls(*await asyncio.open_connection(*address))

    async def greeting(self) -> handshake.Greeting:
        reader = GreetingReader("node")
        while True:
            body = reader.feed(await self.reader.readexactly(1))
            if body is not None:
                return handshake.decode(body, "node")

    async def introduce(
        self, me: str, to: str, *, life: int = 0, received: int = 0, token: bytes = TOKEN, cluster: str = CLUSTER
    ) -> Welcome:
        """A correct handshake, as far as the arguments are."""
        asked = await self.greeting()
        assert isinstance(asked, Challenge)
        identity = Identity(cluster, NodeId(me), life, token)
        said = handshake.hello(identity, NodeId(to), NEVER_MET if not received else 0, received, asked)
        self.writer.write(greeting_frame(encode(said)))
        return handshake.check_welcome(await self.greeting(), identity, said, "node")

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def end(self) -> bytes:
        """All that the node still says before it closes."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""

    async def close(self) -> None:
        self.writer.transport.abort()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


class LogLines(logging.Handler):
    """The events that the runtime logged, as (event, facts)."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[tuple[str, dict[str, object]]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.getMessage(), getattr(record, "facts", {})))

    def reasons(self, event: str = "closed") -> list[str]:
        return [str(facts.get("reason", "")) for name, facts in self.lines if name == event]
