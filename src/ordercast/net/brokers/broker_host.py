"""The host of a broker: as every host, and it takes notes for people who watch.

How long deliveries took is always looked at. What passes is written down only while somebody watches, of a large packet
only its beginning, and only so much of it from one look to the next: a page that is open must not slow the broker down.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import NamedTuple

from ordercast.core.messages import Packet
from ordercast.core.process import Connection
from ordercast.net.brokers.delivery_times import DeliveryTimes
from ordercast.net.host import ProcessHost
from ordercast.net.wire.connection import WireConnection
from ordercast.net.wire.credentials import CLIENT
from ordercast.net.wire.frames import Frame
from ordercast.pubsub.client_packets import Entries

_EVENTS = 500
_HOPS = 2000
_OF_A_PACKET = 3
HOPS_AT_ONCE = 600
"""As many are noted between two looks, and shown at one."""


class BrokerEvent(NamedTuple):
    """Something that happened to the tree, as this broker saw it."""

    number: int
    ms: int
    kind: str
    info: dict[str, str]


class MessageHop(NamedTuple):
    """A publication that came from a neighbour or client, or went to one."""

    number: int
    us: int
    came: bool
    peer: str
    kind: str
    message: str
    guarantee: str
    connection: int
    """Tells apart the connections of a client that comes back."""


class TrafficWatch:
    """Watches a broker's traffic while somebody looks: the last hops, and how much went over which connection."""

    def __init__(self) -> None:
        self.hops: deque[MessageHop] = deque(maxlen=_HOPS)
        self.counts: Counter[tuple[str, bool]] = Counter()
        """By peer, and whether they came."""
        self._number = 0
        self._enough = HOPS_AT_ONCE

    def since(self, number: int) -> list[MessageHop]:
        """The last hops behind the one with that number; the next ones are noted from now on."""
        self._enough = self._number + HOPS_AT_ONCE
        return [hop for hop in self.hops if hop.number > number][-HOPS_AT_ONCE:]

    def passed(self, wire: WireConnection, packet: Entries, *, came: bool) -> None:
        peer = wire.peer
        if peer is None:
            return
        self.counts[peer.name, came] += len(packet.entries)
        if self._number >= self._enough:
            return
        now = time.time_ns() // 1000
        for entry in packet.entries[:_OF_A_PACKET]:
            self._number += 1
            level = entry.guarantee.label
            self.hops.append(MessageHop(self._number, now, came, peer.name, peer.kind, entry.id, level, wire.number))


class BrokerHost(ProcessHost):
    """Runs a broker."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.deliveries = DeliveryTimes()
        self.events: deque[BrokerEvent] = deque(maxlen=_EVENTS)
        self.watch: TrafficWatch | None = None
        """Set while somebody watches."""
        self._event_number = 0

    def send(self, connection: Connection, packet: Packet) -> None:
        if packet.__class__ is Entries:
            wire = self.connections.get(connection)
            if wire is not None:
                self._handed_on(wire, packet)
        super().send(connection, packet)

    def _handed_on(self, wire: WireConnection, packet: Entries) -> None:
        if wire.peer is not None and wire.peer.kind == CLIENT:
            entry = packet.entries[-1]
            self.deliveries.handed_on(entry.guarantee, len(packet.entries))
            if entry.published_ns:
                self.deliveries.took(entry.guarantee, max(0, time.time_ns() - entry.published_ns))
        if self.watch is not None:
            self.watch.passed(wire, packet, came=False)

    def received(self, connection: WireConnection, packets: list[Packet], frames: list[Frame]) -> None:
        if self.watch is not None:
            for packet in packets:
                if packet.__class__ is Entries:
                    self.watch.passed(connection, packet, came=True)
        super().received(connection, packets, frames)

    def note(self, kind: str, info: Mapping[str, str]) -> None:
        self._event_number += 1
        self.events.append(BrokerEvent(self._event_number, time.time_ns() // 1_000_000, kind, dict(info)))
        super().note(kind, info)
