"""Frames between brokers and clients: what lies in the byte stream once both ends know each other.

    ┌────────────┬──────────┬───────────────────┐
    │ length (4) │ kind (1) │ body (length - 1) │      big-endian; the length does not count itself
    └────────────┴──────────┴───────────────────┘

A connection is first in, first out, and ends as a whole, so nothing is numbered. A reader keeps only bytes that have
really arrived, and looks at them again only when the frame that it waits for can be complete.
"""

from __future__ import annotations

import struct

from ordercast.core.errors import PeerError

PACKET = 1
HEARTBEAT = 2
"""Nothing to say but that the sender lives."""
GOODBYE = 3
"""The sender ends the connection on purpose; the body says why."""

_HEADER = struct.Struct(">IB")
OVERHEAD_BYTES = _HEADER.size
"""What a frame adds to its body."""
_PREFIX_BYTES = 4
_LONGEST_REASON = 1000


def packet_frame(body: bytes) -> bytes:
    return _HEADER.pack(len(body) + 1, PACKET) + body


HEARTBEAT_FRAME = _HEADER.pack(1, HEARTBEAT)


def goodbye_frame(reason: str) -> bytes:
    body = reason.encode()[:_LONGEST_REASON]
    return _HEADER.pack(len(body) + 1, GOODBYE) + body


class WireReader:
    """Cuts a stream into frames, as many at a time as have arrived."""

    def __init__(self, peer: str, max_body_bytes: int) -> None:
        self._peer = peer
        self._max_length = max_body_bytes + 1
        self._parts: list[bytes] = []
        self._held = 0
        self._needed = OVERHEAD_BYTES
        self.broken: PeerError | None = None
        """Why the stream cannot go on; what came before the nonsense is good."""

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The frames that `data` completes, each as its kind and all of its bytes, header included."""
        if self._parts:
            self._parts.append(data)
            self._held += len(data)
            if self._held < self._needed:
                return []
            data = b"".join(self._parts)
        return self._cut(data)

    def _cut(self, buffer: bytes) -> list[tuple[int, bytes]]:
        size = len(buffer)
        frames: list[tuple[int, bytes]] = []
        start = 0
        header = _HEADER.unpack_from
        self._needed = OVERHEAD_BYTES
        while size - start >= OVERHEAD_BYTES:
            length, kind = header(buffer, start)
            if not 1 <= length <= self._max_length or not PACKET <= kind <= GOODBYE:
                self.broken = PeerError(self._peer, self._complaint(length, kind))
                break
            end = start + _PREFIX_BYTES + length
            if end > size:
                self._needed = end - start
                break
            frames.append((kind, buffer[start:end]))
            start = end
        self._held = size - start
        self._parts = [buffer[start:]] if self._held else []
        return frames

    def _complaint(self, length: int, kind: int) -> str:
        if length > self._max_length:
            return f"announces a frame of {length} bytes; the limit is {self._max_length}"
        if length < 1:
            return "announces a frame without a kind"
        return f"sends a frame of kind {kind}, which does not exist"
