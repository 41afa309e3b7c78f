"""Frames: how greetings, packets and heartbeats lie in the byte stream of a connection.

    ┌────────────┬──────────┬───────────────────┐
    │ length (4) │ kind (1) │ body (length - 1) │      big-endian; the length does not count itself
    └────────────┴──────────┴───────────────────┘

A connection is first in, first out, and ends as a whole, so nothing is numbered. A packet that is longer than a frame
may be travels as several: pieces, and a last frame that says that it is complete. Greetings, which come before anything
is known of the other end, are simply a length and a body of at most GREETING_LIMIT bytes. A reader keeps only bytes
that have really arrived: a declared length reserves nothing. It looks at them again only when the frame that it waits
for can be complete.
"""

from __future__ import annotations

import struct

from ordercast.core.errors import PeerError
from ordercast.core.wire import FRAME_PREFIX_BYTES

PACKET = 1
HEARTBEAT = 2
"""Nothing to say but that the sender lives."""
GOODBYE = 3
"""The sender ends the connection on purpose; the body says why."""
PIECE = 4
"""A part of a packet that is longer than a frame; the next frame goes on with it."""

_HEADER = struct.Struct(">IB")
OVERHEAD_BYTES = _HEADER.size
"""What a frame adds to its body."""
LONGEST_REASON = 1000

GREETING_LIMIT = 1024
_LENGTH = struct.Struct(">I")


_SHORT = 1024
_SHORT_HEADERS = tuple(_HEADER.pack(length + 1, PACKET) for length in range(_SHORT))
"""Of packets with shorter bodies than this: most are that short, and packing a header takes as long as the rest."""


def packet_frame(body: bytes) -> bytes:
    return _HEADER.pack(len(body) + 1, PACKET) + body


def packet_body(frame: bytes, peer: str) -> bytes:
    """The body of a packet frame that stands alone, as it does in a datagram; else a PeerError."""
    if len(frame) < OVERHEAD_BYTES or _HEADER.unpack_from(frame) != (len(frame) - FRAME_PREFIX_BYTES, PACKET):
        raise PeerError(peer, "sends something else than one whole packet in a datagram")
    return frame[OVERHEAD_BYTES:]


def packet_frames(body: bytes, most_bytes: int) -> bytes:
    """A packet of any length: one frame, or as many as it takes if none may have more bytes than these."""
    length = len(body)
    if length <= most_bytes:
        return (_SHORT_HEADERS[length] if length < _SHORT else _HEADER.pack(length + 1, PACKET)) + body
    last = (length - 1) // most_bytes * most_bytes
    pieces = [_HEADER.pack(most_bytes + 1, PIECE) + body[i : i + most_bytes] for i in range(0, last, most_bytes)]
    return b"".join([*pieces, packet_frame(body[last:])])


HEARTBEAT_FRAME = _HEADER.pack(1, HEARTBEAT)


def goodbye_frame(reason: str) -> bytes:
    body = reason.encode()[:LONGEST_REASON]
    return _HEADER.pack(len(body) + 1, GOODBYE) + body


class FrameReader:
    """Cuts a stream into frames, as many at a time as have arrived."""

    def __init__(self, peer: str, max_body_bytes: int, *, whole: bool = True) -> None:
        """`whole`: frames come with their header, as they can be passed on; otherwise only their bodies come."""
        self._peer = peer
        self._skip = 0 if whole else OVERHEAD_BYTES
        self._max_length = max_body_bytes + 1
        self._parts: list[bytes] = []
        self._held = 0
        self._needed = OVERHEAD_BYTES
        self.broken: PeerError | None = None
        """Why the stream cannot go on; what came before the nonsense is good."""

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The frames that `data` completes, each as its kind and its bytes."""
        if not self._parts:
            return self._cut(data, 0)
        missing = self._needed - self._held
        if len(data) < missing:
            self._parts.append(data)
            self._held += len(data)
            return []
        if self._needed == OVERHEAD_BYTES:
            return self._cut(b"".join([*self._parts, data]), 0)
        frame = b"".join([*self._parts, memoryview(data)[:missing]])  # Long ones are put together once.
        _, kind = _HEADER.unpack_from(frame)
        return [(kind, frame[self._skip :]), *self._cut(data, missing)]

    def _cut(self, buffer: bytes, start: int) -> list[tuple[int, bytes]]:
        size = len(buffer)
        frames: list[tuple[int, bytes]] = []
        skip, longest = self._skip, self._max_length
        header = _HEADER.unpack_from
        self._needed = OVERHEAD_BYTES
        while size - start >= OVERHEAD_BYTES:
            length, kind = header(buffer, start)
            if not 1 <= length <= longest or not PACKET <= kind <= PIECE:
                self.broken = PeerError(self._peer, self._complaint(length, kind))
                break
            end = start + FRAME_PREFIX_BYTES + length
            if end > size:
                self._needed = end - start
                break
            frames.append((kind, buffer[start + skip : end]))
            start = end
        self._held = size - start
        self._parts = [buffer[start:]] if self._held else []
        return frames

    def _complaint(self, length: int, kind: int) -> str:
        if length > self._max_length:
            return f"announces a frame of {length} bytes; the limit is {self._max_length} (max_payload_bytes)"
        if length < 1:
            return "announces a frame without a kind"
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
        """The bytes that came after the last greeting."""
        return self._buffer
