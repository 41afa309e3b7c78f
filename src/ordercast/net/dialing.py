"""Dials that are under way."""

from __future__ import annotations

import asyncio
from typing import Protocol

from ordercast.core.errors import UsageError
from ordercast.core.process import Peer
from ordercast.net.wire.connection import WireConnection
from ordercast.net.wire.credentials import Credentials, split_address
from ordercast.net.wire.ends import ConnectionEnd
from ordercast.net.wire.settings import WireSettings, seconds


class Housemate(Protocol):
    """Port to another host of this very process, which is reached by a pair of sockets whatever its address is."""

    me: Peer

    async def let_in(self, dialed: WireConnection) -> None: ...


class Dialing:
    """Brings connections to their other end. Where nobody answers the connection is told that it has ended."""

    def __init__(self, settings: WireSettings, credentials: Credentials, housemate: Housemate | None) -> None:
        self._patience_s = seconds(settings.handshake_ms)
        self._context = credentials.tls.client_context() if credentials.tls is not None else None
        self._housemate = housemate
        self._loop = asyncio.get_running_loop()
        self._under_way: set[asyncio.Task[None]] = set()

    def begin(self, connection: WireConnection) -> None:
        dial = self._loop.create_task(self._dial(connection))
        self._under_way.add(dial)
        dial.add_done_callback(self._under_way.discard)

    def cancel(self) -> None:
        for dial in self._under_way:
            dial.cancel()

    async def end(self) -> None:
        """Cancel all dials, and wait until they are."""
        self.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _dial(self, connection: WireConnection) -> None:
        housemate = self._housemate
        if housemate is not None and connection.address == housemate.me.address:
            await housemate.let_in(connection)
            return
        try:
            host, port = split_address(connection.address)
            async with asyncio.timeout(self._patience_s):
                await self._loop.create_connection(
                    lambda: connection, host, port, ssl=self._context,
                    server_hostname=host if self._context is not None else None,
                )  # fmt: skip
        except (OSError, UsageError, UnicodeError) as error:  # TimeoutError is an OSError, SSLError too.
            connection.abort(
                ConnectionEnd("unreachable", f"nobody answers at {connection.address}: {error or 'no answer'}")
            )
