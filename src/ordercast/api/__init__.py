"""The library for programs: `connect` to a broker, publish, subscribe. Everything below it is machines and sockets."""

from ordercast.api.client import Client
from ordercast.api.connecting import connect
from ordercast.api.errors import ConnectError, HistoryLost, OutboxFull, PublishRefused, SessionLost, SubscribeDenied
from ordercast.api.history import History
from ordercast.api.inbox import Inbox
from ordercast.api.position import Position
from ordercast.api.work import Work, WorkInbox, WorkLost
from ordercast.client.work.leader import WorkSettings
from ordercast.core.errors import UsageError
from ordercast.net.wire.credentials import Tls
from ordercast.pubsub.publications import Publication as Message

__all__ = [
    "Client",
    "ConnectError",
    "History",
    "HistoryLost",
    "Inbox",
    "Message",
    "OutboxFull",
    "Position",
    "PublishRefused",
    "SessionLost",
    "SubscribeDenied",
    "Tls",
    "UsageError",
    "Work",
    "WorkInbox",
    "WorkLost",
    "WorkSettings",
    "connect",
]
