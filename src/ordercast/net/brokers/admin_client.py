"""Asking a broker's admin port."""

from __future__ import annotations

import http.client
from typing import Any
from urllib.parse import quote

import msgspec

from ordercast.core.errors import UsageError
from ordercast.net.wire.credentials import split_address

_PATIENCE_S = 2.0


def ask(address: str, target: str, token: str = "") -> Any:
    """What GET `target` answers, decoded; None if nobody answers in time. A wrong token is a UsageError."""
    host, port = split_address(address, "admin")
    connection = http.client.HTTPConnection(host, port, timeout=_PATIENCE_S)
    try:
        connection.request("GET", target, headers={"Authorization": f"Bearer {token}"} if token else {})
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    if response.status == http.client.UNAUTHORIZED:
        raise UsageError(f"admin_token: {address} asks for another one")
    try:
        return msgspec.json.decode(body) if response.status == http.client.OK else None
    except msgspec.DecodeError:
        return None


def explain(address: str, message: str, token: str = "") -> Any:
    return ask(address, f"/explain?msg={quote(message, safe='')}", token)
