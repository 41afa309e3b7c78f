"""Errors that the client library raises. Every message is one line and names the culprit."""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.api.position import Position
from ordercast.pubsub.publications import Publication


class ConnectError(ConnectionError):
    """No broker took this client, or the client is closed."""


class SessionLost(ConnectionError):  # noqa: N818 - What happened, not whose error it is.
    """The brokers have given this session up: it was out of reach for too long. Connect anew.

    `unanswered`: what it published and was never told to be safe. Others may have got it or not, nobody knows; it is
    not published again unless the application does so.
    """

    def __init__(self, reason: str, unanswered: Sequence[Publication] = ()) -> None:
        super().__init__(reason)
        self.unanswered = tuple(unanswered)


class PublishRefused(Exception):  # noqa: N818
    """This publication will never be delivered to anybody."""

    def __init__(self, message_id: str, reason: str) -> None:
        super().__init__(f"{message_id}: {reason}")
        self.id = message_id
        self.reason = reason


class SubscribeDenied(Exception):  # noqa: N818
    """This client may not subscribe to the topic."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"{topic}: {reason}")
        self.topic = topic
        self.reason = reason


class HistoryLost(LookupError):  # noqa: N818
    """The past that was asked for is not there: the topic is not kept, or a part of it was cleaned up or lost.

    `earliest`: from this position on nothing is missing; None where the topic is not kept.
    """

    def __init__(self, topic: str, reason: str, earliest: Position | None) -> None:
        super().__init__(f"{topic}: {reason}")
        self.topic = topic
        self.reason = reason
        self.earliest = earliest


class OutboxFull(BufferError):  # noqa: N818
    """More was published without waiting than the outbox holds; `await client.drain()` waits for room."""
