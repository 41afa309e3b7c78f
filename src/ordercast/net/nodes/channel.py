"""A logical channel to one peer, both directions: first in, first out, exactly once, however often connections break.

Every packet has a number that outlives connections. The sender keeps it until it is acknowledged; the receiver takes
over only the next number. A new connection begins with each end saying what it has received, and goes on from there.
When the peer comes back as a new process, both directions start again from 1: what was on its way is lost, and a peer
that came back with its state asks for what it misses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Protocol

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId
from ordercast.net.nodes.frames import ACK, DATA, frame
from ordercast.net.settings import NetSettings

NEVER_MET = -1

_CHUNK_BYTES = 1 << 18
"""So much is given to the socket before asking again whether it wants more."""


_KEYS_KEPT = 1 << 12
"""Keys of acknowledged packets are forgotten when there are so many more of them than needed."""


class Wire(Protocol):
    """What a channel needs of a connection."""

    writable: bool

    def write(self, data: bytes) -> None:
        """Hand bytes to the socket; may turn `writable` off."""

    def complain(self, reason: str) -> None:
        """Say what the peer did wrong, and go."""

    def abort(self, reason: str) -> None:
        """Go at once: the peer would not listen."""


class ChannelOwner(Protocol):
    """Who is told what becomes of a channel."""

    def has_writes(self, channel: Channel) -> None:
        """The channel wants to be flushed in this turn of the loop."""

    def pressure_changed(self, channel: Channel) -> None:
        """The buffer passed its high-water mark, or fell well below it again."""


class Channel:
    """One end of it. `pending` waits for the socket, `unacked` was written and waits for the peer."""

    def __init__(self, peer: NodeId, settings: NetSettings, owner: ChannelOwner) -> None:
        self.peer = peer
        self.peer_life = NEVER_MET
        self.connection: Wire | None = None
        self.suspected = False
        self.banned = ""
        """Why nothing more is taken from this life of the peer; empty: all is well."""
        self.sent = 0
        self.acked = 0
        self.received = 0
        self.buffered = 0
        """Bytes of all frames that are not acknowledged."""
        self.full = False
        self.heard_ns = 0
        self.progress_ns = 0
        """When the peer last acknowledged something, or had nothing to acknowledge."""
        self._settings = settings
        self._most_buffered = settings.high_water_bytes
        self._owner = owner
        self._pending: list[bytes] = []
        self._unacked: deque[bytes] = deque()
        self._keys: dict[Hashable, int] = {}
        self._owed = 0
        self._ack_now = False
        self._dirty = False

    # Sending

    def push(self, body: bytes, key: Hashable = None) -> bool:
        """Number a packet and keep it until the peer has it; False if one with this key is on its way already."""
        if key is not None:
            if self._keys.get(key, 0) > self.acked:
                return False
            self._keys[key] = self.sent + 1
        self.sent = number = self.sent + 1
        framed = frame(DATA, number, body)
        self._pending.append(framed)
        self.buffered += len(framed)
        if not self._dirty:
            self.wake()
        if not self.full and self.buffered > self._most_buffered:
            self.full = True
            self._owner.pressure_changed(self)
        return True

    def flush(self) -> None:
        """One write for all that is pending, acknowledgement included, as far as the socket takes it."""
        self._dirty = False
        connection = self.connection
        if connection is None:
            return
        owed = self._take_ack() if self._owed and (self._pending or self._ack_now) else b""
        if owed and not (self._pending and connection.writable):
            connection.write(owed)  # The peer waits for it even while it is slow to read.
            owed = b""
        while self._pending and connection.writable:
            connection.write(owed + self._next_chunk())
            owed = b""

    def settle(self, number: int) -> None:
        """The peer has taken over all packets up to `number`."""
        if number == self.acked:
            return
        if not self.acked < number <= self.acked + len(self._unacked):
            raise PeerError(self.peer, f"acknowledges packet {number}; it was sent {self.acked + len(self._unacked)}")
        for _ in range(number - self.acked):
            self.buffered -= len(self._unacked.popleft())
        self.acked = number
        if len(self._keys) > _KEYS_KEPT + 2 * self.outstanding:
            self._keys = {key: sent for key, sent in self._keys.items() if sent > number}
        self._ease()

    @property
    def outstanding(self) -> int:
        """Packets that the peer has not confirmed."""
        return self.sent - self.acked

    def _next_chunk(self) -> bytes:
        """The next bytes for the socket; their frames now wait for the peer."""
        size = count = 0
        for framed in self._pending:
            size += len(framed)
            count += 1
            if size >= _CHUNK_BYTES:
                break
        chunk, self._pending = self._pending[:count], self._pending[count:]
        self._unacked.extend(chunk)
        return b"".join(chunk)

    # Receiving

    def took_over(self, count: int) -> None:
        """The next `count` packets are here, and the peer is owed an acknowledgement."""
        self.received += count
        self._owed += count

    def acknowledge_soon(self) -> bool:
        """After a batch: ask for an acknowledgement in this turn if enough is owed; else say that one is owed."""
        if self._owed < self._settings.ack_every:
            return self._owed > 0
        self.acknowledge_now()
        return False

    def acknowledge_now(self) -> None:
        if self._owed and self.connection is not None:
            self._ack_now = True
            self.wake()

    def _take_ack(self) -> bytes:
        self._owed = 0
        self._ack_now = False
        return frame(ACK, self.received)

    # Connections and lives

    def meet(self, life: int, since: int | None = None) -> bool:
        """The peer has introduced itself; whether it has forgotten the life in which it was known (before `since`)."""
        if life < self.peer_life:
            raise PeerError(self.peer, f"is in life {life}, and life {self.peer_life} was here already")
        if life == self.peer_life:
            return False
        restarted = self.peer_life != NEVER_MET
        forgot = since is None or since > self.peer_life
        self.peer_life = life
        self.banned = ""
        if restarted:
            # What the former process was to get dies with it: the new one begins a conversation of its own.
            self.sent = self.acked = self.received = self.buffered = 0
            self._owed = 0
            self._pending.clear()
            self._unacked.clear()
            self._keys.clear()
            self._ease()
        return restarted and forgot

    def resume(self, connection: Wire, peer_received: int) -> None:
        """Go on over a new connection after what the peer says it has."""
        if not self.acked <= peer_received <= self.acked + len(self._unacked):
            raise PeerError(self.peer, f"claims to have received {peer_received} of {self.sent} packets")
        if self.connection is not None:
            self.connection.abort("replaced by a newer connection")
        self.settle(peer_received)
        self._pending = [*self._unacked, *self._pending]
        self._unacked.clear()
        self._owed = 0
        self._ack_now = False
        self.connection = connection
        self.wake()

    def lost(self, connection: Wire) -> None:
        if self.connection is connection:
            self.connection = None

    def set_suspected(self, *, suspected: bool) -> None:
        self.suspected = suspected
        self._most_buffered = self._settings.stranded_bytes if suspected else self._settings.high_water_bytes
        self._ease()

    def _ease(self) -> None:
        if self.full and self.buffered <= self._most_buffered // 2:
            self.full = False
            self._owner.pressure_changed(self)

    def wake(self) -> None:
        """Ask for a flush in this turn."""
        if not self._dirty:
            self._dirty = True
            self._owner.has_writes(self)
