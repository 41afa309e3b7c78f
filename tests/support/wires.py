"""Processes over TCP for tests: machines that only write down what they hear, and a peer that can say anything."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

from ordercast.core.messages import Packet
from ordercast.core.process import Connection, Peer, ProcessMachine, Wires
from ordercast.core.wire import Codec
from ordercast.net.host import ProcessHost
from ordercast.net.wire import handshake
from ordercast.net.wire.credentials import Credentials, split_address
from ordercast.net.wire.frames import GreetingReader, greeting_frame, packet_frame
from ordercast.net.wire.settings import WireSettings


class Say(Packet, frozen=True, tag=1):
    text: str


CODEC = Codec((Say,))
OPEN = Credentials(cluster="test")
HASTY = WireSettings(
    heartbeat_ms=25, silence_ms=200, handshake_ms=250, farewell_ms=500, slow_consumer_bytes=1 << 16,
    slow_consumer_ms=100, max_payload_bytes=1 << 16,
)  # fmt: skip
"""Timeouts for tests that wait for them to run out."""


class Scribe(ProcessMachine):
    """Writes down everything it is told; does what the test tells it to."""

    def __init__(self, wires: Wires) -> None:
        self.wires = wires
        self.peers: dict[Connection, Peer] = {}
        self.heard: list[str] = []
        self.batches: list[int] = []
        self.ends: list[tuple[bool, str]] = []
        self.turns = 0
        self.on_say: Callable[[Connection, Say], None] | None = None

    def on_opened(self, connection: Connection, peer: Peer) -> None:
        self.peers[connection] = peer

    def on_packets(self, connection: Connection, packets: Sequence[Packet]) -> None:
        self.batches.append(len(packets))
        for packet in packets:
            assert isinstance(packet, Say)
            self.heard.append(packet.text)
            if self.on_say is not None:
                self.on_say(connection, packet)

    def on_closed(self, connection: Connection, *, gone: bool, reason: str = "") -> None:
        self.peers.pop(connection, None)
        self.ends.append((gone, reason))

    def on_timer(self, name: Hashable) -> None:
        self.heard.append(f"timer {name}")

    def on_turn_end(self) -> None:
        self.turns += 1

    def names(self) -> list[str]:
        return sorted(peer.name for peer in self.peers.values())


class Process:
    """A host and its scribe."""

    def __init__(
        self, name: str, *, kind: str = "broker", credentials: Credentials = OPEN, settings: WireSettings = HASTY,
        life: int = 0, **books: Any,
    ) -> None:  # fmt: skip
        self.host = ProcessHost(Peer(kind, name, life), Scribe, CODEC, settings, credentials=credentials, **books)

    @property
    def scribe(self) -> Scribe:
        assert isinstance(self.host.machine, Scribe)
        return self.host.machine

    @property
    def address(self) -> str:
        return self.host.me.address

    def dial(self, other: Process | str) -> Connection:
        address = other if isinstance(other, str) else other.address
        return self.host.turn(self.host.open, address)

    def say(self, connection: Connection, *texts: str) -> None:
        for text in texts:
            self.host.turn(self.host.send, connection, Say(text))


@asynccontextmanager
async def running(*processes: Process, listen: bool = True) -> AsyncIterator[None]:
    """Start them all on free ports; stop them however it ends."""
    for process in processes:
        await process.host.start("127.0.0.1:0" if listen and process.host.me.kind == "broker" else None)
    try:
        yield
    finally:
        await asyncio.gather(*(process.host.stop() for process in processes))


class Stranger:
    """The other end of a connection to a process, driven byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, address: str | tuple[str, int], *, limit: int = 1 << 16) -> Self:
        host, port = split_address(address) if isinstance(address, str) else address
        return cls(*await asyncio.open_connection(host, port, limit=limit))

    async def greeting(self) -> handshake.Greeting:
        reader = GreetingReader("process")
        while True:
            body = reader.feed(await self.reader.readexactly(1))
            if body is not None:
                return handshake.decode(body, "process")

    async def introduce(
        self, name: str = "mallory", *, kind: str = "client", credentials: Credentials = OPEN, life: int = 0,
        to: str = "",
    ) -> Peer:  # fmt: skip
        """A correct handshake, as far as the arguments are; a PeerError if the process refuses."""
        me = Peer(kind, name, life)
        said = handshake.present(me, credentials, await self.greeting(), "process", to)
        self.writer.write(greeting_frame(handshake.encode(said)))
        return handshake.accepted(me, credentials, await self.greeting(), said, "process")

    def say(self, text: str) -> None:
        self.writer.write(packet_frame(CODEC.encode(Say(text))))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def end(self) -> bytes:
        """All that the process still says before it closes."""
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
