"""Frames: how greetings, packets and heartbeats lie in the byte stream of a connection.

    ┌────────────┬──────────┬───────────────────┐
    │ length (4) │ kind (1) │ body (length - 1) │      big-endian; the length does not count itself
    └────────────┴──────────┴───────────────────┘

A connection is first in, first out, and ends as a whole, so nothing is numbered. A packet that is longer than a frame
may be travels as several: pieces, and a last frame that says that it is complete. Greetings, which come before anything
is known of the other end, are simply a length and a body of at most GREETING_LIMIT bytes. A reader keeps what
has really arrived: for a declared length it reserves no more than eight times of that, or than the connection has sent
in one frame before. It looks at the bytes again only when the frame that it waits for can be complete.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

from ordercast.core.errors import PeerError
from ordercast.core.wire import FRAME_PREFIX_BYTES

T = TypeVar("T")

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

Frame = bytes | bytearray | memoryview
"""Of a frame or its body: nobody changes it."""

LONG_BYTES = 1 << 15
"""The rest of a frame of this length is read into its place, and copied no more."""
_AHEAD = 8
"""So many times of what has arrived of it may be reserved for it."""

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


def framed_in_place(encode_into: Callable[[T, bytearray, int], None], packet: T, most_bytes: int) -> Frame:
    """The same of a packet that may be long: it is encoded behind the header, and not copied there."""
    frame = bytearray(OVERHEAD_BYTES)
    encode_into(packet, frame, OVERHEAD_BYTES)
    length = len(frame) - OVERHEAD_BYTES
    if length > most_bytes:
        return packet_frames(bytes(frame[OVERHEAD_BYTES:]), most_bytes)
    _HEADER.pack_into(frame, 0, length + 1, PACKET)
    return frame


HEARTBEAT_FRAME = _HEADER.pack(1, HEARTBEAT)


def goodbye_frame(reason: str) -> bytes:
    body = reason.encode()[:LONGEST_REASON]
    return _HEADER.pack(len(body) + 1, GOODBYE) + body


class FrameReader:
    """Cuts a stream into frames, as many at a time as have arrived."""

    def __init__(self, peer: str, max_body_bytes: int, *, whole: bool = True) -> None:
        """`whole`: frames come with their header, as they can be passed on; otherwise only their bodies come.

        Then nobody keeps the body of a packet either: it is valid until the next bytes come into `room`.
        """
        self._peer = peer
        self._skip = 0 if whole else OVERHEAD_BYTES
        self._max_length = max_body_bytes + 1
        self._parts: list[bytes] = []
        self._held = 0
        self._needed = OVERHEAD_BYTES
        self._longest = 0
        """The longest frame that has arrived so far."""
        self.begun: memoryview | None = None
        """A long frame of which `_held` bytes are there, in its place."""
        self._used = memoryview(b"")
        """The memory of a packet that nobody keeps."""
        self.after_long = False
        """A long frame was the last that came: the next may be long too."""
        self.broken: PeerError | None = None
        """Why the stream cannot go on; what came before the nonsense is good."""

    @property
    def room(self) -> memoryview | None:
        """Where the rest of a long frame belongs, if that is what comes next; `filled` says how much has come."""
        return self.begun[self._held :] if self.begun is not None else None

    def filled(self, count: int) -> list[tuple[int, Frame]]:
        """So many bytes are in `room`; the frame, if it is complete."""
        self._held += count
        frame = self.begun
        if frame is None or self._held < len(frame):
            return []
        self.begun = None
        self.after_long = True
        self._longest = max(self._longest, self._held)
        self._held, self._needed = 0, OVERHEAD_BYTES
        _, kind = _HEADER.unpack_from(frame)
        if kind == PACKET and self._skip:
            self._used = frame
        return [(kind, frame[self._skip :])]

    def feed(self, data: bytes) -> list[tuple[int, Frame]]:
        """The frames that `data` completes, each as its kind and its bytes."""
        if self.begun is not None:
            return self._feed_long(data)
        self.after_long = False
        if not self._parts:
            return self._cut(data, 0)
        missing = self._needed - self._held
        if len(data) < missing:
            self._parts.append(data)
            self._held += len(data)
            self._make_room()
            return []
        if self._needed == OVERHEAD_BYTES:
            return self._cut(b"".join([*self._parts, data]), 0)
        frame = b"".join([*self._parts, memoryview(data)[:missing]])  # Long ones are put together once.
        self._longest = max(self._longest, len(frame))
        _, kind = _HEADER.unpack_from(frame)
        return [(kind, memoryview(frame)[self._skip :]), *self._cut(data, missing)]

    def _feed_long(self, data: bytes) -> list[tuple[int, Frame]]:
        room = self.room
        assert room is not None
        count = min(len(room), len(data))
        room[:count] = memoryview(data)[:count]
        frames = self.filled(count)
        self._used = memoryview(b"")  # It is looked at only after what comes behind it.
        return frames + self._cut(data, count) if frames else []

    def _make_room(self) -> None:
        """What the rest of the frame is read into, if it is long and enough of it is there to believe in the rest."""
        needed = self._needed
        if needed >= LONG_BYTES and needed <= max(_AHEAD * self._held, self._longest):
            used, self._used = self._used, memoryview(b"")
            self.begun = used if len(used) == needed else memoryview(bytearray(needed))
            self.begun[: self._held] = b"".join(self._parts)
            self._parts = []

    def _cut(self, buffer: bytes, start: int) -> list[tuple[int, Frame]]:
        size = len(buffer)
        frames: list[tuple[int, Frame]] = []
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
        if self._needed >= LONG_BYTES:
            self._make_room()
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
