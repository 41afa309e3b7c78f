"""Lets a later process learn where the cluster stands, from any member that keeps the order. CLU-5.1."""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.errors import PeerError
from ordercast.core.process import Connection
from ordercast.core.state import State
from ordercast.protocols.cluster.coordinating import Coordinating
from ordercast.protocols.cluster.delivery import Delivery
from ordercast.protocols.cluster.events import can_be
from ordercast.protocols.cluster.packets import Snapshot, SnapshotAsked
from ordercast.protocols.cluster.ports import Ports
from ordercast.protocols.gossip.members import ADDRESS_CHARS

JOIN = "join"


class Joining(State):
    """Asks one member after the other on a connection, because a state may be long.

    Without an answer it begins at nothing: that is never out of order, but it asks for all the past that is still kept.
    """

    constant: ClassVar[tuple[str, ...]] = ("ports", "wires", "options", "app", "delivery", "coordinating")

    def __init__(self, ports: Ports, delivery: Delivery, coordinating: Coordinating) -> None:
        self.ports = ports
        self.wires = ports.wires
        self.options = ports.options
        self.app = ports.app
        self.delivery = delivery
        self.coordinating = coordinating
        self.connection: Connection | None = None
        self.asked: list[str] = []
        self.noted = ports.place.genesis
        """Whether the runtime knows that this process is a member."""

    def begin(self) -> None:
        """CLU-5.1: whoever did not begin with the cluster, or did not keep the order, needs to know where it stands."""
        self.delivery.forget_start()
        self.asked = []
        self._ask_next()

    def _ask_next(self) -> None:
        ports = self.ports
        self.connection = None
        address = self._candidate()
        if address is None or len(self.asked) >= ports.options.join_attempts:
            ports.wires.count("joined_without_snapshot")
            self._done(())
            return
        self.asked.append(address)
        self.connection = ports.wires.open(address)
        ports.wires.send(self.connection, SnapshotAsked(ports.cluster))
        ports.set_timer(JOIN, 0, round(ports.options.join_ms * 1e6))

    def _candidate(self) -> str | None:
        known = [*self.delivery.members.draw(2 + len(self.asked)), *self.delivery.members.other_contacts()]
        return next((address for address in known if address not in self.asked), None)

    def time_out(self) -> None:
        """Ask another member: that one does not answer."""
        if self.connection is not None:
            self.wires.close(self.connection, "asks somebody else")
            self._ask_next()

    def closed(self, connection: Connection) -> None:
        if connection == self.connection:
            self._ask_next()

    def hear(self, connection: Connection, snapshot: Snapshot, sender: str) -> None:
        """The answer; an empty one comes from somebody who does not know either."""
        if connection != self.connection:
            raise PeerError(sender, "sends a snapshot that nobody asked for")
        self.wires.close(connection, "thanks")
        self.connection = None
        if not snapshot.vector:
            self._ask_next()
            return
        self.delivery.directory.hear(snapshot.owners)
        self.app.install(self.ports.cluster, snapshot.state)
        self.delivery.inherit_total(snapshot.last, snapshot.held)
        self._done(snapshot.vector)

    def check(self, snapshot: Snapshot, sender: str) -> None:
        """CLU-8: an answer that no correct member gives."""
        entries = self.options.entries
        if len(snapshot.vector) not in (0, entries) or min(snapshot.vector, default=0) < 0:
            raise PeerError(sender, f"sends a snapshot with {len(snapshot.vector)} entries")
        if len(snapshot.held) > self.options.held or not all(
            can_be(event, snapshot.cluster, entries) for event in snapshot.held
        ):
            raise PeerError(sender, "sends a snapshot with updates that cannot be")
        for entry, epoch, address in snapshot.owners:
            if not 0 <= entry < entries or epoch < 0 or not 0 < len(address) <= ADDRESS_CHARS:
                raise PeerError(sender, f"sends a snapshot with an owner of entry {entry}")

    def answer(self, connection: Connection) -> None:
        """CLU-5.1: to a newcomer. It has gone as far as this process, and its objects are in the same state."""
        ports, delivery = self.ports, self.delivery
        knows = delivery.keeps_order and delivery.knows_start
        vector = tuple(delivery.ordering.clock)
        if not knows:
            ports.wires.send(connection, Snapshot(ports.cluster, (), (), b""))
            return
        owners, state, total = delivery.directory.told(), ports.app.snapshot(ports.cluster), delivery.total
        ports.wires.send(connection, Snapshot(ports.cluster, vector, owners, state, total.last, total.events))

    def _done(self, vector: tuple[int, ...]) -> None:
        ports = self.ports
        ports.cancel_timer(JOIN, 0)
        self.note_membership()
        ports.app.joined(ports.cluster)
        self.delivery.begin_at(vector)
        self.coordinating.go_on()

    def note_membership(self) -> None:
        """The runtime hears once that this process is in."""
        if not self.noted:
            self.noted = True
            self.wires.note("join", {})

    def give_up(self) -> None:
        """The process leaves, or keeps no order any more: it need not know."""
        if self.connection is not None:
            self.wires.close(self.connection, "needs no snapshot")
            self.connection = None
        self.ports.cancel_timer(JOIN, 0)
