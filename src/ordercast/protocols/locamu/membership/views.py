"""LoCaMu with a tree that changes, as those see it who are on it: views, one leaf at a time.

Spec: docs/protocols/locamu.md (V2, V3, V6).
"""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.ids import NodeId, Topic
from ordercast.core.machine import Outbox, Place
from ordercast.protocols.locamu.membership.groups import Groups
from ordercast.protocols.locamu.membership.notices import (
    EVERYBODY,
    Ask,
    Content,
    Depart,
    Enter,
    Seen,
    Settled,
    View,
    only,
)
from ordercast.protocols.locamu.ordering import KNOWN, News
from ordercast.protocols.locamu.rules import Options
from ordercast.protocols.locamu.store import Copy, Entry


class Views(Groups):
    """One node, with its part in the changes of the tree around it."""

    durable: ClassVar[tuple[str, ...]] = (*Groups.durable, "owed")

    def __init__(self, place: Place, options: Options) -> None:
        super().__init__(place, options)
        self.owed: dict[int, NodeId] = {}
        """V6: views that this node may not yet say it has seen, and who leaves there."""
        self.strangers: frozenset[NodeId] = frozenset()
        """Suspected nodes that are not on the tree."""

    def _let_in(self, leaf: NodeId, out: Outbox) -> None:
        """V4: the leaf may begin; its parent tells it."""

    def _take_in(self, content: Content, entry: Entry, out: Outbox) -> None:
        publisher = entry.message.publisher
        match content:
            case Enter(node):
                self.owner.ask(node, publisher)
                self._next_view()
            case Depart():
                if self.owner.seen(self.owner.under_way, publisher):
                    self._end_view()
                self.owner.ask(publisher, None)
                self._next_view()
            case View():
                self._on_view(content)
            case Seen(number):
                if self.owner.seen(number, publisher):
                    self._end_view()
                    self._next_view()
            case Settled(number):
                self._on_settled(number, out)
            case _:
                super()._take_in(content, entry, out)

    def _next_view(self) -> None:
        """V2, V6: the first node changes the tree one leaf at a time."""
        owner, tables = self.owner, self.tables
        while owner.asked and not owner.under_way:
            (leaf, under), *rest = owner.asked
            owner.asked = tuple(rest)
            tree = tables.tree(tables.view)
            if under is None:
                possible = leaf in tree.rank and tree.is_leaf(tree.rank[leaf])
            else:
                possible = leaf not in tree.rank and tree.rank[under] not in tree.gone
            if possible:
                owner.under_way = tables.view + 1
                self._tell(EVERYBODY, View(owner.under_way, leaf, under))

    def _end_view(self) -> None:
        self._tell(EVERYBODY, Settled(self.owner.under_way))
        self.owner.under_way = 0

    def _announce(self, topic: Topic, content: Content, out: Outbox) -> None:
        if isinstance(content, View):
            self.owner.unseen = frozenset(self._everybody()) - self.owner.leaving() - {content.node}
        super()._announce(topic, content, out)

    def _on_view(self, view: View) -> None:
        """V2, V3, V6: publish by the new tree from now on. Who joins is looked at at once, who leaves not yet lost."""
        if view.number > self.tables.view:
            tree = self.tables.tree(self.tables.view)
            if view.number > self.tables.view + 1 or not tree.can_change(view.node, view.under):
                return  # Whoever made this up is far away: nobody here can be blamed.
        if self.tables.change(view.number, view.node, view.under):
            if view.under is not None:
                self._look_around()
            else:
                self._ask_again(view.node)
        if view.under is not None:
            self._tell(only(self.routes.nodes[0]), Seen(view.number))
        elif view.node != self._name:
            self.owed[view.number] = view.node

    def _ask_again(self, leaving: NodeId) -> None:
        """V6: what the owner that leaves has not done is asked of its successor."""
        before = self.tables.around()
        for topic in sorted(self.requests):
            if self.tables.owner(topic, before) == leaving:
                for joins in self.requests[topic]:
                    self._tell(only(self._owner_of(topic)), Ask(topic, joins))

    def _on_settled(self, number: int, out: Outbox) -> None:
        """V3: the parent lets the leaf in. V6: everything of who has left is forgotten."""
        if number > self.tables.view or not self.tables.settle(number):
            return
        leaf, under = self.tables.changes[number - 1]
        if under == self._name:
            self._let_in(leaf, out)
        elif under is None:
            self._lose(self.routes.rank[leaf])
            for topic, epoch in self.owner.without(leaf):
                self._confirm(topic, epoch)
        self._discard()

    def _look_around(self) -> None:
        self.routes = self.tables.around()
        self.origins = {}
        self._survey()
        self._meet_strangers()

    def _meet_strangers(self) -> None:
        """Who was suspected before it was part of the tree is suspected still."""
        met = {name for name in self.strangers if self.routes.rank.get(name) in self.linked}
        self.suspected.update(self.routes.rank[name] for name in met)
        self.strangers -= met
        self.active = self._find_active()

    def _lose(self, rank: int) -> None:
        """V6: no streams of it, no link to it, nothing that waits for it."""
        self.processed.forget(rank)
        self.waiting.forget(rank)
        self.outgoing.pop(rank, None)
        self.incoming.pop(rank, None)
        self.bursts.pop(rank, None)
        self.attending.pop(rank, None)
        self.pushing.pop(rank, None)
        self.told.pop(rank, None)
        self.suspected.discard(rank)
        self._look_around()
        self.streams.forget(rank)

    # Who leaves

    def _tick(self, out: Outbox) -> None:
        super()._tick(out)
        self._look_up(out)

    def _look_up(self, out: Outbox) -> None:
        if self.owed:
            self._pay()
        super()._look_up(out)

    def _pay(self) -> None:
        """V6: say that a view is seen once no message of who leaves is in store here."""
        for view, leaf in sorted(self.owed.items()):
            if not self._keeps_anything_of(leaf):
                del self.owed[view]
                self._tell(only(self.routes.nodes[0]), Seen(view))

    def _keeps_anything_of(self, node: NodeId) -> bool:
        return any(entry.message.publisher == node for entry in self.store.values())

    def _sort_out(self, copy: Copy, news: News | None, out: Outbox) -> int:
        """V6: when a node is forgotten, everybody has all its messages under all their names."""
        if self.routes.gone and self._origin(copy.message) in self.routes.gone:
            return KNOWN
        return super()._sort_out(copy, news, out)

    def _may_forward(self, node: int) -> bool:
        return super()._may_forward(node) or node in self.routes.gone
