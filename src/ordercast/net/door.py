"""Where a process can be dialed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from ordercast.core.errors import UsageError
from ordercast.net.datagrams import doors
from ordercast.net.wire.connection import WireConnection
from ordercast.net.wire.credentials import Credentials
from ordercast.net.wire.settings import WireSettings, seconds


class FrontDoor:
    """One listening socket, with TLS if there are certificates; and one for datagrams beside it if they are wanted."""

    def __init__(self, credentials: Credentials, settings: WireSettings) -> None:
        self._credentials = credentials
        self._settings = settings
        self._server: asyncio.Server | None = None

    async def open(
        self, listen: str | socket.socket, kind: str, accepted: Callable[[], WireConnection], *, with_datagrams: bool
    ) -> tuple[socket.socket, socket.socket | None]:
        """The socket that listens, and the one for datagrams. Refused where everybody could come in unproved."""
        door, datagrams = doors(listen, with_datagrams=with_datagrams)
        try:
            self._credentials.check_listen(str(door.getsockname()[0]), kind)
        except UsageError:
            for opened in filter(None, (door, datagrams)):
                opened.close()
            raise
        tls = self._credentials.tls
        context = tls.server_context() if tls is not None else None
        patience = seconds(self._settings.handshake_ms) if context is not None else None
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(accepted, sock=door, ssl=context, ssl_handshake_timeout=patience)
        return door, datagrams

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def wait_closed(self) -> None:
        if self._server is not None:
            await self._server.wait_closed()
