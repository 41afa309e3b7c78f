"""Tickets (BRK-F1): a broker numbers the sessions that begin at it, so that those that have ended fold into intervals.

A ticket names the broker and its life, and counts from 1 without gaps; no two sessions ever have the same one. It is
part of the session's origin, so whoever meets the origin anywhere can tell whether the session is closed.
"""

from __future__ import annotations

from ordercast.broker.topics.state.clients import AttachedClient
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.pubsub.client_packets import SessionsClosed, Ticket
from ordercast.pubsub.closed import Closed


class Tickets(TopicsPart):
    """Gives tickets to local clients, and tells those that receive which sessions are closed."""

    def __init__(self, state: TopicsState) -> None:
        super().__init__(state)
        self.issued = 0

    def believe(self, client: AttachedClient, seal: bytes) -> None:
        """A ticket that no broker gave to this session would close somebody else's; without a key all are believed."""
        client.unproven = not self.state.seals.proves_ticket(client.origin, seal)

    def before_topic(self, client: AttachedClient, *, receives: bool) -> None:
        """Tell a client what it has to know before the first topic that it asks for."""
        if client.wants_ticket:
            self._issue(client)
        if receives and not client.knows_closed:
            client.knows_closed = True
            if self.book.closed:
                self.wires.send(client.connection, SessionsClosed(self.book.closed.summary()))

    def _issue(self, client: AttachedClient) -> None:
        self.issued += 1
        ticket = f"{self.issued}.{self.tree.life}.{self.tree.node}"
        client.take_ticket(ticket)
        self.wires.count("tickets_issued")
        self.wires.send(client.connection, Ticket(ticket, self.state.seals.of_ticket(client.origin)))

    def tell_closed(self, news: Closed) -> None:
        """BRK-F8: whoever receives folds what it remembers too."""
        packet = SessionsClosed(news)
        for client in self.state.clients_in_order():
            if client.knows_closed:
                self.wires.send(client.connection, packet)
