"""The admin port of a broker: health, metrics, status and where a message is, over the smallest HTTP that tools speak.

GET /healthz           200 if the broker is in a tree and can do its work, 503 and the reason otherwise
GET /metrics           Prometheus text
GET /status?topics=N   JSON: the tree as this broker sees it, what all topics hold, and the N busiest topics (1000)
GET /explain?msg=ID    JSON: where the publication is here, and what it waits for
POST /leave?id=ID      the broker leaves the cluster for good, in good order (202: it was told)
POST /keep?filter=F    topics are kept from now on (max_age, max_bytes, copies, compact), or with stop=1 no longer
POST /remove?id=ID     at the root: a broker that is dead is struck off (202: it will be)

With a token every request must carry it (`Authorization: Bearer TOKEN`). Without one the port is for this machine only:
it listens on loopback and refuses requests that were addressed to another host, as those of a web page are that had its
own name resolved to this machine. A web page may not POST at all. With `admin_tls` it speaks TLS, and nothing else.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.net import http
from ordercast.net.brokers.broker_host import BrokerHost
from ordercast.net.brokers.exposition import exposition
from ordercast.net.brokers.ledger import DiskBrokerLedger
from ordercast.net.host import ProcessHost
from ordercast.net.tls_door import TlsDoor
from ordercast.net.turn_ports import address_of, listening
from ordercast.net.wire.credentials import AdminKey, is_loopback, split_address
from ordercast.net.wire.strangers import Strangers
from ordercast.pubsub.keeping import KeepRule, KeepTable

_PATIENCE_S = 5.0
_NO_KEY = AdminKey()
_MOST_CONNECTIONS = 64
_TOPICS_IN_STATUS = 1000
_TOPICS_IN_METRICS = 100
"""Every label is a time series for whoever collects them: the busiest topics have one, all others are in the sums."""
_READ_ONLY = ("/healthz", "/metrics", "/status", "/explain")
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

    def keep(self, rule: KeepRule) -> str: ...

    def kept_status(self) -> list[dict[str, Any]]: ...


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
        self, host: ProcessHost, broker: Administered, ledger: DiskBrokerLedger | None = None, *,
        key: AdminKey = _NO_KEY,
    ) -> None:  # fmt: skip
        self.address = ""
        self._host = host
        self._broker = broker
        self._ledger = ledger
        self._token = key.token
        self._context = key.tls.server_context() if key.tls is not None else None
        self._server: asyncio.Server | TlsDoor | None = None
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
        if self._context is not None:
            settings = self._host.settings
            self._server = TlsDoor(door, self._context, settings, Strangers(settings), self._accepted, lambda *_: None)
        else:
            self._server = await asyncio.start_server(self._serve, sock=door, limit=http.LONGEST_HEAD)

    def _accepted(self) -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=http.LONGEST_HEAD), self._serve)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for task in self._busy:
                task.cancel()
            await asyncio.gather(*self._busy, return_exceptions=True)
            await self._server.wait_closed()

    def answer(self, request: http.HttpRequest) -> Answer:
        """The answer to a GET."""
        path = request.path
        if path == "/healthz":
            problem = self.problem()
            return (200, http.TEXT, b"ok\n") if problem is None else (503, http.TEXT, f"{problem}\n".encode())
        if path == "/metrics":
            return 200, _PROMETHEUS, "".join(f"{line}\n" for line in self._metrics()).encode()
        if path == "/status":
            asked = request.asked("topics", str(_TOPICS_IN_STATUS))
            if not asked.isdigit() or len(asked) > len(str(_TOPICS_IN_STATUS)):
                return 400, http.TEXT, b"topics: how many of the busiest? /status?topics=N, at most 9999\n"
            return _json(self.status(int(asked)))
        if path == "/explain":
            wanted = request.asked("msg")
            if not wanted:
                return 400, http.TEXT, b"msg: which message? /explain?msg=ID\n"
            return _json({"broker": self._host.me.name, "msg": wanted, **self._broker.topics.explain(wanted)})
        return 404, http.TEXT, b"known: /healthz /metrics /status /explain?msg=ID\n"

    def order(self, request: http.HttpRequest) -> Answer:
        """Carry out a POST."""
        path = request.path
        if path == "/keep":
            return self._keep({name: values[0] for name, values in request.query.items()})
        if path in _READ_ONLY:
            return 405, http.TEXT, f"{path} is for GET\n".encode()
        tree = self._broker.tree
        act = {"/leave": tree.ask_to_leave, "/remove": tree.remove}.get(path)
        wanted = request.asked("id")
        if act is None:
            return 404, http.TEXT, b"known: /leave?id=ID /remove?id=ID /keep?filter=FILTER\n"
        if not wanted:
            return 400, http.TEXT, f"id: which broker? {path}?id=ID\n".encode()
        refusal = self._host.turn(act, NodeId(wanted))
        return (409, http.TEXT, f"{refusal}\n".encode()) if refusal else (202, http.TEXT, b"accepted\n")

    def _keep(self, asked: dict[str, str]) -> Answer:
        """ARC-1: topics are kept from now on, or no longer."""
        unknown = sorted(asked.keys() - {"filter", "max_age", "max_bytes", "copies", "compact", "stop"})
        if unknown or "filter" not in asked:
            return 400, http.TEXT, b"/keep?filter=FILTER&max_age=7d&max_bytes=10GB&copies=2&compact=none|key&stop=0|1\n"
        stopped = asked.pop("stop", "0") == "1"
        try:
            rule = msgspec.convert(asked, KeepTable, strict=False).rule()
        except msgspec.ValidationError as error:
            return 400, http.TEXT, f"keep: {error}\n".encode()
        topics = self._broker.topics
        refusal = self._host.turn(topics.keep, msgspec.structs.replace(rule, stopped=stopped))
        return (409, http.TEXT, f"{refusal}\n".encode()) if refusal else (202, http.TEXT, b"accepted\n")

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
            "kept": self._broker.topics.kept_status(),
            "connections": [
                {"peer": wire.name, "kind": wire.peer.kind, "life": wire.peer.life, "queued_bytes": wire.queued_bytes}
                for _, wire in sorted(host.connections.items())
                if wire.peer is not None
            ],
            "counters": dict(sorted(host.counters.items())),
        }

    def _metrics(self) -> Iterator[str]:
        ledger = self._ledger
        yield from exposition(
            self.status(_TOPICS_IN_METRICS),
            is_root=self._broker.tree.is_root,
            ledger=(ledger.log.segment_bytes, ledger.flushes) if ledger is not None else None,
        )
        if isinstance(self._host, BrokerHost):
            yield from self._host.deliveries.lines()

    # HTTP

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._busy[task] = None
        if len(self._busy) > _MOST_CONNECTIONS:
            next(iter(self._busy)).cancel()  # Whoever says nothing for longest makes room for who has something to ask.
        try:
            async with asyncio.timeout(_PATIENCE_S):
                writer.write(http.response(*await self._handle(reader)))
                await writer.drain()
        except (OSError, asyncio.CancelledError):  # TimeoutError is an OSError.
            pass
        finally:
            self._busy.pop(task, None)
            writer.close()

    async def _handle(self, reader: asyncio.StreamReader) -> Answer:
        try:
            request = await http.read_head(reader)
            if request is None:
                return 400, http.TEXT, b"the request is not complete\n"
            return self._judge(request) or (self.answer(request) if request.method == "GET" else self.order(request))
        except http.BadRequest as error:
            return error.status, http.TEXT, f"{error}\n".encode()
        except (UsageError, ValueError) as error:
            return 400, http.TEXT, f"{error}\n".encode()

    def _judge(self, request: http.HttpRequest) -> Answer | None:
        """The answer to a request that nobody may make, or not so."""
        refused = self._refusal(request.fields)
        if refused is not None:
            return refused
        if request.method not in ("GET", "POST"):
            return 405, http.TEXT, b"only GET and POST\n"
        if request.method == "POST" and "origin" in request.fields:
            return 403, http.TEXT, b"no web page gives orders here\n"
        return None

    def _refusal(self, fields: Mapping[str, str]) -> Answer | None:
        if self._token:
            said = fields.get("authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(said.encode(), self._token.encode()):
                return 401, http.TEXT, b"admin_token: needed as Authorization: Bearer TOKEN\n"
        elif not http.to_this_machine(fields):
            return 403, http.TEXT, b"this port answers requests to a loopback address only\n"
        return None


def _json(value: Any) -> Answer:
    return 200, http.JSON, msgspec.json.encode(value, enc_hook=str) + b"\n"
