"""Numbers that will never come (BRK-V1, BRK-V2): a void takes their place, so that what follows them can become stable.

A client and its edge die together; number 1 of the client, which waited at a locked key, died with them, number 2 on
another key is everywhere. No report would ever reach beyond number 1. Once nothing can bring number 1 back unnoticed
the root publishes a void under its id: an entry like any other that is handed to no application.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice

from ordercast.broker.roster_book import broker_of
from ordercast.broker.topics.ordering import Ordering, Outflow
from ordercast.broker.topics.state.topic import TopicNode
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.core.ids import Origin, Topic
from ordercast.pubsub.publications import Publication, void

_MOST = 1000
"""Of one session in one round: there is always a next one."""


class Gaps(TopicsPart):
    """Closes gaps at the root, for fenced sessions only: any other client still has its publications in its outbox."""

    constant = (*TopicsPart.constant, "ordering")

    def __init__(self, state: TopicsState, ordering: Ordering) -> None:
        super().__init__(state)
        self.ordering = ordering
        self.unproved: set[Topic] = set()
        """Topics with gaps that wait for the proof that no broker has what is missing."""

    def close(self, node: TopicNode) -> None:
        """BRK-V2, asked when every live member has voted, in the epoch that counts: all that they delivered is here.

        The brokers that recorded the fence have dropped what they held of the session and had sent all else before.
        What a dead broker has kept is an orphan, which is published behind everything that is here (BRK-R3); while
        somebody does that, the gap stays. A broker that is only cut off may alone have what was called safe: where
        partitions are possible a round over all brokers (BRK-F5) must have shown that nobody has.
        """
        if not self._closable(node):
            return
        if self.settings.partitions == "primary":
            self.unproved.add(node.topic)
        else:
            self._fill(node, ())

    def proved(self, orphaned: Collection[Origin], all_are_here: Callable[[Topic], bool]) -> None:
        """BRK-V2: the tree stood still with all brokers in it, and only of the sessions `orphaned` is more to come.

        Whatever stays open waits for the next proof: nobody may ever vote on the topic again.
        """
        nodes = [self.nodes[topic] for topic in sorted(self.unproved) if topic in self.nodes]
        for node in nodes:
            if all_are_here(node.topic) and self._closable(node):
                self._fill(node, orphaned)
        self.unproved = {node.topic for node in nodes if self.are_in(node)}

    def are_in(self, node: TopicNode) -> bool:
        """Whether numbers of a fenced session are missing. No vote may ever tell: reports end before the first gap."""
        return bool(node.have.extras) and any(self.book.fenced(origin) for origin in node.have.extras)

    def _closable(self, node: TopicNode) -> bool:
        return self.are_in(node) and not any(broker_of(member) for member in self.book.live(node.topic))

    def _fill(self, node: TopicNode, orphaned: Collection[Origin]) -> None:
        voids = [
            entry
            for origin in sorted(node.have.extras)
            if self.book.fenced(origin) and origin not in node.hold and origin not in orphaned
            for entry in self._missing(node, origin)
        ]
        if voids:
            self.wires.count("voids", len(voids))
            out = Outflow(self.ordering, node)
            for entry in voids:
                out.admit(entry)
            out.flush()

    def _missing(self, node: TopicNode, origin: Origin) -> list[Publication]:
        low, extras = node.have.low.get(origin, 0), node.have.extras[origin]
        pending = node.pending.numbers.get(origin, ())
        numbers = (n for n in range(low + 1, max(extras)) if n not in extras and n not in pending)
        return [void(origin, number, node.topic) for number in islice(numbers, _MOST)]
