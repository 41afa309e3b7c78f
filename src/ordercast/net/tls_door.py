"""A listening socket with TLS. Whoever has not finished the handshake of TLS is a stranger, counted like all others.

The event loop's own server tells nobody of a connection before its TLS stands, so any number of half-open ones could
hold all descriptors of the process. Here a connection is known from the moment at which it is accepted.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

from ordercast.core.process import Peer
from ordercast.net.wire.descriptors import takes_the_last
from ordercast.net.wire.ends import ConnectionEnd
from ordercast.net.wire.settings import WireSettings, seconds
from ordercast.net.wire.strangers import Strangers

_AT_ONCE = 64
"""Connections that are accepted before others have their turn."""
_PAUSE_S = 0.5
"""While the system has no descriptor left nobody is accepted for so long."""


class SecuringGuest:
    """An accepted connection that has to finish the handshake of TLS."""

    peer: Peer | None = None
    has_spoken = False
    lingers = False

    def __init__(self, raw: socket.socket, host: str, name: str, turned_away: TurnedAway) -> None:
        self.raw = raw
        self.host = host
        self.name = name
        self.task: asyncio.Task[None] | None = None
        self._turned_away = turned_away

    def abort(self, end: ConnectionEnd) -> None:
        """There is no way to tell it why."""
        self._turned_away(self, end)
        if self.task is not None:
            self.task.cancel()

    refuse = abort


TurnedAway = Callable[[SecuringGuest, ConnectionEnd], None]


class TlsDoor:
    """Accepts at one listening socket; hands over to `accepted` what has got as far as TLS."""

    def __init__(
        self, door: socket.socket, context: ssl.SSLContext, settings: WireSettings, strangers: Strangers,
        accepted: Callable[[], asyncio.BaseProtocol], turned_away: TurnedAway,
    ) -> None:  # fmt: skip
        self._door = door
        self._context = context
        self._patience_s = seconds(settings.handshake_ms)
        self._strangers = strangers
        self._accepted = accepted
        self._turned_away = turned_away
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pausing: asyncio.TimerHandle | None = None
        self._closed = False
        self._listen()

    def _listen(self) -> None:
        self._pausing = None
        self._loop.add_reader(self._door, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                raw, remote = self._door.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._loop.remove_reader(self._door)
                self._pausing = self._loop.call_later(_PAUSE_S, self._listen)
                return
            raw.setblocking(False)
            guest = SecuringGuest(raw, str(remote[0]), f"{remote[0]}:{remote[1]}", self._turned_away)
            if takes_the_last(raw):
                raw.close()
                guest.abort(ConnectionEnd("strangers", "too many connections (open files)"))
                continue
            guest.task = self._loop.create_task(self._secure(guest))
            self._tasks.add(guest.task)
            guest.task.add_done_callback(self._tasks.discard)
            self._strangers.came(guest)

    async def _secure(self, guest: SecuringGuest) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._accepted, guest.raw, ssl=self._context, ssl_handshake_timeout=self._patience_s
            )
        except asyncio.CancelledError:
            guest.raw.close()
        except OSError as error:  # SSLError and TimeoutError are such.
            guest.raw.close()
            self._turned_away(guest, ConnectionEnd("handshake", f"no TLS: {error or 'no answer'}"))
        finally:
            self._strangers.went(guest)

    def close(self) -> None:
        """Accept nobody any more, and give up whoever is in the middle of TLS."""
        if self._closed:
            return
        self._closed = True
        if self._pausing is not None:
            self._pausing.cancel()
        self._loop.remove_reader(self._door)
        self._door.close()
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)
