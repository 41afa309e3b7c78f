"""Topic channels and synchronisation (BRK-S1 to BRK-S8): one channel per topic and parent-child link.

Nothing is sent on a new channel before the other end's summary has arrived; then the difference, then live traffic.
"""

from __future__ import annotations

from ordercast.broker.topics.copies import Copies
from ordercast.broker.topics.orphans import KeptEntries, Orphans
from ordercast.broker.topics.stability import StabilityVotes
from ordercast.broker.topics.state.log import packets_of
from ordercast.broker.topics.state.topic import TopicNode
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.core.ids import Topic
from ordercast.core.process import Connection
from ordercast.pubsub.client_packets import Entries, TopicState
from ordercast.pubsub.filters import is_following
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Received, Summary, Vector
from ordercast.pubsub.topic_packets import (
    Grounded,
    Keep,
    OpenTopic,
    Prepare,
    SyncEnd,
    TopicBuffer,
    TopicClose,
    TopicClosed,
    TopicReset,
)

_NOT_OPENED = 0
"""The number of a channel that the parent has not been told of."""


class Channels(TopicsPart):
    """Opens, synchronises and closes the channels of all topics."""

    constant = (*TopicsPart.constant, "stability", "copies", "orphans")

    def __init__(self, state: TopicsState, stability: StabilityVotes, copies: Copies, orphans: Orphans) -> None:
        super().__init__(state)
        self.stability = stability
        self.copies = copies
        self.orphans = orphans
        self.opened = 0
        self.lives = 0
        self.repair_began_ns: int | None = None
        self.unsynchronised: set[tuple[str, int]] = set()
        self.repaired_topics = 0
        self.recovered_entries = 0

    # BRK-S1 to BRK-S4

    def node(self, topic: Topic) -> TopicNode:
        """Get or create (BRK-S2, BRK-M2); a new node opens its channel to the parent at once."""
        node = self.nodes.get(topic)
        if node is None:
            node = self.nodes[topic] = TopicNode(topic, by_key=self.settings.order_scope == "key")
            self._begin(node)
            self.open(node)
        return node

    def _begin(self, node: TopicNode) -> None:
        """BRK-M2: histories that clients have sent for an earlier log of the topic are not complete for this one."""
        self.lives += 1
        node.life = self.lives

    def keep(self, packet: Keep) -> None:
        """The parent asks this broker to hold a topic, whether or not it has members of it."""
        node = self.node(packet.topic)
        node.keeper = max(node.keeper, packet.brokers)
        self.state.look_again(node)

    def open(self, node: TopicNode) -> None:
        """BRK-S1: tell the parent what this broker has of the topic; the channel is live when it has answered."""
        node.up_live = False
        node.open_id = _NOT_OPENED
        node.begin_channel()
        parent = self.tree.parent
        if parent is None:
            return
        node.drop_link(parent)
        self.opened += 1
        node.open_id = self.opened
        node.was_grounded = node.is_grounded()
        if self.repair_began_ns is not None:
            self.unsynchronised.discard((node.topic, _NOT_OPENED))
            self.unsynchronised.add((node.topic, node.open_id))
        self.wires.send(
            parent, OpenTopic(node.topic, node.open_id, node.was_grounded, node.have.summary(), node.base.copy())
        )

    def open_all(self) -> None:
        """BRK-O10.3: there is a parent again, so every topic gets its channel."""
        topics = sorted(self.nodes)
        for topic in topics[: self.state.portion]:
            self.open(self.nodes[topic])
        for topic in topics[self.state.portion :]:  # BRK-L7
            node = self.nodes[topic]
            node.up_live = False
            node.open_id = _NOT_OPENED
            if self.repair_began_ns is not None:
                self.unsynchronised.add((topic, _NOT_OPENED))
            self.state.look_later(node)
        self.repaired_topics = len(self.unsynchronised)
        self._repair_over()

    def open_if_due(self, node: TopicNode) -> None:
        """BRK-L7: its turn has come; unless it has been opened meanwhile."""
        if node.open_id == _NOT_OPENED and self.tree.parent is not None:
            self.open(node)

    def child_opens(self, child: Connection, packet: OpenTopic) -> None:
        """BRK-S2: a child takes part in the topic from now on."""
        if child not in self.tree.children:
            return
        node = self.node(packet.topic)
        self.stability.merge_base(node, packet.base, child)
        node.drop_link(child)
        node.down[child] = packet.grounded
        self.wires.send(child, TopicBuffer(node.topic, packet.open_id, node.have.summary(), node.base.copy()))
        self._synchronise(node, child, packet.open_id, packet.have, packet.base)
        self.ground(node)

    def parent_answers(self, parent: Connection, packet: TopicBuffer) -> None:
        """BRK-S3: anything but the answer to the last OpenTopic is of an earlier life of the channel."""
        node = self.nodes.get(packet.topic)
        if node is None or parent != self.tree.parent or not self.current(node, packet.open_id):
            return
        self.stability.merge_base(node, packet.base, parent)
        self.stability.tell_base(node, parent, packet.base)
        node.up_live = True
        self._synchronise(node, parent, packet.open_id, packet.have, packet.base)

    def current(self, node: TopicNode, open_id: int) -> bool:
        return node.open_id == open_id

    def _synchronise(self, node: TopicNode, link: Connection, open_id: int, have: Summary, base: Vector) -> None:
        send = self.wires.send
        for piece in packets_of(self.lacking(node, have, base)):
            send(link, Entries(node.topic, piece))
        for piece in packets_of(list(node.pending.entries.values())):
            send(link, Prepare(node.topic, piece))
        send(link, SyncEnd(node.topic, open_id))
        self.copies.link_opened(node, link, have, base)
        node.look_at_all()
        self.state.vote_again(node)
        self.state.touch(node)

    def lacking(self, node: TopicNode, have: Summary, base: Vector) -> list[Publication]:
        """BRK-S4: the set difference, in log order."""
        return node.difference(have, base)

    def sync_ended(self, link: Connection, packet: SyncEnd) -> None:
        """A repair is over when the last topic is synchronised."""
        if link == self.tree.parent and self.repair_began_ns is not None:
            self.unsynchronised.discard((packet.topic, packet.open_id))
            self._repair_over()

    def received(self, new: int) -> None:
        """So many new entries came over a link: during a repair they are counted."""
        if self.repair_began_ns is not None:
            self.recovered_entries += new

    def _repair_over(self) -> None:
        if self.unsynchronised or self.repair_began_ns is None:
            return
        took_ms = (self.wires.now_ns - self.repair_began_ns) / 1e6
        self.repair_began_ns = None
        self.wires.note("repair_end", {
            "phase": "synchronised", "topics": str(self.repaired_topics), "received": str(self.recovered_entries),
            "ms": f"{took_ms:.3f}",
        })  # fmt: skip

    # BRK-S6 to BRK-S8

    def accepts(self, node: TopicNode | None, link: Connection) -> bool:
        """BRK-S6: from a child that takes part, or from the parent on a live channel. All else is stale."""
        return node is not None and (link in node.down or (node.up_live and link == self.tree.parent))

    def child_grounded(self, child: Connection, packet: Grounded) -> None:
        node = self.nodes.get(packet.topic)
        if node is not None and child in node.down:
            node.down[child] = packet.grounded
            self.ground(node)

    def ground(self, node: TopicNode) -> None:
        """BRK-S7: what follows from a change of the members here and below."""
        if self.tree.is_root or node.topic not in self.nodes:
            return
        grounded = node.is_grounded()
        lost = node.was_grounded and not grounded
        gained = grounded and not node.was_grounded
        node.was_grounded = grounded
        if gained and node.open_id:
            self.state.send_up(Grounded(node.topic, grounded=True))
        elif (lost and self.must_be_grounded()) or not self._needed(node):
            self.reset(node)

    def denied(self, node: TopicNode) -> None:
        """A fenced session has pushed its history here. No member has delivered it, or it would be known by now."""
        if not self.tree.is_root and node.topic in self.nodes and not node.is_grounded():
            self.reset(node)

    def must_be_grounded(self) -> bool:
        """F-TOT-10: what a broker without a confirmed member has is no reference for anybody."""
        return True

    def _needed(self, node: TopicNode) -> bool:
        return bool(node.members or node.waiting or node.down or node.keeper or node.kept)

    def reset(self, node: TopicNode, *, told_by_parent: bool = False) -> None:
        """BRK-S7.2: begin the topic anew, or end it if nobody is there. What it had is kept apart until it is safe."""
        self.wires.count("topic_resets")
        kept = KeptEntries(node.unstable(), node.holders.get(self.tree.parent or 0, [Received()])[0])
        for child in sorted(node.down):
            self.wires.send(child, TopicReset(node.topic))
        self.orphans.vouch(node.topic, node.closers)
        if node.kept:
            self.stability.kept.stash(node.topic, node.log.entries, self.tree.term)
        needed = self._needed(node)
        node.down.clear()
        node.clear()
        self._begin(node)
        if not node.open_id:
            self.orphans.take_over(node.topic, kept.entries)
        else:
            self.orphans.close(node.topic, kept, flushed=node.up_live and not told_by_parent)
        if not needed and node.topic not in self.orphans.waiting:
            self._destroy(node)
            return
        self._ask_again(node)
        self.open(node)
        self.state.touch(node)

    def _ask_again(self, node: TopicNode) -> None:
        """The histories of waiting clients went with the log: they are asked for them once more (BRK-M2)."""
        if is_following(node.topic):
            return
        for waiting in node.waiting.values():
            if waiting.connection is not None:
                waiting.begin_with(node.life)
                self.wires.send(waiting.connection, TopicState(node.topic, {}, {}, node.life))
            elif waiting.away:
                waiting.look_for_it_again()

    def forget_unused(self) -> list[Topic]:
        """BRK-S9, at the root: end the topics in which nobody takes part and of which nothing is left to know.

        Children that only hold one for safety's sake are told; whoever has begun to take part opens it anew.
        """
        unused = [topic for topic, node in self.nodes.items() if self._is_unused(node)]
        for topic in unused:
            for child in sorted(self.nodes[topic].down):
                self.wires.send(child, TopicReset(topic))
            self._destroy(self.nodes[topic])
        return unused

    def _is_unused(self, node: TopicNode) -> bool:
        below = True in node.down.values() or (node.down and self.stability.kept.rule_of(node.topic) is not None)
        taken = node.members or node.waiting or node.kept or node.closers or below
        return not (taken or node.is_known() or self.book.joined.get(node.topic) or node.topic in self.orphans.waiting)

    def _destroy(self, node: TopicNode) -> None:
        del self.nodes[node.topic]
        self.state.dirty.discard(node.topic)
        self.state.weigh(node.topic, 0)
        node.open_id = 0
        self.orphans.forget_if_over(node.topic)

    def parent_resets(self, parent: Connection, packet: TopicReset) -> None:
        """BRK-S7.3: the parent has begun the topic anew; a broker with members opens it again, others reset too."""
        if parent != self.tree.parent:
            return
        self.orphans.parent_forgot(packet.topic)
        node = self.nodes.get(packet.topic)
        if node is None:
            return
        node.keeper = 0
        if node.is_grounded():
            self.open(node)
        else:
            self.reset(node, told_by_parent=True)

    def child_closes(self, child: Connection, packet: TopicClose) -> None:
        """BRK-S8. The answer waits until enough others hold what the child had."""
        node = self.nodes.get(packet.topic)
        if node is None or child not in node.down:
            if packet.close_id and child in self.tree.children:  # This broker was reset before.
                self.orphans.vouch(packet.topic, {child: {packet.close_id: {}}})
            return
        if packet.close_id:
            self.copies.child_closes(node, child, packet.close_id)
        self.drop_child(node, child)

    def drop_child(self, node: TopicNode, child: Connection) -> None:
        """BRK-S8: the child takes no part in the topic any more."""
        self._forget_child(node, child)
        self.state.look_again(node)
        self.ground(node)

    def _forget_child(self, node: TopicNode, child: Connection) -> None:
        node.down.pop(child, None)
        node.drop_link(child)
        self.state.vote_again(node)  # The last one counted the child's members, who may report elsewhere.

    def child_lost(self, child: Connection) -> None:
        self.orphans.child_lost(child)
        for topic in sorted(self.nodes):
            node = self.nodes.get(topic)
            if node is not None:
                if node.lose_child(child):
                    self.state.look_later(node)
                if child in node.down:
                    self._forget_child(node, child)
                    self.state.look_later(node)
                    self.ground(node)

    def parent_lost(self, parent: Connection | None) -> None:
        """BRK-O3.1: all channels up are gone; what is not grounded is reset."""
        self.repair_began_ns = self.wires.now_ns
        self.recovered_entries = 0
        self.unsynchronised.clear()
        for topic in sorted(self.nodes):
            node = self.nodes[topic]
            node.open_id = node.keeper = 0
            node.up_live = False
            if parent is not None:
                node.drop_link(parent)
            if not node.is_grounded() and self.must_be_grounded():
                self.reset(node)
            else:
                node.was_grounded = node.is_grounded()

    def became_root(self) -> None:
        """There is nobody to synchronise with; the root's log is the reference from here on."""
        self.repair_began_ns = None
        self.unsynchronised.clear()

    def closed_by_parent(self, parent: Connection, packet: TopicClosed) -> None:
        if parent == self.tree.parent:
            self.orphans.closed(packet.topic, packet.close_id)
