"""The smallest HTTP that tools and browsers speak, for the admin port and the web door of a broker.

Requests are read with limits, answers are made of bytes; what is malformed is a BadRequest with the answer to give.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from ordercast.core.errors import UsageError
from ordercast.net.wire.credentials import is_loopback

LONGEST_HEAD = 8192
TEXT, JSON = "text/plain; charset=utf-8", "application/json"
_END_OF_HEAD = b"\r\n\r\n"
_END_OF_LINE = "\r\n"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_ONLY_ONCE = ("authorization", "content-length", "host", "origin", "sec-websocket-key")
"""Fields on which it depends who asks, for what, and where the request ends."""
_REASONS = {
    101: "Switching Protocols", 200: "OK", 202: "Accepted", 204: "No Content", 400: "Bad Request", 401: "Unauthorized",
    403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 409: "Conflict", 411: "Length Required",
    413: "Content Too Large", 431: "Request Header Fields Too Large", 503: "Service Unavailable",
    504: "Gateway Timeout",
}  # fmt: skip


class HttpRequest(msgspec.Struct, frozen=True):
    """One request. Names of fields are in small letters."""

    method: str
    path: str
    query: dict[str, list[str]]
    fields: dict[str, str]
    body: bytes = b""

    def asked(self, name: str, default: str = "") -> str:
        """The first value of a name in the query."""
        return self.query.get(name, [default])[0]


class BadRequest(UsageError):  # noqa: N818 - Named as its answer is.
    """A request that is answered with a status of its own."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


async def read_head(reader: asyncio.StreamReader) -> HttpRequest | None:
    """The next request without its body; None: nothing more comes. The reader's limit bounds it."""
    try:
        head = await reader.readuntil(_END_OF_HEAD)
    except asyncio.LimitOverrunError:
        raise BadRequest(431, "the request is too long") from None
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raise BadRequest(400, "the request is not complete") from None
    return parse_head(head)


def parse_head(head: bytes) -> HttpRequest:
    """A request without its body. Whatever a proxy might understand in another way is a BadRequest.

    Otherwise what follows one request as its body for the one would be a request of somebody else's for the other.
    """
    line, *headers = head.removesuffix(_END_OF_HEAD).decode("ascii", "replace").split(_END_OF_LINE)
    method, _, rest = line.partition(" ")
    target, _, version = rest.rpartition(" ")
    if not version.startswith("HTTP/1.") or not target.startswith("/"):
        raise BadRequest(400, "not a request of HTTP/1.1")
    try:
        parts = urlsplit(target)
        query = parse_qs(parts.query, keep_blank_values=True, max_num_fields=100)
    except ValueError as error:
        raise BadRequest(400, f"the target is not understood: {error}") from None
    return HttpRequest(method, unquote(parts.path), query, _fields(headers))


def _fields(headers: list[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for header in headers:
        name, colon, value = header.partition(":")
        if not colon or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise BadRequest(400, "a field of the head is not understood")
        known = name.lower()
        if known in fields and known in _ONLY_ONCE:
            raise BadRequest(400, f"{known} comes twice")
        fields[known] = value.strip(" \t")
    if "transfer-encoding" in fields:
        raise BadRequest(411, "say the length of the body (Content-Length), without Transfer-Encoding")
    return fields


async def read_body(reader: asyncio.StreamReader, head: HttpRequest, most: int) -> bytes:
    """The body that a head announces."""
    said = head.fields.get("content-length", "")
    if "content-length" not in head.fields:
        return b""
    if not said.isascii() or not said.isdigit() or len(said) > 12:
        raise BadRequest(400, "Content-Length is no number")
    if int(said) > most:
        raise BadRequest(413, f"{said} bytes are over the limit of {most}")
    try:
        return await reader.readexactly(int(said))
    except asyncio.IncompleteReadError:
        raise BadRequest(400, "the body is not complete") from None


def response(
    status: int, content_type: str, body: bytes, *, fields: Iterable[tuple[str, str]] = (), keep: bool = False
) -> bytes:
    """An answer with its body. `keep`: the connection stays for the next request."""
    own = [("Content-Type", content_type), ("Content-Length", str(len(body)))]
    return response_head(status, [*own, *fields, ("Connection", "keep-alive" if keep else "close")]) + body


def response_head(status: int, fields: Iterable[tuple[str, str]]) -> bytes:
    lines = [f"HTTP/1.1 {status} {_REASONS[status]}", *(f"{name}: {value}" for name, value in fields)]
    return "\r\n".join([*lines, "", ""]).encode()


def to_this_machine(fields: Mapping[str, str]) -> bool:
    """Whether a request says that it was sent to this machine; one that does not say it comes from no browser."""
    host = fields.get("host", "")
    name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    return not host or is_loopback(name.lower())
