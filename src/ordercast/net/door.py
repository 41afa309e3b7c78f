"""The listening socket of a process: where it can be dialed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from ordercast.core.errors import UsageError
from ordercast.net.datagrams import doors
from ordercast.net.tls_door import TlsDoor, TurnedAway
from ordercast.net.wire.connection import WireConnection
from ordercast.net.wire.credentials import Credentials
from ordercast.net.wire.settings import WireSettings
from ordercast.net.wire.strangers import Strangers


class FrontDoor:
    """One listening socket, with TLS if there are certificates; and one for datagrams beside it if they are wanted."""

    def __init__(
        self, credentials: Credentials, settings: WireSettings, strangers: Strangers, turned_away: TurnedAway
    ) -> None:
        self._credentials = credentials
        self._settings = settings
        self._strangers = strangers
        self._turned_away = turned_away
        self._server: asyncio.Server | TlsDoor | None = None

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
        if tls is not None:
            context = tls.server_context()
            self._server = TlsDoor(door, context, self._settings, self._strangers, accepted, self._turned_away)
        else:
            self._server = await asyncio.get_running_loop().create_server(accepted, sock=door)
        return door, datagrams

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def wait_closed(self) -> None:
        if self._server is not None:
            await self._server.wait_closed()
