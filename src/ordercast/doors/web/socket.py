"""One WebSocket: a page gives orders as JSON, and gets answers and deliveries as JSON."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import msgspec

from ordercast.api.client import Client
from ordercast.api.errors import HistoryLost, SessionLost
from ordercast.api.inbox import Inbox
from ordercast.api.starts import parsed_start
from ordercast.core.errors import PeerError, UsageError
from ordercast.doors.guests import client_for, knows_token, leave
from ordercast.doors.web import websocket
from ordercast.doors.web.answers import answers
from ordercast.doors.web.events import send
from ordercast.doors.web.forms import PageOrder, form_of, order_of
from ordercast.net import http
from ordercast.net.brokers.door_tables import WebTable, default_of
from ordercast.net.host import ProcessHost
from ordercast.net.wire.settings import WireSettings, seconds

_READ_BYTES = 1 << 16
_PING_S = 20.0
_SILENT_S = 60.0
_MOST_UNDER_WAY = 1000
"""Publications of one page that wait for their acknowledgement; no more of its orders are read until one has come."""
_ACKNOWLEDGED_S = 30.0
_MANY = 64
"""So many frames of a page are answered before others have their turn."""
_HELLO_BYTES = 1 << 16
"""So much may come before the page has introduced itself."""


class Admission(Protocol):
    """Port to the door."""

    settings: WireSettings

    def credentials_of(self, head: http.HttpRequest) -> tuple[str, str]:
        """The credentials of a request; a BadRequest if they prove nothing."""


class SocketSession:
    """One page, from the upgrade to its end."""

    def __init__(
        self, door: Admission, host: ProcessHost, table: WebTable, head: http.HttpRequest, reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:  # fmt: skip
        self._door = door
        self._host = host
        self._table = table
        self._head = head
        self._reader = reader
        self._writer = writer
        self._settings = door.settings
        self._said = websocket.WebSocketReader(2 * self._settings.max_payload_bytes)
        self._client: Client | None = None
        self._inboxes: dict[str, tuple[Inbox, asyncio.Task[None]]] = {}
        self._under_way: set[asyncio.Task[None]] = set()
        self._free = asyncio.Semaphore(_MOST_UNDER_WAY)

    async def run(self) -> None:
        key = self._head.fields.get("sec-websocket-key", "")
        if "websocket" not in self._head.fields.get("upgrade", "").lower() or not key:
            raise http.BadRequest(400, "a WebSocket is needed here (Upgrade: websocket)")
        upgrade = [("Upgrade", "websocket"), ("Connection", "Upgrade")]
        self._writer.write(http.response_head(101, [*upgrade, ("Sec-WebSocket-Accept", websocket.accept_key(key))]))
        try:
            async with asyncio.TaskGroup() as tasks:
                beating = tasks.create_task(self._beat())
                await self._listen(tasks)
                beating.cancel()
                self._stop_all()
        except* websocket.WebSocketError as errors:
            await self._refuse(errors)
        finally:
            if self._client is not None:
                await leave(self._client)

    async def _refuse(self, errors: BaseExceptionGroup[websocket.WebSocketError]) -> None:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        assert isinstance(first, websocket.WebSocketError)
        await self._close(first.code, first.reason)
        raise PeerError("page", first.reason) from None

    def _stop_all(self) -> None:
        for _, task in self._inboxes.values():
            task.cancel()
        for task in self._under_way:
            task.cancel()

    async def _listen(self, tasks: asyncio.TaskGroup) -> None:
        """Do what the page says, one order after the other, until it goes."""
        await self._admit_known()
        clock, unknown_bytes = asyncio.get_running_loop().time, 0
        introduced_by = clock() + seconds(self._settings.handshake_ms)
        while True:
            async with asyncio.timeout_at(clock() + _SILENT_S if self._client is not None else introduced_by):
                data = await self._reader.read(_READ_BYTES)
            if not data:
                return
            unknown_bytes += len(data) if self._client is None else 0
            for count, said in enumerate(self._said.feed(data)):
                if count % _MANY == _MANY - 1:
                    await asyncio.sleep(0)  # Others have their turns.
                if said.kind == websocket.CLOSE:
                    await self._close(websocket.NORMAL, "")
                    return
                if said.kind == websocket.PING:
                    await self._send(websocket.frame(websocket.PONG, said.data))
                elif said.kind != websocket.PONG:
                    await self._do(said.data, tasks)
            if self._client is None and unknown_bytes > _HELLO_BYTES:
                raise websocket.WebSocketError(websocket.POLICY, "the first order is hello, with user and token")

    async def _admit_known(self) -> None:
        """Admit a page that proved itself in its request, or need not: it does not have to say hello."""
        try:
            user, token = self._door.credentials_of(self._head)
        except http.BadRequest:
            return
        self._client = await client_for(self._host, user, token)

    async def _do(self, data: bytes, tasks: asyncio.TaskGroup) -> None:
        ref: int | str | None = None
        try:
            order = order_of(data)
            ref = order.ref
            if self._client is None and order.op != "hello":
                raise websocket.WebSocketError(websocket.POLICY, "the first order is hello, with user and token")
            with answers():
                await self._follow(order, tasks)
        except UsageError as error:
            await self._tell({"op": "error", "ref": ref, "reason": str(error)})

    async def _follow(self, order: PageOrder, tasks: asyncio.TaskGroup) -> None:
        if order.op == "hello":
            await self._hello(order)
        elif order.op == "publish":
            await self._free.acquire()
            task = tasks.create_task(self._publish(order))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            await asyncio.sleep(0)  # It is published before the next order is looked at.
        elif order.op == "subscribe":
            await self._subscribe(order, tasks)
        elif order.op == "unsubscribe":
            await self._unsubscribe(order)
        else:
            raise UsageError(f"op: {order.op[:40]!r} is none of hello, publish, subscribe, unsubscribe")

    async def _hello(self, order: PageOrder) -> None:
        if self._client is None:
            if not knows_token(self._host, order.user, order.token):
                raise websocket.WebSocketError(websocket.POLICY, "does not know the token")
            self._client = await client_for(self._host, order.user, order.token)
        await self._tell({"op": "welcome", "ref": order.ref, "client": self._client.client_id})

    async def _publish(self, order: PageOrder) -> None:
        client = self._client
        assert client is not None
        default = default_of(self._table.default, order.topic)
        try:
            with answers():
                message = await client.publish(
                    order.topic, order.payload, key=order.key, keys=order.keys or default.keys,
                    guarantee=order.guarantee or default.guarantee, ack=order.ack, timeout=_ACKNOWLEDGED_S,
                )  # fmt: skip
        except UsageError as error:
            await self._tell({"op": "error", "ref": order.ref, "reason": str(error)})
        else:
            await self._tell({"op": "published", "ref": order.ref, "id": message})
        finally:
            self._free.release()

    async def _subscribe(self, order: PageOrder, tasks: asyncio.TaskGroup) -> None:
        assert self._client is not None
        if order.topic in self._inboxes:
            raise UsageError(f"topic: {order.topic!r} is subscribed to already")
        inbox = await self._client.subscribe(order.topic, start=parsed_start(order.start or "now"))
        await self._tell({"op": "subscribed", "ref": order.ref, "topic": order.topic})
        self._inboxes[order.topic] = inbox, tasks.create_task(self._read(inbox))

    async def _unsubscribe(self, order: PageOrder) -> None:
        assert self._client is not None
        known = self._inboxes.pop(order.topic, None)
        if known is None:
            raise UsageError(f"topic: {order.topic!r} is not subscribed to")
        inbox, task = known
        task.cancel()
        await self._client.unsubscribe(inbox)
        await self._tell({"op": "unsubscribed", "ref": order.ref, "topic": order.topic})

    async def _read(self, inbox: Inbox) -> None:
        try:
            async for batch in inbox.batches():
                forms = [{"op": "message", "subscription": inbox.pattern, **form_of(entry)} for entry in batch]
                await self._send(b"".join([_frame(form) for form in forms]))
        except (SessionLost, HistoryLost) as error:
            await self._tell({"op": "lost", "topic": inbox.pattern, "reason": str(error)})

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_PING_S)
            await self._send(websocket.frame(websocket.PING, b""))

    async def _close(self, code: int, reason: str) -> None:
        await self._send(websocket.close_frame(code, reason))

    async def _tell(self, form: dict[str, Any]) -> None:
        await self._send(_frame(form))

    async def _send(self, data: bytes) -> None:
        await send(self._writer, data, self._settings)


def _frame(form: dict[str, Any]) -> bytes:
    return websocket.frame(websocket.TEXT, msgspec.json.encode(form))
