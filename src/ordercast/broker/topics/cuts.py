"""Cuts that are closed across topics (ARC-C1 to ARC-C4): what the whole tree had taken in at one wave.

A round over all brokers goes down every link behind what was sent before it and ahead of what is sent after it. Each
broker notes what it has when the round arrives; so whatever somebody published in answer to a message that is not in
the union comes to every broker behind the round, and is not in it either. Two rounds, between which the tree stood
still, show that nothing is on its way back from a repair.
"""

from __future__ import annotations

from collections.abc import Callable

from ordercast.broker.archive.kept import KeptTopics
from ordercast.broker.topics.authority import Authority
from ordercast.broker.topics.clients import AttachedClient
from ordercast.broker.topics.orphans import Orphans
from ordercast.broker.topics.topics_state import TopicsPart, TopicsState
from ordercast.core.ids import NodeId, Topic
from ordercast.core.process import Connection
from ordercast.pubsub.client_packets import MOST_CUT, AskCut, CutTold
from ordercast.pubsub.filters import allows, is_filter
from ordercast.pubsub.received import Vector
from ordercast.pubsub.topic_packets import CutReply, CutRequest

_MS = 1_000_000
_MOST_ASKED = 16
"""Cuts that one client may wait for at a time."""
_FORGOTTEN = 4
"""Whoever has not been answered within so many times `request_ms` has asked again."""
Found = dict[Topic, Vector]


