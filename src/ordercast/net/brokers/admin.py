"""The admin port of a broker: health, metrics, status and where a message is, over the smallest HTTP that tools speak.

GET /healthz           200 if the broker is in a tree and can do its work, 503 and the reason otherwise
GET /metrics           Prometheus text
GET /status?topics=N   JSON: the tree as this broker sees it, what all topics hold, and the N busiest topics (1000)
GET /explain?msg=ID    JSON: where the publication is here, and what it waits for
POST /leave?id=ID      the broker leaves the cluster for good, in good order (202: it was told)
POST /remove?id=ID     at the root: a broker that is dead is struck off (202: it will be)

With a token every request must carry it (`Authorization: Bearer TOKEN`). Without one the port is for this machine only:
it listens on loopback and refuses requests that were addressed to another host, as those of a web page are that had its
own name resolved to this machine. A web page may not POST at all.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Iterator, Mapping
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.net.brokers.ledger import BrokerLedger
from ordercast.net.host import ProcessHost
from ordercast.net.turn_ports import address_of, listening
from ordercast.net.wire.credentials import is_loopback, split_address

_LONGEST_REQUEST = 8192
_PATIENCE_S = 5.0
_MOST_CONNECTIONS = 64
_TOPICS_IN_STATUS = 1000
_TOPICS_IN_METRICS = 100
"""Every label is a time series for whoever collects them: the busiest topics have one, all others are in the sums."""
_REASONS = {
    200: "OK", 202: "Accepted", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 409: "Conflict", 503: "Service Unavailable",
}  # fmt: skip
_READ_ONLY = ("/healthz", "/metrics", "/status", "/explain")
_TEXT, _JSON = "text/plain; charset=utf-8", "application/json"
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class _Tree(Protocol):
    is_root: bool
    seeking: bool
    decides: bool

    def status(self) -> dict[str, Any]: ...

    def ask_to_leave(self, node: NodeId) -> str: ...

    def remove(self, node: NodeId) -> str: ...


class _Topics(Protocol):
    def status(self, most: int) -> dict[str, Any]: ...

    def totals(self) -> dict[str, int]: ...

    def explain(self, message_id: str) -> dict[str, Any]: ...


class Administered(Protocol):
    """Port to the broker that an admin server is for."""

    @property
    def tree(self) -> _Tree: ...

    @property
    def topics(self) -> _Topics: ...


Answer = tuple[int, str, bytes]
"""Status, content type, body."""


class Admin:
    """Serves one broker. Requests are answered between its turns, so every answer is one consistent state."""

    def __init__(
        self, host: ProcessHost, broker: Administered, ledger: BrokerLedger | None = None, *, token: str = ""
    ) -> None:
        self.address = ""
        self._host = host
        self._broker = broker
        self._ledger = ledger
        self._token = token
        self._server: asyncio.Server | None = None
        self._busy: dict[asyncio.Task[None], None] = {}
        """Requests that are being read or answered, the oldest first."""

    async def start(self, address: str) -> None:
        if not self._token and not is_loopback(split_address(address, "admin")[0]):
            raise UsageError(f"admin_token: needed for an admin port at {address}, which is not a loopback address")
        try:
            door = listening(address)
        except UsageError as error:
            raise UsageError(f"admin: {str(error).removeprefix('listen: ')}") from None
        self.address = address_of(door)
        self._server = await asyncio.start_server(self._serve, sock=door, limit=_LONGEST_REQUEST)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for task in self._busy:
                task.cancel()
            await asyncio.gather(*self._busy, return_exceptions=True)
            await self._server.wait_closed()

    def answer(self, target: str) -> Answer:
        """What a GET of `target` returns."""
        parts = urlsplit(target)
        if parts.path == "/healthz":
            problem = self.problem()
            return (200, _TEXT, b"ok\n") if problem is None else (503, _TEXT, f"{problem}\n".encode())
        if parts.path == "/metrics":
            return 200, _PROMETHEUS, "".join(f"{line}\n" for line in self._metrics()).encode()
        if parts.path == "/status":
            asked = parse_qs(parts.query).get("topics", [str(_TOPICS_IN_STATUS)])[0]
            if not asked.isdigit() or len(asked) > len(str(_TOPICS_IN_STATUS)):
                return 400, _TEXT, b"topics: how many of the busiest? /status?topics=N, at most 9999\n"
            return _json(self.status(int(asked)))
        if parts.path == "/explain":
            wanted = parse_qs(parts.query).get("msg")
            if not wanted:
                return 400, _TEXT, b"msg: which message? /explain?msg=ID\n"
            return _json({"broker": self._host.me.name, "msg": wanted[0], **self._broker.topics.explain(wanted[0])})
        return 404, _TEXT, b"known: /healthz /metrics /status /explain?msg=ID\n"

    def order(self, target: str) -> Answer:
        """What a POST to `target` does."""
        parts = urlsplit(target)
        if parts.path in _READ_ONLY:
            return 405, _TEXT, f"{parts.path} is for GET\n".encode()
        tree = self._broker.tree
        act = {"/leave": tree.ask_to_leave, "/remove": tree.remove}.get(parts.path)
        wanted = parse_qs(parts.query).get("id")
        if act is None:
            return 404, _TEXT, b"known: /leave?id=ID /remove?id=ID\n"
        if not wanted:
            return 400, _TEXT, f"id: which broker? {parts.path}?id=ID\n".encode()
        refusal = self._host.turn(act, NodeId(wanted[0]))
        return (409, _TEXT, f"{refusal}\n".encode()) if refusal else (202, _TEXT, b"accepted\n")

    def problem(self) -> str | None:
        """Why this broker cannot do its work now."""
        tree = self._broker.tree
        if self._host.failure is not None:
            return "stopped"
        if tree.seeking:
            return "seeking a parent"
        if tree.is_root and not tree.decides:
            return "root that waits for its lease"
        return None

    def status(self, topics: int = _TOPICS_IN_STATUS) -> dict[str, Any]:
        host = self._host
        return {
            "id": host.me.name,
            "life": host.me.life,
            "address": host.me.address,
            "cluster": host.credentials.cluster,
            "problem": self.problem(),
            "overlay": self._broker.tree.status(),
            "totals": self._broker.topics.totals(),
            "topics": self._broker.topics.status(topics),
            "connections": [
                {"peer": wire.name, "kind": wire.peer.kind, "life": wire.peer.life, "queued_bytes": wire.queued_bytes}
                for _, wire in sorted(host.connections.items())
                if wire.peer is not None
            ],
            "counters": dict(sorted(host.counters.items())),
        }

    def _metrics(self) -> Iterator[str]:
        status = self.status(_TOPICS_IN_METRICS)
        yield from _gauge("up", 1)
        yield from _gauge("healthy", int(status["problem"] is None))
        kinds = [connection["kind"] for connection in status["connections"]]
        yield "# TYPE ordercast_connections gauge"
        for kind in ("broker", "client"):
            yield f'ordercast_connections{{kind="{kind}"}} {kinds.count(kind)}'
        queued = [connection["queued_bytes"] for connection in status["connections"]]
        yield from _gauge("queue_bytes", sum(queued))
        yield from _gauge("longest_queue_bytes", max(queued, default=0))
        for name, value in _numbers(status["overlay"]):
            yield from _gauge(f"overlay_{name}", value)
        yield from _gauge("overlay_is_root", int(self._broker.tree.is_root))
        for name, value in status["totals"].items():
            yield from _gauge(f"all_{name}", value)
        yield from _topic_gauges(status["topics"])
        if self._ledger is not None:
            yield from _gauge("ledger_bytes", self._ledger.log.segment_bytes)
            yield from _gauge("ledger_flushes", self._ledger.flushes)
        for name, value in status["counters"].items():
            yield f"# TYPE ordercast_{name}_total counter"
            yield f"ordercast_{name}_total {value}"

    # HTTP

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._busy[task] = None
        if len(self._busy) > _MOST_CONNECTIONS:
            next(iter(self._busy)).cancel()  # Whoever says nothing for longest makes room for who has something to ask.
        try:
            async with asyncio.timeout(_PATIENCE_S):
                writer.write(_response(*await self._handle(reader)))
                await writer.drain()
        except (OSError, asyncio.CancelledError):  # TimeoutError is an OSError.
            pass
        finally:
            self._busy.pop(task, None)
            writer.close()

    async def _handle(self, reader: asyncio.StreamReader) -> Answer:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return 400, _TEXT, b"the request is too long\n"
        except asyncio.IncompleteReadError:
            return 400, _TEXT, b"the request is not complete\n"
        line, *headers = request.decode("ascii", "replace").splitlines()
        method, _, rest = line.partition(" ")
        target = rest.rpartition(" ")[0]
        fields = _fields(headers)
        refused = self._refusal(fields)
        if refused is not None:
            return refused
        if method not in ("GET", "POST"):
            return 405, _TEXT, b"only GET and POST\n"
        if method == "POST" and "origin" in fields:
            return 403, _TEXT, b"no web page gives orders here\n"
        try:
            return self.answer(target) if method == "GET" else self.order(target)
        except (UsageError, ValueError) as error:
            return 400, _TEXT, f"{error}\n".encode()

    def _refusal(self, fields: Mapping[str, str]) -> Answer | None:
        if self._token:
            said = fields.get("authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(said.encode(), self._token.encode()):
                return 401, _TEXT, b"admin_token: needed as Authorization: Bearer TOKEN\n"
        elif not _names_loopback(fields.get("host", "")):
            return 403, _TEXT, b"this port answers requests to a loopback address only\n"
        return None


def _fields(headers: list[str]) -> dict[str, str]:
    pairs = (header.partition(":") for header in headers)
    return {name.strip().lower(): value.strip() for name, colon, value in pairs if colon}


def _names_loopback(host: str) -> bool:
    """Whether a request says that it was sent to this machine; one that does not say it comes from no browser."""
    name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    return not host or is_loopback(name.lower())


def _json(value: Any) -> Answer:
    return 200, _JSON, msgspec.json.encode(value, enc_hook=str) + b"\n"


def _response(status: int, content_type: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _gauge(name: str, value: float) -> Iterator[str]:
    yield f"# TYPE ordercast_{name} gauge"
    yield f"ordercast_{name} {value}"


def _numbers(values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in sorted(values.items()):
        if name == "term" and value:
            value = value[0]  # noqa: PLW2901 - its number; the rest says whose it is
        if isinstance(value, bool | int | float):
            yield name, int(value) if isinstance(value, bool) else value


def _topic_gauges(topics: Mapping[str, Any]) -> Iterator[str]:
    """One family a number: all its samples must stand together."""
    families: dict[str, list[str]] = {}
    for topic, values in sorted(topics.items()):
        if isinstance(values, Mapping):
            label = str(topic).replace("\\", "\\\\").replace('"', '\\"')
            for name, value in _numbers(values):
                families.setdefault(name, []).append(f'ordercast_topic_{name}{{topic="{label}"}} {value}')
    for name, samples in families.items():
        yield f"# TYPE ordercast_topic_{name} gauge"
        yield from samples
