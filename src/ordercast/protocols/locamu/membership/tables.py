"""By which lists of members and by which trees messages travel, as one LoCaMu node knows them.

Spec: docs/protocols/locamu.md (LCM-E2 to LCM-E5, LCM-V2, LCM-V3, LCM-V6). Everything here follows from
the messages that the node has processed, so it is the same wherever the same messages were.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from ordercast.core.errors import unknown_name
from ordercast.core.ids import NodeId, Topic
from ordercast.core.state import State
from ordercast.overlay.extended import Audience, Routes
from ordercast.protocols.locamu.membership.notices import (
    EVERYBODY,
    Change,
    Welcome,
    addressee,
    from_tag,
    is_internal,
    tag_of,
)

Way = tuple[Routes, Audience]
"""A tree, and where on it the members are."""


class Tables(State):
    """Lists by group and epoch, trees by view. Epoch 0 and view 0 are the start."""

    constant: ClassVar[tuple[str, ...]] = ("start", "ways", "trees")
    durable: ClassVar[tuple[str, ...]] = ("lists", "newest", "stable", "heard", "changes", "settled")

    def __init__(self, start: Routes) -> None:
        self.start = start
        self.ways: dict[tuple[Topic, int], Way] = {}
        self.trees: dict[int, Routes] = {}
        """Those that were looked at, but for the first."""
        self.lists: dict[Topic, dict[int, frozenset[int]]] = {}
        """Of groups that have changed, the lists that a message may still go by."""
        self.newest: dict[Topic, int] = {}
        self.stable: dict[Topic, int] = {}
        """LCM-E5: older lists are gone, or go with the last message that needs them."""
        self.heard: dict[Topic, int] = {}
        """By which view that was said."""
        self.changes: tuple[Change, ...] = ()
        """All changes of the tree so far; their number is the newest view."""
        self.settled = 0
        """LCM-V3, LCM-V6: the newest view that all nodes go by."""

    # Trees

    @property
    def view(self) -> int:
        return len(self.changes)

    def tree(self, view: int) -> Routes:
        tree = self.trees.get(view) if view else self.start
        if tree is None:
            known = max((other for other in self.trees if other < view), default=0)
            tree = self.trees.get(known, self.start)
            for leaf, under in self.changes[known:view]:
                tree = tree.without_leaf(leaf) if under is None else tree.with_leaf(leaf, under)
            self.trees = {**self.trees, view: tree}
        return tree

    def around(self) -> Routes:
        """The tree with everybody who can still be heard of: who leaves is there until all know that it does."""
        view = self.view
        leaving = view > self.settled and self.changes[view - 1][1] is None
        return self.tree(view - 1 if leaving else view)

    def change(self, number: int, leaf: NodeId, under: NodeId | None) -> bool:
        """LCM-V2, LCM-V6; False: that view is known."""
        if number <= self.view:
            return False
        self.changes = (*self.changes, (leaf, under))
        return True

    def settle(self, number: int) -> bool:
        """LCM-V3, LCM-V6: all nodes go by that view; False: that is known."""
        if number <= self.settled:
            return False
        self.settled = number
        return True

    def entered(self, node: NodeId) -> int:
        """The view that brought this node; 0: it was there at the start, or is unknown."""
        return next((i for i, (leaf, under) in enumerate(self.changes, 1) if leaf == node and under is not None), 0)

    def lists_for(self, entered: int) -> dict[Topic, dict[int, tuple[int, ...]]]:
        """LCM-V4: what messages go by that are for a leaf of that view.

        If it is yet to hear itself that a list is stable, messages by older ones may reach it before; otherwise all of
        them were published before anybody addressed it.
        """
        found: dict[Topic, dict[int, tuple[int, ...]]] = {}
        for topic, known in self.lists.items():
            oldest = self.stable.get(topic, 0) if self.heard.get(topic, 0) < entered else 0
            found[topic] = {epoch: tuple(sorted(members)) for epoch, members in known.items() if epoch >= oldest}
        return found

    def take_over(self, welcome: Welcome) -> None:
        """LCM-V4: know what the parent knows."""
        self.changes, self.settled = welcome.changes, welcome.settled
        self.lists = {
            topic: {epoch: frozenset(members) for epoch, members in known.items()}
            for topic, known in welcome.lists.items()
        }
        self.newest = {topic: max(known) for topic, known in self.lists.items()}
        self.stable = {topic: min(known) for topic, known in self.lists.items()}

    # Lists

    def knows(self, topic: Topic) -> bool:
        return topic in self.newest or self.start.knows(topic)

    def members(self, topic: Topic, epoch: int) -> frozenset[int] | None:
        """None: there is no such list here."""
        known = self.lists.get(topic)
        if known is not None:
            return known.get(epoch)
        return None if epoch else self.start.initial(topic)

    def newest_members(self, topic: Topic) -> frozenset[int]:
        return self.members(topic, self.newest.get(topic, 0)) or frozenset()

    def install(self, topic: Topic, epoch: int, node: int, *, joins: bool) -> bool:
        """LCM-E3: the next list; False: it is known."""
        if epoch <= self.newest.get(topic, 0):
            return False
        before = self.newest_members(topic)
        known = self.lists.setdefault(topic, {0: before})
        known[epoch] = before | {node} if joins else before - {node}
        self.newest[topic] = epoch
        return True

    def owner(self, topic: Topic, tree: Routes) -> NodeId:
        """LCM-E1: the first member at the start, or the first node of all if there was none or it has left."""
        first = min(self.start.initial(topic) or {0})
        return tree.nodes[0 if first in tree.gone else first]

    def present_owner(self, topic: Topic) -> NodeId:
        """LCM-E1: whom this node asks for a change of that group now."""
        return self.owner(topic, self.tree(self.view))

    def check_publishable(self, topic: Topic) -> None:
        """Nobody publishes to a group that nobody has heard of, or to one of the protocol itself."""
        if is_internal(topic) or not self.knows(topic):
            raise unknown_name("group", topic, sorted({*self.start.topics(), *self.newest}))

    def tag(self, topic: Topic) -> int:
        """LCM-E3: what a message that this node publishes goes by."""
        if not self.changes and not self.newest:
            return 0
        return tag_of(self.view, 0 if is_internal(topic) else self.newest.get(topic, 0))

    def way(self, topic: Topic, tag: int) -> Way | None:
        """By which tree and list a message with that tag travels; None: this node does not know, or no longer."""
        way = self.ways.get((topic, tag))
        if way is None:
            view, epoch = from_tag(tag)
            if view > self.view:
                return None
            tree = self.tree(view)
            members = self._addressed(tree, topic) if is_internal(topic) else self.members(topic, epoch)
            if members is None and topic != EVERYBODY:
                return None
            way = self.ways[topic, tag] = tree, tree.audience(members)
        return way

    def _addressed(self, tree: Routes, topic: Topic) -> frozenset[int] | None:
        rank = tree.rank.get(addressee(topic))
        return None if rank is None or rank in tree.gone else frozenset((rank,))

    # Forgetting

    def confirm(self, topic: Topic, epoch: int, view: int) -> bool:
        """LCM-E5: no message by an older list is under way; False: that is known."""
        if epoch <= self.stable.get(topic, 0):
            return False
        self.stable[topic], self.heard[topic] = epoch, view
        return True

    def discard(self, used: Collection[tuple[Topic, int]]) -> bool:
        """LCM-E5: drop lists and trees that are out of date, but for those that messages in store still go by.

        Whether such lists are left.
        """
        epochs = {(topic, from_tag(tag)[1]) for topic, tag in used}
        for topic, known in self.lists.items():
            oldest = self.stable.get(topic, 0)
            for epoch in [epoch for epoch in known if epoch < oldest and (topic, epoch) not in epochs]:
                del known[epoch]
        views = {self.settled, self.view, max(self.view - 1, 0), *(from_tag(tag)[0] for _, tag in used)}
        self.trees = {view: tree for view, tree in self.trees.items() if view in views}
        self.ways = {key: way for key, way in self.ways.items() if self._lasts(key, used)}
        return any(epoch < self.stable.get(topic, 0) for topic, known in self.lists.items() for epoch in known)

    def _lasts(self, key: tuple[Topic, int], used: Collection[tuple[Topic, int]]) -> bool:
        topic, tag = key
        view, epoch = from_tag(tag)
        return key in used or (view == self.view and epoch >= self.stable.get(topic, 0))

    def restore(self, saved: dict[str, object]) -> None:
        super().restore(saved)
        self.ways, self.trees = {}, {}
