"""The neighbours of a node, each behind a channel: dialed again when connections break, suspected when they are silent.

This is what makes a protocol machine with fixed neighbours a process with connections, which the host of all processes
can run. Numbers, resending, acknowledgements and suspicion are here, because the host knows nothing of them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple, Protocol

from ordercast.core.chance import mix, salt, unit
from ordercast.core.errors import InvariantError, PeerError
from ordercast.core.ids import NodeId
from ordercast.core.messages import Packet
from ordercast.core.process import Connection, Peer, ProcessMachine
from ordercast.net.connection_log import LOG
from ordercast.net.host import ProcessHost
from ordercast.net.nodes.channel import NOBODY, Channel, ChannelAck, ChannelResume
from ordercast.net.nodes.settings import NodeSettings
from ordercast.net.wire.credentials import join_address
from ordercast.net.wire.frames import Frame
from ordercast.net.wire.settings import ns

Address = tuple[str, int]

_MOST_DOUBLINGS = 16


class Chore(NamedTuple):
    """The name of a timer of this part, in the table that it shares with the machine's timers."""

    kind: str
    peer: str = ""


_ACKNOWLEDGE = Chore("acknowledge")
_CONTROL = frozenset({ChannelResume, ChannelAck})


class NeighboursOwner(Protocol):
    """Port to the node, which handles what its neighbours' channels report as inputs."""

    def on_start(self) -> None:
        """The process begins."""

    def on_packets(self, peer: NodeId, packets: Sequence[Packet]) -> None:
        """A batch from one peer, in order."""

    def on_silence(self, peer: NodeId) -> None:
        """The peer was not heard for too long, or has come back without its memory."""

    def on_voice(self, peer: NodeId) -> None:
        """A suspected peer is heard again."""

    def on_timer(self, name: Hashable) -> None:
        """A timer of the machine has run out."""

    def on_pressure(self, peer: NodeId, *, full: bool) -> None:
        """The buffer towards the peer has passed its high-water mark, or has room again."""


