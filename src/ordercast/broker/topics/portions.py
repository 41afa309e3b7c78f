"""Work on all topics at once is done in portions (BRK-L7).

A new parent, a lost child or a new term concerns every topic. With a hundred thousand of them a turn would take
seconds, and what all of it says would fill the links for longer than a lease lasts: the root's beats and their
answers would be too late, the tree would fall apart, and everything would begin again, for ever. So a turn looks at a
portion, and the next one is taken up when the neighbours have taken in what was said about the last. Nothing depends
on when a topic is looked at (BRK-L6). What happens in a topic meanwhile does not wait for its portion.
"""

from __future__ import annotations

from ordercast.broker.topics.channels import Channels
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.core.process import Connection
from ordercast.pubsub.client_packets import Ping

_MORE = ("topics", "portion")


class Portions(TopicsPart):
    """Hands the topics that are to be looked at to the end of the turn, a portion at a time."""

    constant = (*TopicsPart.constant, "channels")

    def __init__(self, state: TopicsState, channels: Channels) -> None:
        super().__init__(state)
        self.channels = channels
        self.awaited: dict[Connection, int] = {}
        """Neighbours that have not said yet that they have taken in the last portion, each with what it was asked."""
        self.resting = False
        """There are no neighbours; other inputs of this broker go first."""

    def take(self) -> None:
        """At the end of a turn: the next portion, if all neighbours that are still there have taken in the last one."""
        state = self.state
        if not state.unseen:
            return
        links = state.neighbours()
        self.awaited = {link: asked for link, asked in self.awaited.items() if link in links}
        if self.awaited or self.resting:
            return
        for _ in range(min(state.portion, len(state.unseen))):
            node = self.nodes.get(state.next_unseen())
            if node is not None:
                self.channels.open_if_due(node)
                state.touch(node)
        if state.unseen:
            self._await(links)

    def _await(self, links: list[Connection]) -> None:
        """Connections are first in, first out: the answer says that the portion has arrived and was handled."""
        self.awaited = dict.fromkeys(links, self.wires.now_ns)
        for link in links:
            self.wires.send(link, Ping(self.wires.now_ns))
        if not links:
            self.resting = True
            self.wires.set_timer(_MORE, 1)

    def rested(self) -> None:
        self.resting = False

    def answered(self, link: Connection, asked: int) -> None:
        """A neighbour has answered a Ping; the end of this turn goes on if it was the last one."""
        if self.awaited.get(link) == asked:
            del self.awaited[link]
