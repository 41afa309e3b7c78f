"""A tiny overlay without connections: everything it says is cast, and whatever is lost is said again.

For tests of the carriers of datagrams: every node tells one other after the other what it has, and is cast what it
lacks. Everybody delivers every message once, in any order, as long as not every datagram is lost.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from ordercast.core.errors import PeerError
from ordercast.core.messages import Message, Packet
from ordercast.core.process import OverlayMachine, OverlayWires, Peer
from ordercast.core.wire import Codec


class Have(Packet, frozen=True, tag=1):
    """What the sender has, and whom it knows."""

    ids: tuple[str, ...]
    addresses: tuple[str, ...]


class Rumour(Packet, frozen=True, tag=2):
    carries: ClassVar[str | None] = "message"

    message: Message


CODEC = Codec((Have, Rumour))


class Rumours(OverlayMachine):
    """Delivers every message once, in any order."""

    def __init__(self, wires: OverlayWires, me: Peer, contacts: tuple[str, ...], every_ns: int) -> None:
        self.wires = wires
        self.me = me
        self.known = {address for address in contacts if address != me.address}
        self.have: dict[str, Message] = {}
        self.rounds = 0
        self.every_ns = every_ns
        self.heard: list[Peer] = []

    def on_start(self) -> None:
        self.wires.set_timer("round", self.every_ns, background=True)

    def on_publish(self, message: Message) -> None:
        self._take(message)

    def on_timer(self, name: Hashable) -> None:
        self.wires.set_timer("round", self.every_ns, background=True)
        if self.known:
            ring = sorted(self.known)
            self.wires.cast(ring[self.rounds % len(ring)], Have(tuple(self.have), tuple(ring)))
        self.rounds += 1

    def on_cast(self, peer: Peer, packets: Sequence[Packet]) -> None:
        self.heard.append(peer)
        self._meet(peer.address)
        for packet in packets:
            match packet:
                case Have(ids, addresses):
                    for address in addresses:
                        self._meet(address)
                    for missing in [self.have[i] for i in self.have if i not in ids]:
                        self.wires.cast(peer.address, Rumour(missing))
                case Rumour(message):
                    if message.topic == "nonsense":
                        raise PeerError(peer.name, "talks nonsense")
                    self._take(message)

    def _meet(self, address: str) -> None:
        if address != self.me.address:
            self.known.add(address)

    def _take(self, message: Message) -> None:
        if message.id not in self.have:
            self.have[message.id] = message
            self.wires.deliver(message)
