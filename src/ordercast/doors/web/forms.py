"""Publications as JSON, the same for server-sent events, WebSockets and history."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.wire import NOT_DECODABLE
from ordercast.pubsub.publications import Publication


def form_of(entry: Publication) -> dict[str, Any]:
    """A publication for people and JavaScript: the payload is `text`, or `base64` where it is no text."""
    form: dict[str, Any] = {
        "id": entry.id, "topic": entry.topic, "publisher": entry.publisher, "guarantee": entry.guarantee.label,
    }  # fmt: skip
    keys = [key for key in entry.keys if key]
    if keys:
        form["keys"] = keys
    if entry.extras is not None and entry.extras.headers:
        said = entry.extras.headers
        form["headers"] = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in said}
    try:
        form["text"] = entry.payload.decode()
    except UnicodeDecodeError:
        form["base64"] = base64.b64encode(entry.payload).decode()
    return form


class PageOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An order that a page sends on its WebSocket."""

    op: str
    ref: int | str | None = None
    """Comes back in the answer."""
    topic: str = ""
    text: str | None = None
    base64: str | None = None
    guarantee: str = ""
    key: str | None = None
    keys: tuple[str, ...] = ()
    ack: str = "safe"
    start: str | None = msgspec.field(default=None, name="from")
    user: str = ""
    token: str = ""

    @property
    def payload(self) -> bytes:
        if (self.text is None) == (self.base64 is None):
            raise UsageError("payload: either text or base64")
        if self.text is not None:
            return self.text.encode()
        try:
            return base64.b64decode(self.base64 or "", validate=True)
        except ValueError as error:
            raise UsageError(f"base64: {error}") from None


_orders = msgspec.json.Decoder(PageOrder)


def order_of(data: bytes) -> PageOrder:
    try:
        return _orders.decode(data)
    except NOT_DECODABLE as error:
        raise UsageError(f"not an order: {error}") from None
