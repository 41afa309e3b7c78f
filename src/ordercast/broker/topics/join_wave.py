"""The join wave (M9): down to every broker, and acknowledged back once everything below has recorded the member.

A broker with clients that watch for a topic's name holds its acknowledgement of the topic's first join back until each
of them has asked to join too: the first member is granted after they are in the roster, so nothing can become stable
without them, and the difference brings them the very first publication.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ordercast.broker.roster_book import fence
from ordercast.core.ids import NodeId
from ordercast.core.process import Connection
from ordercast.core.state import State
from ordercast.pubsub.topic_packets import RosterAck, RosterUpdate

if TYPE_CHECKING:
    from ordercast.broker.topics.topics import Topics

_PATIENCE = "wave"


class Wave(State):
    """One update that is on its way below this broker."""

    def __init__(self, update: RosterUpdate, node: NodeId, children: set[Connection]) -> None:
        self.update = update
        self.recorded = {node}
        """The brokers that are known to have recorded it."""
        self.children = children
        self.watchers: set[Connection] = set()


class Waves(State):
    """The updates that this broker has not acknowledged yet."""

    constant: ClassVar[tuple[str, ...]] = ("t",)

    def __init__(self, topics: Topics) -> None:
        self.t = topics
        self.running: dict[int, Wave] = {}

    def begin(self, update: RosterUpdate) -> None:
        """M9.1, M9.2."""
        if update.topic:
            self.t.record(update.topic, update.member, update.epoch)
        elif not self.t.overlay.is_root:  # There a fence takes effect when enough others have recorded it.
            self.t.learn({}, fence(update.member), self.t.overlay.parent)
        wave = self.running[update.update_id] = Wave(update, self.t.overlay.node, set(self.t.overlay.children))
        for child in sorted(wave.children):
            self.t.wires.send(child, update)
        if update.first and self.holds_back():
            wave.watchers = self.t.watching.told_of(update.topic)
        if wave.watchers:  # One that never answers must not keep the topic closed.
            patience_ns = int(self.t.settings.member_timeout_ms * 1e6 / 2)
            self.t.wires.set_timer(("topics", _PATIENCE, update.update_id), patience_ns)
        self._check(update.update_id)

    def holds_back(self) -> bool:
        return True

    def acknowledged(self, child: Connection, packet: RosterAck) -> None:
        wave = self.running.get(packet.update_id)
        if wave is not None and child in wave.children:
            wave.children.discard(child)
            wave.recorded.update(packet.brokers)
            self._check(packet.update_id)

    def child_lost(self, child: Connection) -> None:
        """M9.2: nobody waits for it any more."""
        for update_id in sorted(self.running):
            wave = self.running.get(update_id)
            if wave is not None:
                wave.children.discard(child)
                self._check(update_id)

    def watcher_done(self, watcher: Connection, topic: str | None = None) -> None:
        """It has asked to join, or is gone (no topic)."""
        for update_id in sorted(self.running):
            wave = self.running.get(update_id)
            if wave is not None and watcher in wave.watchers and topic in (None, wave.update.topic):
                wave.watchers.discard(watcher)
                self._check(update_id)

    def patience_over(self, update_id: int) -> None:
        wave = self.running.get(update_id)
        if wave is not None:
            wave.watchers.clear()
            self._check(update_id)

    def abandon(self) -> None:
        """O3.1: whoever wanted to know is gone; joins are asked for again."""
        self.running.clear()

    def _check(self, update_id: int) -> None:
        wave = self.running.get(update_id)
        if wave is None or wave.children or wave.watchers:
            return
        del self.running[update_id]
        self.t.wires.cancel_timer(("topics", _PATIENCE, update_id))
        if self.t.overlay.is_root:
            self.t.authority.recorded(wave.update, enough=self.enough(wave.recorded))
        else:
            self.t.send_up(RosterAck(update_id, tuple(sorted(wave.recorded))))

    def enough(self, recorded: set[NodeId]) -> bool:
        """Where partitions are possible, a later root must find somebody among its majority who knows."""
        if self.t.settings.partitions == "excluded":
            return True
        directory = self.t.overlay.directory
        return 2 * len(recorded & directory.keys()) > len(directory)
