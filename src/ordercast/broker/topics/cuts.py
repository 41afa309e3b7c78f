"""Cuts that are closed across topics (ARC-C1 to ARC-C4): what the whole tree had taken in at one wave.

A round over all brokers goes down every link behind what was sent before it and ahead of what is sent after it. Each
broker notes what it has when the round arrives; so whatever somebody published in answer to a message that is not in
the union comes to every broker behind the round, and is not in it either. Two rounds, between which the tree stood
still, show that nothing is on its way back from a repair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from ordercast.broker.archive.kept import KeptTopics
from ordercast.broker.topics.authority import Authority
from ordercast.broker.topics.orphans import Orphans
from ordercast.broker.topics.state.clients import AttachedClient
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.core.ids import NodeId, Topic
from ordercast.core.process import Connection
from ordercast.pubsub.client_packets import MOST_CUT, MOST_FILTERS_OF_A_CUT, AskCut, CutTold
from ordercast.pubsub.cuts import intervals, union
from ordercast.pubsub.filters import FilterIndex, common, is_filter
from ordercast.pubsub.received import Vector
from ordercast.pubsub.topic_packets import CutReply, CutRequest

_MS = 1_000_000
_MOST_ASKED = 16
"""Cuts that one client may wait for at a time."""
_FORGOTTEN = 4
"""Whoever has not been answered within so many times `request_ms` has asked again."""
_FILTER_WEIGHS = MOST_CUT // MOST_FILTERS_OF_A_CUT
"""A filter in a round costs about as much as so many topics that are named."""
_LOOKS = 10
"""To look whether so many topics are taken in costs about as much as to tell of one."""
_MOST_PARTS = 100 * MOST_FILTERS_OF_A_CUT
"""Filters of a client and of its rights that are looked at together."""
Found = dict[Topic, Vector]
RequestKey = tuple[tuple[NodeId, ...], int]
W = TypeVar("W")


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
        self.asking: dict[Connection, dict[int, int]] = {}
        """The same by client: the number that it gave each, and the one that it has on its way."""
        self.count = 0
        self.requests: dict[RequestKey, tuple[CutRequest, int]] = {}
        """At the root: what was asked, and when first."""
        self.found: Found = {}
        self.serving: dict[RequestKey, CutRequest] = {}
        """Those that the round under way is about."""
        self.names: tuple[str, ...] = ()
        """Topics and filters that the round under way is about."""
        self.noted_before: frozenset[str] = frozenset()
        """What the round before was about: topics, filters, and the topics that were found for them."""

    # ARC-C1: from a client to the root, and back

    def ask(self, client: AttachedClient, packet: AskCut) -> None:
        names, objection = self._wished(client, packet.topics)
        mine = self.asking.get(client.connection, {})
        if not objection and packet.number not in mine and len(mine) >= _MOST_ASKED:
            objection = f"{_MOST_ASKED} others are asked for"
        if objection or not names:
            self.wires.send(client.connection, CutTold(packet.number, {}, objection))
            return
        if packet.number not in mine:
            self.count += 1
            self.asking.setdefault(client.connection, {})[packet.number] = self.count
            self.asked[self.count] = client.connection, packet.number
        self.relay(CutRequest(self.asking[client.connection][packet.number], names))

    def _wished(self, client: AttachedClient, names: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
        """What the client may know of what it asks for; and why it is told nothing, if so."""
        topics = {Topic(name) for name in names if not is_filter(name)}
        filters = {name for name in names if is_filter(name)}
        denied = sorted(topic for topic in topics if not client.may_subscribe(topic))
        if denied:
            return (), f"no right to subscribe to {denied[0]}"
        rights = client.rights.subscribe
        if len(filters) > MOST_FILTERS_OF_A_CUT or len(filters) * len(rights) > _MOST_PARTS:
            return (), f"{len(filters)} filters, and more than {MOST_FILTERS_OF_A_CUT} are not allowed"
        parts = {common(name, right) for name in filters for right in rights}
        known = {part for part in parts if part is not None and (is_filter(part) or self._is_kept(Topic(part)))}
        return tuple(sorted({*topics, *known})), ""

    def _is_kept(self, topic: Topic) -> bool:
        known = topic in self.nodes or topic in self.kept.named or self.kept.find(topic) is not None
        return known and self.kept.rule_of(topic) is not None

    def lost(self, client: AttachedClient) -> None:
        """Its connection is over: nobody waits for what it has asked."""
        for number in self.asking.pop(client.connection, {}).values():
            self.asked.pop(number, None)

    def relay(self, packet: CutRequest) -> None:
        """Towards the root; a broker that seeks drops it, and the client asks again."""
        if self.tree.is_root:
            self._request(packet)
        else:
            self.state.send_up(CutRequest(packet.number, packet.topics, (*packet.path, self.tree.node)))

    def _request(self, packet: CutRequest) -> None:
        if not self.tree.decides:
            return
        _, since_ns = self.requests.get((packet.path, packet.number), (packet, self.wires.now_ns))
        self.requests[packet.path, packet.number] = packet, since_ns
        self.begin_round()

    def answer(self, packet: CutReply) -> None:
        """One step back along the path; at its end the client is told."""
        if not packet.path:
            who = self.asked.pop(packet.number, None)
            client = self.state.clients.get(who[0]) if who is not None else None
            if who is not None and client is not None:
                self.asking[who[0]].pop(who[1])
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
        asked = frozenset(names)
        self.serving = {key: packet for key, (packet, _) in self.requests.items() if asked.issuperset(packet.topics)}

    def _topics_of(self, names: tuple[str, ...]) -> list[Topic]:
        """The topics themselves, and what this broker knows of kept topics that the filters take in.

        Before anybody may publish on a topic every broker has heard of it (BRK-M9.2), so that filters lead all to the
        same topics, but for those that have nothing yet. Of a filter that takes in too many, enough are found.
        """
        found = {Topic(name) for name in names if not is_filter(name)}
        room = {name: MOST_CUT + 1 for name in names if is_filter(name)}
        if room:
            filters = _index((name, name) for name in room)
            for topic in sorted({*self.nodes, *self.kept.named, *self.kept.topics()}):
                takers = [name for name, _ in filters.matching(topic) if room[name]]
                if takers and self.kept.rule_of(topic) is not None:
                    found.add(topic)
                    for name in takers:
                        room[name] -= 1
        return sorted(found)

    def _here(self, topic: Topic) -> Vector:
        node = self.nodes.get(topic)
        archive = self.kept.find(topic) if node is None else None  # Nobody has taken part since this broker started.
        cut = node.have.vector() if node is not None else dict(archive.cut) if archive is not None else {}
        if topic in self.kept.aged:
            cut |= intervals(self.book.closed.summary())
        if node is not None:
            for origin in {*node.pending.numbers, *node.hold.of}:
                cut[origin] = node.extent(origin, held=True)[0]
        for entry in self.orphans.of(topic):
            cut[entry.origin] = max(cut.get(entry.origin, 0), entry.number)
        return cut

    def add(self, found: Found) -> None:
        """From a child, for all below it."""
        for topic, cut in found.items():
            self.found[topic] = union(self.found.get(topic, {}), cut)

    # ARC-C3, ARC-C4: at the root

    def wanted(self) -> tuple[str, ...]:
        """What the next round is about: the oldest requests, as many as one round can do."""
        now, patience_ns = self.wires.now_ns, _FORGOTTEN * self.settings.request_ms * _MS
        self.requests = {key: known for key, known in self.requests.items() if now - known[1] < patience_ns}
        names: set[str] = set()
        weight = 0
        for packet, _ in self.requests.values():
            weight += sum(_FILTER_WEIGHS if is_filter(name) else 1 for name in packet.topics)
            if names and weight > MOST_CUT:
                break
            names.update(packet.topics)
        return tuple(sorted(names))

    def clear(self) -> None:
        """This broker is in another place of the tree: whoever waits asks again."""
        self.requests, self.serving, self.noted_before = {}, {}, frozenset()

    def complete(self, *, stood_still: bool, missing: list[NodeId]) -> bool:
        """Everybody has answered: tell whom two rounds agree for. Gives whether another round at once may help.

        Whoever has asked since waits a little, for all others that will; and so does who comes behind a long answer.
        """
        before, self.noted_before = self.noted_before, frozenset({*self.names, *self.found})
        serving, self.serving = self.serving, {}
        once_more, room = False, MOST_CUT
        found: dict[tuple[str, ...], list[Topic]] = {}
        away: dict[Topic, str] = {}
        for key in [key for key in serving if key in self.requests]:
            if room <= 0:
                break
            names = serving[key].topics
            if names not in found:
                found[names] = self._found_for(names)
                room -= len(self.found) // _LOOKS
            topics = found[names]
            twice = stood_still and before.issuperset((*names, *topics))
            doubt = _too_many(topics) or self._somebody_is_away(topics, away) if twice else _doubt(missing)
            if not doubt or self._has_waited(self.requests[key][1]):
                self._tell(key, serving[key], topics, doubt)
                room -= len(topics)
            elif not twice:
                once_more = True
        return once_more and not missing

    def _found_for(self, names: tuple[str, ...]) -> list[Topic]:
        """The topics that a request is about, as all brokers know them."""
        filters = _index((name, name) for name in names if is_filter(name))
        found = {Topic(name) for name in names if not is_filter(name)}
        return sorted(found.union(topic for topic in self.found if filters.matching(topic)))

    def _tell(self, key: RequestKey, packet: CutRequest, topics: list[Topic], doubt: str) -> None:
        del self.requests[key]
        cuts = {} if doubt else {topic: self.found.get(topic, {}) for topic in topics}
        self.wires.count("cuts_refused" if doubt else "cuts_told")
        self.answer(CutReply(packet.number, packet.path, cuts, doubt))

    def _has_waited(self, since_ns: int) -> bool:
        return self.wires.now_ns - since_ns > self.settings.request_ms * _MS

    def _somebody_is_away(self, topics: list[Topic], known: dict[Topic, str]) -> str:
        """A member whose edge is gone too may have delivered what no broker has any more.

        `known`: what was found out about topics in this turn.
        """
        for topic in topics:
            if topic not in known:
                lost = self.authority.unanswered_for(topic)
                known[topic] = f"{min(lost)} is away, and so is its last broker" if lost else ""
            if known[topic]:
                return known[topic]
        return ""


def _index(filters: Iterable[tuple[W, str]]) -> FilterIndex[W]:
    """Who has which filters: a topic is looked up in it once, however many there are."""
    index: FilterIndex[W] = FilterIndex()
    for watcher, name in filters:
        index.add(name, watcher)
    return index


def _too_many(topics: list[Topic]) -> str:
    many = f"the filters take in {len(topics)} topics, and more than {MOST_CUT} are not allowed"
    return many if len(topics) > MOST_CUT else ""


def _doubt(missing: list[NodeId]) -> str:
    return f"{missing[0]} is away" if missing else "the tree has changed"


def _not_yet() -> None:
    """Until the rounds are there."""
