"""Trace context (W3C `traceparent`, `tracestate`) that travels with a message, for OpenTelemetry and its kin.

A message's headers reach every subscriber as they were published, whoever sets them: a program, a NATS client, or an
HTTP request to the web door, whose own `traceparent` is taken. These two functions join them to OpenTelemetry where its
API is installed; nothing here needs it.

    await client.publish("orders", body, headers=tracing.with_context())

    with tracer.start_as_current_span("handle order", context=tracing.context_of(message)):
        ...
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

NAMES = (b"traceparent", b"tracestate")
"""The headers of the trace context, as the standard writes them."""


class HasHeaders(Protocol):
    """A delivered message."""

    @property
    def headers(self) -> dict[bytes, bytes]: ...


def with_context(headers: Mapping[bytes, bytes] | None = None) -> dict[bytes, bytes]:
    """These headers and the trace context of this moment; without OpenTelemetry, or outside of a span, these alone."""
    told = dict(headers or {})
    try:
        from opentelemetry import propagate
    except ImportError:
        return told
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return told | {name.encode(): value.encode() for name, value in carrier.items()}


def context_of(message: HasHeaders) -> Any:
    """The OpenTelemetry context that a message came with; None if it has none, or nobody here could use it."""
    known = {name.decode(): message.headers[name].decode(errors="replace") for name in NAMES if name in message.headers}
    if not known:
        return None
    try:
        from opentelemetry import propagate
    except ImportError:
        return None
    return propagate.extract(known)
