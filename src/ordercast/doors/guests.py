"""Guests of a door: credentials are checked, and each who may come in becomes a client of the broker."""

from __future__ import annotations

import hmac
import secrets
from contextlib import suppress

from ordercast.api.client import Client
from ordercast.api.connecting import connect_within
from ordercast.api.errors import PublishRefused
from ordercast.core.errors import PeerError
from ordercast.net.host import ProcessHost
from ordercast.net.wire.credentials import CLIENT

OUTBOX = 20_000
"""Publications of one guest that may wait for the tree before no more is taken from it."""


def knows_token(host: ProcessHost, user: str, token: str) -> bool:
    """Whether somebody may be a client of the broker; which users there are is not to be told by the time it takes."""
    try:
        right = host.credentials.token_of(CLIENT, user, "guest")
    except PeerError:
        right = secrets.token_bytes()
    return hmac.compare_digest(right, token.encode())


async def client_for(host: ProcessHost, user: str, token: str) -> Client:
    """A client of the broker, in its own process, with the name and the rights of the user."""
    return await connect_within(
        host, user=user, token=token, wire=host.settings, outbox_limit=OUTBOX, tls=host.credentials.tls
    )


async def leave(client: Client) -> None:
    """The guest has gone: end what it had. What it published before is brought to safety, if that goes."""
    with suppress(ConnectionError, TimeoutError, PublishRefused):
        await client.close(stay=False)
