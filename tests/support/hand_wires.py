"""Wires of a process that is driven by hand: what it does is written down, and time passes when a test says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping

from ordercast.core.messages import Message, Packet
from ordercast.core.process import Connection


class HandWires:
    """Connections lead nowhere; they are numbered from `first` on."""

    now_ns: int = 0

    def __init__(self, first: Connection = 1) -> None:
        self.first = first
        self.dialed: list[str] = []
        self.closed: list[tuple[Connection, str]] = []
        self.sent: list[tuple[Connection, Packet]] = []
        self.casts: list[tuple[str, Packet]] = []
        self.delivered: list[Message] = []
        self.completed: list[str] = []
        self.timers: dict[Hashable, int] = {}
        self.background: dict[Hashable, bool] = {}
        self.notes: list[tuple[str, dict[str, str]]] = []
        self.counts: Counter[str] = Counter()

    @property
    def last_opened(self) -> Connection:
        return self.first + len(self.dialed) - 1

    def open(self, address: str) -> Connection:
        assert address
        self.dialed.append(address)
        return self.last_opened

    def send_all(self, connections: Iterable[Connection], packet: Packet, but: Connection = 0) -> None:
        for connection in connections:
            if connection != but:
                self.send(connection, packet)

    def send(self, connection: Connection, packet: Packet) -> None:
        self.sent.append((connection, packet))

    def close(self, connection: Connection, reason: str = "") -> None:
        self.closed.append((connection, reason))

    def cast(self, address: str, packet: Packet) -> None:
        assert address
        self.casts.append((address, packet))

    def cast_all(self, addresses: Iterable[str], packet: Packet) -> None:
        for address in addresses:
            self.cast(address, packet)

    def deliver(self, message: Message) -> None:
        self.delivered.append(message)

    def complete(self, message_id: str) -> None:
        self.completed.append(message_id)

    def snapshot(self) -> bytes:
        return b""

    def install(self, state: bytes) -> None:
        """There is no application."""

    def begin_anew(self, reason: str, through: str) -> None:
        self.notes.append(("begin_anew", {"reason": reason, "through": through}))

    def depart(self) -> None:
        self.notes.append(("depart", {}))

    def set_timer(self, name: Hashable, delay_ns: int, *, background: bool = False) -> None:
        self.timers[name] = self.now_ns + delay_ns
        self.background[name] = background

    def cancel_timer(self, name: Hashable) -> None:
        self.timers.pop(name, None)

    def note(self, kind: str, info: Mapping[str, str]) -> None:
        self.notes.append((kind, dict(info)))

    def count(self, name: str, by: int = 1) -> None:
        self.counts[name] += by

    def next_timer(self) -> Hashable:
        """The timer that is due next, taken off; its time has come."""
        name = min(self.timers, key=lambda timer: (self.timers[timer], str(timer)))
        self.now_ns = max(self.now_ns, self.timers.pop(name))
        return name
