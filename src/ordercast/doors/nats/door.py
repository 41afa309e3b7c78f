"""The listener for clients of NATS: who may come in, what they are told first, and who is still there."""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
import time
from collections import Counter

import ordercast
from ordercast.api.client import Client
from ordercast.broker.node import Broker
from ordercast.core.errors import UsageError
from ordercast.core.ids import Topic
from ordercast.doors.guests import client_for, knows_token, leave
from ordercast.doors.nats import wire
from ordercast.doors.nats.connection import NatsConnection
from ordercast.doors.nats.naming import topic_of
from ordercast.doors.nats.publishing import NatsPublisher
from ordercast.doors.nats.queues import QueueGroups
from ordercast.net.brokers.door_tables import NatsTable
from ordercast.net.host import ProcessHost
from ordercast.net.turn_ports import address_of, listening
from ordercast.net.wire.credentials import split_address
from ordercast.net.wire.settings import seconds
from ordercast.net.wire.strangers import Strangers

LOG = logging.getLogger("ordercast.nats")
_PING_S = 30.0
_UNANSWERED = 2
_LIKE_SERVER = "2.11.0"
"""Clients look at the version to know what they may ask for: headers, and word of missing responders."""


class NatsDoor:
    """Serves clients of NATS at one broker. Each becomes a client of the broker, with the rights of its user."""

    kind = "NATS"

    def __init__(self, host: ProcessHost, broker: Broker, table: NatsTable, listen: str) -> None:
        self.settings = host.settings
        self.publisher = NatsPublisher(table.default)
        self.queues = QueueGroups(broker)
        self.spares_headers = table.annotate == "chosen"
        self.address = listen
        self.counters: Counter[str] = host.counters
        self._host = host
        self._broker = broker
        self._server: asyncio.Server | None = None
        self._context: ssl.SSLContext | None = None
        self._connections: dict[NatsConnection, None] = {}
        self._deadlines: dict[NatsConnection, asyncio.TimerHandle] = {}
        self._farewells: set[asyncio.Task[None]] = set()
        self._beating: asyncio.Task[None] | None = None
        self._strangers = Strangers(self.settings)

    async def start(self) -> None:
        try:
            door = listening(self.address)
            self._host.credentials.check_listen(str(door.getsockname()[0]))
        except UsageError as error:
            raise UsageError(f"nats: {str(error).removeprefix('listen: ')}") from None
        tls = self._host.credentials.tls
        self._context = tls.server_context() if tls is not None else None
        self.address = address_of(door)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: NatsConnection(self), sock=door)
        self._beating = loop.create_task(self._beat())

    async def stop(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._connections):
            connection.end("the broker stops")
        if self._beating is not None:
            self._beating.cancel()
            self._farewells.add(self._beating)
        await asyncio.gather(*self._farewells, return_exceptions=True)
        await self._server.wait_closed()

    # For connections

    def came(self, connection: NatsConnection) -> bool:
        """Whether one more may come; it then has to introduce itself in time."""
        self._make_room(connection.host)
        if len(self._connections) >= self.settings.connections:
            return False
        self._connections[connection] = None
        self.counters["nats_connections_opened"] += 1
        loop = asyncio.get_running_loop()
        late = ("Authentication Timeout", "did not introduce itself in time")
        self._deadlines[connection] = loop.call_later(seconds(self.settings.handshake_ms), connection.refuse, *late)
        if self._context is not None:
            connection.secure(self._context)
        return True

    def _make_room(self, host: str) -> None:
        """Of those that have not introduced themselves, the oldest of an address that has too many goes."""
        of_host = [other for other in self._deadlines if other.host == host]
        if len(of_host) >= self.settings.strangers_per_address:
            of_host[0].refuse("Authentication Timeout", "too many connections that do not introduce themselves")

    def hello(self) -> bytes:
        credentials = self._host.credentials
        host, port = split_address(self.address)
        facts = {
            "host": host, "port": port, "go": "",  # Some clients insist on all that a server of NATS says.
            "server_id": f"ordercast-{self._host.me.name}", "server_name": self._host.me.name,
            "version": _LIKE_SERVER, "ordercast": ordercast.__version__, "proto": 1, "headers": True,
            "max_payload": self.settings.max_payload_bytes, "client_id": secrets.randbits(31),
            "auth_required": bool(credentials.users or credentials.client_token),
            "cluster": credentials.cluster,
        }  # fmt: skip
        if self._context is not None:
            facts["tls_required"] = True
        return wire.info(facts)

    async def admit(self, connection: NatsConnection, said: wire.Connect) -> Client:
        user, token = said.user or "", said.password or said.auth_token or ""
        if not knows_token(self._host, user, token):
            raise wire.NatsError("Authorization Violation", f"user {user[:40]!r} does not know the token")
        client = await client_for(self._host, user, token)
        deadline = self._deadlines.pop(connection, None)
        if deadline is not None:
            deadline.cancel()
        return client

    def anybody_receives(self, subject: str) -> bool:
        return self._broker.topics.anybody_receives(Topic(topic_of(subject)))

    def went(self, connection: NatsConnection, reason: str, *, complaint: bool) -> None:
        self._connections.pop(connection, None)
        deadline = self._deadlines.pop(connection, None)
        if deadline is not None:
            deadline.cancel()
        self.counters["nats_connections_refused" if complaint else "nats_connections_closed"] += 1
        times = self._strangers.complaints(connection.host, time.monotonic_ns()) if complaint else 0
        if times:
            facts = {"node": self._host.me.name, "peer": connection.host, "reason": reason, "times": times}
            LOG.warning("closed", extra={"facts": facts})
        if connection.client is not None:
            farewell = asyncio.get_running_loop().create_task(leave(connection.client))
            self._farewells.add(farewell)
            farewell.add_done_callback(self._farewells.discard)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_PING_S)
            for connection in list(self._connections):
                connection.beat(_UNANSWERED)
