"""A tiny overlay whose links change all the time: it floods what is published, and tells new neighbours what it knows.

For tests of the runtimes: every node keeps a few links, closes one of them now and then, and dials an address that it
has heard of instead. Nothing is lost with a closed link, because both ends of a new one compare what they have.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from ordercast.core.messages import Message, Packet
from ordercast.core.process import Connection, OverlayMachine, OverlayWires, Peer
from ordercast.core.wire import Codec

LINKS = 2
"""So many links each node dials; others may dial it."""
MOVES = 8
"""So often each node exchanges one of its links for another."""


class Have(Packet, frozen=True, tag=1):
    """What the sender has, and who it knows."""

    ids: tuple[str, ...]
    addresses: tuple[str, ...]


class Spread(Packet, frozen=True, tag=2):
    carries: ClassVar[str | None] = "message"

    message: Message


CODEC = Codec((Have, Spread))


class MovingLinks(OverlayMachine):
    """Delivers every message once, in any order."""

    def __init__(self, wires: OverlayWires, me: Peer, contacts: tuple[str, ...], every_ns: int) -> None:
        self.wires = wires
        self.me = me
        self.known = {address for address in contacts if address != me.address}
        self.have: dict[str, Message] = {}
        self.dialed: dict[Connection, str] = {}
        self.links: dict[Connection, Peer] = {}
        self.moves = 0
        self.every_ns = every_ns

    def on_start(self) -> None:
        self._dial()
        self.wires.set_timer("move", self.every_ns)

    def on_opened(self, connection: Connection, peer: Peer) -> None:
        self.links[connection] = peer
        self.known.add(peer.address)
        self.wires.send(connection, Have(tuple(self.have), tuple(sorted(self.known))))

    def on_packets(self, connection: Connection, packets: Sequence[Packet]) -> None:
        for packet in packets:
            match packet:
                case Have(ids, addresses):
                    self.known.update(address for address in addresses if address != self.me.address)
                    for message in [self.have[i] for i in self.have if i not in ids]:
                        self.wires.send(connection, Spread(message))
                case Spread(message):
                    self._take(message, packet, connection)

    def on_closed(self, connection: Connection, *, gone: bool, reason: str = "") -> None:
        self.links.pop(connection, None)
        self.dialed.pop(connection, None)
        self._dial()

    def on_publish(self, message: Message) -> None:
        self._take(message, Spread(message), None)

    def on_timer(self, name: Hashable) -> None:
        self.moves += 1
        for connection in [*self.dialed][:1]:
            self.links.pop(connection, None)
            self.dialed.pop(connection)
            self.wires.close(connection, "moves on")
        self._dial()
        if self.moves < MOVES:
            self.wires.set_timer("move", self.every_ns)

    def _take(self, message: Message, packet: Packet, source: Connection | None) -> None:
        if message.id in self.have:
            return
        self.have[message.id] = message
        self.wires.deliver(message)
        for connection in self.links:
            if connection != source:
                self.wires.send(connection, packet)

    def _dial(self) -> None:
        """Those that come next round the ring of addresses, further with every move."""
        ring = sorted(self.known)
        start = sum(address < self.me.address for address in ring) + self.moves
        for i in range(len(ring)):
            address = ring[(start + i) % len(ring)]
            if len(self.dialed) >= LINKS:
                return
            if address not in self.dialed.values():
                self.dialed[self.wires.open(address)] = address
