"""A logical channel to one peer, both directions: first in, first out, exactly once, however often connections break.

Every packet has a number that outlives connections. It never travels: a connection is first in, first out, so its first
packet is the one after what the other end said it had. The sender keeps a packet until it is acknowledged. A new
connection begins with each end saying what it has received (`ChannelResume`), and goes on from there. When the peer
comes back as a new process, both directions start again from 1: what was on its way is lost, and a peer that came back
with its state asks for what it misses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId
from ordercast.core.messages import Packet
from ordercast.core.process import Connection
from ordercast.net.nodes.settings import NodeSettings
from ordercast.net.wire.connection import WireConnection
from ordercast.net.wire.frames import Frame

NEVER_MET = -1
NOBODY: Connection = 0
"""In the place of a connection where there is none."""

_KEYS_KEPT = 1 << 12
"""Keys of acknowledged packets are forgotten when there are so many more of them than needed."""


class ChannelResume(Packet, frozen=True, tag=-1):
    """The first packet of a connection, each way."""

    since: int
    """The first life that the sender remembers."""
    peer_life: int
    """The life of the receiver that `received` counts packets of; -1 if the sender never met one."""
    received: int


class ChannelAck(Packet, frozen=True, tag=-2):
    """All packets of the channel up to `received` have been taken over."""

    received: int


class Channel:
    """One end of a channel: numbers what it sends, sends it again on a new connection, drops what came twice."""

    def __init__(self, peer: NodeId, settings: NodeSettings, pressure_changed: Callable[[Channel], None]) -> None:
        self.peer = peer
        self.peer_life = NEVER_MET
        self.connection = NOBODY
        self.wire: WireConnection | None = None
        """The same once the other end has said over it what it has: from then on packets flow."""
        self.suspected = False
        self.banned = ""
        """Why nothing more is taken from this life of the peer; empty: all is well."""
        self.sent = 0
        self.acked = 0
        self.received = 0
        self.buffered = 0
        """Bytes of all frames that are not acknowledged."""
        self.full = False
        self.opened_ns = 0
        """When the connection was opened, over which the other end has yet to say what it has."""
        self.heard_ns = 0
        self.progress_ns = 0
        """When the peer last acknowledged something, or had nothing to acknowledge."""
        self.owed = 0
        """Packets taken over and not acknowledged yet."""
        self._settings = settings
        self._most_buffered = settings.high_water_bytes
        self._pressure_changed = pressure_changed
        self._unacked: deque[Frame] = deque()
        self._keys: dict[Hashable, int] = {}

    # Sending

    def push(self, frame: Frame, key: Hashable = None) -> bool:
        """Number a packet and keep it until the peer has it; False if one with this key is on its way already."""
        if key is not None:
            if self._keys.get(key, 0) > self.acked:
                return False
            self._keys[key] = self.sent + 1
        self.sent += 1
        self._unacked.append(frame)
        self.buffered += len(frame)
        if not self.full and self.buffered > self._most_buffered:
            self.full = True
            self._pressure_changed(self)
        return True

    def settle(self, number: int) -> None:
        """The peer has taken over all packets up to `number`."""
        if not self.acked <= number <= self.sent:
            raise PeerError(self.peer, f"acknowledges packet {number}; it was sent {self.sent}, and had {self.acked}")
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

    # Receiving

    def took_over(self, count: int) -> None:
        """The next `count` packets are here, and the peer is owed an acknowledgement."""
        self.received += count
        self.owed += count

    # Connections and lives

    @property
    def connected(self) -> bool:
        """Whether packets flow."""
        return self.wire is not None

    def admit(self, life: int) -> None:
        """Somebody has proved to be this peer in that life: a PeerError unless it may go on."""
        if life < self.peer_life:
            raise PeerError(self.peer, f"is in life {life}, and life {self.peer_life} was here already")
        if life == self.peer_life and self.banned:
            raise PeerError(self.peer, f"broke the protocol: {self.banned}")

    def open(self, connection: Connection, now_ns: int) -> None:
        """From now on nothing is taken from any other connection, so that what is said to be received stays true."""
        self.connection = connection
        self.opened_ns = now_ns
        self.wire = None

    def meet(self, life: int, since: int) -> bool:
        """The peer has introduced itself; whether it has forgotten the life in which it was known (before `since`)."""
        if life == self.peer_life:
            return False
        restarted = self.peer_life != NEVER_MET
        forgot = since > self.peer_life
        self.peer_life = life
        self.banned = ""
        if restarted:
            # What the former process was to get dies with it: the new one begins a conversation of its own.
            self.sent = self.acked = self.received = self.buffered = self.owed = 0
            self._unacked.clear()
            self._keys.clear()
            self._ease()
        return restarted and forgot

    def resume(self, wire: WireConnection, peer_received: int) -> list[Frame]:
        """Go on over the new connection: the frames that the peer says it does not have."""
        if not self.acked <= peer_received <= self.sent:
            raise PeerError(self.peer, f"claims to have received {peer_received} of {self.sent} packets")
        self.settle(peer_received)
        self.owed = 0
        self.wire = wire
        return list(self._unacked)

    def lost(self, connection: Connection) -> None:
        if self.connection == connection:
            self.connection = NOBODY
            self.wire = None

    def stood_still(self, for_ns: int) -> None:
        """This process did nothing for so long: that it heard nothing says nothing about the peer."""
        self.opened_ns += for_ns
        self.heard_ns += for_ns
        self.progress_ns += for_ns

    def set_suspected(self, *, suspected: bool) -> None:
        self.suspected = suspected
        self._most_buffered = self._settings.stranded_bytes if suspected else self._settings.high_water_bytes
        self._ease()

    def _ease(self) -> None:
        if self.full and self.buffered <= self._most_buffered // 2:
            self.full = False
            self._pressure_changed(self)
