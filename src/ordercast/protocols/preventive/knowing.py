"""Preventive causal broadcast that can say how two messages are to each other (PRV-9.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from ordercast.core.ids import Origin
from ordercast.core.messages import Packet
from ordercast.core.process import Connection, OverlayWires
from ordercast.protocols.preventive.broadcast import Broadcast
from ordercast.protocols.preventive.lines import Line
from ordercast.protocols.preventive.links import Links
from ordercast.protocols.preventive.local_vectors import LocalVectors, Relation
from ordercast.protocols.preventive.node import Preventive
from ordercast.protocols.preventive.packets import Data, JoinAsk, SafeMark, Snapshot
from ordercast.protocols.preventive.settings import PreventiveOptions


class KnowingBroadcast(Broadcast):
    """Looks at every copy, and at what came before it on its link."""

    def __init__(self, wires: OverlayWires, options: PreventiveOptions) -> None:
        super().__init__(wires, options)
        self.local = LocalVectors(options.log_keep)

    def receive(self, source: Connection, peer: Origin, packet: Data) -> None:
        self.local.came(source, peer, packet.message)
        super().receive(source, peer, packet)

    def accept(self, packet: Data, source: Connection = 0) -> None:
        if not source:
            self.local.published(packet.message, self.log.received)
        super().accept(packet, source)


class KnowingLinks(Links):
    """Lets go what ended links have carried."""

    broadcast: KnowingBroadcast

    def lost(self, connection: Connection) -> None:
        self.broadcast.local.close(connection)
        super().lost(connection)

    def _drop(self, connection: Connection, reason: str) -> None:
        self.broadcast.local.close(connection)
        super()._drop(connection, reason)


class Knowing(Preventive):
    """One process; needs `skip_sender = false`, so that a link carries all that its sender delivers."""

    links_type: ClassVar[type[Links]] = KnowingLinks
    broadcast_type: ClassVar[type[Broadcast]] = KnowingBroadcast
    broadcast: KnowingBroadcast

    def relation(self, one: tuple[Origin, int], other: tuple[Origin, int]) -> Relation:
        """The causal relation of one message, by origin and number, to another; of the latest `log_keep`."""
        return self.broadcast.local.relation(one, other)

    def on_packets(self, connection: Connection, packets: Sequence[Packet]) -> None:
        for packet in packets:
            line = self.links.lines.get(connection)
            if line is None:
                return
            if type(packet) is Data and line.incoming_safe:
                self.broadcast.receive(connection, line.pid, packet)
            else:
                self._take(connection, line, packet)

    def _on_safe_mark(self, connection: Connection, line: Line, mark: SafeMark) -> None:
        """The link is safe: all that the sender had is here by now (PRV-I1), or it began with nothing delivered."""
        if connection not in self.broadcast.local.carried:
            before = self.broadcast.log.received if mark.attempt else {}
            self.broadcast.local.open(connection, before, exact=not mark.attempt)
        super()._on_safe_mark(connection, line, mark)

    def _joined(self, connection: Connection, line: Line, snapshot: Snapshot) -> None:
        """The contact has said what it had."""
        self.broadcast.local.open(connection, dict(snapshot.received), exact=True)
        super()._joined(connection, line, snapshot)

    def _on_join_ask(self, connection: Connection, line: Line, ask: JoinAsk) -> None:
        """A joiner begins with what this process has now."""
        super()._on_join_ask(connection, line, ask)
        if connection in self.links.lines:
            self.broadcast.local.open(connection, self.broadcast.log.received, exact=True)


_OWN: Mapping[type[Packet], Callable[[Any, Connection, Line, Any], None]] = {
    SafeMark: Knowing._on_safe_mark,
    JoinAsk: Knowing._on_join_ask,
}
Knowing.handlers = {**Preventive.handlers, **_OWN}