class Cuts(TopicsPart):
    """Requests for cuts, and this broker's notes for the round that is under way."""

    constant = (*TopicsPart.constant, "authority", "orphans", "kept", "begin_round")

    def __init__(self, state: TopicsState, authority: Authority, orphans: Orphans, kept: KeptTopics) -> None:
        super().__init__(state)
        self.authority = authority
        self.orphans = orphans
        self.kept = kept
        self.begin_round: Callable[[], None] = _not_yet
        self.asked: dict[int, tuple[Connection, int]] = {}
        """Requests of local clients that are on their way to the root, by the numbers that they have there."""
        self.count = 0
        self.requests: dict[tuple[tuple[NodeId, ...], int], tuple[CutRequest, int]] = {}
        """At the root: what was asked, and when."""
        self.found: Found = {}
        self.serving: dict[tuple[tuple[NodeId, ...], int], CutRequest] = {}
        """Those that were there when the round under way began."""
        self.names: tuple[str, ...] = ()
        """Topics and filters that the round under way is about."""
        self.noted_before: frozenset[str] = frozenset()
        """What the round before was about: topics, filters, and the topics that were found for them."""

    # ARC-C1: from a client to the root, and back

    def ask(self, client: AttachedClient, packet: AskCut) -> None:
        named = (Topic(name) for name in packet.topics if not is_filter(name))
        denied = [topic for topic in named if not client.may_subscribe(topic)]
        if denied:
            self.wires.send(client.connection, CutTold(packet.number, {}, f"no right to subscribe to {denied[0]}"))
            return
        who, clients = (client.connection, packet.number), self.state.clients
        self.asked = {number: other for number, other in self.asked.items() if other != who and other[0] in clients}
        if sum(connection == client.connection for connection, _ in self.asked.values()) >= _MOST_ASKED:
            self.wires.send(client.connection, CutTold(packet.number, {}, f"{_MOST_ASKED} others are asked for"))
            return
        self.count += 1
        self.asked[self.count] = who
        self.relay(CutRequest(self.count, packet.topics))

    def relay(self, packet: CutRequest) -> None:
        """Towards the root; a broker that seeks drops it, and the client asks again."""
        if self.tree.is_root:
            self._request(packet)
        else:
            self.state.send_up(CutRequest(packet.number, packet.topics, (*packet.path, self.tree.node)))

    def _request(self, packet: CutRequest) -> None:
        if not self.tree.decides:
            return
        now, patience_ns = self.wires.now_ns, _FORGOTTEN * self.settings.request_ms * _MS
        self.requests = {key: known for key, known in self.requests.items() if now - known[1] < patience_ns}
        self.requests[packet.path, packet.number] = packet, now
        self.begin_round()

    def answer(self, packet: CutReply) -> None:
        """One step back along the path; at its end the client is told."""
        if not packet.path:
            who = self.asked.pop(packet.number, None)
            client = self.state.clients.get(who[0]) if who is not None else None
            if who is not None and client is not None:
                cuts = {topic: cut for topic, cut in packet.cuts.items() if client.may_subscribe(topic)}
                self.wires.send(who[0], CutTold(who[1], cuts, packet.why_not))
            return
        for child, name in self.tree.children.items():
            if name == packet.path[-1]:
                shorter = CutReply(packet.number, packet.path[:-1], packet.cuts, packet.why_not)
                self.wires.send(child, shorter)
                return

    # ARC-C2: the round, as every broker sees it

    def begin(self, names: tuple[str, ...]) -> None:
        """The round is here: note what this broker has, before anything that comes behind it."""
        self.names = names
        self.found = {topic: self._here(topic) for topic in self._topics_of(names)}
        self.serving = {key: packet for key, (packet, _) in self.requests.items()}

    def _topics_of(self, names: tuple[str, ...]) -> list[Topic]:
        """The topics themselves, and what this broker knows of kept topics that the filters take in.

        Before anybody may publish on a topic every broker has heard of it (BRK-M9.2), so that filters lead all to the
        same topics, but for those that have nothing yet.
        """
        found = {Topic(name) for name in names if not is_filter(name)}
        filters = [name for name in names if is_filter(name)]
        if filters:
            known = {*self.nodes, *self.kept.named, *self.kept.topics()}
            found.update(t for t in known if allows(filters, t) and self.kept.rule_of(t) is not None)
        return sorted(found)

    def _here(self, topic: Topic) -> Vector:
        node = self.nodes.get(topic)
        archive = self.kept.find(topic) if node is None else None  # Nobody has taken part since this broker started.
        cut = node.have.vector() if node is not None else dict(archive.cut) if archive is not None else {}
        if node is not None:
            for origin in {*node.pending.numbers, *node.hold.of}:
                cut[origin] = node.extent(origin, held=True)[0]
        for entry in self.orphans.of(topic):
            cut[entry.origin] = max(cut.get(entry.origin, 0), entry.number)
        return cut

    def add(self, found: Found) -> None:
        """From a child, for all below it."""
        for topic, cut in found.items():
            mine = self.found.setdefault(topic, {})
            mine.update({origin: number for origin, number in cut.items() if number > mine.get(origin, 0)})

    # ARC-C3, ARC-C4: at the root

    def wanted(self) -> tuple[str, ...]:
        return tuple(sorted({topic for packet, _ in self.requests.values() for topic in packet.topics}))

    def clear(self) -> None:
        """This broker is in another place of the tree: whoever waits asks again."""
        self.requests, self.serving, self.noted_before = {}, {}, frozenset()

    def complete(self, *, stood_still: bool, missing: list[NodeId]) -> bool:
        """Everybody has answered: tell whom two rounds agree for. Gives whether another round at once may help.

        Whoever has asked since waits a little, for all others that will.
        """
        before, self.noted_before = self.noted_before, frozenset({*self.names, *self.found})
        serving, self.serving = self.serving, {}
        once_more = False
        for key in [key for key in serving if key in self.requests]:
            topics = self._found_for(serving[key].topics)
            twice = stood_still and before.issuperset((*serving[key].topics, *topics))
            doubt = _too_many(topics) or self._somebody_is_away(topics) if twice else _doubt(missing)
            if not doubt or self._has_waited(self.requests[key][1]):
                self._tell(key, serving[key], topics, doubt)
            elif not twice:
                once_more = True
        return once_more and not missing

    def _found_for(self, names: tuple[str, ...]) -> list[Topic]:
        """The topics that a request is about, as all brokers know them."""
        filters = [name for name in names if is_filter(name)]
        found = {Topic(name) for name in names if not is_filter(name)}
        return sorted(found.union(topic for topic in self.found if allows(filters, topic)))

    def _tell(self, key: tuple[tuple[NodeId, ...], int], packet: CutRequest, topics: list[Topic], doubt: str) -> None:
        del self.requests[key]
        cuts = {} if doubt else {topic: self.found.get(topic, {}) for topic in topics}
        self.wires.count("cuts_refused" if doubt else "cuts_told")
        self.answer(CutReply(packet.number, packet.path, cuts, doubt))

    def _has_waited(self, since_ns: int) -> bool:
        return self.wires.now_ns - since_ns > self.settings.request_ms * _MS

    def _somebody_is_away(self, topics: list[Topic]) -> str:
        """A member whose edge is gone too may have delivered what no broker has any more."""
        for topic in topics:
            lost = self.authority.unanswered_for(topic)
            if lost:
                return f"{min(lost)} is away, and so is its last broker"
        return ""


def _too_many(topics: list[Topic]) -> str:
    many = f"the filters take in {len(topics)} topics, and more than {MOST_CUT} are not allowed"
    return many if len(topics) > MOST_CUT else ""


def _doubt(missing: list[NodeId]) -> str:
    return f"{missing[0]} is away" if missing else "the tree has changed"


def _not_yet() -> None:
    """Until the rounds are there."""
