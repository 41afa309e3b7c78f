"""TCP proxies ("doors") that add latency between processes on one machine, and keep the order of what passes.

Every process that dials has a door of its own for every process that it may dial, so each pair can have its latency.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

_LOOPBACK = "127.0.0.1"
_APART_S = 1e-9
"""Chunks that are due at the same instant keep their order."""


class _Way:
    """One direction of a connection: everything is put off by the same time, in order."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._last = 0.0
        self._loop = asyncio.get_running_loop()

    def after_delay(self, action: Callable[..., object], *arguments: Any) -> None:
        self._last = max(self._loop.time() + self._delay_s, self._last + _APART_S)
        self._loop.call_at(self._last, action, *arguments)


class _End(asyncio.Protocol):
    """One of the two connections that a door joins. What arrives before the other one stands waits."""

    def __init__(self, way: _Way) -> None:
        self.way = way
        self.other: _End | None = None
        self.transport: asyncio.Transport | None = None
        self.ended = asyncio.Event()
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        for data in self._early:
            self.transport.write(data)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.way.after_delay(self.other.pass_on, data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.ended.set()
        if self.other is not None:
            self.way.after_delay(self.other.end)

    def pass_on(self, data: bytes) -> None:
        if self.transport is None:
            self._early.append(data)
        elif not self.transport.is_closing():
            self.transport.write(data)

    def end(self) -> None:
        if self.transport is not None:
            self.transport.close()


class Doors:
    """All delaying proxies of a run."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self._ends: set[_End] = set()
        self._dials: set[asyncio.Task[None]] = set()

    async def open(self, target: tuple[str, int], delay_s: float) -> str:
        """A new door to `target`; its address."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: self._enter(target, delay_s), _LOOPBACK, 0)
        self._servers.append(server)
        return f"{_LOOPBACK}:{server.sockets[0].getsockname()[1]}"

    def _enter(self, target: tuple[str, int], delay_s: float) -> _End:
        near, far = _End(_Way(delay_s)), _End(_Way(delay_s))
        near.other, far.other = far, near
        self._ends |= {near, far}
        dial = asyncio.get_running_loop().create_task(self._dial(near, far, target))
        self._dials.add(dial)
        dial.add_done_callback(self._dials.discard)
        return near

    async def _dial(self, near: _End, far: _End, target: tuple[str, int]) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: far, *target)
        except OSError:
            far.way.after_delay(near.end)  # Nobody there: whoever dialed learns that as late as an answer.

    async def close(self) -> None:
        """End all doors; returns when no connection of theirs is left."""
        for server in self._servers:
            server.close()
        for dial in list(self._dials):
            dial.cancel()
        await asyncio.gather(*self._dials, return_exceptions=True)
        for end in list(self._ends):
            end.other = None
            if end.transport is not None:
                end.transport.abort()
                await end.ended.wait()
