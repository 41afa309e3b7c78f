"""A TCP proxy on loopback that a test puts between two nodes: it delays, throttles, cuts, resets and freezes."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Any

Address = tuple[str, int]
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_RESET = struct.pack("ii", 1, 0)
"""Linger of zero: closing the socket sends a reset and throws away what is on its way."""
_MOST_UNDER_WAY = 1024
"""Chunks that a direction holds before it stops reading."""
_LONGER = 16
"""By this part of the first connection's life every further one lives longer."""


class Way:
    """The conditions of one direction."""

    def __init__(self, *, delay_s: float = 0.0, bytes_per_s: float = 0.0) -> None:
        self.delay_s = delay_s
        """Latency: what enters leaves so much later, however much is on its way."""
        self.bytes_per_s = bytes_per_s
        self.flowing = asyncio.Event()
        self.flowing.set()

    def freeze(self) -> None:
        """Nothing comes through any more, and nobody is told."""
        self.flowing.clear()

    def thaw(self) -> None:
        self.flowing.set()


class Proxy:
    """Forwards every connection to one target, under the conditions that its attributes say."""

    def __init__(
        self, target: Address, *, delay_s: float = 0.0, bytes_per_s: float = 0.0, cut_every_bytes: int = 0
    ) -> None:
        self.target = target
        self.there = Way(delay_s=delay_s, bytes_per_s=bytes_per_s)
        """From whoever dials to the target."""
        self.back = Way(delay_s=delay_s, bytes_per_s=bytes_per_s)
        self.cut_every_bytes = cut_every_bytes
        """After so many bytes one way a connection ends, most likely within a frame. What came before gets through.

        Every further connection lives a little longer: where none lives long enough for the next frame, nothing that is
        sent in frames can ever go on, and how long frames get depends on how busy the machine is.
        """
        self.refusing = False
        self.cuts = 0
        self.connections = 0
        self._pairs: dict[asyncio.Task[None], _Pair] = {}
        self._server: asyncio.Server | None = None

    async def start(self) -> Address:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    def cut(self) -> None:
        """Reset every connection: what was on its way is gone."""
        for pair in list(self._pairs.values()):
            self.cuts += 1
            pair.reset()

    def freeze(self) -> None:
        """Half-open: connections stay, nothing comes through any more, either way."""
        self.there.freeze()
        self.back.freeze()

    def thaw(self) -> None:
        self.there.thaw()
        self.back.thaw()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.thaw()
        tasks = list(self._pairs)
        for pair in self._pairs.values():
            pair.reset()
        await asyncio.gather(*tasks)
        if self._server is not None:
            await self._server.wait_closed()  # Last: it waits for the connections too.

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        pair = _Pair(writer)
        self._pairs[task] = pair
        lifetime_bytes = self.cut_every_bytes + self.cut_every_bytes * self.connections // _LONGER
        self.connections += 1
        try:
            if self.refusing:
                return
            far_reader, far_writer = await asyncio.open_connection(*self.target)
            pair.add(far_writer)
            await self._forward((reader, writer), (far_reader, far_writer), lifetime_bytes)
        except OSError:
            pass  # One end is gone, and so is the other in a moment.
        finally:
            pair.reset()
            del self._pairs[task]

    async def _forward(self, near: Ends, far: Ends, lifetime_bytes: int) -> None:
        """Both ways, until both have ended."""
        await asyncio.gather(
            self._pump(near[0], far[1], self.there, lifetime_bytes),
            self._pump(far[0], near[1], self.back, lifetime_bytes),
        )

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way, lifetime_bytes: int
    ) -> None:
        """One task takes in, one lets out: a delay does not make the pipe narrow."""
        loop = asyncio.get_running_loop()
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MOST_UNDER_WAY)

        async def take_in() -> None:
            with suppress(OSError):  # A reset is the end of what comes, as well.
                while data := await reader.read(1 << 16):
                    await under_way.put((loop.time() + way.delay_s, data))
            await under_way.put((loop.time() + way.delay_s, b""))

        taking = loop.create_task(take_in())
        try:
            await self._let_out(under_way, writer, way, lifetime_bytes)
        finally:
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)

    async def _let_out(
        self, under_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter, way: Way, lifetime_bytes: int
    ) -> None:
        passed = 0
        while True:
            due, data = await under_way.get()
            await way.flowing.wait()
            early = due - asyncio.get_running_loop().time()
            if early > 0:
                await asyncio.sleep(early)
            if not data:
                break
            if way.bytes_per_s:
                await asyncio.sleep(len(data) / way.bytes_per_s)
            if writer.is_closing():
                return
            room = lifetime_bytes - passed
            passed += len(data)
            if lifetime_bytes and passed >= lifetime_bytes:
                writer.write(data[:room])
                self.cuts += 1
                break
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof() and not writer.is_closing():
            writer.write_eof()


class _Pair:
    """The two sockets of one forwarded connection."""

    def __init__(self, near: asyncio.StreamWriter) -> None:
        self._writers = [near]

    def add(self, far: asyncio.StreamWriter) -> None:
        self._writers.append(far)

    def reset(self) -> None:
        for writer in self._writers:
            raw: Any = writer.get_extra_info("socket")
            if raw is not None and raw.fileno() >= 0:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()
