"""Stability: what every member has is forgotten, nothing else ever is (BRK-ST1 to BRK-ST3)."""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.broker.archive.kept import KeptTopics
from ordercast.broker.topics.gaps import Gaps
from ordercast.broker.topics.ordering import Ordering
from ordercast.broker.topics.state.clients import AttachedClient
from ordercast.broker.topics.state.grants import Grants
from ordercast.broker.topics.state.member import Coverage, Member, Vote
from ordercast.broker.topics.state.topic import TopicNode
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.core.ids import Origin, ticket_of
from ordercast.core.messages import Packet
from ordercast.core.process import Connection
from ordercast.pubsub.client_packets import Sealed, StableReport, StableUpdate
from ordercast.pubsub.received import Vector
from ordercast.pubsub.topic_packets import BaseUpdate, StableVote

_COOLING = ("topics", "stability")
_VOTES_AT_ONCE = 4000
"""Topics that are voted on in one turn, also when all need a new vote (BRK-L7)."""
_OFTEN = 20
_HEAVY_BYTES = 1 << 20
"""A topic with payloads of so much is voted on ten times as often: memory that is used again soon is fast memory."""


class StabilityVotes(TopicsPart):
    """Collects votes upwards and sends bases downwards; at most one vote a topic in half a `stability_ms`."""

    constant = (*TopicsPart.constant, "ordering", "grants", "gaps", "kept", "ledger")

    def __init__(self, state: TopicsState, ordering: Ordering, grants: Grants, gaps: Gaps, kept: KeptTopics) -> None:
        super().__init__(state)
        self.ordering = ordering
        self.grants = grants
        self.gaps = gaps
        self.kept = kept
        self.ledger = state.ledger
        self.cooling = False

    def reported(self, client: AttachedClient, packet: StableReport) -> None:
        """BRK-ST1: note what a local member has delivered."""
        node = self.nodes.get(packet.topic)
        member = node.members.get(client.origin) if node is not None else None
        if node is not None and member is not None and member.vector != packet.vector:
            member.vector = packet.vector
            self.state.vote_again(node)

    def voted(self, node: TopicNode, child: Connection, packet: StableVote) -> None:
        """BRK-ST1, from a child: replaces its last one."""
        if self.state.counts(packet.term):
            node.votes[child] = Vote(frozenset(packet.members), packet.vector)
            self.state.vote_again(node)

    def turn_end(self) -> None:
        state = self.state
        if not state.votes_due or self.cooling:
            return
        due = sorted(state.votes_due)
        state.votes_due = set(due[_VOTES_AT_ONCE:])
        heaviest = 0
        for topic in due[:_VOTES_AT_ONCE]:
            node = self.nodes.get(topic)
            if node is not None:
                heaviest = max(heaviest, node.log.carried)
                self._vote(node)
        self.cooling = True
        pause_ms = self.settings.stability_ms / (_OFTEN if heaviest >= _HEAVY_BYTES else 2)
        self.wires.set_timer(_COOLING, max(1, int(pause_ms * 1e6)))

    def cooled(self) -> None:
        self.cooling = False

    def _vote(self, node: TopicNode) -> None:
        vote = self._minimum(node)
        if self.tree.is_root:
            if self.tree.decides and self._all_have_voted(node, vote.members):
                self.gaps.close(node)
                self.merge_base(node, node.have.vector() if vote.vector is None else _here(node, vote.vector), None)
        elif node.up_live and node.vote_sent != vote:
            node.vote_sent = vote
            self.state.send_up(StableVote(node.topic, self.tree.term, tuple(sorted(vote.members)), vote.vector))

    def _minimum(self, node: TopicNode) -> Vote:
        """The members that have voted, and what all of them have. Members that receive nothing hold nobody up."""
        voted: set[tuple[Origin, int]] = set()
        vectors: list[Vector] = []
        for origin, member in node.members.items():
            if self.state.waits_for(node, member):
                if member.vector is None:
                    continue
                vectors.append(member.vector)
            voted.add((origin, member.epoch))
        for vote in node.votes.values():
            voted |= vote.members
            if vote.vector is not None:
                vectors.append(vote.vector)
        return Vote(frozenset(voted), _least(vectors))

    def _all_have_voted(self, node: TopicNode, members: Coverage) -> bool:
        """BRK-ST2: every live member of the roster, in the epoch that counts."""
        return self.grants.all_of(node.topic, members)

    def merge_base(self, node: TopicNode, base: Vector, source: Connection | None) -> None:
        """BRK-ST3: from whatever source it comes, a base that grew is passed on in all other directions."""
        if node.kept:
            self.kept.release(node, base)
        grown = node.raise_base(base, self.book.closed)
        if not grown:
            return
        self._settled(node, grown)
        self.ledger.base(node.topic, grown)
        update = BaseUpdate(node.topic, self.tree.term, grown)
        for link in self.state.links(node):
            if link != source:
                self.wires.send(link, update)
        self._tell_members(node, grown, source)
        if node.hold:
            self.ordering.release(node)
        self.state.touch(node)

    def _tell_members(self, node: TopicNode, grown: Vector, source: Connection | None) -> None:
        """Tell receivers all that became stable, and those who only publish their own part of it (BRK-M1)."""
        here = {origin: member for origin, member in node.members.items() if member.connection not in (None, source)}
        self._tell(node, [member for member in here.values() if member.receives], grown)
        for origin in sorted(grown.keys() & here.keys()):
            if not here[origin].receives:
                self._tell(node, [here[origin]], {origin: grown[origin]})

    def _tell(self, node: TopicNode, members: Sequence[Member], base: Vector) -> None:
        news: list[Packet] = [StableUpdate(node.topic, base)]
        if self.state.seals and members:
            news.insert(0, Sealed(node.topic, self.state.seals.of_base(node.topic, base)))
        for member in members:
            for packet in news:
                if member.connection is not None:
                    self.wires.send(member.connection, packet)

    def _settled(self, node: TopicNode, grown: Vector) -> None:
        """BRK-F3: where sessions that can be folded have left something."""
        settled = self.state.settled
        for origin in grown:
            known = settled.get(origin)
            if known is not None:
                known.add(node.topic)
            elif ticket_of(origin) is not None:
                settled[origin] = {node.topic}

    def tell_base(self, node: TopicNode, link: Connection, base: Vector) -> None:
        """BRK-ST3: a base that grew while the channel was opening (a client brought it) was not in its OpenTopic."""
        lacking = {origin: number for origin, number in node.base.items() if number > base.get(origin, 0)}
        if lacking:
            self.wires.send(link, BaseUpdate(node.topic, self.tree.term, lacking))

    def base_told(self, node: TopicNode, link: Connection, packet: BaseUpdate) -> None:
        """BRK-PC5: a base of a lower term than the own is ignored; the channel's next opening brings it."""
        if tuple(packet.term) >= tuple(self.tree.term) or link in node.down:
            self.merge_base(node, packet.base, link)


def _here(node: TopicNode, vector: Vector) -> Vector:
    """Members' claims of what they have, cut to what the root has: whoever claims more has made it up."""
    low = node.have.low.get
    if all(number <= low(origin, 0) for origin, number in vector.items()):
        return vector
    return {origin: min(number, low(origin, 0)) for origin, number in vector.items()}


def _least(vectors: list[Vector]) -> Vector | None:
    """The pointwise minimum; None of nothing. A publisher that one of them does not know has no part in it."""
    if not vectors:
        return None
    first, *others = sorted(vectors, key=len)
    least: Vector = {}
    for origin, number in first.items():
        low = min([number, *(other.get(origin, 0) for other in others)])
        if low:
            least[origin] = low
    return least
