"""The listener for browsers and HTTP.

POST /publish/TOPIC      the body is published; ?guarantee= ?key= (repeatable) ?ack=edge|safe|delivered
GET  /subscribe?topic=T  deliveries as server-sent events; topic is repeatable and may be a filter; ?from= for history
GET  /history/TOPIC      what is kept, a JSON object a line; ?from= ?last=N
GET  /socket             a WebSocket with the same JSON (see `forms.PageOrder`)
GET  /ordercast.js       a client for pages and Node, without dependencies
GET  /                   a page that shows the broker live, from /live and /explain?msg=ID

Whoever has to prove itself does so as everywhere: `Authorization: Bearer TOKEN`, or Basic with user and token; on a
WebSocket the first order is `hello`. A page may connect if it came from this door or from a site of `origins`.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from importlib import resources

import msgspec

from ordercast.core.errors import PeerError, UsageError
from ordercast.doors.guests import client_for, knows_token, leave
from ordercast.doors.web.answers import answers
from ordercast.doors.web.events import EventStream, history_lines, send
from ordercast.doors.web.live import LiveView
from ordercast.doors.web.regulars import Regulars
from ordercast.doors.web.socket import SocketSession
from ordercast.net import http
from ordercast.net.brokers.broker_host import BrokerHost
from ordercast.net.brokers.door_tables import WebTable, default_of
from ordercast.net.tls_door import SecuringGuest, TlsDoor
from ordercast.net.turn_ports import address_of, listening
from ordercast.net.wire.descriptors import takes_the_last
from ordercast.net.wire.ends import ConnectionEnd
from ordercast.net.wire.settings import seconds
from ordercast.net.wire.strangers import Strangers
from ordercast.tracing import NAMES as TRACE_CONTEXT

LOG = logging.getLogger("ordercast.web")
_KNOWN = "known: /, POST /publish/TOPIC, /subscribe?topic=T, /history/TOPIC, /socket, /ordercast.js"
_FILES = {
    "/": ("live.html", "text/html; charset=utf-8"),
    "/ordercast.js": ("ordercast.js", "text/javascript; charset=utf-8"),
}
_STRICT = [
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src *",
    ),
    ("X-Content-Type-Options", "nosniff"),
]
_IDLE_S = 60.0
"""A connection may be so long without a request."""
_ACKNOWLEDGED_S = 30.0
_Fields = list[tuple[str, str]]


class _Reading:
    """A connection that has not said a whole request; there are only so many of one address."""

    has_spoken = False
    lingers = False

    def __init__(self, host: str, turned_away: Callable[[str, str], None]) -> None:
        self.host = host
        self._task = asyncio.current_task()
        self._turned_away = turned_away

    def abort(self, end: ConnectionEnd) -> None:
        """Without a word: a connection without a request may always be closed."""
        self._turned_away(self.host, end.reason)
        if self._task is not None:
            self._task.cancel()

    refuse = abort


class WebDoor:
    """Serves browsers and HTTP at one broker."""

    kind = "web"

    def __init__(self, host: BrokerHost, table: WebTable, listen: str, live: LiveView) -> None:
        self._live = live
        self.address = listen
        self.settings = host.settings
        self.counters: Counter[str] = host.counters
        self._table = table
        self._host = host
        self._regulars = Regulars(host)
        self._server: asyncio.Server | TlsDoor | None = None
        self._serving: dict[asyncio.Task[None], str] = {}
        """Connections and where they come from, the oldest first."""
        self._strangers = Strangers(self.settings)

    async def start(self) -> None:
        credentials = self._host.credentials
        try:
            door = listening(self.address)
            credentials.check_listen(str(door.getsockname()[0]))
        except UsageError as error:
            raise UsageError(f"web: {str(error).removeprefix('listen: ')}") from None
        self.address = address_of(door)
        if credentials.tls is not None:
            context = credentials.tls.server_context()
            self._server = TlsDoor(door, context, self.settings, self._strangers, self._accepted, self._turned_away)
        else:
            self._server = await asyncio.start_server(self._serve, sock=door, limit=http.LONGEST_HEAD)

    def _accepted(self) -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=http.LONGEST_HEAD), self._serve)

    def _turned_away(self, guest: SecuringGuest, end: ConnectionEnd) -> None:
        self._complain(guest.host, end.reason)

    async def stop(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._regulars.close()
        await self._server.wait_closed()

    # One connection

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        remote = writer.get_extra_info("peername")
        host = str(remote[0]) if remote else ""
        self._serving[task] = host
        self.counters["web_connections_opened"] += 1
        try:
            if takes_the_last(writer.get_extra_info("socket")):
                self._complain(host, "too many connections (open files)")
                writer.write(http.response(503, http.TEXT, b"too many connections (open files)\n"))
            elif len(self._serving) > self.settings.connections:
                writer.write(http.response(503, http.TEXT, b"too many connections (connections)\n"))
            else:
                while await self._one(host, reader, writer):
                    pass
        except (PeerError, OSError, EOFError, asyncio.CancelledError, ExceptionGroup) as error:
            self._came_to_an_end(host, _first(error))
        finally:
            await self._close(writer)
            self._serving.pop(task, None)

    async def _close(self, writer: asyncio.StreamWriter) -> None:
        """Get across what was written, but wait only so long for one that does not read."""
        writer.close()
        try:
            async with asyncio.timeout(seconds(self.settings.farewell_ms)):
                await writer.wait_closed()
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()

    def _came_to_an_end(self, host: str, error: BaseException) -> None:
        """Its own fault is complained of; that it went, or was told to, is in order; all else is a bug."""
        if isinstance(error, PeerError):
            self._complain(host, error.reason)
        elif not isinstance(error, OSError | EOFError | asyncio.CancelledError):  # TimeoutError is an OSError.
            raise error

    def _complain(self, host: str, reason: str) -> None:
        self.counters["web_connections_refused"] += 1
        times = self._strangers.complaints(host, time.monotonic_ns())
        if times:
            facts = {"node": self._host.me.name, "peer": host, "reason": reason, "times": times}
            LOG.warning("closed", extra={"facts": facts})

    async def _one(self, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether another one may follow."""
        cors: _Fields = []
        try:
            head = await self._head(host, reader)
            if head is None:
                return False
            self.counters["web_requests"] += 1
            cors = self._admissible(head)
            if head.fields.get("content-length", "0") != "0":
                self.credentials_of(head)  # Nothing is kept for somebody whom nobody knows.
            async with asyncio.timeout(_IDLE_S):
                body = await http.read_body(reader, head, self.settings.max_payload_bytes)
            await asyncio.sleep(0)  # Others have their turn, however many requests are here already.
            return await self._answer(head, body, cors, reader, writer)
        except http.BadRequest as error:
            await self._send(writer, http.response(error.status, http.TEXT, f"{error}\n".encode(), fields=cors))
            return False

    async def _send(self, writer: asyncio.StreamWriter, answer: bytes) -> None:
        """No request is looked at before the answer to the last one is on its way."""
        await send(writer, answer, self.settings)

    async def _head(self, host: str, reader: asyncio.StreamReader) -> http.HttpRequest | None:
        reading = _Reading(host, self._complain)
        self._strangers.came(reading)
        try:
            async with asyncio.timeout(_IDLE_S):
                return await http.read_head(reader)
        finally:
            self._strangers.went(reading)

    def _admissible(self, head: http.HttpRequest) -> _Fields:
        """Headers that tell a browser whose page may ask; a BadRequest if this one may not."""
        credentials = self._host.credentials
        if not (credentials.users or credentials.client_token) and not http.to_this_machine(head.fields):
            raise http.BadRequest(403, "without tokens this port answers requests to a loopback address only")
        origin = head.fields.get("origin", "")
        if not origin:
            return []
        site = origin.partition("://")[2]
        if origin not in self._table.origins and site not in (head.fields.get("host", ""), *self._live.siblings):
            raise http.BadRequest(403, f"a page of {origin[:100]} may not connect (web.origins)")
        return [("Access-Control-Allow-Origin", origin), ("Vary", "Origin")]

    async def _answer(
        self, head: http.HttpRequest, body: bytes, cors: _Fields, reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:  # fmt: skip
        if head.method == "OPTIONS":
            allowed = [("Access-Control-Allow-Headers", "Authorization"), ("Access-Control-Allow-Methods", "GET, POST")]
            await self._send(writer, http.response(204, http.TEXT, b"", fields=[*cors, *allowed], keep=True))
            return True
        place, _, rest = head.path.removeprefix("/").partition("/")
        if head.method == "POST" and place == "publish" and rest:
            return await self._published(head, rest, body, cors, writer)
        if head.method == "GET" and head.path in _FILES:
            name, content_type = _FILES[head.path]
            answer = http.response(200, content_type, _content(name), fields=[*cors, *_STRICT], keep=True)
            await self._send(writer, answer)
            return True
        if head.method == "GET" and place in ("live", "explain"):
            return await self._watched(head, place, cors, writer)
        if head.method == "GET" and place == "subscribe":
            return await self._subscribed(head, cors, writer)
        if head.method == "GET" and place == "history" and rest:
            return await self._history(head, rest, cors, writer)
        if head.method == "GET" and place == "socket":
            await SocketSession(self, self._host, self._table, head, reader, writer).run()
            return False
        raise http.BadRequest(404, _KNOWN)

    # Requests

    def credentials_of(self, head: http.HttpRequest) -> tuple[str, str]:
        """User and token that a request proves itself with; a BadRequest if that is not enough."""
        user, token = _said(head.fields.get("authorization", ""))
        if not knows_token(self._host, user, token):
            raise http.BadRequest(401, "Authorization: Bearer TOKEN, or Basic with user and token, is needed")
        return user, token

    async def _published(
        self, head: http.HttpRequest, topic: str, body: bytes, cors: _Fields, writer: asyncio.StreamWriter
    ) -> bool:
        user, token = self.credentials_of(head)
        default = default_of(self._table.default, topic)
        with answers():
            client = await self._regulars.client(user, token)
            message = await client.publish(
                topic, body, keys=head.query.get("key", default.keys),
                guarantee=head.asked("guarantee", default.guarantee), ack=head.asked("ack", "safe"),
                timeout=_ACKNOWLEDGED_S, headers=_trace_context(head),
            )  # fmt: skip
        told = msgspec.json.encode({"id": message}) + b"\n"
        await self._send(writer, http.response(200, http.JSON, told, fields=cors, keep=True))
        return True

    async def _subscribed(self, head: http.HttpRequest, cors: _Fields, writer: asyncio.StreamWriter) -> bool:
        topics = head.query.get("topic", [])
        if not topics:
            raise http.BadRequest(400, "topic: which? /subscribe?topic=T")
        user, token = self.credentials_of(head)
        with answers():
            client = await client_for(self._host, user, token)
        try:
            stream = EventStream(client, self.settings, writer)
            with answers():
                await stream.subscribe(topics, head.asked("from", "now"))
            await stream.run(cors)
        finally:
            await leave(client)
        return False

    async def _watched(self, head: http.HttpRequest, what: str, cors: _Fields, writer: asyncio.StreamWriter) -> bool:
        remote = writer.get_extra_info("peername")
        self._live.admit(head, str(remote[0]) if remote else "")
        if what == "live":
            await self._live.stream(writer, cors)
            return False
        told = msgspec.json.encode(self._live.explain(head.asked("msg")), enc_hook=str)
        await self._send(writer, http.response(200, http.JSON, told, fields=cors, keep=True))
        return True

    async def _history(self, head: http.HttpRequest, topic: str, cors: _Fields, writer: asyncio.StreamWriter) -> bool:
        user, token = self.credentials_of(head)
        with answers():
            client = await self._regulars.client(user, token)
            start, last = head.asked("from", "earliest"), head.asked("last", "1000")
            body = await history_lines(client, topic, start, last, self.settings.slow_consumer_bytes)
        await self._send(writer, http.response(200, "application/x-ndjson", body, fields=cors, keep=True))
        return True


@cache
def _content(name: str) -> bytes:
    return resources.files("ordercast.doors.web").joinpath(name).read_bytes()


def _first(error: BaseException) -> BaseException:
    """The first failure, where several tasks ended because of it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _said(authorization: str) -> tuple[str, str]:
    """User and token of an Authorization field; both empty where there is none."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return "", value.strip()
    if scheme.lower() != "basic":
        return "", ""
    try:
        user, _, token = base64.b64decode(value.strip(), validate=True).decode().partition(":")
    except ValueError:  # No base64, or no text in it.
        raise http.BadRequest(400, "Authorization: Basic is user:token in base64") from None
    return user, token


def _trace_context(head: http.HttpRequest) -> dict[bytes, bytes] | None:
    """The trace that a request belongs to goes on with its message."""
    known = {name: head.fields[name.decode()].encode() for name in TRACE_CONTEXT if name.decode() in head.fields}
    return known or None
