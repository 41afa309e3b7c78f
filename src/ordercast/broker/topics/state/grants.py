"""The epochs that the root has granted to members in its term, and whether they cover everybody who counts."""

from __future__ import annotations

from ordercast.broker.roster_book import REPLACED, touched
from ordercast.broker.topics.state.member import Coverage
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.core.ids import Origin, Topic


class Grants(TopicsPart):
    """The epoch that each member was granted last; empty at every broker but the root, and anew in every term."""

    def __init__(self, state: TopicsState) -> None:
        super().__init__(state)
        self.of: dict[Topic, dict[Origin, int]] = {}

    def clear(self) -> None:
        """BRK-O15: a new root has granted nothing."""
        self.of = {}

    def record(self, topic: Topic, member: Origin, epoch: int) -> None:
        self.of.setdefault(topic, {})[member] = epoch

    def epoch(self, topic: Topic, member: Origin) -> int:
        """The one that was granted; 0: none was."""
        return self.of.get(topic, {}).get(member, 0)

    def all_of(self, topic: Topic, covered: Coverage, *, in_advance: bool = True) -> bool:
        """BRK-L4, BRK-ST2: whether every live member is among the covered, in the epoch that was granted in this term.

        `in_advance`: members in advance count too. Totals need not wait for them: they have delivered nothing, and
        publish nothing before they are granted an epoch of their own (BRK-W2).

        To one that was granted nothing in this term an earlier root has granted the epoch that is recorded, or none
        since: an edge that knows it by an older one has lost it without noticing.
        """
        granted, recorded = self.of.get(topic, {}), self.book.epoch
        missing = () if in_advance else self.book.awaited(topic)
        latest: dict[Origin, int] = {}
        for member, epoch in covered:
            if epoch > latest.get(member, -1):
                latest[member] = epoch
        return all(
            (member, granted[member]) in covered
            if member in granted
            else member in missing or latest.get(member, -1) >= recorded(topic, member)
            for member in self.book.live(topic)
        )

    def forget(self, who: Origin, epoch: int) -> None:
        """A membership has ended, or all of a session's: what was granted to it is of no use any more."""
        member, topic = touched(who)
        for name in [topic] if topic is not None else list(self.of):
            granted = self.of.get(name, {})
            if granted.get(member, REPLACED + 1) <= epoch:
                del granted[member]
