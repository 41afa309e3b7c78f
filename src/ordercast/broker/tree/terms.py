"""Terms: the one that this broker is in, and the one that it has promised to somebody (BRK-O13, BRK-O16)."""

from __future__ import annotations

from ordercast.broker.ports import Term
from ordercast.broker.tree.joining import BrokerJoining
from ordercast.broker.tree.tree_state import NOBODY, TreePart, TreeState
from ordercast.core.ids import NodeId
from ordercast.pubsub.tree_packets import NewTerm, Rank


class Terms(TreePart):
    """The present and the promised term. A promise never falls, and is on the disk before anybody hears of it."""

    constant = (*TreePart.constant, "joining", "ledger")

    def __init__(self, state: TreeState, joining: BrokerJoining, number: int) -> None:
        super().__init__(state)
        self.joining = joining
        self.ledger = state.ledger
        self.promised = number
        self.promised_rank: Rank | None = None
        self.claimant: NodeId = NOBODY
        self._heard_of = 0

    @property
    def highest(self) -> int:
        """The highest number that this broker knows of."""
        return max(self.state.term[0], self.promised, self._heard_of)

    def heard_of(self, number: int) -> None:
        """Somebody claims it in vain: an own claim is to have a higher number, though this one was not promised."""
        self._heard_of = max(self._heard_of, number)

    def learn_of(self, number: int) -> None:
        """Somebody has promised or seen this number: there is, or was, a tree; nothing below it is claimed."""
        if number > 0:
            self.state.knows_of_a_tree()
        self.promised = max(self.promised, number)

    def promise(self, number: int, rank: Rank | None, claimant: NodeId) -> None:
        if number > self.promised:
            self.ledger.term(number)
        self.promised, self.promised_rank, self.claimant = number, rank, claimant

    def promised_to(self, claimant: NodeId, number: int) -> bool:
        return (self.promised, self.claimant) == (number, claimant)

    def adopt(self, term: Term) -> None:
        """BRK-O16: the term of the parent is this broker's."""
        if term == self.state.term:
            return
        self.state.enter(term)
        self.state.knows_of_a_tree()
        if term[0] > self.promised:
            self.promise(term[0], None, term[1])
        self.pass_on()
        self.topics.term_adopted()
        self.joining.term_adopted()

    def pass_on(self) -> None:
        for link in self.state.children:
            self.wires.send(link, NewTerm(self.state.term))
