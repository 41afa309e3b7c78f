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
    status, body = _request("GET", address, target, token)
    try:
        return msgspec.json.decode(body) if status == http.client.OK else None
    except msgspec.DecodeError:
        return None


def order(address: str, deed: str, broker: str, token: str = "") -> None:
    """POST that the broker is to `leave` or to be removed; a UsageError with the reason if that is refused."""
    status, body = _request("POST", address, f"/{deed}?id={quote(broker, safe='')}", token)
    if status != http.client.ACCEPTED:
        said = body.decode(errors="replace").strip() or f"{address} does not answer"
        raise UsageError(f"broker {broker!r}: {said}")


def post(addresses: list[str], target: str, token: str = "") -> None:
    """POST to the first broker that answers; a UsageError with the reason if it refuses, or nobody answers."""
    for address in addresses:
        status, body = _request("POST", address, target, token)
        if status == http.client.ACCEPTED:
            return
        if status:
            raise UsageError(body.decode(errors="replace").strip() or f"{address} refuses")
    raise UsageError(f"{', '.join(addresses)}: nobody answers")


def _request(method: str, address: str, target: str, token: str) -> tuple[int, bytes]:
    """Status and body; 0 and nothing if nobody answers in time."""
    host, port = split_address(address, "admin")
    connection = http.client.HTTPConnection(host, port, timeout=_PATIENCE_S)
    try:
        connection.request(method, target, headers={"Authorization": f"Bearer {token}"} if token else {})
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()
    if response.status == http.client.UNAUTHORIZED:
        raise UsageError(f"admin_token: {address} asks for another one")
    return response.status, body


def explain(address: str, message: str, token: str = "") -> Any:
    return ask(address, f"/explain?msg={quote(message, safe='')}", token)
