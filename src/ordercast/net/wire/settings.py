"""Limits and timeouts of connections, in one table."""

from __future__ import annotations

from typing import Annotated

import msgspec

HEADER_ROOM = 1 << 16
"""What a packet may need besides its payload: stamps, destinations, summaries."""

_FRAMES_OF_CLIENTS = 16
"""A packet of a client may take so many frames."""

Bytes = Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]
Milliseconds = Annotated[float, msgspec.Meta(gt=0, le=3_600_000)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class WireSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The defaults suit processes on one machine or one local network."""

    max_payload_bytes: Bytes = 1 << 20
    """The largest payload that may be published."""
    max_packet_bytes: Bytes = 1 << 26
    """The largest packet, which may travel in several frames: what a broker knows of members or publishers grows."""
    heartbeat_ms: Milliseconds = 500.0
    """An idle connection says so often that it lives."""
    silence_ms: Milliseconds = 2000.0
    """A connection on which nothing was heard for so long is given up."""
    handshake_ms: Milliseconds = 2000.0
    """A connection must have introduced itself by then."""
    farewell_ms: Milliseconds = 2000.0
    """How long a connection that is being closed may take to get across what was sent before."""
    slow_consumer_bytes: Bytes = 1 << 26
    slow_consumer_ms: Milliseconds = 5000.0
    """A connection with more than `slow_consumer_bytes` waiting, and no fewer than so long ago, is closed."""
    strangers: Count = 256
    """Accepted connections that may be in their handshake at one time; for one more an old one goes."""
    strangers_per_address: Count = 16
    """The same of one address; those of this machine may have half of all."""
    connections: Count = 10_000
    """Accepted connections in all."""
    datagram_bytes: Annotated[int, msgspec.Meta(ge=576, le=65_507)] = 1400
    """The largest datagram that is sent or looked at, the same at all nodes of a cluster. Longer packets travel in
    pieces."""
    datagram_loss: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """For experiments on one machine: this share of the datagrams that arrive is thrown away."""
    delay_ms: dict[str, Milliseconds] = {}
    """For experiments on one machine: `{"b0 b1": 115}` makes everything between these two processes arrive so much
    later, in both directions and in order. Handshakes are not delayed."""

    def delay_between(self, one: str, other: str) -> float:
        """Milliseconds by which what they send each other is put off."""
        return self.delay_ms.get(f"{one} {other}", self.delay_ms.get(f"{other} {one}", 0.0))

    @property
    def max_frame_bytes(self) -> int:
        """The largest frame that an authenticated peer may send."""
        return self.max_payload_bytes + HEADER_ROOM

    def longest_from(self, kind: str) -> int:
        """The largest packet that a peer of this kind may send: clients have less to say than brokers."""
        clients = _FRAMES_OF_CLIENTS * self.max_frame_bytes
        return min(self.max_packet_bytes, clients) if kind == "client" else self.max_packet_bytes


def seconds(milliseconds: float) -> float:
    return milliseconds / 1000


def ns(milliseconds: float) -> int:
    return round(milliseconds * 1_000_000)
