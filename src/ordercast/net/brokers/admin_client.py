"""Asking a broker's admin port."""

from __future__ import annotations

import http.client
import ssl
from typing import Any
from urllib.parse import quote

import msgspec

from ordercast.core.errors import UsageError
from ordercast.net.wire.credentials import AdminKey, split_address

_PATIENCE_S = 2.0
_PATIENCE_WITH_TLS_S = 5.0
_NO_KEY = AdminKey()


def ask(address: str, target: str, key: AdminKey = _NO_KEY) -> Any:
    """The decoded answer to GET `target`; None if nobody answers in time.

    A wrong token, or a certificate that is not believed, is a UsageError.
    """
    status, body = _request("GET", address, target, key)
    try:
        return msgspec.json.decode(body) if status == http.client.OK else None
    except msgspec.DecodeError:
        return None


def order(address: str, deed: str, broker: str, key: AdminKey = _NO_KEY) -> None:
    """POST that the broker is to `leave` or to be removed; a UsageError with the reason if that is refused."""
    status, body = _request("POST", address, f"/{deed}?id={quote(broker, safe='')}", key)
    if status != http.client.ACCEPTED:
        said = body.decode(errors="replace").strip() or f"{address} does not answer"
        raise UsageError(f"broker {broker!r}: {said}")


def post(addresses: list[str], target: str, key: AdminKey = _NO_KEY) -> None:
    """POST to the first broker that answers; a UsageError with the reason if it refuses, or nobody answers."""
    for address in addresses:
        status, body = _request("POST", address, target, key)
        if status == http.client.ACCEPTED:
            return
        if status:
            raise UsageError(body.decode(errors="replace").strip() or f"{address} refuses")
    raise UsageError(f"{', '.join(addresses)}: nobody answers")


def _request(method: str, address: str, target: str, key: AdminKey) -> tuple[int, bytes]:
    """Status and body; 0 and nothing if nobody answers in time."""
    connection = _connection(address, key)
    try:
        connection.request(method, target, headers={"Authorization": f"Bearer {key.token}"} if key.token else {})
        response = connection.getresponse()
        body = response.read()
    except ssl.SSLCertVerificationError as error:
        raise UsageError(f"admin: the certificate of {address} is not believed: {error.verify_message}") from None
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()
    if response.status == http.client.UNAUTHORIZED:
        raise UsageError(f"admin_token: {address} asks for another one")
    return response.status, body


def _connection(address: str, key: AdminKey) -> http.client.HTTPConnection:
    host, port = split_address(address, "admin")
    if key.tls is None:
        return http.client.HTTPConnection(host, port, timeout=_PATIENCE_S)
    return http.client.HTTPSConnection(host, port, timeout=_PATIENCE_WITH_TLS_S, context=key.tls.client_context())


def explain(address: str, message: str, key: AdminKey = _NO_KEY) -> Any:
    return ask(address, f"/explain?msg={quote(message, safe='')}", key)
