"""State that the parts of a client share: its identity, topics, ports, and the connection to its edge."""

from __future__ import annotations

from typing import ClassVar

from ordercast.client.edge import Edge, EdgeWatcher
from ordercast.client.membership import Membership
from ordercast.client.ports import ClientApp, ClientLedger, SavedClient
from ordercast.client.settings import ClientSettings
from ordercast.core.ids import Origin, Topic
from ordercast.core.messages import Packet
from ordercast.core.process import Wires
from ordercast.core.state import State


class Session(State):
    """One life of a client, over all its edges."""

    constant: ClassVar[tuple[str, ...]] = ("origin", "wires", "app", "settings", "ledger")

    def __init__(
        self, origin: Origin, addresses: tuple[str, ...], wires: Wires, app: ClientApp, settings: ClientSettings,
        ledger: ClientLedger, saved: SavedClient, watcher: EdgeWatcher,
    ) -> None:  # fmt: skip
        self.origin = origin
        self.wires = wires
        self.app = app
        self.settings = settings
        self.ledger = ledger
        self.topics = {topic: Membership(topic, origin, saved.topics[topic]) for topic in sorted(saved.topics)}
        self.edge = Edge(origin, addresses, wires, settings, ledger, watcher, saved.attach_no)
        self.unsent: set[Topic] = set()
        """Topics with publications that the end of the turn writes down and sends."""

    def send(self, packet: Packet) -> None:
        """To the edge, if there is one; otherwise the next one is told all that matters when it is found."""
        if self.edge.attached and self.edge.connection is not None:
            self.wires.send(self.edge.connection, packet)

    def memberships(self) -> list[Membership]:
        return [self.topics[topic] for topic in sorted(self.topics)]

    def write_down(self, membership: Membership) -> None:
        """BRK-D1: publications are in the ledger before anything that follows from them."""
        if membership.written < membership.counter:
            new = range(membership.written + 1, membership.counter + 1)
            self.ledger.published(membership.topic, [membership.outbox[n] for n in new if n in membership.outbox])
            membership.written = membership.counter
