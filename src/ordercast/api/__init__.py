"""The library for programs: `connect` to a broker, publish, subscribe. Everything below it is machines and sockets."""

from ordercast.api.client import Client
from ordercast.api.connecting import connect
from ordercast.api.errors import ConnectError, OutboxFull, PublishRefused, SessionLost, SubscribeDenied
from ordercast.api.inbox import Inbox

__all__ = [
    "Client",
    "ConnectError",
    "Inbox",
    "OutboxFull",
    "PublishRefused",
    "SessionLost",
    "SubscribeDenied",
    "connect",
]
