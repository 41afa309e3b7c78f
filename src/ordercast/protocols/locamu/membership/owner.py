"""Counts who has yet to acknowledge a change: the owner's part of a group, and the first node's part for the tree.

Spec: docs/protocols/locamu.md (LCM-E2, LCM-E5, LCM-V2, LCM-V3, LCM-V6).
"""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.ids import NodeId, Topic
from ordercast.core.state import State
from ordercast.overlay.extended import Routes
from ordercast.protocols.locamu.membership.notices import Change


class Owner(State):
    """The changes that this node has announced and that not everybody has acknowledged."""

    durable: ClassVar[tuple[str, ...]] = ("last", "awaited", "asked", "under_way", "unseen")

    def __init__(self) -> None:
        self.last: dict[Topic, int] = {}
        """By group: the newest epoch that this node has announced."""
        self.awaited: dict[Topic, dict[int, set[NodeId]]] = {}
        """By group and epoch: who has not installed that list."""
        self.asked: tuple[Change, ...] = ()
        """Changes of the tree that wait for their turn."""
        self.under_way = 0
        """The view that is being seen by all; 0: none."""
        self.unseen: frozenset[NodeId] = frozenset()

    # Groups

    def next_epoch(self, topic: Topic, newest: int) -> int:
        """LCM-E2: the epoch after all that there were."""
        self.last[topic] = epoch = max(self.last.get(topic, 0), newest) + 1
        return epoch

    def announced(self, topic: Topic, epoch: int, nodes: set[NodeId]) -> None:
        self.awaited.setdefault(topic, {})[epoch] = nodes

    def installed(self, topic: Topic, epoch: int, node: NodeId) -> int:
        """LCM-E5: a node has this list and all before it; the epoch that is stable because of it, 0 if none."""
        epochs = self.awaited.get(topic, {})
        for earlier in [earlier for earlier in epochs if earlier <= epoch]:
            epochs[earlier].discard(node)
        return self._stable(topic)

    def without(self, node: NodeId) -> list[tuple[Topic, int]]:
        """LCM-V6: nobody waits for who has left; the lists that are stable because of it."""
        found: list[tuple[Topic, int]] = []
        for topic in sorted(self.awaited):
            for nodes in self.awaited[topic].values():
                nodes.discard(node)
            found.append((topic, self._stable(topic)))
        return [(topic, epoch) for topic, epoch in found if epoch]

    def _stable(self, topic: Topic) -> int:
        """The newest epoch that everybody has, together with all before it. These are no longer waited for."""
        epochs, newest = self.awaited.get(topic, {}), 0
        for epoch in sorted(epochs):
            if epochs[epoch]:
                break
            newest = epoch
            del epochs[epoch]
        if topic in self.awaited and not epochs:
            del self.awaited[topic]
        return newest

    # The tree

    def ask(self, leaf: NodeId, under: NodeId | None) -> None:
        if (leaf, under) not in self.asked:
            self.asked = (*self.asked, (leaf, under))

    def next_view(self, tree: Routes, view: int) -> Change | None:
        """LCM-V2: the next change that was asked for and is possible, under way from now on; None: it is not time."""
        while self.asked and not self.under_way:
            (leaf, under), *rest = self.asked
            self.asked = tuple(rest)
            if under is None:
                possible = leaf in tree.rank and tree.is_leaf(tree.rank[leaf])
            else:
                possible = leaf not in tree.rank and tree.rank[under] not in tree.gone
            if possible:
                self.under_way = view
                return leaf, under
        return None

    def show(self, nodes: set[NodeId], changed: NodeId) -> None:
        """LCM-V3, LCM-V6: wait for these to see the view, but not for who says nothing any more, or nothing yet."""
        leaving = {leaf for leaf, under in self.asked if under is None}
        self.unseen = frozenset(nodes) - leaving - {changed}

    def end_view(self) -> int:
        """Everybody has seen the view; which it was."""
        ended, self.under_way = self.under_way, 0
        return ended

    def seen(self, view: int, node: NodeId) -> bool:
        """LCM-V3, LCM-V6: whether everybody goes by the view now, because of this node."""
        if view != self.under_way or node not in self.unseen:
            return False
        self.unseen -= {node}
        return not self.unseen
