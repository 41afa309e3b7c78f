"""Sessions that end at this broker (BRK-F2): the root is told, and all brokers record that they never count again."""

from __future__ import annotations

from ordercast.broker.topics.membership.leaving import Leaving
from ordercast.broker.topics.state.clients import AttachedClient
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.core.ids import Origin, Topic, ticket_of
from ordercast.pubsub.client_packets import Goodbye

_ALL = Topic("")


class Endings(TopicsPart):
    """Clients that have said goodbye, until nothing that they have published waits for admission."""

    constant = (*TopicsPart.constant, "leaving")

    def __init__(self, state: TopicsState, leaving: Leaving) -> None:
        super().__init__(state)
        self.leaving = leaving
        self.epochs: dict[Origin, int] = {}

    def goodbye(self, client: AttachedClient, _packet: Goodbye) -> None:
        """BRK-F2: it never comes back. Without a ticket there is nothing to fold: it just leaves its topics."""
        if ticket_of(client.origin) is not None and not client.unproven:
            client.settle()
            self.epochs[client.origin] = client.next_epoch()

    def lost(self, client: AttachedClient) -> None:
        """A session that began here and was never granted anything has nothing to come back for (BRK-F2)."""
        if client.ungranted:
            client.settle()
            self.epochs[client.origin] = client.next_epoch()

    def turn_end(self) -> None:
        if not self.epochs:
            return
        held = {origin for origin in self.epochs for topic in self._topics(origin) if origin in self.nodes[topic].hold}
        for origin in sorted(self.epochs.keys() - held):
            self.leaving.depart(_ALL, origin, self.epochs.pop(origin), on_purpose=True)

    def _topics(self, origin: Origin) -> list[Topic]:
        return [topic for topic in self.book.recorded_in(origin) if topic in self.nodes]
