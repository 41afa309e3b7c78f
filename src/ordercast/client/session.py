"""State that the parts of a client share: its identity, topics, ports, and the connection to its edge."""

from __future__ import annotations

from typing import ClassVar

from ordercast.client.edge import Edge, EdgeWatcher
from ordercast.client.membership import Membership
from ordercast.client.ports import ClientApp, ClientLedger, SavedClient
from ordercast.client.settings import ClientSettings
from ordercast.core.ids import Origin, Topic, ticketed
from ordercast.core.messages import Packet
from ordercast.core.process import Wires
from ordercast.core.state import State
from ordercast.pubsub.client_packets import WANTED
from ordercast.pubsub.closed import Closed, ClosedSessions


class Session(State):
    """One life of a client, over all its edges."""

    constant: ClassVar[tuple[str, ...]] = ("plain", "wires", "app", "settings", "ledger")

    def __init__(
        self, origin: Origin, addresses: tuple[str, ...], wires: Wires, app: ClientApp, settings: ClientSettings,
        ledger: ClientLedger, saved: SavedClient, watcher: EdgeWatcher,
    ) -> None:  # fmt: skip
        self.plain = origin
        self.origin = ticketed(origin, saved.ticket)
        """Of what it publishes: with its ticket, as soon as it has one (BRK-F1)."""
        self.ticket, self.ticket_seal = saved.ticket, saved.ticket_seal
        self.granted = saved.granted or any(kept.granted or kept.counter for kept in saved.topics.values())
        """A broker has confirmed a membership of this session, of a topic or of a filter."""
        self.closed = ClosedSessions(saved.closed)
        self.wires = wires
        self.app = app
        self.settings = settings
        self.ledger = ledger
        self.topics = {topic: Membership(topic, self.origin, saved.topics[topic]) for topic in sorted(saved.topics)}
        self.edge = Edge(origin, addresses, wires, settings, ledger, watcher, saved.attach_no)
        self._show_ticket()
        self.unsent: set[Topic] = set()
        """Topics with publications that the end of the turn writes down and sends."""

    def note_membership(self) -> None:
        """The tree counts on this session from now on: it would lose something by ending (BRK-F2)."""
        if not self.granted:
            self.granted = True
            self.ledger.granted()

    def take_ticket(self, ticket: str, seal: bytes) -> None:
        """BRK-F1: the session's name in all that it publishes; what waits in its outbox was never sent."""
        self.ticket, self.ticket_seal = ticket, seal
        self.origin = ticketed(self.plain, ticket)
        for membership in self.memberships():
            self.write_down(membership)
            membership.rename(self.origin)
        self.ledger.ticket(ticket, seal)
        self._show_ticket()

    def _show_ticket(self) -> None:
        """The next edge sees the ticket, or that one is wanted."""
        self.edge.show(self.ticket or (WANTED if self.settings.folds else ""), self.ticket_seal)

    def close(self, closed: Closed) -> None:
        """BRK-F8: remember nothing of these sessions one by one."""
        self.closed.merge(closed)
        self.ledger.closed(closed)
        for membership in self.memberships():
            membership.fold(self.closed)

    def send(self, packet: Packet) -> None:
        """To the edge, if there is one; otherwise the next one is told all that matters when it is found."""
        if self.edge.attached and self.edge.connection is not None:
            self.wires.send(self.edge.connection, packet)

    def send_soon(self, topic: Topic) -> None:
        """The end of the turn writes down and sends what the topic's outbox has."""
        self.unsent.add(topic)

    def memberships(self) -> list[Membership]:
        return [self.topics[topic] for topic in sorted(self.topics)]

    def write_down(self, membership: Membership) -> None:
        """BRK-D1: publications are in the ledger before anything that follows from them."""
        if membership.written < membership.counter:
            new = range(membership.written + 1, membership.counter + 1)
            self.ledger.published(membership.topic, [membership.outbox[n] for n in new if n in membership.outbox])
            membership.written = membership.counter
