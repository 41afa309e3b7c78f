"""Limits and timeouts of a protocol machine with fixed neighbours, beside those of its connections."""

from __future__ import annotations

from typing import Literal

from ordercast.net.wire.settings import Bytes, Count, Milliseconds, WireSettings


class NodeSettings(WireSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The defaults suit nodes on one machine or one local network."""

    heartbeat_ms: Milliseconds = 250.0
    """An idle connection says so often that it lives."""
    suspect_ms: Milliseconds = 2000.0
    """A peer that was not heard, or confirmed nothing of what waits for it, for so long is suspected. Connections of
    nodes are given up then, whatever `silence_ms` says."""
    high_water_bytes: Bytes = 1 << 22
    """So much may wait for one peer before publishers have to."""
    stranded_bytes: Bytes = 1 << 26
    """The same for a peer that is suspected: a dead neighbour must not stop the living at once."""
    reconnect_ms: Milliseconds = 20.0
    """Pause before the second attempt to connect; it doubles with every further one."""
    reconnect_max_ms: Milliseconds = 1000.0
    ack_ms: Milliseconds = 10.0
    """How long an acknowledgement may wait for more that it can be of."""
    ack_every: Count = 64
    """So many packets are acknowledged without waiting."""
    state_fsync: Literal["always", "never"] = "never"
    """Whether a node that keeps its state waits for the disk in every turn: `never` survives the death of the process,
    `always` that of the machine."""
    snapshot_bytes: Bytes = 1 << 22
    """A log of inputs that is larger than this, and than twice the state, gives way to the state itself."""
