"""Requests that wait for an answer. Answers come on a topic of the client's own, read from its first request on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

from ordercast.api.errors import ConnectError
from ordercast.api.inbox import Inbox
from ordercast.core.errors import UsageError
from ordercast.pubsub.extras import Extras
from ordercast.pubsub.publications import Publication

REPLIES = "replies"
"""First part of the topics on which clients wait for answers."""


class Asker(Protocol):
    """Port to the client that asks and answers."""

    @property
    def client_id(self) -> str: ...

    @property
    def publish_soon(self) -> Callable[..., str]: ...

    @property
    def publish(self) -> Callable[..., Coroutine[Any, Any, str]]: ...

    async def at_edge(self, topic: str) -> None: ...

    async def subscribe(self, topic: str, *, timeout: float | None = None) -> Inbox: ...


class Requests:
    """The requests of one client that are not answered yet."""

    def __init__(self, client: Asker) -> None:
        self._client = client
        self._waiting: dict[str, asyncio.Future[Publication]] = {}
        """By the id of the request."""
        self._reading: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None

    @property
    def topic(self) -> str:
        return f"{REPLIES}.{self._client.client_id}"

    async def send(self, topic: str, payload: bytes, timeout: float | None, options: dict[str, Any]) -> Publication:
        """Publish the request; the first answer, or a TimeoutError."""
        try:
            async with asyncio.timeout(timeout):
                await self._open()
                return await self._answer(topic, payload, options)
        except TimeoutError:
            raise TimeoutError(f"no answer to a request on {topic} within {timeout:g} s") from None

    async def _answer(self, topic: str, payload: bytes, options: dict[str, Any]) -> Publication:
        client = self._client
        request = client.publish_soon(topic, payload, **options, extras=Extras(reply_to=self.topic))
        answer: asyncio.Future[Publication] = asyncio.get_running_loop().create_future()
        self._waiting[request] = answer
        try:
            await client.at_edge(topic)  # A refusal is raised here.
            return await answer
        finally:
            del self._waiting[request]

    async def _open(self) -> None:
        """Read the topic of answers, from the first request on."""
        if self._ready is None:
            self._ready = asyncio.get_running_loop().create_future()
            try:
                inbox = await self._client.subscribe(self.topic, timeout=None)
            except BaseException as error:
                ready, self._ready = self._ready, None
                ready.set_exception(error if isinstance(error, Exception) else ConnectionError("cancelled"))
                ready.exception()  # Nobody else may wait for it.
                raise
            self._reading = asyncio.create_task(self._read(inbox))
            self._ready.set_result(None)
        await asyncio.shield(self._ready)

    async def _read(self, inbox: Inbox) -> None:
        """Until the client ends, in whatever way; then nobody waits any longer."""
        error: Exception = ConnectError("the client is closed")
        try:
            async for message in inbox:
                answer = self._waiting.get(message.extras.answers) if message.extras is not None else None
                if answer is not None and not answer.done():
                    answer.set_result(message)
        except Exception as lost:  # noqa: BLE001 - Whoever waits is told.
            error = lost
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(error)

    async def reply(self, request: Publication, payload: bytes, **options: Any) -> str:
        """Publish the answer to a request."""
        extras = request.extras
        if extras is None or not extras.reply_to:
            raise UsageError(f"{request.id}: nobody waits for an answer to it")
        return await self._client.publish(extras.reply_to, payload, **options, extras=Extras(answers=request.id))

    async def close(self) -> None:
        if self._reading is not None:
            with suppress(asyncio.CancelledError):
                await self._reading
