"""A broker with doors for tests, and the smallest HTTP and NATS clients that can say anything they like."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ordercast.doors import open_doors
from ordercast.doors.nats.door import NatsDoor
from ordercast.doors.web import websocket
from ordercast.doors.web.door import WebDoor
from ordercast.net.brokers.cluster_file import parse_cluster
from ordercast.net.brokers.process import BrokerProcess, Launch
from ordercast.net.wire.credentials import split_address

ANYWHERE = "127.0.0.1:0"


class Doors:
    """A broker that runs, and its doors."""

    def __init__(self, process: BrokerProcess) -> None:
        self.process = process

    @property
    def broker(self) -> str:
        return self.process.host.me.address

    @property
    def nats(self) -> NatsDoor:
        return next(door for door in self.process.doors if isinstance(door, NatsDoor))

    @property
    def web(self) -> WebDoor:
        return next(door for door in self.process.doors if isinstance(door, WebDoor))


@asynccontextmanager
async def doors(kept_in: Path | None = None, **config: Any) -> AsyncIterator[Doors]:
    """One broker with both doors; `config` is the rest of its cluster file."""
    if kept_in is not None:
        config["data"] = str(kept_in)
    cluster = parse_cluster(config, Path())
    launch = Launch(id="b0", listen=ANYWHERE, cluster=cluster, nats=ANYWHERE, web=ANYWHERE, data=kept_in)
    process = BrokerProcess(launch, doors=open_doors)
    await process.start()
    try:
        yield Doors(process)
    finally:
        await process.stop()


class Line:
    """A connection that says bytes and reads until it has seen some."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def until(self, wanted: bytes) -> bytes:
        async with asyncio.timeout(20):
            return await self.reader.readuntil(wanted)

    async def rest(self) -> bytes:
        """All until the other end closes."""
        async with asyncio.timeout(20):
            return await self.reader.read()

    def close(self) -> None:
        self.writer.close()


async def dial(address: str) -> Line:
    host, port = split_address(address)
    return Line(*await asyncio.open_connection(host, port))


async def nats_line(doors: Doors, **said: Any) -> Line:
    """A client of NATS that has introduced itself."""
    line = await dial(doors.nats.address)
    assert (await line.until(b"\r\n")).startswith(b"INFO {")
    await line.say(b"CONNECT " + json.dumps({"verbose": False, **said}).encode() + b"\r\nPING\r\n")
    return line


async def ask(address: str, method: str, target: str, body: bytes = b"", **fields: str) -> tuple[int, bytes]:
    """One request; status and body."""
    line = await dial(address)
    named = {"Host": address, "Content-Length": str(len(body)), "Connection": "close", **fields}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in named.items())
    await line.say(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + body)
    line.writer.write_eof()
    status, _, rest = (await line.rest()).partition(b"\r\n")
    line.close()
    return int(status.split()[1]), rest.partition(b"\r\n\r\n")[2]


class Page:
    """The other end of a WebSocket."""

    def __init__(self, line: Line) -> None:
        self.line = line

    async def order(self, **order: Any) -> None:
        await self.say(websocket.TEXT, json.dumps(order).encode())

    async def say(self, kind: int, data: bytes) -> None:
        await self.line.say(masked(kind, data))

    async def hear(self) -> tuple[int, Any]:
        """Kind and content of the next frame; JSON where it is text."""
        reader = self.line.reader
        async with asyncio.timeout(20):
            first, size = await reader.readexactly(2)
            if size >= 126:
                size = int.from_bytes(await reader.readexactly(2 if size == 126 else 8))
            data = await reader.readexactly(size)
        kind = first & 0x0F
        return kind, json.loads(data) if kind == websocket.TEXT else data

    async def told(self) -> Any:
        kind, said = await self.hear()
        assert kind == websocket.TEXT, said
        return said


def masked(kind: int, data: bytes, *, final: bool = True) -> bytes:
    """A frame as browsers send it."""
    mask = b"\x3a\x51\xc4\x0f"
    size = len(data)
    length = bytes([0x80 | size]) if size < 126 else bytes([0x80 | 126]) + size.to_bytes(2)
    return bytes([0x80 * final | kind]) + length + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data))


async def page(doors: Doors, **fields: str) -> Page:
    """A WebSocket that has been opened."""
    line = await dial(doors.web.address)
    key = base64.b64encode(b"0123456789abcdef").decode()
    named = {"Host": doors.web.address, "Upgrade": "websocket", "Sec-WebSocket-Key": key, **fields}
    head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    await line.say(f"GET /socket HTTP/1.1\r\n{head}\r\n".encode())
    answer = await line.until(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 101"), answer
    assert websocket.accept_key(key).encode() in answer
    return Page(line)
