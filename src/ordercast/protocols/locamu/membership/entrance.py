"""Lets a LoCaMu node enter the tree and leave it, told by its application and by the node it hangs on.

Spec: docs/protocols/locamu.md (LCM-V1, LCM-V4 to LCM-V7).
"""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Topic
from ordercast.core.machine import Outbox
from ordercast.core.messages import Message
from ordercast.overlay.extended import TreePlace
from ordercast.protocols.locamu.membership.announcements import Announcements
from ordercast.protocols.locamu.membership.groups import Groups
from ordercast.protocols.locamu.membership.notices import Enter, Farewell, Knock, Welcome, is_internal, only
from ordercast.protocols.locamu.membership.owner import Owner
from ordercast.protocols.locamu.membership.tables import Tables
from ordercast.protocols.locamu.membership.views import ViewsOfTree
from ordercast.protocols.locamu.neighbourhood import Neighbourhood
from ordercast.protocols.locamu.parts import NodePart
from ordercast.protocols.locamu.rounds import PATIENCE
from ordercast.protocols.locamu.store import MessageStore

KNOCK = "knock"

OUTSIDE, INSIDE, LEAVING, DEPARTED, GONE = range(5)
"""Where a node is with the tree: LEAVING: it leaves its groups; DEPARTED: it has said its last word."""


