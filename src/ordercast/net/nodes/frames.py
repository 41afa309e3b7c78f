"""Frames: how packets, acknowledgements and heartbeats lie in the byte stream of a connection.

    ┌────────────┬──────────┬────────────┬──────────────────┐
    │ length (4) │ kind (1) │ number (8) │ body (length - 9) │      big-endian; the length does not count itself
    └────────────┴──────────┴────────────┴──────────────────┘

Greetings, which come before anything is known of the other end, are simply a length and a body of at most
GREETING_LIMIT bytes. A reader keeps only bytes that have really arrived: a declared length reserves nothing.
"""

from __future__ import annotations

import struct

from ordercast.core.errors import PeerError
from ordercast.core.wire import FRAME_PREFIX_BYTES

DATA = 1
"""A packet; `number` is its place on the channel."""
ACK = 2
"""All packets up to `number` have been taken over."""
PING = 3
"""An ACK that is sent only to be heard."""
BYE = 4
"""The sender closes; the body says why."""

GREETING_LIMIT = 1024

_HEADER = struct.Struct(">IBQ")
_AFTER_LENGTH = _HEADER.size - FRAME_PREFIX_BYTES
OVERHEAD_BYTES = _HEADER.size
"""What a frame adds to its body."""

_LENGTH = struct.Struct(">I")

Frame = tuple[int, int, bytes]
"""Kind, number, body."""


def frame(kind: int, number: int, body: bytes = b"") -> bytes:
    return _HEADER.pack(_AFTER_LENGTH + len(body), kind, number) + body


class FrameReader:
    """Cuts a stream into frames, as many at a time as have arrived."""

    def __init__(self, peer: str, max_body_bytes: int) -> None:
        self._peer = peer
        self._max_length = max_body_bytes + _AFTER_LENGTH
        self._rest = b""

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes; a PeerError if the stream cannot be one of frames.

        Frames ahead of the nonsense are lost with it: nothing of them was acknowledged, so they come again.
        """
        buffer = self._rest + data if self._rest else data
        size = len(buffer)
        frames: list[Frame] = []
        start = 0
        header = _HEADER.unpack_from
        while size - start >= OVERHEAD_BYTES:
            length, kind, number = header(buffer, start)
            if not _AFTER_LENGTH <= length <= self._max_length or not DATA <= kind <= BYE:
                raise PeerError(self._peer, self._complaint(length, kind))
            end = start + FRAME_PREFIX_BYTES + length
            if end > size:
                break
            frames.append((kind, number, buffer[start + OVERHEAD_BYTES : end]))
            start = end
        self._rest = buffer[start:] if start < size else b""
        return frames

    def _complaint(self, length: int, kind: int) -> str:
        if length > self._max_length:
            return f"announces a frame of {length} bytes; the limit is {self._max_length}"
        if length < _AFTER_LENGTH:
            return f"announces a frame of {length} bytes, too few for any"
        return f"sends a frame of kind {kind}, which does not exist"


def greeting_frame(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


class GreetingReader:
    """Collects one greeting at a time from a peer that may be anybody."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._buffer = b""

    def feed(self, data: bytes) -> bytes | None:
        """The next greeting once it is complete."""
        self._buffer += data
        if len(self._buffer) < FRAME_PREFIX_BYTES:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > GREETING_LIMIT:
            raise PeerError(self._peer, f"announces a greeting of {length} bytes; the limit is {GREETING_LIMIT}")
        end = FRAME_PREFIX_BYTES + length
        if len(self._buffer) < end:
            return None
        body, self._buffer = self._buffer[FRAME_PREFIX_BYTES:end], self._buffer[end:]
        return body

    def rest(self) -> bytes:
        """What came behind the last greeting."""
        return self._buffer
