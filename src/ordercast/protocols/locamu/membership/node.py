"""LoCaMu with groups that change and leaves that join and leave: how a node comes to the tree and goes.

Spec: docs/protocols/locamu.md (V1 to V7).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

import msgspec

from ordercast.core.errors import PeerError, UsageError
from ordercast.core.ids import NodeId, Topic
from ordercast.core.machine import Outbox, Place
from ordercast.core.messages import Message, Packet
from ordercast.overlay.extended import Routes, TreePlace
from ordercast.protocols.locamu.giving import PUSH
from ordercast.protocols.locamu.machine import NEED, PATIENCE, TICK, Locamu
from ordercast.protocols.locamu.membership.groups import OUT
from ordercast.protocols.locamu.membership.notices import (
    Content,
    Depart,
    Enter,
    Farewell,
    Knock,
    Welcome,
    is_internal,
    only,
)
from ordercast.protocols.locamu.membership.tables import Tables
from ordercast.protocols.locamu.membership.views import Views
from ordercast.protocols.locamu.neighbourhood import NOBODY
from ordercast.protocols.locamu.packets import SECOND, SECOND_BITS
from ordercast.protocols.locamu.rules import Options
from ordercast.protocols.locamu.store import Copy
from ordercast.protocols.locamu.streams import Past

KNOCK = "knock"

OUTSIDE, INSIDE, LEAVING, DEPARTED, GONE = range(5)
"""Where a node is with the tree: LEAVING: it leaves its groups; DEPARTED: it has said its last word."""

_HANDSHAKE = (Knock, Welcome, Farewell)


class Membership(Views):
    """One node, with its part in the changes of the tree."""

    constant: ClassVar[tuple[str, ...]] = (*Views.constant, "place", "options")
    durable: ClassVar[tuple[str, ...]] = (
        *Views.durable, "status", "knocking", "hurried", "postponed", "wishes", "invited",
    )  # fmt: skip

    def __init__(self, place: Place, options: Options) -> None:
        super().__init__(_somewhere(place), options)
        assert isinstance(place, TreePlace)
        assert place.routes is not None
        self.place = place
        self.options = options
        self.tables = Tables(place.routes)
        self.status = INSIDE if place.parent is None else OUTSIDE
        self.knocking = False
        """Whether it was told to join, or waits to be told that it has left."""
        self.hurried = False
        """Whether it was told to leave before it had come in."""
        self.knocks = 0
        self.postponed: tuple[Message, ...] = ()
        """V5: what the application published before the node was part of the tree."""
        self.wishes: tuple[tuple[Topic, bool], ...] = ()
        """V5: and what it wanted to be a member of, or no longer."""
        self.invited: frozenset[NodeId] = frozenset()
        """V1: nodes for which this one has asked."""

    # Events

    def on_join(self, out: Outbox) -> None:
        """V1: knock until the parent answers."""
        if self.status != OUTSIDE:
            raise UsageError(f"{self.place.node} cannot join: it is part of the tree, or was")
        if not self.knocking:
            self.knocking = True
            self._knock(out)

    def on_leave(self, out: Outbox) -> None:
        """V6: leave all groups, then the tree."""
        if self.status == OUTSIDE and self.knocking:
            self.hurried = True
        if self.status in {LEAVING, DEPARTED, GONE} or self.hurried:
            return
        self._check_leave()
        self.status = LEAVING
        for topic in self._topics():
            self._want(topic, out, joins=False)
        self._look_up(out)

    def _check_leave(self) -> None:
        node = self.place.node
        if self.status == OUTSIDE:
            raise UsageError(f"{node} cannot leave: it is not part of the tree")
        if not self.me:
            raise UsageError(f"{node} cannot leave: it keeps the list of the nodes")
        if not self.routes.is_leaf(self.me) or self.invited - set(self.routes.nodes):
            raise UsageError(f"{node} cannot leave: others hang on it")

    def on_recover(self, out: Outbox) -> None:
        if self.status in {INSIDE, LEAVING, DEPARTED}:
            super().on_recover(out)
        if self.knocking:
            self._knock(out)

    def on_publish(self, message: Message, out: Outbox) -> None:
        if self.status == INSIDE:
            super().on_publish(message, out)
        elif self.status == OUTSIDE:
            self._check_publishable(message.topic)
            self.postponed = (*self.postponed, message)
        else:
            raise UsageError(f"{self.place.node} cannot publish: it is leaving or has left")

    def on_subscribe(self, topic: Topic, out: Outbox) -> None:
        self._wish(topic, out, joins=True)

    def on_unsubscribe(self, topic: Topic, out: Outbox) -> None:
        self._wish(topic, out, joins=False)

    def _wish(self, topic: Topic, out: Outbox, *, joins: bool) -> None:
        if is_internal(topic):
            raise UsageError(f"{self.place.node} cannot be a member of {topic!r}: the name is the protocol's own")
        if self.status == INSIDE:
            self._want(topic, out, joins=joins)
        elif self.status == OUTSIDE:
            self.wishes = (*self.wishes, (topic, joins))
        elif joins:
            raise UsageError(f"{self.place.node} cannot subscribe to {topic!r}: it is leaving or has left")

    def on_receive(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        if isinstance(packet, _HANDSHAKE):
            self._on_handshake(peer, packet, out)
        elif self.status in {OUTSIDE, GONE}:
            return  # Whoever knows this node already, or still, will say it again, or need not.
        elif self.routes.gone and self.routes.rank.get(peer) in self.routes.gone:
            return
        elif self.status == DEPARTED and peer not in self.routes.rank:
            return  # V3, V6: a leaf is let in without waiting for who has asked to go.
        else:
            super().on_receive(peer, packet, out)

    def on_timer(self, name: Hashable, out: Outbox) -> None:
        if name == KNOCK:
            self._knock(out)
        elif self.status not in {OUTSIDE, GONE}:
            super().on_timer(name, out)

    def on_suspect(self, peer: NodeId, out: Outbox) -> None:
        if self._is_linked(peer):
            super().on_suspect(peer, out)
        else:
            self.strangers |= {peer}

    def on_trust(self, peer: NodeId, out: Outbox) -> None:
        self.strangers -= {peer}
        if self._is_linked(peer):
            super().on_trust(peer, out)

    def _is_linked(self, peer: NodeId) -> bool:
        return self.status not in {OUTSIDE, GONE} and self.routes.rank.get(peer) in self.linked

    def _check_no_self_dependency(self, copy: Copy, before: Past) -> None:
        """N4, V4: a new leaf has inherited the past of what it catches up with, but passes none of that on."""
        if copy.forwarder == NOBODY or not self.routes.is_leaf(self.me):
            super()._check_no_self_dependency(copy, before)

    # A node and its parent

    def _knock(self, out: Outbox) -> None:
        """V1, V7."""
        if not self.knocking:
            return
        self.knocks += 1
        out.send(self._parent_name(), Knock(self.status == DEPARTED))
        out.set_timer(KNOCK, self.ack_ns, background=self.knocks > PATIENCE)

    def _parent_name(self) -> NodeId:
        if self.place.parent is not None:
            return self.place.parent
        return self.routes.nodes[self.routes.near[self.me][0]]

    def _on_handshake(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        match packet:
            case Knock(leaves=True):
                if self.routes.rank.get(peer) in self.routes.gone:
                    out.send(peer, Farewell())
            case Knock():
                self._on_knock(peer, out)
            case Welcome() if self.status == OUTSIDE and self.knocking and peer == self._parent_name():
                self._begin(packet, out)
            case Farewell() if self.status == DEPARTED and peer == self._parent_name():
                self._end(out)
            case _:
                pass

    def _on_knock(self, peer: NodeId, out: Outbox) -> None:
        """V1: pass it on, once. V4: or let it in."""
        if self.status != INSIDE:
            return
        if peer not in self.routes.rank and peer not in self.invited:
            self.invited |= {peer}
            self._tell(only(self.routes.nodes[0]), Enter(peer))
            self._look_up(out)
        self._let_in(peer, out)

    def _let_in(self, leaf: NodeId, out: Outbox) -> None:
        """V4: a leaf begins with all that its parent knows at that moment."""
        tables, entered = self.tables, self.tables.entered(leaf)
        if not 0 < entered <= tables.settled:
            return
        ball = self.routes.ball(self.routes.rank[leaf], self.radii.window)
        known = self.streams.pairs(tuple(self.streams.values))
        streams = [(stream >> SECOND_BITS, stream & SECOND, number) for stream, number in sorted(known)]
        past = tuple((a, b, number) for a, b, number in streams if a in ball and b in ball)
        out.send(leaf, Welcome(tuple(tables.changes), tables.settled, tables.lists_for(entered), past))

    def _begin(self, welcome: Welcome, out: Outbox) -> None:
        """V4: part of the tree from now on; what was sent here meanwhile is asked for."""
        if not self._makes_sense(welcome):
            raise PeerError(self._parent_name(), "sent a welcome that makes no sense")
        self.tables.take_over(welcome)
        self._settle_in(self.tables.around())
        self._inherit(welcome)
        self.status, self.knocking = INSIDE, False
        out.cancel_timer(KNOCK)
        out.note("join", {"under": str(self.place.parent)})
        self._meet_strangers()
        super().on_recover(out)
        for topic, joins in self.wishes:
            self._want(topic, out, joins=joins)
        for message in self.postponed:
            super().on_publish(message, out)
        self.wishes, self.postponed = (), ()
        if self.hurried:
            self.hurried = False
            self.on_leave(out)

    def _makes_sense(self, welcome: Welcome) -> bool:
        """Whether its changes lead to a tree with this node under its parent, and it tells of that tree only."""
        tree = self.tables.start
        for leaf, under in welcome.changes:
            if not tree.can_change(leaf, under):
                return False
            tree = tree.without_leaf(leaf) if under is None else tree.with_leaf(leaf, under)
        here, everybody = tree.rank.get(self.place.node), range(len(tree.nodes))
        if here is None or here in tree.gone or tree.nodes[tree.near[here][0]] != self._parent_name():
            return False
        members = [node for known in welcome.lists.values() for nodes in known.values() for node in nodes]
        streams = [node for first, second, _ in welcome.past for node in (first, second)]
        return (
            0 <= welcome.settled <= len(welcome.changes)
            and all(known and min(known) >= 0 for known in welcome.lists.values())
            and all(node in everybody for node in (*members, *streams))
        )

    def _inherit(self, welcome: Welcome) -> None:
        """V4: the past of the parent, as far as this node looks."""
        for a, b, number in welcome.past:
            stream = a << SECOND_BITS | b
            if self._is_inside(stream):
                self.streams.values[self.streams.at(stream, inside=True)] = number

    def _settle_in(self, routes: Routes) -> None:
        """Start over on another tree, with nothing of what was."""
        Locamu.__init__(self, msgspec.structs.replace(self.place, routes=routes), self.options)

    def restore(self, saved: dict[str, Any]) -> None:
        self.tables.restore(saved["tables"])
        if saved["status"] != OUTSIDE:
            self._settle_in(self.tables.around())
        super().restore(saved)

    def _tell(self, topic: Topic, content: Content) -> None:
        """V6: after its last word a node says nothing more."""
        if self.status != DEPARTED:
            super()._tell(topic, content)

    # Leaving

    def _look_up(self, out: Outbox) -> None:
        super()._look_up(out)
        if self.status == LEAVING and self._may_go():
            self._tell(only(self.routes.nodes[0]), Depart())
            super()._look_up(out)
            self.status, self.knocking = DEPARTED, True
            self._knock(out)

    def _may_go(self) -> bool:
        """V6: a member of nothing, everybody knows it, and nothing that this node began is under way."""
        standing = all(standing == OUT for standing, _ in self.standing.values())
        member = any(self.me in self.tables.newest_members(topic) for topic in self._topics())
        begun = self.requests or self.owner.awaited or self._keeps_anything_of(self.place.node)
        return standing and not member and not begun

    def _topics(self) -> list[Topic]:
        return sorted({*self.tables.start.topics(), *self.tables.newest, *self.requests})

    def _end(self, out: Outbox) -> None:
        """V7: nobody knows this node any more."""
        self.status, self.knocking = GONE, False
        for timer in (KNOCK, TICK, NEED, PUSH):
            out.cancel_timer(timer)
        out.note("leave", {})


def _somewhere(place: Place) -> Place:
    """A place on some tree, for a node that does not know its own yet."""
    if not isinstance(place, TreePlace) or place.routes is None or place.parent is None:
        return place
    return msgspec.structs.replace(place, routes=place.routes.with_leaf(place.node, place.routes.nodes[0]))
