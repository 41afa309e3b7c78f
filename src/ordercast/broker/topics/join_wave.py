"""The join wave (BRK-M9): down to every broker, and acknowledged back once everything below has recorded the member."""

from __future__ import annotations

from typing import Protocol

from ordercast.broker.roster_book import fence, written
from ordercast.broker.topics.roster_news import RosterNews
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.core.ids import NodeId
from ordercast.core.process import Connection
from ordercast.core.state import State
from ordercast.pubsub.topic_packets import RosterAck, RosterUpdate


class JoinWave(State):
    """One update that is on its way below this broker."""

    def __init__(self, update: RosterUpdate, node: NodeId, children: set[Connection]) -> None:
        self.update = update
        self.recorded = {node}
        """The brokers that are known to have recorded it."""
        self.children = children


class WaveEnds(Protocol):
    """Port that the root's waves report to when they have come back."""

    def recorded(self, update: RosterUpdate, *, enough: bool) -> None:
        """BRK-M9.3: all brokers that are there have recorded it; `enough` of all that belong to the tree have."""


class JoinWaves(TopicsPart):
    """The updates that this broker has not acknowledged yet."""

    constant = (*TopicsPart.constant, "news", "root")
    root: WaveEnds

    def __init__(self, state: TopicsState, news: RosterNews) -> None:
        super().__init__(state)
        self.news = news
        self.running: dict[int, JoinWave] = {}

    def begin(self, update: RosterUpdate) -> None:
        """BRK-M9.1, BRK-M9.2: record the member (or the fence), pass it on to all children and wait for them."""
        if update.topic:
            self.news.record(update.topic, (written(update.member, update.epoch), *update.followers))
        elif not self.tree.is_root:  # There a fence takes effect when enough others have recorded it.
            self.news.learn({}, fence(update.member, update.epoch), self.tree.parent)
        wave = self.running[update.update_id] = JoinWave(update, self.tree.node, set(self.tree.children))
        for child in sorted(wave.children):
            self.wires.send(child, update)
        self._check(update.update_id)

    def acknowledged(self, child: Connection, packet: RosterAck) -> None:
        wave = self.running.get(packet.update_id)
        if wave is not None and child in wave.children:
            wave.children.discard(child)
            wave.recorded.update(packet.brokers)
            self._check(packet.update_id)

    def child_lost(self, child: Connection) -> None:
        """BRK-M9.2: nobody waits for it any more."""
        for update_id in sorted(self.running):
            wave = self.running.get(update_id)
            if wave is not None:
                wave.children.discard(child)
                self._check(update_id)

    def abandon(self) -> None:
        """BRK-O3.1: whoever wanted to know is gone; joins are asked for again."""
        self.running.clear()

    def _check(self, update_id: int) -> None:
        wave = self.running.get(update_id)
        if wave is None or wave.children:
            return
        del self.running[update_id]
        if self.tree.is_root:
            self.root.recorded(wave.update, enough=self.enough(wave.recorded))
        else:
            self.state.send_up(RosterAck(update_id, tuple(sorted(wave.recorded))))

    def enough(self, recorded: set[NodeId]) -> bool:
        """Whether enough brokers know of the join for a later root to find one of them among its majority."""
        if self.settings.partitions == "excluded":
            return True
        directory = self.tree.directory
        return 2 * len(recorded & directory.keys()) > len(directory)
