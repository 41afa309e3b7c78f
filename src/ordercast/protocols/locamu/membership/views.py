"""LoCaMu with a tree that changes, as those see it who are on it: views, one leaf at a time.

Spec: docs/protocols/locamu.md (LCM-V2 to LCM-V4, LCM-V6).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ordercast.core.ids import NodeId
from ordercast.core.machine import Outbox
from ordercast.protocols.locamu.held import HeldCopies
from ordercast.protocols.locamu.links import LinkEnds
from ordercast.protocols.locamu.membership.announcements import Announcements
from ordercast.protocols.locamu.membership.groups import Groups
from ordercast.protocols.locamu.membership.notices import (
    EVERYBODY,
    Content,
    Depart,
    Enter,
    MembersChange,
    Settled,
    TreeChange,
    TreeSeen,
    Welcome,
    decode,
    only,
)
from ordercast.protocols.locamu.membership.owner import Owner
from ordercast.protocols.locamu.membership.tables import Tables
from ordercast.protocols.locamu.neighbourhood import Neighbourhood
from ordercast.protocols.locamu.packets import SECOND, SECOND_BITS
from ordercast.protocols.locamu.parts import NodePart
from ordercast.protocols.locamu.processed import Processed
from ordercast.protocols.locamu.resend import Resend
from ordercast.protocols.locamu.rounds import Rounds
from ordercast.protocols.locamu.store import Entry, MessageStore
from ordercast.protocols.locamu.streams import Streams
from ordercast.protocols.locamu.waiting import WaitingCopies


class ViewsOfTree(NodePart):
    """A node's part in the changes of the tree around it."""

    durable: ClassVar[tuple[str, ...]] = ("owed",)
    here: Neighbourhood
    streams: Streams
    processed: Processed
    waiting: WaitingCopies
    store: MessageStore
    links: LinkEnds
    rounds: Rounds
    held: HeldCopies
    resend: Resend
    tables: Tables
    owner: Owner
    announcements: Announcements
    groups: Groups

    def __init__(self) -> None:
        self.owed: dict[int, NodeId] = {}
        """LCM-V6: views that this node may not yet say it has seen, and who leaves there."""
        self.strangers: frozenset[NodeId] = frozenset()
        """Suspected nodes that are not linked to this one, or not yet."""

    # Messages of the protocol itself

    def take_in(self, entry: Entry, out: Outbox) -> None:
        """Act on a message of the protocol itself, if it is for this node."""
        topic = entry.message.topic
        if not entry.depth and (topic == EVERYBODY or topic == only(self.here.name)):
            content = decode(entry.message.payload)
            if content is not None:
                self._take_in(content, entry, out)

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
            case TreeChange():
                self._on_view(content)
            case TreeSeen(number):
                if self.owner.seen(number, publisher):
                    self._end_view()
                    self._next_view()
            case Settled(number):
                self._on_settled(number, out)
            case _:
                self.groups.take_in(content, entry, out)

    def announce(self, content: Content) -> None:
        """Announce a change, and wait for everybody who gets this message now to acknowledge it."""
        if isinstance(content, MembersChange):
            self.owner.announced(content.topic, content.epoch, self._everybody())
        elif isinstance(content, TreeChange):
            self.owner.show(self._everybody(), content.node)

    def _everybody(self) -> set[NodeId]:
        """All nodes that get a message to everybody that this node publishes now."""
        tree = self.tables.tree(self.tables.view)
        return {tree.nodes[node] for node in tree.present()}

    def _next_view(self) -> None:
        """LCM-V2, LCM-V6: the first node changes the tree one leaf at a time."""
        tables = self.tables
        change = self.owner.next_view(tables.tree(tables.view), tables.view + 1)
        if change is not None:
            self.announcements.tell(EVERYBODY, TreeChange(tables.view + 1, *change))

    def _end_view(self) -> None:
        self.announcements.tell(EVERYBODY, Settled(self.owner.end_view()))

    def _on_view(self, view: TreeChange) -> None:
        """LCM-V2, LCM-V3, LCM-V6: publish by the new tree. Who joins is looked at at once, who leaves not yet lost."""
        if view.number > self.tables.view:
            tree = self.tables.tree(self.tables.view)
            if view.number > self.tables.view + 1 or not tree.can_change(view.node, view.under):
                return  # Whoever made this up is far away: nobody here can be blamed.
        if self.tables.change(view.number, view.node, view.under):
            if view.under is not None:
                self._look_around()
            else:
                self.groups.ask_again(view.node)
        if view.under is not None:
            self._say_seen(view.number)
        elif view.node != self.here.name:
            self.owed[view.number] = view.node

    def _say_seen(self, view: int) -> None:
        self.announcements.tell(only(self.here.routes.nodes[0]), TreeSeen(view))

    def _on_settled(self, number: int, out: Outbox) -> None:
        """LCM-V3: the parent lets the leaf in. LCM-V6: everything of who has left is forgotten."""
        if number > self.tables.view or not self.tables.settle(number):
            return
        leaf, under = self.tables.changes[number - 1]
        if under == self.here.name:
            self.let_in(leaf, out)
        elif under is None:
            self._lose(self.here.routes.rank[leaf])
            for topic, epoch in self.owner.without(leaf):
                self.groups.confirm(topic, epoch)
        self.groups.discard()

    def let_in(self, leaf: NodeId, out: Outbox) -> None:
        """LCM-V4: a leaf begins with all that its parent knows at that moment."""
        tables, entered = self.tables, self.tables.entered(leaf)
        if not 0 < entered <= tables.settled:
            return
        ball = self.here.ball(self.here.routes.rank[leaf])
        known = self.streams.pairs(self.streams.values)
        streams = [(stream >> SECOND_BITS, stream & SECOND, number) for stream, number in sorted(known)]
        past = tuple((a, b, number) for a, b, number in streams if a in ball and b in ball)
        out.send(leaf, Welcome(tuple(tables.changes), tables.settled, tables.lists_for(entered), past))

    def inherit(self, past: Iterable[tuple[int, int, int]]) -> None:
        """LCM-V4: begin with the past of the parent, as far as this node looks."""
        self.streams.raise_to_pairs([(a << SECOND_BITS | b, number) for a, b, number in past])

    # What changes around this node

    def _look_around(self) -> None:
        """See the tree as it is now; what is known already stays."""
        self.here.look_around(self.tables.around())
        self.processed.watch(*self.here.numbering())
        for part in (self.streams, self.held, self.store, self.links):
            part.see_anew()
        self.store.wait_anew()
        self.meet_strangers()

    def meet_strangers(self) -> None:
        """Suspect still whoever was suspected before it was part of the tree."""
        rank, linked = self.here.routes.rank, self.here.linked
        met = {name for name in self.strangers if rank.get(name) in linked}
        self.strangers -= met
        self.here.suspect(rank[name] for name in met)

    def suspect(self, peer: NodeId) -> None:
        """Remember that a node is suspected that may become part of the tree."""
        self.strangers |= {peer}

    def trust(self, peer: NodeId) -> None:
        self.strangers -= {peer}

    def _lose(self, rank: int) -> None:
        """LCM-V6: no streams of it, no link to it, nothing that waits for it."""
        for part in (self.processed, self.waiting, self.links, self.rounds, self.resend):
            part.forget(rank)
        self.here.trust(rank)
        self._look_around()
        self.streams.forget(rank)

    def pay(self) -> None:
        """LCM-V6: say that a view is seen once no message of who leaves is in store here."""
        for view, leaf in sorted(self.owed.items()):
            if not self.store.keeps_anything_of(leaf):
                del self.owed[view]
                self._say_seen(view)
