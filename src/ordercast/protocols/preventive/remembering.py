"""Preventive causal broadcast without a vector: what a process remembers is what is under way (PRV-9.2, PRV-9.3)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar

from ordercast.core.errors import PeerError
from ordercast.core.messages import Message, Packet
from ordercast.core.process import Connection, OverlayPlace, OverlayWires
from ordercast.protocols.preventive.broadcast import Broadcast
from ordercast.protocols.preventive.lines import Line
from ordercast.protocols.preventive.links import Links
from ordercast.protocols.preventive.node import Preventive
from ordercast.protocols.preventive.packets import Begin, BeginAnew, Data, JoinAsk, LockFailed, Probe, Stranded
from ordercast.protocols.preventive.remembering_broadcast import RememberingBroadcast
from ordercast.protocols.preventive.remembering_links import RememberingLinks
from ordercast.protocols.preventive.settings import PreventiveOptions


class Remembering(Preventive):
    """One process; the option `memory` says whether its links may change."""

    durable: ClassVar[tuple[str, ...]] = (*Preventive.durable, "published")
    links_type: ClassVar[type[Links]] = RememberingLinks
    broadcast_type: ClassVar[type[Broadcast]] = RememberingBroadcast
    links: RememberingLinks
    broadcast: RememberingBroadcast

    def __init__(self, wires: OverlayWires, place: OverlayPlace, options: PreventiveOptions) -> None:
        super().__init__(wires, place, options)
        self.published = 0
        """How many messages this life has published."""

    def published_before(self) -> int:
        return self.published

    def on_recover(self) -> None:
        """Begin anew: what was under way to this process is gone, and no vector says what that was."""
        super().on_recover()
        if self.options.memory == "links" and self.joined and self.place.contacts:
            self.wires.set_timer(("anew", self.place.contacts[0]), 0)

    def on_publish(self, message: Message) -> None:
        self.published += 1
        super().on_publish(message)

    def on_packets(self, connection: Connection, packets: Sequence[Packet]) -> None:
        """Each copy is looked for in the memory of the link that it came over."""
        for packet in packets:
            line = self.links.lines.get(connection)
            if line is None:
                return
            if type(packet) is Data and line.incoming_safe:
                self.broadcast.receive(connection, line.pid, packet)
            else:
                self._take(connection, line, packet)

    def on_timer(self, name: Hashable) -> None:
        if isinstance(name, tuple) and name[0] == "anew":
            if not self.links.reached():
                self.wires.count("stranded")
                self.wires.begin_anew(f"{self.me.pid} has no links and nothing to begin one with", str(name[1]))
            return
        super().on_timer(name)

    def _on_probe(self, _connection: Connection, line: Line, probe: Probe) -> None:
        if not self.links.pass_probe(line, probe):
            owner, to = probe.link
            self.links.say(owner, LockFailed(to, probe.attempt))

    def _on_begin(self, connection: Connection, line: Line, begin: Begin) -> None:
        if begin.attempt < 0 or begin.count < 0:
            raise PeerError(line.pid, "begins a link with less than nothing")
        self.links.begun(connection, line, begin)

    def _on_stranded(self, connection: Connection, line: Line, stranded: Stranded) -> None:
        self.links.stranded(connection, line, stranded.total)

    def _on_begin_anew(self, _connection: Connection, line: Line, _packet: BeginAnew) -> None:
        if not self.links.reached(line) and self.options.memory == "links":
            self.wires.set_timer(("anew", line.address), 0)

    def _on_join_ask(self, connection: Connection, line: Line, ask: JoinAsk) -> None:
        if self.options.memory == "counting":
            raise PeerError(line.pid, "asks to join, and copies are counted here, so nobody can")
        super()._on_join_ask(connection, line, ask)


_OWN: Mapping[type[Packet], Callable[[Any, Connection, Line, Any], None]] = {
    Probe: Remembering._on_probe,
    Begin: Remembering._on_begin,
    Stranded: Remembering._on_stranded,
    BeginAnew: Remembering._on_begin_anew,
    JoinAsk: Remembering._on_join_ask,
}
Remembering.handlers = {**Preventive.handlers, **_OWN}