class Entrance(NodePart):
    """Whether a node is part of the tree, and who it has asked in."""

    constant: ClassVar[tuple[str, ...]] = ("place", "knock_ns")
    durable: ClassVar[tuple[str, ...]] = ("status", "knocking", "hurried", "postponed", "wishes", "invited")
    here: Neighbourhood
    store: MessageStore
    tables: Tables
    owner: Owner
    announcements: Announcements
    groups: Groups
    views: ViewsOfTree

    def __init__(self, place: TreePlace, knock_ns: int) -> None:
        self.place = place
        self.knock_ns = knock_ns
        self.status = INSIDE if place.parent is None else OUTSIDE
        self.knocking = False
        """Whether it was told to join, or waits to be told that it has left."""
        self.hurried = False
        """Whether it was told to leave before it had come in."""
        self.knocks = 0
        self.postponed: tuple[Message, ...] = ()
        """LCM-V5: what the application published before the node was part of the tree."""
        self.wishes: tuple[tuple[Topic, bool], ...] = ()
        """LCM-V5: and what it wanted to be a member of, or no longer."""
        self.invited: frozenset[NodeId] = frozenset()
        """LCM-V1: nodes for which this one has asked."""

    def is_there(self) -> bool:
        """Whether the node is part of the tree for others: it may be about to leave."""
        return self.status not in {OUTSIDE, GONE}

    def hears(self, peer: NodeId) -> bool:
        """Whether packets of the peer mean anything: whoever knows this node already, or still, will say it again."""
        routes = self.here.routes
        if self.status == INSIDE and not routes.gone:
            return True
        if not self.is_there() or routes.rank.get(peer) in routes.gone:
            return False
        return self.status != DEPARTED or peer in routes.rank  # LCM-V6: leaves are let in without waiting for this one.

    # What the application asks for

    def join(self, out: Outbox) -> None:
        """LCM-V1: knock until the parent answers."""
        if self.status != OUTSIDE:
            raise UsageError(f"{self.place.node} cannot join: it is part of the tree, or was")
        if not self.knocking:
            self.knocking = True
            self.knock(out)

    def leave(self) -> bool:
        """LCM-V6: leave all groups, then the tree; whether this begins now."""
        if self.status == OUTSIDE and self.knocking:
            self.hurried = True
        if self.status in {LEAVING, DEPARTED, GONE} or self.hurried:
            return False
        node, routes = self.place.node, self.here.routes
        if self.status == OUTSIDE:
            raise UsageError(f"{node} cannot leave: it is not part of the tree")
        if not self.here.me:
            raise UsageError(f"{node} cannot leave: it keeps the list of the nodes")
        if not routes.is_leaf(self.here.me) or self.invited - set(routes.nodes):
            raise UsageError(f"{node} cannot leave: others hang on it")
        self.status = LEAVING
        return True

    def may_publish(self, message: Message) -> bool:
        """Whether a message can be published now; LCM-V5: before the node is part of the tree, it is kept."""
        if message.dst:
            raise UsageError(f"{message.id}: locamu multicasts to groups, not to destinations of a message's own")
        if self.status not in {OUTSIDE, INSIDE}:
            raise UsageError(f"{self.place.node} cannot publish: it is leaving or has left")
        self.tables.check_publishable(message.topic)
        if self.status == OUTSIDE:
            self.postponed = (*self.postponed, message)
        return self.status == INSIDE

    def wish(self, topic: Topic, *, joins: bool) -> None:
        """Be a member of a group, or no longer; LCM-V5: once the node is part of the tree."""
        if is_internal(topic):
            raise UsageError(f"{self.place.node} cannot be a member of {topic!r}: the name is the protocol's own")
        if self.status == INSIDE:
            self.groups.want(topic, joins=joins)
        elif self.status == OUTSIDE:
            self.wishes = (*self.wishes, (topic, joins))
        elif joins:
            raise UsageError(f"{self.place.node} cannot subscribe to {topic!r}: it is leaving or has left")

    # A node and its parent

    def knock(self, out: Outbox) -> None:
        """LCM-V1, LCM-V7: say to the parent that this node wants in, or out; again and again."""
        if not self.knocking:
            return
        self.knocks += 1
        out.send(self.parent(), Knock(self.status == DEPARTED))
        out.set_timer(KNOCK, self.knock_ns, background=self.knocks > PATIENCE)

    def parent(self) -> NodeId:
        if self.place.parent is not None:
            return self.place.parent
        return self.here.routes.nodes[self.here.routes.near[self.here.me][0]]

    def on_knock(self, peer: NodeId, knock: Knock, out: Outbox) -> None:
        """LCM-V7: tell who has left that it has. LCM-V1: pass on that somebody wants in, once. LCM-V4: let it in."""
        routes = self.here.routes
        if knock.leaves:
            if routes.rank.get(peer) in routes.gone:
                out.send(peer, Farewell())
        elif self.status == INSIDE:
            if peer not in routes.rank and peer not in self.invited:
                self.invited |= {peer}
                self.announcements.tell(only(routes.nodes[0]), Enter(peer))
            self.views.let_in(peer, out)

    def awaits(self, answer: Welcome | Farewell, peer: NodeId) -> bool:
        """Whether this is the parent's answer to what the node has asked for."""
        asked = self.status == OUTSIDE and self.knocking if isinstance(answer, Welcome) else self.status == DEPARTED
        return asked and peer == self.parent()

    def makes_sense(self, welcome: Welcome) -> bool:
        """Whether its changes lead to a tree with this node under its parent, and it tells of that tree only."""
        tree = self.tables.start
        for leaf, under in welcome.changes:
            if not tree.can_change(leaf, under):
                return False
            tree = tree.without_leaf(leaf) if under is None else tree.with_leaf(leaf, under)
        here, everybody = tree.rank.get(self.place.node), range(len(tree.nodes))
        if here is None or here in tree.gone or tree.nodes[tree.near[here][0]] != self.parent():
            return False
        members = [node for known in welcome.lists.values() for nodes in known.values() for node in nodes]
        streams = [node for first, second, _ in welcome.past for node in (first, second)]
        return (
            0 <= welcome.settled <= len(welcome.changes)
            and all(known and min(known) >= 0 for known in welcome.lists.values())
            and all(node in everybody for node in (*members, *streams))
        )

    def begin(self, out: Outbox) -> None:
        """LCM-V4: the node is part of the tree from now on."""
        self.status, self.knocking = INSIDE, False
        out.cancel_timer(KNOCK)
        out.note("join", {"under": str(self.place.parent)})

    def waited(self) -> tuple[tuple[tuple[Topic, bool], ...], tuple[Message, ...], bool]:
        """LCM-V5: what was to be done once the node is in: wishes, publications, and whether it is to leave again."""
        waited = self.wishes, self.postponed, self.hurried
        self.wishes, self.postponed, self.hurried = (), (), False
        return waited

    def may_go(self) -> bool:
        """LCM-V6: whether the node that leaves is a member of nothing, and nothing that it began is under way."""
        begun = self.groups.requests or self.owner.awaited or self.store.keeps_anything_of(self.place.node)
        return not begun and self.groups.is_out()

    def depart(self, out: Outbox) -> None:
        """LCM-V6: the last word is said; ask until nobody knows this node any more."""
        self.announcements.fall_silent()
        self.status, self.knocking = DEPARTED, True
        self.knock(out)

    def end(self, out: Outbox) -> None:
        """LCM-V7: nobody knows this node any more."""
        self.status, self.knocking = GONE, False
        out.cancel_timer(KNOCK)
        out.note("leave", {})
