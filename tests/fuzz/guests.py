"""What guests send at the doors of a broker: operations of NATS, requests of HTTP, frames and orders of pages."""

from __future__ import annotations

from collections.abc import Iterator

from ordercast.core.errors import PeerError, UsageError
from ordercast.doors.nats import wire
from ordercast.doors.web.forms import order_of
from ordercast.doors.web.websocket import WebSocketReader
from ordercast.net.http import parse_head
from tests.fuzz.engine import Target
from tests.support.doors import masked

_MOST = 1 << 16
_NATS = (
    b'CONNECT {"verbose":true,"user":"ann","pass":"a","headers":true,"no_responders":true}\r\nPING\r\n',
    b"SUB orders.* workers 7\r\nSUB a.> 8\r\nUNSUB 7 3\r\nPONG\r\n",
    b"PUB orders.PT _INBOX.a.1 5\r\nhello\r\nPUB a 0\r\n\r\n",
    b"HPUB a.b reply 39 44\r\nNATS/1.0\r\nOrdercast-Guarantee: total\r\n\r\nhello\r\n",
)
_HEADERS = (b"NATS/1.0\r\nOrdercast-Guarantee: total\r\nA: 1\r\nA: 2\r\n\r\n", b"NATS/1.0\r\n\r\n")
_HEADS = (
    b"POST /publish/a.b?guarantee=total&key=k%2F1 HTTP/1.1\r\nHost: [::1]:8080\r\nContent-Length: 5\r\n\r\n",
    b"GET /subscribe?topic=a.*&topic=b&from=2026-11-16T10:00 HTTP/1.1\r\nOrigin: http://a\r\n\r\n",
)
_FRAMES = (
    masked(1, b'{"op":"publish","topic":"t","text":"x"}'),
    masked(1, b"one ", final=False) + masked(9, b"ping") + masked(0, b"two"),
    masked(8, b"\x03\xe8bye"),
    masked(2, bytes(300)),
)
_ORDERS = (
    b'{"op":"publish","topic":"t","base64":"AAA=","guarantee":"total","keys":["a"],"ack":"edge","ref":1}',
    b'{"op":"subscribe","topic":"a.>","from":"earliest","ref":"x"}',
    b'{"op":"hello","user":"ann","token":"a"}',
)


def _in_parts(data: bytes) -> tuple[bytes, bytes]:
    """What comes in one piece and what comes in two is the same."""
    return data[: len(data) // 2], data[len(data) // 2 :]


def _one_by_one(operations: list[wire.Operation]) -> list[object]:
    """Which PUBs are taken together depends on the pieces that they come in."""
    return [
        one
        for operation in operations
        for one in (
            [(operation.subject, payload) for payload in operation.payloads]
            if isinstance(operation, wire.Pubs)
            else [operation]
        )
    ]


def _operations(data: bytes) -> object:
    whole = wire.NatsReader(_MOST).feed(data)
    reader = wire.NatsReader(_MOST)
    first, second = _in_parts(data)
    assert _one_by_one([*reader.feed(first), *reader.feed(second)]) == _one_by_one(whole)
    return whole


def _frames(data: bytes) -> object:
    whole = WebSocketReader(_MOST).feed(data)
    reader = WebSocketReader(_MOST)
    first, second = _in_parts(data)
    assert [*reader.feed(first), *reader.feed(second)] == whole
    return whole


def guest_targets() -> Iterator[Target]:
    yield Target("nats-operations", lambda: _NATS, _operations, PeerError)
    yield Target("nats-headers", lambda: _HEADERS, wire.parse_headers, PeerError)
    yield Target("http-heads", lambda: _HEADS, parse_head, UsageError)
    yield Target("websocket-frames", lambda: _FRAMES, _frames, PeerError)
    yield Target("page-orders", lambda: _ORDERS, lambda data: order_of(data).payload, UsageError)
