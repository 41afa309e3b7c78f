"""Lets a member that missed too much catch up: it merges the state of a few others with its own. CLU-5.6."""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.process import Connection
from ordercast.core.state import State
from ordercast.protocols.cluster.delivery import Delivery
from ordercast.protocols.cluster.packets import Snapshot, SnapshotAsked
from ordercast.protocols.cluster.ports import Ports

RESYNC = "resync"


class Resyncing(State):
    """Asks some members at once, each on a connection. Deliveries go on meanwhile; nothing is ever undone."""

    constant: ClassVar[tuple[str, ...]] = ("ports", "delivery")

    def __init__(self, ports: Ports, delivery: Delivery) -> None:
        self.ports = ports
        self.delivery = delivery
        self.asked: list[Connection] = []
        """Those that have not answered yet."""
        self.answers = 0

    def begin(self, members: int) -> None:
        """CLU-5.6: one round of questions at a time; who asks again while one runs hears of that one's end."""
        if self.asked:
            return
        ports = self.ports
        self.answers = 0
        for address in self.delivery.members.draw(members):
            connection = ports.wires.open(address)
            self.asked.append(connection)
            ports.wires.send(connection, SnapshotAsked(ports.cluster))
        if self.asked:
            ports.set_timer(RESYNC, 0, round(ports.options.join_ms * 1e6))
        else:
            self._end()

    def hear(self, connection: Connection, snapshot: Snapshot) -> None:
        """An answer, looked at already. An empty one comes from somebody who does not know where the cluster stands."""
        ports = self.ports
        self.asked.remove(connection)
        ports.wires.close(connection, "thanks")
        if snapshot.vector:
            self.answers += 1
            self.delivery.directory.hear(snapshot.owners)
            ports.app.install(ports.cluster, snapshot.state)
            if self.delivery.keeps_order:
                self.delivery.inherit_total(snapshot.last, snapshot.held)
            self.delivery.catch_up_to(snapshot.vector)
        self._end_if_all_answered()

    def closed(self, connection: Connection) -> None:
        """Nobody is there, or whoever was has gone."""
        if connection in self.asked:
            self.asked.remove(connection)
            self._end_if_all_answered()

    def _end_if_all_answered(self) -> None:
        if not self.asked:
            self.ports.cancel_timer(RESYNC, 0)
            self._end()

    def time_out(self) -> None:
        """Stop waiting for those who have not answered by now."""
        self.give_up()
        self._end()

    def give_up(self) -> None:
        """The process leaves, or waits no longer."""
        asked, self.asked = self.asked, []
        for connection in asked:
            self.ports.wires.close(connection, "waits no longer")
        self.ports.cancel_timer(RESYNC, 0)

    def _end(self) -> None:
        self.ports.app.resynced(self.ports.cluster, self.answers)
