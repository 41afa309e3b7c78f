"""Makes publishers wait while a neighbour's buffer is full."""

from __future__ import annotations

import asyncio

from ordercast.core.ids import NodeId


class Backpressure:
    """A gate for publishers: open while no neighbour's buffer is full."""

    def __init__(self) -> None:
        self._full: set[NodeId] = set()
        self._open = asyncio.Event()
        self._open.set()

    def change(self, peer: NodeId, *, full: bool) -> None:
        """The buffer towards the peer has passed its high-water mark, or has room again."""
        if full:
            self._full.add(peer)
            self._open.clear()
        else:
            self._full.discard(peer)
            if not self._full:
                self._open.set()

    async def wait(self) -> None:
        await self._open.wait()

    def open_for_good(self) -> None:
        """Nobody waits any more: the node stops."""
        self._open.set()
