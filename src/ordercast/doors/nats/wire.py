"""The text protocol of NATS core: bytes to operations, and operations to bytes. No sockets here.

https://docs.nats.io/reference/reference-protocols/nats-protocol describes it. Whatever the bytes are, `NatsReader.feed`
returns operations or raises a PeerError.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from ordercast.core.errors import PeerError
from ordercast.core.wire import NOT_DECODABLE
from ordercast.doors.pieces import Pieces

MAX_CONTROL_LINE = 4096
MAX_HEADER_BYTES = 1 << 16
HEADER_LINE = b"NATS/1.0"
_CRLF = b"\r\n"
_END_OF_HEADERS = b"\r\n\r\n"


class Connect(msgspec.Struct, frozen=True):
    """A client's CONNECT, about itself. Fields of other clients and later versions are not looked at."""

    verbose: bool = False
    pedantic: bool = False
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    auth_token: str | None = None
    user: str | None = None
    password: str | None = msgspec.field(default=None, name="pass")
    name: str | None = None


class Pubs(NamedTuple):
    """PUB without a subject for answers, by far the most frequent operation: those to one subject in a row."""

    subject: str
    payloads: list[bytes]


class Pub(NamedTuple):
    """HPUB, and PUB with a subject for answers. `headers` is None for PUB."""

    subject: str
    reply: str
    headers: bytes | None
    payload: bytes


class Sub(NamedTuple):
    """SUB: `queue` is empty where there is no group."""

    subject: str
    queue: str
    sid: str


class Unsub(NamedTuple):
    """UNSUB: after so many messages in all, 0: at once."""

    sid: str
    after: int


class NatsPing(NamedTuple):
    """PING."""


class NatsPong(NamedTuple):
    """PONG."""


Operation = Connect | Pubs | Pub | Sub | Unsub | NatsPing | NatsPong
_connects = msgspec.json.Decoder(Connect)


class NatsError(PeerError):
    """An error of a NATS client, in the words in which servers of NATS say so."""

    def __init__(self, says: str, detail: str) -> None:
        super().__init__("NATS client", detail)
        self.says = says


class NatsReader:
    """Cuts what a client sends into operations."""

    def __init__(self, max_payload: int) -> None:
        self.max_payload = max_payload
        self._pieces = Pieces()

    def feed(self, data: bytes) -> list[Operation]:
        """The operations that are complete now."""
        buffer = self._pieces.add(data)
        if buffer is None:
            return []
        found: list[Operation] = []
        at = needed = 0
        while (end := buffer.find(_CRLF, at, at + MAX_CONTROL_LINE)) >= 0:
            words = buffer[at:end].split()
            name = words[0].upper() if words else b""
            if name in (b"PUB", b"HPUB"):
                if name == b"PUB" and len(words) == 3:
                    after = self._plain(words, buffer, at, end + 2, found)
                else:
                    after = self._payload(name, words, buffer, end + 2, found)
                if after > len(buffer):
                    needed = after - at
                    break
                at = after
                continue
            if name:
                found.append(_operation(name, words, buffer[at:end]))
            at = end + 2
        self._pieces.keep(buffer[at:], needed)
        if end < 0 and len(buffer) - at >= MAX_CONTROL_LINE:
            raise NatsError("Maximum Control Line Exceeded", f"sends a line of more than {MAX_CONTROL_LINE} bytes")
        return found

    def _plain(self, words: list[bytes], buffer: bytes, at: int, start: int, found: list[Operation]) -> int:
        """Take PUBs from `at` on while they have the same line, which ends at `start`; where the next one begins."""
        size = self._checked(_size(words[2]))
        if len(buffer) < start + size + 2:
            return start + size + 2
        line = buffer[at:start]
        length = len(line)
        payloads: list[bytes] = []
        while buffer.startswith(line, at):
            end = at + length + size
            if buffer[end : end + 2] != _CRLF:
                break
            payloads.append(buffer[at + length : end])
            at = end + 2
        if not payloads:
            raise NatsError("Invalid Protocol", "a payload is longer than its line says")
        subject, last = _text(words[1]), found[-1] if found else None
        if isinstance(last, Pubs) and last.subject == subject:
            last.payloads.extend(payloads)
        else:
            found.append(Pubs(subject, payloads))
        return at

    def _checked(self, size: int) -> int:
        if size > self.max_payload:
            raise NatsError("Maximum Payload Violation", f"a payload of {size} bytes is over {self.max_payload}")
        return size

    def _payload(self, name: bytes, words: list[bytes], buffer: bytes, start: int, found: list[Operation]) -> int:
        """Take a publication whose line ends at `start`, if it is all here; where the next operation begins."""
        sizes = 1 if name == b"PUB" else 2
        if len(words) not in (2 + sizes, 3 + sizes):
            raise NatsError("Unknown Protocol Operation", f"{name.decode()} with {len(words) - 1} arguments")
        size = _size(words[-1])
        head = _size(words[-2]) if sizes == 2 else 0
        if head > size or head > MAX_HEADER_BYTES:
            raise NatsError("Invalid Protocol", f"headers of {head} bytes in {size}")
        self._checked(size - head)
        end = start + size
        if len(buffer) < end + 2:
            return end + 2
        if buffer[end : end + 2] != _CRLF:
            raise NatsError("Invalid Protocol", "a payload is longer than its line says")
        reply = _text(words[2]) if len(words) == 3 + sizes else ""
        headers = buffer[start : start + head] if sizes == 2 else None
        found.append(Pub(_text(words[1]), reply, headers, buffer[start + head : end]))
        return end + 2


