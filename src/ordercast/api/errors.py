"""What can become of a client's wishes besides their fulfilment. Every message is one line and names the culprit."""

from __future__ import annotations


class ConnectError(ConnectionError):
    """No broker took this client, or the client is closed."""


class SessionLost(ConnectionError):  # noqa: N818 - What happened, not whose error it is.
    """The overlay has given this session up: it was out of reach for too long. Connect anew."""


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


class OutboxFull(BufferError):  # noqa: N818
    """More was published without waiting than the outbox holds; `await client.drain()` waits for room."""
