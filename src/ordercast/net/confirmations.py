"""Futures for publications that somebody waits to have confirmed."""

from __future__ import annotations

import asyncio

from ordercast.core.machine import Place
from ordercast.core.messages import Message

Completed = asyncio.Future[Message]


class Confirmations:
    """Futures by publication. Each is answered once: confirmed, refused, or ended because the node stops."""

    def __init__(self) -> None:
        self._awaited: dict[str, tuple[Message, Completed]] = {}

    def expect(self, message: Message, future: Completed) -> None:
        self._awaited[message.id] = message, future

    def confirm(self, message_id: str) -> None:
        message, future = self._awaited.pop(message_id, (None, None))
        if message is not None and future is not None and not future.done():
            future.set_result(message)

    def refuse(self, message_id: str, error: Exception) -> None:
        _, future = self._awaited.pop(message_id)
        if not future.done():
            future.set_exception(error)

    def give_up(self, reason: str) -> None:
        """None of them will be confirmed any more."""
        for _, future in self._awaited.values():
            disappoint(future, reason)
        self._awaited.clear()


def disappoint(future: Completed, reason: str) -> None:
    if not future.done():
        future.set_exception(ConnectionError(reason))
        future.exception()  # Nobody has to ask for it.


def receives(place: Place, message: Message) -> bool:
    """Whether the node will deliver the message itself; otherwise there is nothing to wait for."""
    if message.dst:
        return place.node in message.dst
    return (topics := place.initial_topics()) is None or message.topic in topics
