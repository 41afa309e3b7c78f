"""Process machines that do little and remember everything, to test what runs them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import msgspec

from ordercast.core.messages import Packet
from ordercast.core.process import Connection, Peer, ProcessMachine, Wires
from ordercast.core.wire import Codec


class Word(Packet, frozen=True, tag=1):
    number: int
    seen: dict[str, int] = msgspec.field(default_factory=dict)


WORDS = Codec((Word,))


class Toy(ProcessMachine):
    """Writes down every event; `reacts` may answer packets."""

    def __init__(self, wires: Wires, peer: Peer) -> None:
        self.wires = wires
        self.peer = peer
        self.log: list[tuple[object, ...]] = []
        self.reacts: Callable[[Toy, Connection, Packet], None] | None = None

    def on_start(self) -> None:
        self.log.append(("start", self.wires.now_ns))

    def on_opened(self, connection: Connection, peer: Peer) -> None:
        self.log.append(("opened", self.wires.now_ns, connection, peer.name, peer.life))

    def on_packets(self, connection: Connection, packets: Sequence[Packet]) -> None:
        for packet in packets:
            assert isinstance(packet, Word)
            self.log.append(("packet", self.wires.now_ns, connection, packet.number))
            if self.reacts is not None:
                self.reacts(self, connection, packet)

    def on_closed(self, connection: Connection, *, gone: bool, reason: str = "") -> None:
        self.log.append(("closed", self.wires.now_ns, connection, gone))

    def on_timer(self, name: Hashable) -> None:
        self.log.append(("timer", self.wires.now_ns, name))

    def numbers(self) -> list[object]:
        return [entry[3] for entry in self.log if entry[0] == "packet"]

    def kinds(self) -> list[object]:
        return [entry[0] for entry in self.log]