class NeighbourChannels(ProcessMachine):
    """Channels to a fixed set of peers. Of two peers one dials; whoever is given an address does."""

    host: ProcessHost

    def __init__(
        self, me: Peer, since: int, peers: Iterable[NodeId], settings: NodeSettings, owner: NeighboursOwner
    ) -> None:
        """`since`: the first life that this one remembers."""
        self.channels = {peer: Channel(peer, settings, self._pressure_changed) for peer in peers}
        self._me = me
        self._since = since
        self._settings = settings
        self._owner = owner
        self._addresses: dict[NodeId, Address] = {}
        self._failures: dict[NodeId, int] = {}
        self._dialed: dict[Connection, NodeId] = {}
        self._open: dict[Connection, tuple[Channel, int]] = {}
        """The channel that a connection carries, and which life of the peer is at its other end."""
        self._ack_planned = False
        self._last = Packet()
        self._last_frame: Frame = b""

    # What the node asks for

    def dial(self, peer: NodeId, address: Address) -> None:
        """Connect to the peer, and again whenever the connection is lost. A new address replaces the old one."""
        known = peer in self._addresses
        self._addresses[peer] = address
        if not known:
            self._connect(self._channel(peer).peer)

    def send(self, peer: NodeId, packet: Packet, key: Hashable = None) -> bool:
        """Put a packet on the channel to the peer; False if one with this key is still on its way there."""
        channel = self.channels.get(peer) or self._channel(peer)
        if packet is not self._last:
            self._last = packet  # A machine relays one packet to many neighbours.
            self._last_frame = self.host.new_frame(packet)
        frame = self._last_frame
        if not channel.push(frame, key):
            return False
        wire = channel.wire
        if wire is not None:
            out = wire.out
            if not out:
                self.host.has_frames(wire)
            out.append(frame)
        return True

    def suspected(self) -> list[NodeId]:
        return [peer for peer, channel in self.channels.items() if channel.suspected]

    def ban(self, peer: NodeId, reason: str) -> None:
        """Take nothing more from this life of the peer: it sent what no correct process sends."""
        channel = self._channel(peer)
        channel.banned = reason
        self.host.refuse(channel.connection, reason)

    # What the host reports

    def on_start(self) -> None:
        now = time.monotonic_ns()
        for channel in self.channels.values():
            channel.heard_ns = channel.progress_ns = now
        self._owner.on_start()

    def on_opened(self, connection: Connection, peer: Peer) -> None:
        channel = self.channels.get(NodeId(peer.name))
        if channel is None:
            raise PeerError(peer.name, "is not a neighbour of this node")
        channel.admit(peer.life)
        former = channel.connection
        channel.open(connection, self.host.now_ns)
        self._open[connection] = channel, peer.life
        if former != NOBODY:
            self._open.pop(former, None)
            self.host.cut(former, "local", "replaced by a newer connection")
        self.host.send(connection, ChannelResume(self._since, channel.peer_life, channel.received))

    def on_packets(self, connection: Connection, packets: Sequence[Packet]) -> None:
        if connection not in self._open:
            return  # Replaced: what comes now comes again on the newer one.
        channel, life = self._open[connection]
        if channel.wire is None:
            self._resume(channel, life, packets[0])
            packets = packets[1:]
        data = packets
        try:
            if not _CONTROL.isdisjoint(map(type, packets)):
                data = [packet for packet in packets if type(packet) not in _CONTROL]
                for packet in packets:
                    if type(packet) is ChannelAck:
                        self._settle(channel, packet)
                    elif type(packet) is ChannelResume:
                        raise PeerError(channel.peer, "resumes its channel twice")
        finally:
            if data:
                self._take_over(channel, data)

    def on_closed(self, connection: Connection, *, gone: bool, reason: str = "") -> None:  # noqa: ARG002
        channel, _ = self._open.pop(connection, (None, 0))
        if channel is not None:
            channel.lost(connection)
        peer = self._dialed.pop(connection, None)
        if peer is not None:
            self._failures[peer] = failures = self._failures.get(peer, 0) + 1
            self.host.set_timer(Chore("dial", peer), self._backoff_ns(peer, failures), background=True)

    def on_timer(self, name: Hashable) -> None:
        if not isinstance(name, Chore):
            self._owner.on_timer(name)
        elif name is _ACKNOWLEDGE:
            self._ack_planned = False
            for channel in self.channels.values():
                self._acknowledge(channel)
        else:
            self._connect(NodeId(name.peer))

    def on_beat(self, now_ns: int, overslept_ns: int) -> None:
        """See who was not heard; not while this process itself stood still."""
        for channel in self.channels.values():
            channel.stood_still(overslept_ns)
            if channel.wire is not None:
                channel.heard_ns = max(channel.heard_ns, channel.wire.heard_ns)
            self._check(channel, now_ns)

    # Channels

    def _resume(self, channel: Channel, life: int, said: Packet) -> None:
        if type(said) is not ChannelResume:
            raise PeerError(channel.peer, "sends before it resumes its channel")
        forgot = channel.meet(life, said.since)
        wire = self.host.connections[channel.connection]
        frames = channel.resume(wire, said.received if said.peer_life == self._me.life else 0)
        self.host.has_frames(wire)
        wire.out += frames
        self._failures.pop(channel.peer, None)
        channel.heard_ns = channel.progress_ns = self.host.now_ns
        self._log(logging.INFO, "resumed", channel.peer, life=life, resent=len(frames))
        if forgot and not channel.suspected:
            self._suspect(channel, "restarted")
        if channel.suspected:
            channel.set_suspected(suspected=False)
            self._log(logging.INFO, "trusted", channel.peer)
            self._owner.on_voice(channel.peer)

    def _settle(self, channel: Channel, said: ChannelAck) -> None:
        if said.received != channel.acked:
            channel.settle(said.received)
            channel.progress_ns = self.host.now_ns

    def _take_over(self, channel: Channel, packets: Sequence[Packet]) -> None:
        channel.took_over(len(packets))
        if channel.owed >= self._settings.ack_every:
            self._acknowledge(channel)
        elif not self._ack_planned:
            self._ack_planned = True
            self.host.set_timer(_ACKNOWLEDGE, ns(self._settings.ack_ms), background=True)
        self._owner.on_packets(channel.peer, packets)

    def _acknowledge(self, channel: Channel) -> None:
        """Ahead of all that waits for the socket: the peer waits for it even while it is slow to read."""
        wire = channel.wire
        if channel.owed and wire is not None:
            channel.owed = 0
            self.host.has_frames(wire)
            wire.out.insert(0, self.host.new_frame(ChannelAck(channel.received)))

    def _check(self, channel: Channel, now: int) -> None:
        patience = ns(self._settings.suspect_ms)
        if not channel.outstanding:
            channel.progress_ns = now
        if now - channel.heard_ns > patience:
            self._give_up(channel, "silent", f"silent for {self._settings.suspect_ms:g} ms")
        elif channel.wire is not None and now - channel.progress_ns > patience:
            self._give_up(channel, "slow", f"took over nothing for {self._settings.suspect_ms:g} ms")
        if channel.wire is None and now - channel.opened_ns > ns(self._settings.handshake_ms):
            self.host.cut(channel.connection, "late", "did not resume its channel in time (handshake_ms)")

    def _give_up(self, channel: Channel, why: str, reason: str) -> None:
        """Suspect the peer, and end the connection that it is silent on; one that has just opened may resume."""
        if channel.wire is not None:
            self.host.cut(channel.connection, why, reason)
        if not channel.suspected:
            self._suspect(channel, reason)

    def _suspect(self, channel: Channel, reason: str) -> None:
        channel.set_suspected(suspected=True)
        self._log(logging.WARNING, "suspected", channel.peer, reason=reason)
        self._owner.on_silence(channel.peer)

    def _pressure_changed(self, channel: Channel) -> None:
        self._owner.on_pressure(channel.peer, full=channel.full)

    def _channel(self, peer: NodeId) -> Channel:
        channel = self.channels.get(peer)
        if channel is None:
            raise InvariantError(f"{self._me.name} sends to {peer}, which is not its neighbour")
        return channel

    # Dialing

    def _connect(self, peer: NodeId) -> None:
        self._dialed[self.host.open(join_address(*self._addresses[peer]), to=peer)] = peer

    def _backoff_ns(self, peer: NodeId, failures: int) -> int:
        """Doubling up to a cap; half of it random, so that a restarted node is not met by all at one instant."""
        longest = self._settings.reconnect_ms * 2 ** min(failures - 1, _MOST_DOUBLINGS)
        drawn = unit(mix(salt(self._me.life, self._me.name, peer), failures))
        return ns(min(longest, self._settings.reconnect_max_ms) * (0.5 + 0.5 * drawn))

    def _log(self, level: int, event: str, peer: str, **facts: object) -> None:
        if LOG.isEnabledFor(level):
            LOG.log(level, event, extra={"facts": {"node": self._me.name, "peer": peer, **facts}})
