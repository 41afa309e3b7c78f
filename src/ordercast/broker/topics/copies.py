"""Copies and acknowledgements: how many brokers hold a publication, told back towards its publisher.

A broker tells each neighbour how many brokers on its own side of the link hold a publication, counted up to what can
matter. What lies beyond different links of a tree is disjoint, so the levels of all links and the own copy add up.

`safe` means: held by `safe_copies` brokers. If fewer are there at all, it means: held by all of them. "There" is the
present tree where a broken connection means a dead process; where partitions are possible a cut-off part of the tree
must not take itself for all, so there it is the whole directory.
"""

from __future__ import annotations

from ordercast.broker.topics.state.topic import Extent, TopicNode
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.core.ids import Origin
from ordercast.core.process import Connection
from ordercast.pubsub.client_packets import Acks
from ordercast.pubsub.filters import is_following
from ordercast.pubsub.received import Received, Summary, Vector
from ordercast.pubsub.topic_packets import Held, HeldAsk, Keep, Reach, TopicClosed


class Copies(TopicsPart):
    """Counts for every publication how many brokers hold it, and acknowledges it when there are enough."""

    constant = (*TopicsPart.constant, "wanted", "levels")

    def __init__(self, state: TopicsState) -> None:
        super().__init__(state)
        self.wanted = state.settings.safe_copies
        self.levels = max(1, self.wanted - 1)
        """A level above this could change no sum."""
        self.reach: dict[Connection, int] = {}
        self.reach_sent: dict[Connection, int] = {}
        self.reach_changed = True

    # How many brokers there are

    def needed(self) -> int:
        """Copies that make a publication safe. While it seeks, a broker does not know who is left."""
        if self.tree.parent is None and not self.tree.is_root:
            return self.wanted
        if self.settings.partitions == "primary":
            return min(self.wanted, len(self.tree.directory))
        return min(self.wanted, 1 + sum(self.reach.get(link, self.wanted) for link in self.state.neighbours()))

    def reached(self, link: Connection, packet: Reach) -> None:
        if link in self.tree.children or link == self.tree.parent:
            self.reach[link] = packet.brokers
            self.neighbours_changed()

    def neighbours_changed(self) -> None:
        self.reach_changed = True
        for topic in sorted(self.nodes):
            node = self.nodes[topic]
            node.notice(node.members)
            self.state.look_later(node)

    def lost(self, link: Connection) -> None:
        self.reach.pop(link, None)
        self.reach_sent.pop(link, None)
        self.neighbours_changed()

    def tell_reach(self) -> None:
        """Each neighbour learns how many brokers are on this side of it; who has not told counts as many."""
        if not self.reach_changed:
            return
        self.reach_changed = False
        links = self.state.neighbours()
        known = {link: self.reach.get(link, self.wanted) for link in links}
        above = 0 if self.tree.is_root or self.tree.parent is not None else self.wanted
        total = 1 + above + sum(known.values())
        for link in links:
            brokers = min(self.wanted, total - known[link])
            if self.reach_sent.get(link) != brokers:
                self.reach_sent[link] = brokers
                self.wires.send(link, Reach(brokers))

    # Who holds what

    def held_by(self, node: TopicNode, origin: Origin, copies: int, without: Connection | None = None) -> Extent:
        """The origin's publications that so many brokers hold, this one among them, those beyond one link left out."""
        own = node.extent(origin)
        others = copies - 1
        if others <= 0:
            return own
        held = [part for link, parts in node.holders.items() if link != without for part in parts]
        lows = sorted((part.low.get(origin, 0) for part in held), reverse=True)
        stable = node.base.get(origin, 0)
        low = max(stable, min(own[0], lows[others - 1])) if len(lows) >= others else stable
        candidates: set[int] = set()
        for part in held:
            candidates |= part.extras.get(origin, set())
        mine = set(own[1])
        extras = {
            number
            for number in candidates
            if number > low
            and (number <= own[0] or number in mine)
            and sum((origin, number) in part for part in held) >= others
        }
        while low + 1 in extras:
            low += 1
            extras.remove(low)
        return low, tuple(sorted(extras))

    def link_opened(self, node: TopicNode, link: Connection, have: Summary, base: Vector) -> None:
        """BRK-S2, BRK-S3: the other end has said what it has."""
        closed = self.book.closed
        first = Received({origin: told for origin, told in have.items() if origin not in closed})
        first.raise_to({origin: number for origin, number in base.items() if origin not in closed})
        node.holders[link] = [first, *(Received() for _ in range(self.levels - 1))]
        origins = {entry.origin for entry in node.unstable()}
        node.notice(origins)
        wanted = set(origins) if node.closers or self.levels > 1 else origins & node.members.keys()
        self._ask(node, [link], wanted)

    def publisher_here(self, node: TopicNode, member: Origin) -> None:
        """A confirmed member wants to know how far what it published elsewhere has come."""
        node.notice((member,))
        if any(entry.origin == member for entry in node.unstable()):
            self._ask(node, self.state.links(node), {member})

    def _ask(self, node: TopicNode, links: list[Connection], origins: set[Origin]) -> None:
        if origins and self.wanted > 1:
            packet = HeldAsk(node.topic, tuple(sorted(origins)))
            for link in links:
                self.wires.send(link, packet)

    def asked(self, node: TopicNode, link: Connection, packet: HeldAsk) -> None:
        known = node.interest.get(link, set())
        origins = self.book.closed.without(packet.origins)
        if self.levels > 1 and not known.issuperset(origins):
            self._ask(node, [other for other in self.state.links(node) if other != link], set(origins))
        node.want_acks(link, origins)
        node.notice(origins)
        self.state.touch(node)

    def told(self, node: TopicNode, link: Connection, packet: Held) -> None:
        if 1 <= packet.level <= self.levels:
            parts = node.holders.setdefault(link, [Received() for _ in range(self.levels)])
            closed = self.book.closed
            news = {origin: told for origin, told in packet.summary.items() if origin not in closed}
            parts[packet.level - 1].merge(news)
            node.notice(news)
            self.state.touch(node)

    # At the end of a turn

    def tell(self, node: TopicNode) -> None:
        """Levels to the links that want them, acknowledgements to local publishers: only what has changed."""
        if not node.fresh:
            return
        fresh = node.take_news()
        if self.wanted > 1:
            for link in self.state.links(node):
                wanted = node.interest.get(link)
                if wanted:
                    self._tell_link(node, link, sorted(wanted & fresh))
        needed = self.needed()
        for origin in sorted(fresh & node.members.keys()):
            self._acknowledge(node, origin, needed)
        for child in sorted(node.closers):
            self._answer_closer(node, child)

    def _tell_link(self, node: TopicNode, link: Connection, origins: list[Origin]) -> None:
        for level in range(1, self.levels + 1):
            news: Summary = {}
            for origin in origins:
                extent = self.held_by(node, origin, level, without=link)
                if node.held_sent.get((link, level, origin), (0, ())) != extent:
                    node.held_sent[link, level, origin] = extent
                    news[origin] = extent
            if news:
                self.wires.send(link, Held(node.topic, level, news))

    def _acknowledge(self, node: TopicNode, origin: Origin, needed: int) -> None:
        member = node.members[origin]
        if member.connection is None:
            return
        levels = (node.extent(origin, held=True), self.held_by(node, origin, needed))
        if levels != member.acked and levels != ((0, ()), (0, ())):
            member.acked = levels
            self.wires.send(member.connection, Acks(node.topic, *levels))

    # Children that close

    def child_closes(self, node: TopicNode, child: Connection, close_id: int) -> None:
        """A child closes its channel: what it had has arrived here before, and is among what is not stable here."""
        origins = {entry.origin for entry in node.unstable()}
        node.closers.setdefault(child, {})[close_id] = {origin: node.extent(origin) for origin in sorted(origins)}
        self._ask(node, [link for link in self.state.links(node) if link != child], origins)
        node.notice(origins or {Origin("")})
        self.state.touch(node)

    def _answer_closer(self, node: TopicNode, child: Connection) -> None:
        """The child may forget once `safe_copies` others hold everything, or it is stable."""
        for close_id, had in sorted(node.closers[child].items()):
            if all(self._safe_elsewhere(node, origin, extent) for origin, extent in had.items()):
                del node.closers[child][close_id]
                self.wires.send(child, TopicClosed(node.topic, close_id))
        if not node.closers[child]:
            del node.closers[child]

    def _safe_elsewhere(self, node: TopicNode, origin: Origin, extent: Extent) -> bool:
        low, extras = self.held_by(node, origin, self.wanted)
        return low >= extent[0] and all(number <= low or number in extras for number in extent[1])

    # Keepers

    def enlist(self, node: TopicNode) -> None:
        """A topic that fewer than `safe_copies` brokers take part in gets keepers from below the root."""
        if is_following(node.topic):
            return  # Nobody publishes there.
        root = self.tree.is_root
        used = node.log or node.pending.entries or self.book.live(node.topic)
        wanted = self.needed() if root and used else node.keeper
        missing = wanted - 1 - len({*node.down, *node.enlisted})
        if missing <= 0:
            return
        children = sorted(self.tree.children, key=lambda child: self.tree.children[child])
        idle = [child for child in children if child not in node.down and child not in node.enlisted]
        for child in idle[:missing]:
            self._keep(node, child, 1)
        missing -= len(idle)
        for child in children:
            more = min(missing, self.reach.get(child, 1) - 1)
            if more > 0:
                missing -= more
                self._keep(node, child, 1 + more)

    def _keep(self, node: TopicNode, child: Connection, brokers: int) -> None:
        if node.enlisted.get(child, 0) < brokers:
            node.enlisted[child] = brokers
            self.wires.send(child, Keep(node.topic, brokers))
