"""The broker: the overlay and the topics, joined into one machine."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar, Self

from ordercast.broker.place import Ledger, NoLedger, Place, Saved
from ordercast.broker.topics.topics import Topics
from ordercast.broker.tree.tree import Overlay
from ordercast.core.messages import Packet
from ordercast.core.process import Connection, Peer, ProcessMachine, Wires
from ordercast.core.wire import Codec
from ordercast.pubsub.client_packets import CLIENT_PACKETS
from ordercast.pubsub.overlay_packets import OVERLAY_PACKETS
from ordercast.pubsub.settings import BrokerSettings
from ordercast.pubsub.topic_packets import TOPIC_PACKETS

BROKER_CODEC = Codec((*CLIENT_PACKETS, *OVERLAY_PACKETS, *TOPIC_PACKETS))


class Broker(ProcessMachine):
    """Everything that is about the tree goes to the overlay, everything else to the topics."""

    constant: ClassVar[tuple[str, ...]] = ("place", "settings", "wires", "ledger", "_of_the_tree")

    def __init__(
        self, place: Place, settings: BrokerSettings, wires: Wires,
        ledger: Ledger | None = None, saved: Saved | None = None,
    ) -> None:  # fmt: skip
        self.place = place
        self.settings = settings
        self.wires = wires
        self.ledger = ledger if ledger is not None else NoLedger()
        self.overlay = Overlay(place, settings, wires, self.ledger, saved)
        self.topics = Topics(settings, wires, self.overlay, self.ledger, saved)
        self.overlay.topics = self.topics
        self._of_the_tree = frozenset(self.overlay.packets)

    def copy(self, wires: Wires | None = None, ledger: Ledger | None = None) -> Self:
        """An independent copy, in the same surroundings unless it is given others.

        Connections and timers are the surroundings' business: whoever gives other wires sees to it that the same
        connections are open there and the same timers run.
        """
        clone = type(self)(self.place, self.settings, wires or self.wires, ledger or self.ledger)
        clone.become(self)
        return clone

    def on_start(self) -> None:
        self.overlay.start()

    def on_opened(self, connection: Connection, peer: Peer) -> None:
        self.overlay.opened(connection, peer)

    def on_packets(self, connection: Connection, packets: Sequence[Packet]) -> None:
        self.overlay.refresh()  # A process that stood still must not decide on a lease that has run out.
        client = self.overlay.from_client(connection)
        for packet in packets:
            if type(packet) in self._of_the_tree:
                self.overlay.receive(connection, packet)
            else:
                if client:
                    self.overlay.check_client(connection, packet)
                self.topics.receive(connection, packet)

    def on_closed(self, connection: Connection, *, gone: bool, reason: str = "") -> None:  # noqa: ARG002
        self.overlay.closed(connection, gone=gone)

    def on_timer(self, name: Hashable) -> None:
        assert isinstance(name, tuple)
        self.overlay.refresh()
        if name[0] == "topics":
            self.topics.timer(name)
        else:
            self.overlay.timer(name)

    def on_turn_end(self) -> None:
        self.topics.turn_end()
        self.overlay.turn_end()
