"""The broker: its tree half and its topics half, joined into one machine."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar, Self

from ordercast.broker.archive.ports import SegmentFiles
from ordercast.broker.packet_checks import check
from ordercast.broker.place import BrokerLedger, BrokerPlace, NoBrokerLedger, SavedBroker
from ordercast.broker.topics.topics import Topics
from ordercast.broker.tree.tree import TreeHalf
from ordercast.core.messages import Packet
from ordercast.core.process import Connection, Peer, ProcessMachine, Wires
from ordercast.core.wire import Codec
from ordercast.pubsub.client_packets import CLIENT_PACKETS, READING, OpenHistory, ReadHistory
from ordercast.pubsub.settings import BrokerSettings
from ordercast.pubsub.topic_packets import TOPIC_PACKETS
from ordercast.pubsub.tree_packets import TREE_PACKETS

BROKER_CODEC = Codec((*CLIENT_PACKETS, *TREE_PACKETS, *TOPIC_PACKETS))


class Broker(ProcessMachine):
    """The broker machine: hands events about the tree to its tree half, and all others to its topics half."""

    tree_type: ClassVar[type[TreeHalf]] = TreeHalf
    topics_type: ClassVar[type[Topics]] = Topics
    constant: ClassVar[tuple[str, ...]] = ("place", "settings", "wires", "ledger", "_of_the_tree")

    def __init__(
        self, place: BrokerPlace, settings: BrokerSettings, wires: Wires,
        ledger: BrokerLedger | None = None, saved: SavedBroker | None = None, files: SegmentFiles | None = None,
    ) -> None:  # fmt: skip
        self.place = place
        self.settings = settings
        self.wires = wires
        self.ledger = ledger if ledger is not None else NoBrokerLedger()
        self.tree = self.tree_type(place, settings, wires, self.ledger, saved)
        self.topics = self.topics_type(settings, wires, self.tree, self.ledger, saved, place, files)
        self.tree.topics = self.topics
        self._of_the_tree = frozenset(self.tree.packets)

    def copy(self, wires: Wires | None = None, ledger: BrokerLedger | None = None) -> Self:
        """An independent copy, in the same surroundings unless it is given others.

        Connections and timers are the surroundings' business: whoever gives other wires sees to it that the same
        connections are open there and the same timers run.
        """
        clone = type(self)(self.place, self.settings, wires or self.wires, ledger or self.ledger)
        clone.become(self)
        return clone

    def on_start(self) -> None:
        self.topics.started()
        self.tree.start()

    def on_opened(self, connection: Connection, peer: Peer) -> None:
        if not self.topics.repair.owns(connection):
            self.tree.opened(connection, peer)

    def on_packets(self, connection: Connection, packets: Sequence[Packet]) -> None:
        self.tree.refresh()  # A process that stood still must not decide on a lease that has run out.
        if self.topics.repair.owns(connection):
            for packet in packets:
                self.topics.repair.receive(packet)
            return
        client = self.tree.from_client(connection)
        if not client:
            self.tree.heard(connection)
        for packet in packets:
            if type(packet) in self._of_the_tree:
                self.tree.receive(connection, packet)
            elif isinstance(packet, READING):
                self._read(connection, packet)
            else:
                if client:
                    self.tree.check_client(connection, packet)
                self.topics.receive(connection, packet)

    def _read(self, connection: Connection, packet: OpenHistory | ReadHistory) -> None:
        """ARC-7: readers of kept topics need not be attached, only known."""
        peer = self.tree.peer_of(connection)
        if peer is not None:
            check(peer.name, packet)
            self.topics.serving.answer(connection, peer, packet)

    def on_closed(self, connection: Connection, *, gone: bool, reason: str = "") -> None:  # noqa: ARG002
        if self.topics.repair.owns(connection):
            self.topics.repair.closed()
        else:
            self.topics.serving.closed(connection)
            self.tree.closed(connection, gone=gone)

    def on_timer(self, name: Hashable) -> None:
        assert isinstance(name, tuple)
        self.tree.refresh()
        if name[0] == "topics":
            self.topics.timer(name)
        else:
            self.tree.timer(name)

    def on_turn_end(self) -> None:
        self.topics.turn_end()
        self.tree.turn_end()
