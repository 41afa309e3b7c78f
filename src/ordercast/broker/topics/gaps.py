"""Numbers that will never come (BRK-V1, BRK-V2): a void takes their place, so that what follows them can become stable.

A client and its edge die together; number 1 of the client, which waited at a locked key, died with them, number 2 on
another key is everywhere. No report would ever reach beyond number 1. Once nothing can bring number 1 back unnoticed
the root publishes a void under its id: an entry like any other that is handed to no application.
"""

from __future__ import annotations

from itertools import islice

from ordercast.broker.roster_book import broker_of
from ordercast.broker.topics.ordering import Ordering
from ordercast.broker.topics.topic import TopicNode, packets_of
from ordercast.broker.topics.topics_state import TopicsPart, TopicsState
from ordercast.core.ids import Origin
from ordercast.pubsub.client_packets import Entries
from ordercast.pubsub.publications import Publication, void

_MOST = 1000
"""Of one session in one round: there is always a next one."""


class Gaps(TopicsPart):
    """Closes gaps at the root, for fenced sessions only: any other client still has its publications in its outbox."""

    constant = (*TopicsPart.constant, "ordering")

    def __init__(self, state: TopicsState, ordering: Ordering) -> None:
        super().__init__(state)
        self.ordering = ordering

    def close(self, node: TopicNode) -> None:
        """BRK-V2, asked when every live member has voted, in the epoch that counts: all that they delivered is here.

        The brokers that recorded the fence have dropped what they held of the session and had sent all else before.
        What a broker outside the tree has kept is an orphan, which is published behind everything that is here
        (BRK-R3); while somebody does that, the gap stays.
        """
        if not node.have.extras or any(broker_of(member) for member in self.book.live(node.topic)):
            return
        voids = [
            entry
            for origin in sorted(node.have.extras)
            if self.book.fenced(origin) and origin not in node.hold
            for entry in self._missing(node, origin)
        ]
        if voids:
            self.wires.count("voids", len(voids))
            for entry in voids:
                node.have.add(entry.origin, entry.number)
            for piece in packets_of(voids):
                self.ordering.spread(node, Entries(node.topic, piece), None)

    def _missing(self, node: TopicNode, origin: Origin) -> list[Publication]:
        low, extras = node.have.low.get(origin, 0), node.have.extras[origin]
        pending = node.pending_of.get(origin, ())
        numbers = (n for n in range(low + 1, max(extras)) if n not in extras and n not in pending)
        return [void(origin, number, node.topic) for number in islice(numbers, _MOST)]
