"""Reads long frames from the socket into their place, for a connection that has come upon one.

A transport asks a protocol of this kind where to read into, which costs a call and a copy more for every short read. So
a connection has its transport read in this way only while long frames come.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from ordercast.net.wire.frames import FrameReader

_MOST_BYTES = 1 << 20
"""So much of long frames is read in one turn, about."""
_LITTLE_BYTES = 1 << 12
"""Read after a long frame, to see how long the next one is."""


class LongReader(Protocol):
    """Port to the connection that long frames arrive on."""

    @property
    def takes(self) -> bool:
        """Whether what arrives is looked at now; if not, it may not go into the place of a frame."""

    def filled(self, nbytes: int) -> None:
        """So many bytes have been read into the place of a long frame."""

    def rest(self) -> None:
        """Let the turn end before more is read."""

    def read_plainly(self) -> None:
        """No long frame is on its way any more."""

    def data_received(self, data: bytes) -> None: ...

    def eof_received(self) -> bool: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, error: Exception | None) -> None: ...


class LongReads(asyncio.BufferedProtocol):
    """Stands between a transport and its connection while long frames come; all but reading is passed on."""

    def __init__(self, connection: LongReader, frames: FrameReader, buffer: memoryview) -> None:
        """`buffer`: what is read into when it is not the rest of a long frame."""
        self._connection = connection
        self._frames = frames
        self._buffer = buffer
        self._into: memoryview | None = None
        """The place in a long frame that is being read into."""
        self._unrested = 0
        """Bytes of long frames since reading last paused."""

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Where to read into: the rest of a long frame into its place, everything else to be looked at."""
        self._into = self._frames.room if self._connection.takes else None
        if self._into is not None:
            return self._into
        return self._buffer[:_LITTLE_BYTES] if self._frames.after_long else self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._into is None:
            self._connection.data_received(bytes(self._buffer[:nbytes]))
            if self._frames.room is None:
                self._connection.read_plainly()
            return
        self._into = None
        self._connection.filled(nbytes)
        self._unrested += nbytes
        if self._unrested >= _MOST_BYTES:
            self._unrested = 0
            self._connection.rest()

    def eof_received(self) -> bool:
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._connection.connection_lost(error)
