"""Recovers the promised term of a broker that restarts without its data, by asking the others (BRK-PC8).

Its word must not count for an old root if its former life gave it to a new one. Whoever was elected with that word was
a claimant already, and so were those who gave theirs too. So it asks everybody for the highest term number they know,
and counts again when more than half have answered from memory, or all have answered: then the claimant is among them,
or has itself begun a new life and is no root any more. (At the first start of a whole cluster all answer at once.)
If so many cannot be reached it counts again after `request_ms + lease_ms`, when that election must be over and its root
has had a lease's time to make itself known. A broker with a data directory remembers and needs none of this.
"""

from __future__ import annotations

from ordercast.broker.tree.events import TreeEvents
from ordercast.broker.tree.neighbours import Neighbours
from ordercast.broker.tree.terms import Terms
from ordercast.broker.tree.tree_state import MS, TreePart, TreeState
from ordercast.core.ids import NodeId
from ordercast.core.process import Connection
from ordercast.pubsub.tree_packets import Recall, Recalled


class PromiseRecovery(TreePart):
    """Asks the other brokers which terms were promised, and counts the answers."""

    constant = (*TreePart.constant, "terms", "neighbours", "events")

    def __init__(
        self, state: TreeState, terms: Terms, neighbours: Neighbours, events: TreeEvents, *, remembers: bool
    ) -> None:
        super().__init__(state)
        self.terms = terms
        self.neighbours = neighbours
        self.events = events
        self._remembers = remembers or not self.state.primary
        self._until_ns = 0
        self._from_memory: set[NodeId] = set()
        self._answered: set[NodeId] = set()

    @property
    def forgetful(self) -> bool:
        """It neither gives its word nor stands behind a root."""
        return not self._remembers

    def start(self) -> None:
        if self.forgetful:
            settings = self.settings
            self._until_ns = self.wires.now_ns + int((settings.request_ms + settings.lease_ms) * MS)
            self.ask()

    def ask(self) -> None:
        """Until it knows enough, again and again: others may still be starting."""
        self._check()
        if self._remembers:
            return
        for node in self.state.others():
            if node not in self._answered:
                self.neighbours.say(node, Recall())
        self.wires.set_timer(("recall",), self.state.draw_retry_ns())

    def asked(self, line: Connection) -> None:
        self.wires.send(line, Recalled(self.terms.highest, self.forgetful))

    def answered(self, node: NodeId, packet: Recalled) -> None:
        if self._remembers:
            return
        self.terms.learn_of(packet.highest)
        self._answered.add(node)
        if not packet.forgetful:
            self._from_memory.add(node)
        self._check()

    def _check(self) -> None:
        everybody = self._answered >= set(self.state.others())
        if everybody or self.state.is_majority(self._from_memory) or self.wires.now_ns >= self._until_ns:
            self._remembers = True
            self.wires.cancel_timer(("recall",))
            self.events.remembers()
