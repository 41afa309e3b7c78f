"""Causal cluster consistency: many observe, few update, and nobody ever delivers out of causal order.

Spec: docs/protocols/cluster.md. A process is a member of any number of clusters; nothing is promised across them. It
may be a manager of entries too, of clusters that it is no member of as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, Self

from ordercast.core.errors import PeerError
from ordercast.core.messages import Message, Packet
from ordercast.core.process import Connection, OverlayMachine, OverlayPlace, OverlayWires, Peer
from ordercast.protocols.cluster.application import ClusterApplication, Silent
from ordercast.protocols.cluster.member import ClusterMember
from ordercast.protocols.cluster.options import ClusterOptions, check_options
from ordercast.protocols.cluster.packets import (
    Claim,
    Release,
    Renew,
    Snapshot,
    SnapshotAsked,
    TicketAsked,
    TicketState,
    Update,
)  # fmt: skip
from ordercast.protocols.cluster.ports import Ports
from ordercast.protocols.cluster.tickets.manager import Manager

SILENT = Silent()
_FOR_MANAGERS = (TicketAsked, Claim, Renew, Release)


class ClusterMachine(OverlayMachine):
    """Hands packets, timers and wishes to the member of the cluster they are about, and questions to the manager."""

    constant: ClassVar[tuple[str, ...]] = ("wires", "place", "options", "app")

    def __init__(
        self, wires: OverlayWires, place: OverlayPlace, options: ClusterOptions, app: ClusterApplication = SILENT
    ) -> None:
        check_options(options)
        self.wires = wires
        self.place = place
        self.options = options
        self.app = app
        self.clusters: dict[str, ClusterMember] = {}
        self.manager = Manager(place.me, options, app.promised)
        self.peers: dict[Connection, str] = {}
        self.asking: dict[Connection, str] = {}
        self.to_self: deque[Packet] = deque()
        """Packets of this process to itself, in the turn in which they were sent."""
        for cluster in options.clusters:
            self._add(cluster)

    def copy(self, wires: OverlayWires | None = None) -> Self:
        """An independent copy, in the same surroundings unless it is given others."""
        clone = type(self)(wires or self.wires, self.place, self.options, self.app)
        for cluster in self.clusters:
            if cluster not in clone.clusters:
                clone._add(cluster)
        for cluster in [cluster for cluster in clone.clusters if cluster not in self.clusters]:
            del clone.clusters[cluster]
        for cluster, member in self.clusters.items():
            clone.clusters[cluster].become(member)
        clone.manager.become(self.manager)
        clone.peers, clone.to_self = dict(self.peers), deque(self.to_self)
        return clone

    def save(self) -> dict[str, Any]:
        members = {cluster: member.save() for cluster, member in self.clusters.items()}
        return {"clusters": members, "manager": self.manager.save()}

    def restore(self, saved: dict[str, Any]) -> None:
        self.manager.restore(saved["manager"])
        for cluster, member in saved["clusters"].items():
            (self.clusters.get(cluster) or self._add(cluster)).restore(member)

    # What the application wants

    def join(self, cluster: str, *, ordered: bool = True) -> None:
        """CLU-5: become a member, or change between keeping the order and not keeping it."""
        member = self.clusters.get(cluster)
        if member is None:
            self._add(cluster).start(keeps_order=ordered)
        else:
            member.keep_order(ordered=ordered)
        self._settle()

    def leave(self, cluster: str) -> None:
        """CLU-5.5: a member of it no more."""
        member = self.clusters.pop(cluster, None)
        if member is not None:
            member.leave()
        self._settle()

    def coordinate(self, cluster: str) -> None:
        """CLU-6: acquire an entry and keep it, even without updates."""
        coordinating = self.clusters[cluster].coordinating
        coordinating.wanted = True
        coordinating.go_on()
        self._settle()

    def ask_for_entry(self, cluster: str) -> None:
        """CLU-6: acquire an entry for updates that the application will make when it has it."""
        coordinating = self.clusters[cluster].coordinating
        coordinating.asked = True
        coordinating.go_on()
        self._settle()

    def resync(self, cluster: str, members: int) -> None:
        """CLU-5.6: merge the state of so many other members with the own one; `resynced` follows."""
        self.clusters[cluster].resyncing.begin(members)
        self._settle()

    def release(self, cluster: str) -> None:
        """CLU-6.7: give the entry back."""
        coordinating = self.clusters[cluster].coordinating
        coordinating.wanted = coordinating.asked = False
        coordinating.give_back("the application gave it back")
        self._settle()

    def on_publish(self, message: Message) -> None:
        """CLU-2.1: propose an update of the cluster that is the message's topic."""
        member = self.clusters.get(message.topic)
        if member is None:
            member = self._add(message.topic)
            member.start(keeps_order=True)
        member.coordinating.propose(message)
        member.wake()
        self._settle()

    # Its life

    def on_start(self) -> None:
        self.manager.start(self.wires.now_ns)
        for member in self.clusters.values():
            member.start(keeps_order=self.place.me.name not in self.options.observers)
        self._settle()

    def on_recover(self) -> None:
        self.manager.start(self.wires.now_ns)
        for member in self.clusters.values():
            member.recover()
        self._settle()

    def on_leave(self) -> None:
        for member in self.clusters.values():
            member.leave()

    def on_timer(self, name: Hashable) -> None:
        assert isinstance(name, tuple)
        cluster, kind, of = name
        member = self.clusters.get(cluster)
        if member is not None:
            member.on_timer(kind, of)
        self._settle()

    # Packets

    def on_cast(self, peer: Peer, packets: Sequence[Packet]) -> None:
        for packet in packets:
            if type(packet) is Update:  # By far the most.
                member = self.clusters.get(packet.cluster)
                if member is not None:
                    member.hear(packet, peer.name)
            else:
                self._receive(peer, packet)
        if self.to_self:
            self._settle()

    def _receive(self, peer: Peer, packet: Any) -> None:
        if isinstance(packet, SnapshotAsked | Snapshot):
            raise PeerError(peer.name, f"cast a {type(packet).__name__}; these are for connections")
        if isinstance(packet, _FOR_MANAGERS) or (isinstance(packet, TicketState) and packet.nonce < 0):
            self.manager.receive(peer, packet, self.wires.now_ns, self._cast)
            return
        member = self.clusters.get(packet.cluster)
        if member is not None:
            member.receive(peer, packet)

    def _cast(self, address: str, packet: Packet) -> None:
        if address == self.place.me.address:
            self.to_self.append(packet)
        else:
            self.wires.cast(address, packet)

    def _settle(self) -> None:
        """Handle what this process has told itself before the turn is over."""
        while self.to_self:
            self._receive(self.place.me, self.to_self.popleft())

    # Connections: newcomers ask for a snapshot

    def on_opened(self, connection: Connection, peer: Peer) -> None:
        self.peers[connection] = peer.name

    def on_packets(self, connection: Connection, packets: Sequence[Packet]) -> None:
        sender = self.peers.get(connection, "a stranger")
        for packet in packets:
            match packet:
                case SnapshotAsked(cluster):
                    self._answer(connection, cluster)
                case Snapshot(cluster) if cluster in self.clusters:
                    self.clusters[cluster].hear_snapshot(connection, packet, sender)
                case _:
                    raise PeerError(sender, f"sends a {type(packet).__name__} on a connection")
        self._settle()

    def _answer(self, connection: Connection, cluster: str) -> None:
        member = self.clusters.get(cluster)
        if member is None:
            self.wires.send(connection, Snapshot(cluster, (), (), b""))
        else:
            member.joining.answer(connection)

    def on_closed(self, connection: Connection, *, gone: bool, reason: str = "") -> None:  # noqa: ARG002
        self.peers.pop(connection, None)
        for member in self.clusters.values():
            member.closed(connection)
        self._settle()

    def _add(self, cluster: str) -> ClusterMember:
        ports = Ports(cluster, self.wires, self.place, self.options, self.app, self._cast)
        self.clusters[cluster] = member = ClusterMember(ports)
        return member
