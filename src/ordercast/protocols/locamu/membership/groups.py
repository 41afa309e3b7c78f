"""LoCaMu with groups that change: every change is a LoCaMu message to everybody, and every message says its list.

Spec: docs/protocols/locamu.md (E1 to E6).
"""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.errors import InvariantError, PeerError, unknown_name
from ordercast.core.ids import NodeId, Topic
from ordercast.core.machine import Outbox, Place
from ordercast.core.messages import Guarantee, Message
from ordercast.overlay.extended import Audience, Routes
from ordercast.protocols.locamu.machine import Locamu
from ordercast.protocols.locamu.membership.notices import (
    EVERYBODY,
    Ask,
    Content,
    Installed,
    Members,
    Stable,
    decode,
    encode,
    from_tag,
    internal_origin,
    is_internal,
    only,
)
from ordercast.protocols.locamu.membership.owner import Owner
from ordercast.protocols.locamu.membership.tables import Tables
from ordercast.protocols.locamu.neighbourhood import NOBODY
from ordercast.protocols.locamu.rules import Options
from ordercast.protocols.locamu.store import Copy, Entry

OUT, COMING, IN, GOING = range(4)
"""Where a node is with one group, seen from outside: before it, asked in, a member, asked out (E6)."""


class Groups(Locamu):
    """One node, with its part in the changes of groups."""

    durable: ClassVar[tuple[str, ...]] = (
        *Locamu.durable,
        "tables",
        "owner",
        "notices",
        "requests",
        "standing",
        "outdated",
    )

    def __init__(self, place: Place, options: Options) -> None:
        super().__init__(place, options)
        self.tables = Tables(self.routes)
        self.owner = Owner()
        self.notices = 0
        """How many messages of the protocol itself this node has published."""
        self.unsent: tuple[tuple[Topic, Content], ...] = ()
        """What is to be published before the event at hand ends."""
        self.requests: dict[Topic, list[bool]] = {}
        """E1: what was asked for (in: True) and has not come."""
        self.standing: dict[Topic, tuple[int, int]] = {}
        """E6: of groups that this node has joined or left, where it is and since which epoch."""
        self.outdated = False
        """Whether there are tables that nobody needs any more, or soon will not."""

    # By which list messages travel

    def _audience(self, topic: Topic, epoch: int) -> tuple[Routes, Audience]:
        way = self.tables.way(topic, epoch)
        if way is None:
            raise InvariantError(f"{self._name}: no list of the members of {topic!r} for tag {epoch}")
        return way

    def _check_table(self, copy: Copy) -> None:
        """E3: whoever is to process a message has processed the list it goes by."""
        if self._origin(copy.message) == NOBODY or copy.forwarder not in self.way:
            raise self._nonsense(copy.sender, copy.message)
        way = self.tables.way(copy.message.topic, copy.epoch)
        if way is None or self.me >= len(way[0].nodes):
            sender = self.routes.nodes[copy.sender]
            raise PeerError(sender, f"sent {copy.message.id}, which goes by a list of members that nobody announced")

    def _check_publishable(self, topic: Topic) -> None:
        if is_internal(topic) or not self.tables.knows(topic):
            raise unknown_name("group", topic, sorted({*self.tables.start.topics(), *self.tables.newest}))

    def _epoch_of(self, topic: Topic) -> int:
        return self.tables.tag(topic)

    # What the application asks for

    def _want(self, topic: Topic, out: Outbox, *, joins: bool) -> None:
        """E1: ask the owner, unless this is so already or will be."""
        asked = self.requests.get(topic)
        if joins == (asked[-1] if asked else self.me in self.tables.newest_members(topic)):
            return
        self.requests.setdefault(topic, []).append(joins)
        self._tell(only(self._owner_of(topic)), Ask(topic, joins))
        self._look_up(out)

    def _owner_of(self, topic: Topic) -> NodeId:
        return self.tables.owner(topic, self.tables.tree(self.tables.view))

    # Messages of the protocol itself

    def _tell(self, topic: Topic, content: Content) -> None:
        self.unsent = (*self.unsent, (topic, content))

    def _look_up(self, out: Outbox) -> None:
        while self.unsent:
            (topic, content), *rest = self.unsent
            self.unsent = tuple(rest)
            self._announce(topic, content, out)
        super()._look_up(out)

    def _announce(self, topic: Topic, content: Content, out: Outbox) -> None:
        """A message like any other, but for its origin and that nobody delivers it."""
        if isinstance(content, Members):
            self.owner.announced(content.topic, content.epoch, self._everybody())
        self.notices += 1
        message = Message(internal_origin(self._name), self.notices, topic, encode(content), Guarantee.CAUSAL)
        self._process(Copy(message, NOBODY, 0, self._epoch_of(topic), (), (), [], NOBODY, []), None, out)

    def _everybody(self) -> set[NodeId]:
        """Who gets a message to everybody that this node publishes now."""
        tree = self.tables.tree(self.tables.view)
        return {tree.nodes[node] for node in tree.present()}

    def _hand_over(self, entry: Entry, out: Outbox) -> None:
        if not entry.internal:
            super()._hand_over(entry, out)
        elif not entry.depth and (entry.message.topic == EVERYBODY or entry.message.topic == only(self._name)):
            content = decode(entry.message.payload)
            if content is not None:
                self._take_in(content, entry, out)

    def _take_in(self, content: Content, entry: Entry, out: Outbox) -> None:
        publisher = entry.message.publisher
        match content:
            case Ask():
                self._on_ask(content, publisher)
            case Members():
                self._on_members(content, publisher, out)
            case Installed(topic, epoch):
                self._confirm(topic, self.owner.installed(topic, epoch, publisher))
            case Stable():
                self._on_stable(content, from_tag(entry.epoch)[0], out)
            case _:
                pass  # Of the tree: see Membership.

    def _on_ask(self, ask: Ask, node: NodeId) -> None:
        """E2: the owner makes the next list and tells everybody."""
        epoch = self.owner.next_epoch(ask.topic, self.tables.newest.get(ask.topic, 0))
        self._tell(EVERYBODY, Members(ask.topic, epoch, node, ask.joins))

    def _on_members(self, change: Members, owner: NodeId, out: Outbox) -> None:
        """E3, E4: go by the new list from now on, and say so."""
        rank = self.tables.tree(self.tables.view).rank.get(change.node)
        if rank is None:
            return  # Whoever made this up is far away: nobody here can be blamed.
        if self.tables.install(change.topic, change.epoch, rank, joins=change.joins) and rank == self.me:
            self.requests[change.topic] = self.requests.get(change.topic, [])[1:]
            if not self.requests[change.topic]:
                del self.requests[change.topic]
            self.standing[change.topic] = (COMING if change.joins else GOING, change.epoch)
            self._note_change(change.topic, out, joins=change.joins, pending=True)
        self._tell(only(owner), Installed(change.topic, change.epoch))

    def _confirm(self, topic: Topic, epoch: int) -> None:
        """E5: everybody goes by that list, or a newer one."""
        if epoch:
            self._tell(EVERYBODY, Stable(topic, epoch))

    def _on_stable(self, stable: Stable, view: int, out: Outbox) -> None:
        """E5, E6: older lists can go, and what this node had asked for has become true everywhere."""
        known = stable.epoch <= self.tables.newest.get(stable.topic, 0)
        if not known or not self.tables.confirm(stable.topic, stable.epoch, view):
            return
        self._discard()
        standing, since = self.standing.get(stable.topic, (OUT, 0))
        if standing in {COMING, GOING} and since <= stable.epoch:
            joins = standing == COMING
            self.standing[stable.topic] = (IN if joins else OUT, since)
            self._note_change(stable.topic, out, joins=joins, pending=False)

    def _note_change(self, topic: Topic, out: Outbox, *, joins: bool, pending: bool) -> None:
        """E6: pending: messages may come from now on, or may not; otherwise all do that are published now, or none."""
        info = {"topic": str(topic), "pending": "true"} if pending else {"topic": str(topic)}
        out.note("subscribe" if joins else "unsubscribe", info)

    def _tick(self, out: Outbox) -> None:
        super()._tick(out)
        if self.outdated:
            self._discard()

    def _discard(self) -> None:
        """E5: forget lists, trees and plans that no message here goes by."""
        used = {(entry.message.topic, entry.epoch) for entry in self.store.values()}
        used |= {(copy.message.topic, copy.epoch) for copy in self.buffer.values()}
        self.outdated = self.tables.discard(used)
        ways = self.tables.ways
        self.plans = {key: plan for key, plan in self.plans.items() if (key[1], key[2]) in ways}
        self.depths = {key: depth for key, depth in self.depths.items() if (key[1], key[2]) in ways}
