"""Limits and timeouts of the TCP runtime, in one table."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

_Bytes = Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]
_Milliseconds = Annotated[float, msgspec.Meta(gt=0, le=3_600_000)]

HEADER_ROOM = 1 << 16
"""What a packet may need besides its payload: stamps, destinations, summaries."""


class NetSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The defaults suit nodes on one machine or one local network."""

    max_payload_bytes: _Bytes = 1 << 20
    """The largest payload a node publishes or takes over from a peer."""
    high_water_bytes: _Bytes = 1 << 22
    """So much may wait for one peer before publishers have to."""
    stranded_bytes: _Bytes = 1 << 26
    """The same for a peer that is suspected: a dead neighbour must not stop the living at once."""
    heartbeat_ms: _Milliseconds = 250.0
    """An idle connection says so often that it lives."""
    suspect_ms: _Milliseconds = 2000.0
    """A peer that was not heard, or confirmed nothing of what waits for it, for so long is suspected."""
    handshake_ms: _Milliseconds = 2000.0
    """A connection must have introduced itself by then."""
    reconnect_ms: _Milliseconds = 20.0
    """Pause before the second attempt to connect; it doubles with every further one."""
    reconnect_max_ms: _Milliseconds = 1000.0
    ack_ms: _Milliseconds = 10.0
    """How long an acknowledgement may wait for something to travel with."""
    ack_every: Annotated[int, msgspec.Meta(ge=1)] = 64
    """So many packets are acknowledged without waiting."""
    strangers: Annotated[int, msgspec.Meta(ge=1)] = 64
    """Connections that may be in their handshake at one time."""
    state_fsync: Literal["always", "never"] = "never"
    """Whether a node that keeps its state waits for the disk in every turn: `never` survives the death of the process,
    `always` that of the machine."""
    snapshot_bytes: _Bytes = 1 << 22
    """A log of inputs that is larger than this, and than twice the state, gives way to the state itself."""

    @property
    def max_frame_bytes(self) -> int:
        """The largest frame that an authenticated peer may send."""
        return self.max_payload_bytes + HEADER_ROOM


def seconds(milliseconds: float) -> float:
    return milliseconds / 1000


def ns(milliseconds: float) -> int:
    return round(milliseconds * 1_000_000)
