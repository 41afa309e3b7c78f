"""State that the parts of the topics half share: topics, clients, the roster, and the ports around it."""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from ordercast.broker.place import NO_LIMIT, BrokerLedger, BrokerPlace, SavedBroker
from ordercast.broker.ports import Term, TreePort
from ordercast.broker.roster_book import RosterBook
from ordercast.broker.topics.state.clients import AttachedClient
from ordercast.broker.topics.state.member import Member
from ordercast.broker.topics.state.topic import TopicNode
from ordercast.core.ids import Origin, Topic
from ordercast.core.messages import Packet
from ordercast.core.process import Connection, Wires
from ordercast.core.state import State
from ordercast.pubsub.seals import Seals
from ordercast.pubsub.settings import BrokerSettings


class TopicsState(State):
    """Shared state. All parts read it; `Channels` alone adds topics, `RosterNews` alone changes memberships."""

    constant: ClassVar[tuple[str, ...]] = ("settings", "wires", "tree", "ledger", "seals", "max_payload_bytes")
    derived: ClassVar[tuple[str, ...]] = ("weights", "weight")
    portion: ClassVar[int] = 500
    """Topics that one turn looks at when something concerns all of them (portions.py)."""

    def __init__(
        self, settings: BrokerSettings, wires: Wires, tree: TreePort, ledger: BrokerLedger, saved: SavedBroker | None,
        place: BrokerPlace | None,
    ) -> None:  # fmt: skip
        self.settings = settings
        self.wires = wires
        self.tree = tree
        self.ledger = ledger
        self.seals = Seals(place.seal_key if place else b"")
        self.max_payload_bytes = place.max_payload_bytes if place else NO_LIMIT
        self.nodes: dict[Topic, TopicNode] = {}
        self.clients: dict[Connection, AttachedClient] = {}
        self.lines_of: dict[str, tuple[Connection, ...]] = {}
        """The connections of each client, by its name: one, or for a moment more."""
        self.book = RosterBook(saved.roster, saved.fenced, saved.closed) if saved else RosterBook()
        self._sessions_ended = False
        self.settled: dict[Origin, set[Topic]] = {}
        """BRK-F3: the topics whose base names a session that can be folded."""
        self.weights: dict[Topic, int] = {}
        """Bytes of the publications of each topic, as they were when it was last looked at; their sum is `weight`."""
        self.weight = 0
        self.dirty: set[Topic] = set()
        """Topics that the end of the turn looks at."""
        self.unseen: deque[Topic] = deque()
        """BRK-L7: topics that later turns look at, because something has changed for all; the same, as a set."""
        self.unseen_set: set[Topic] = set()
        self.votes_due: set[Topic] = set()
        """Topics in which something has changed that the stability votes depend on."""

    def touch(self, node: TopicNode) -> None:
        """BRK-L6: look at the topic again when the turn ends."""
        self.dirty.add(node.topic)

    def look_again(self, node: TopicNode) -> None:
        """BRK-L6, BRK-M7: look at everything in the topic again: who is here, or who must be, has changed."""
        node.look_at_all()
        self.dirty.add(node.topic)

    def look_later(self, node: TopicNode) -> None:
        """BRK-L7: the same, for a change that concerns all topics: a portion of them in each turn."""
        node.look_at_all()
        if node.topic not in self.unseen_set:
            self.unseen_set.add(node.topic)
            self.unseen.append(node.topic)

    def next_unseen(self) -> Topic:
        topic = self.unseen.popleft()
        self.unseen_set.discard(topic)
        return topic

    def vote_again(self, node: TopicNode) -> None:
        """BRK-ST1: the topic needs a new vote."""
        self.votes_due.add(node.topic)

    def sessions_have_ended(self) -> None:
        """BRK-F3: the root may fold them."""
        self._sessions_ended = True

    def have_sessions_ended(self) -> bool:
        """Whether some have since the last time that this was asked."""
        ended, self._sessions_ended = self._sessions_ended, False
        return ended

    def waits_for(self, node: TopicNode, member: Member) -> bool:
        """BRK-ST1, BRK-W1: whether a local member's report counts for what is stable.

        It receives, or only publishes so far and follows a filter that takes the topic in: then it is about to.
        """
        if member.receives or member.leaving or member.connection is None:
            return member.receives and not member.leaving
        return self.clients[member.connection].follows(node.topic)

    def weigh(self, topic: Topic, weight: int) -> None:
        """The topic's publications take so many bytes now."""
        self.weight += weight - self.weights.get(topic, 0)
        if weight:
            self.weights[topic] = weight
        else:
            self.weights.pop(topic, None)

    def links(self, node: TopicNode) -> list[Connection]:
        """BRK-S5: the neighbours that take part in the topic."""
        links = list(node.down)
        if node.up_live and self.tree.parent is not None:
            links.append(self.tree.parent)
        return links

    def neighbours(self) -> list[Connection]:
        """All links of this broker, the one to the parent last."""
        parent = self.tree.parent
        return [*sorted(self.tree.children), *([parent] if parent is not None else [])]

    def send_up(self, packet: Packet) -> None:
        """To the parent; dropped while there is none."""
        if self.tree.parent is not None:
            self.wires.send(self.tree.parent, packet)

    def counts(self, term: Term) -> bool:
        """BRK-L5: a report counts in its own term only."""
        return tuple(term) == tuple(self.tree.term)

    def attach(self, client: AttachedClient) -> None:
        self.clients[client.connection] = client
        self.lines_of[client.name] = (*self.lines_of.get(client.name, ()), client.connection)

    def detach(self, client: AttachedClient) -> None:
        del self.clients[client.connection]
        left = tuple(line for line in self.lines_of.pop(client.name) if line != client.connection)
        if left:
            self.lines_of[client.name] = left

    def clients_named(self, name: str) -> list[AttachedClient]:
        """All that are connected under the name, in the order of their connections."""
        return [self.clients[line] for line in sorted(self.lines_of.get(name, ()))]

    def clients_in_order(self) -> list[AttachedClient]:
        return [self.clients[connection] for connection in sorted(self.clients)]


class TopicsPart(State):
    """Base of the parts: each has a share of the rules, and besides the shared state only what these rules remember."""

    constant: ClassVar[tuple[str, ...]] = ("state", "settings", "wires", "tree", "nodes", "book")

    def __init__(self, state: TopicsState) -> None:
        self.state = state
        self.settings = state.settings
        self.wires = state.wires
        self.tree = state.tree
        self.nodes = state.nodes
        self.book = state.book
