"""WebSocket frames (RFC 6455): bytes to messages and back. No sockets here.

Whatever the bytes are, `WebSocketReader.feed` returns messages or raises a PeerError.
"""

from __future__ import annotations

import base64
import hashlib
from typing import NamedTuple

from ordercast.core.errors import PeerError
from ordercast.doors.pieces import Pieces

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
_CONTINUATION = 0
_CONTROL = 8
_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_LONGEST_CONTROL = 125
NORMAL, PROTOCOL_ERROR, TOO_LONG, POLICY = 1000, 1002, 1009, 1008


def accept_key(key: str) -> str:
    """The server's answer to `Sec-WebSocket-Key`."""
    return base64.b64encode(hashlib.sha1(key.encode() + _MAGIC).digest()).decode()  # noqa: S324 - As the RFC says.


class WebSocketError(PeerError):
    """A page's breach of the protocol, with the code that its end of the connection is told."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__("page", reason)
        self.code = code


class Said(NamedTuple):
    """One message: its kind, and all of its bytes."""

    kind: int
    data: bytes


class WebSocketReader:
    """Cuts what a browser sends into messages, which may come in fragments."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pieces = Pieces()
        self._needed = 0
        self._kind = 0
        self._fragments = bytearray()
        """What has come of a message, in one piece: fragments may be as many as they like, and empty."""

    def feed(self, data: bytes) -> list[Said]:
        """The messages that are complete now."""
        buffer = self._pieces.add(data)
        if buffer is None:
            return []
        found: list[Said] = []
        at = 0
        while (frame := self._frame(buffer, at)) is not None:
            first, payload, at = frame
            said = self._take(first & 0x0F, final=bool(first & 0x80), payload=payload)
            if said is not None:
                found.append(said)
        self._pieces.keep(buffer[at:], self._needed)
        return found

    def _frame(self, buffer: bytes, at: int) -> tuple[int, bytes, int] | None:
        """First byte and payload of the frame that begins there, and the place of the next; None: not all is here."""
        self._needed = 0
        if len(buffer) < at + 2:
            return None
        first, second = buffer[at], buffer[at + 1]
        if first & 0x70:
            raise WebSocketError(PROTOCOL_ERROR, "uses an extension that was not agreed on")
        if not second & 0x80:
            raise WebSocketError(PROTOCOL_ERROR, "sends a frame without a mask")
        size, start = second & 0x7F, at + 2
        if size >= 126:
            width = 2 if size == 126 else 8
            size, start = int.from_bytes(buffer[start : start + width]), start + width
            if len(buffer) < start:
                return None
        if size > self._most:
            raise WebSocketError(TOO_LONG, f"sends {size} bytes; {self._most} are allowed")
        end = start + 4 + size
        if len(buffer) < end:
            self._needed = end - at
            return None
        return first, _unmask(buffer[start + 4 : end], buffer[start : start + 4]), end

    def _take(self, kind: int, *, final: bool, payload: bytes) -> Said | None:
        if kind >= _CONTROL:
            if kind not in (CLOSE, PING, PONG) or not final or len(payload) > _LONGEST_CONTROL:
                raise WebSocketError(PROTOCOL_ERROR, "sends a control frame that is none")
            return Said(kind, payload)
        if kind not in (_CONTINUATION, TEXT, BINARY) or (kind == _CONTINUATION) != bool(self._kind):
            raise WebSocketError(PROTOCOL_ERROR, "sends a fragment out of turn")
        self._kind = self._kind or kind
        if len(self._fragments) + len(payload) > self._most:
            raise WebSocketError(TOO_LONG, f"sends more than {self._most} bytes")
        if final and not self._fragments:
            said = Said(self._kind, payload)
            self._kind = 0
            return said
        self._fragments += payload
        if not final:
            return None
        said = Said(self._kind, bytes(self._fragments))
        self._kind = 0
        self._fragments.clear()
        return said


def _unmask(data: bytes, mask: bytes) -> bytes:
    size = len(data)
    whole = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data) ^ int.from_bytes(whole)).to_bytes(size)


def frame(kind: int, data: bytes) -> bytes:
    """A frame as servers send it: whole, without a mask."""
    size = len(data)
    if size < 126:
        head = bytes((0x80 | kind, size))
    elif size < 1 << 16:
        head = bytes((0x80 | kind, 126)) + size.to_bytes(2)
    else:
        head = bytes((0x80 | kind, 127)) + size.to_bytes(8)
    return head + data


def close_frame(code: int, reason: str) -> bytes:
    return frame(CLOSE, code.to_bytes(2) + reason.encode()[: _LONGEST_CONTROL - 2].decode(errors="ignore").encode())
