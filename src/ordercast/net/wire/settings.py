"""Limits and timeouts of the connections between brokers and clients, in one table."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ordercast.net.settings import HEADER_ROOM

_Bytes = Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]
_Milliseconds = Annotated[float, msgspec.Meta(gt=0, le=3_600_000)]
_Count = Annotated[int, msgspec.Meta(ge=1)]


class WireSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The defaults suit processes on one machine or one local network."""

    max_payload_bytes: _Bytes = 1 << 20
    """The largest payload that a client may publish."""
    heartbeat_ms: _Milliseconds = 500.0
    """An idle connection says so often that it lives."""
    silence_ms: _Milliseconds = 2000.0
    """A connection on which nothing was heard for so long is given up."""
    handshake_ms: _Milliseconds = 2000.0
    """A connection must have introduced itself by then."""
    farewell_ms: _Milliseconds = 2000.0
    """How long a connection that is being closed may take to get across what was sent before."""
    slow_consumer_bytes: _Bytes = 1 << 26
    slow_consumer_ms: _Milliseconds = 5000.0
    """A connection with more than `slow_consumer_bytes` waiting, and no fewer than so long ago, is closed."""
    strangers: _Count = 64
    """Accepted connections that may be in their handshake at one time."""
    connections: _Count = 10_000
    """Accepted connections in all."""
    delay_ms: dict[str, _Milliseconds] = {}
    """For experiments on one machine: `{"b0 b1": 115}` makes everything between these two processes arrive so much
    later, in both directions and in order. Handshakes are not delayed."""

    def delay_between(self, one: str, other: str) -> float:
        """Milliseconds by which what they send each other is put off."""
        return self.delay_ms.get(f"{one} {other}", self.delay_ms.get(f"{other} {one}", 0.0))

    @property
    def max_frame_bytes(self) -> int:
        """The largest packet that an authenticated peer may send."""
        return self.max_payload_bytes + HEADER_ROOM