def _operation(name: bytes, words: list[bytes], line: bytes) -> Operation:
    """An operation of one line."""
    arguments = [_text(word) for word in words[1:4]]
    match name, len(words) - 1:
        case b"PING", _:
            return NatsPing()
        case b"PONG", _:
            return NatsPong()
        case b"SUB", 2:
            return Sub(arguments[0], "", arguments[1])
        case b"SUB", 3:
            return Sub(*arguments)
        case b"UNSUB", 1:
            return Unsub(arguments[0], 0)
        case b"UNSUB", 2:
            return Unsub(arguments[0], _size(words[2]))
        case b"CONNECT", _:
            return _connect(line)
        case _:
            raise NatsError("Unknown Protocol Operation", f"sends {bytes(line[:40])!r}")


def _connect(line: bytes) -> Connect:
    try:
        return _connects.decode(line.lstrip()[len(b"CONNECT") :])
    except NOT_DECODABLE as error:
        raise NatsError("Invalid Protocol", f"CONNECT is not understood: {error}") from None


def _size(word: bytes) -> int:
    if not word.isdigit() or len(word) > 10:
        raise NatsError("Invalid Protocol", f"{bytes(word[:20])!r} is no size")
    return int(word)


def _text(word: bytes) -> str:
    try:
        return word.decode()
    except UnicodeDecodeError:
        raise NatsError("Invalid Subject", f"{bytes(word[:40])!r} is no text") from None


# Headers. A name that comes several times has its values in one, with a line between them.


def parse_headers(block: bytes) -> dict[bytes, bytes]:
    """Headers of HPUB by name; a PeerError if that is none."""
    if not block.startswith(HEADER_LINE) or not block.endswith(_END_OF_HEADERS):
        raise NatsError("Invalid Protocol", "headers begin with NATS/1.0 and end with an empty line")
    found: dict[bytes, bytes] = {}
    for line in block[: -len(_END_OF_HEADERS)].split(_CRLF)[1:]:
        name, colon, value = line.partition(b":")
        if not colon or not name:
            raise NatsError("Invalid Protocol", f"{bytes(line[:40])!r} is no header")
        known, value = name.strip(), value.strip()
        found[known] = found[known] + _CRLF + value if known in found else value
    return found


def header_block(headers: Iterable[tuple[bytes, bytes]], status: str = "") -> bytes:
    """Headers as HMSG carries them. What would break a line is left out of a value."""
    lines = [HEADER_LINE + f" {status}".encode() if status else HEADER_LINE]
    for name, values in headers:
        lines += [_one_line(name) + b": " + _one_line(value) for value in values.split(_CRLF)]
    return _CRLF.join(lines) + _END_OF_HEADERS


def _one_line(value: bytes) -> bytes:
    return value.replace(b"\r", b" ").replace(b"\n", b" ") if b"\r" in value or b"\n" in value else value


# What the server says


def info(facts: dict[str, Any]) -> bytes:
    return b"INFO " + msgspec.json.encode(facts) + _CRLF


def error(says: str) -> bytes:
    return f"-ERR '{says}'\r\n".encode()


PING = b"PING\r\n"
PONG = b"PONG\r\n"
OK = b"+OK\r\n"


def line_of(subject: str, sid: str) -> bytes:
    """The line of a MSG without reply subject, up to the size of its payload."""
    return f"MSG {subject} {sid} ".encode()


def message(subject: str, sid: str, reply: str, headers: bytes, payload: bytes) -> bytes:
    """MSG, or HMSG where there are headers."""
    to = f"{subject} {sid} {reply}" if reply else f"{subject} {sid}"
    if headers:
        size = len(headers)
        return b"HMSG %b %d %d\r\n%b%b\r\n" % (to.encode(), size, size + len(payload), headers, payload)
    return b"MSG %b %d\r\n%b\r\n" % (to.encode(), len(payload), payload)
