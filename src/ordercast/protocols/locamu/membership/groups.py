"""LoCaMu with groups that change: every change is a LoCaMu message to everybody, and every message says its list.

Spec: docs/protocols/locamu.md (LCM-E1 to LCM-E6).
"""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.ids import NodeId, Topic
from ordercast.core.machine import Outbox
from ordercast.protocols.locamu.held import HeldCopies
from ordercast.protocols.locamu.membership.announcements import Announcements
from ordercast.protocols.locamu.membership.notices import (
    EVERYBODY,
    Content,
    Installed,
    MembersChange,
    MembershipAsk,
    Stable,
    from_tag,
    only,
)
from ordercast.protocols.locamu.membership.owner import Owner
from ordercast.protocols.locamu.membership.tables import Tables
from ordercast.protocols.locamu.neighbourhood import Neighbourhood
from ordercast.protocols.locamu.parts import NodePart
from ordercast.protocols.locamu.store import Entry, MessageStore

OUT, COMING, IN, GOING = range(4)
"""Where a node is with one group, seen from outside: before it, asked in, a member, asked out (LCM-E6)."""


class Groups(NodePart):
    """A node's part in the changes of groups."""

    durable: ClassVar[tuple[str, ...]] = ("requests", "standing", "outdated")
    here: Neighbourhood
    store: MessageStore
    held: HeldCopies
    tables: Tables
    owner: Owner
    announcements: Announcements

    def __init__(self) -> None:
        self.requests: dict[Topic, list[bool]] = {}
        """LCM-E1: what was asked for (in: True) and has not come."""
        self.standing: dict[Topic, tuple[int, int]] = {}
        """LCM-E6: of groups that this node has joined or left, where it is and since which epoch."""
        self.outdated = False
        """Whether there are tables that nobody needs any more, or soon will not."""

    # What the application asks for

    def want(self, topic: Topic, *, joins: bool) -> None:
        """LCM-E1: ask the owner, unless this is so already or will be."""
        asked = self.requests.get(topic)
        if joins == (asked[-1] if asked else self.here.me in self.tables.newest_members(topic)):
            return
        self.requests.setdefault(topic, []).append(joins)
        self.announcements.tell(only(self.tables.present_owner(topic)), MembershipAsk(topic, joins))

    def ask_again(self, leaving: NodeId) -> None:
        """LCM-V6: what the owner that leaves has not done is asked of its successor."""
        before = self.tables.around()
        for topic in sorted(self.requests):
            if self.tables.owner(topic, before) == leaving:
                for joins in self.requests[topic]:
                    self.announcements.tell(only(self.tables.present_owner(topic)), MembershipAsk(topic, joins))

    def topics(self) -> list[Topic]:
        """All groups that this node has heard of, or asked for."""
        return sorted({*self.tables.start.topics(), *self.tables.newest, *self.requests})

    def is_out(self) -> bool:
        """LCM-V6: whether this node is a member of nothing, and everybody knows it."""
        standing = all(standing == OUT for standing, _ in self.standing.values())
        return standing and not any(self.here.me in self.tables.newest_members(topic) for topic in self.topics())

    # Messages of the protocol itself

    def take_in(self, content: Content, entry: Entry, out: Outbox) -> None:
        """Act on a message about groups."""
        publisher = entry.message.publisher
        match content:
            case MembershipAsk():
                self._on_ask(content, publisher)
            case MembersChange():
                self._on_members(content, publisher, out)
            case Installed(topic, epoch):
                self.confirm(topic, self.owner.installed(topic, epoch, publisher))
            case Stable():
                self._on_stable(content, from_tag(entry.epoch)[0], out)
            case _:
                pass  # Of the tree: see Views.

    def _on_ask(self, ask: MembershipAsk, node: NodeId) -> None:
        """LCM-E2: the owner makes the next list and tells everybody."""
        epoch = self.owner.next_epoch(ask.topic, self.tables.newest.get(ask.topic, 0))
        self.announcements.tell(EVERYBODY, MembersChange(ask.topic, epoch, node, ask.joins))

    def _on_members(self, change: MembersChange, owner: NodeId, out: Outbox) -> None:
        """LCM-E3, LCM-E4: go by the new list from now on, and say so."""
        rank = self.tables.tree(self.tables.view).rank.get(change.node)
        if rank is None:
            return  # Whoever made this up is far away: nobody here can be blamed.
        if self.tables.install(change.topic, change.epoch, rank, joins=change.joins) and rank == self.here.me:
            self.requests[change.topic] = self.requests.get(change.topic, [])[1:]
            if not self.requests[change.topic]:
                del self.requests[change.topic]
            self.standing[change.topic] = (COMING if change.joins else GOING, change.epoch)
            _note_change(change.topic, out, joins=change.joins, pending=True)
        self.announcements.tell(only(owner), Installed(change.topic, change.epoch))

    def confirm(self, topic: Topic, epoch: int) -> None:
        """LCM-E5: everybody goes by that list, or a newer one; 0: by none yet."""
        if epoch:
            self.announcements.tell(EVERYBODY, Stable(topic, epoch))

    def _on_stable(self, stable: Stable, view: int, out: Outbox) -> None:
        """LCM-E5, LCM-E6: older lists can go, and what this node had asked for has become true everywhere."""
        known = stable.epoch <= self.tables.newest.get(stable.topic, 0)
        if not known or not self.tables.confirm(stable.topic, stable.epoch, view):
            return
        self.discard()
        standing, since = self.standing.get(stable.topic, (OUT, 0))
        if standing in {COMING, GOING} and since <= stable.epoch:
            joins = standing == COMING
            self.standing[stable.topic] = (IN if joins else OUT, since)
            _note_change(stable.topic, out, joins=joins, pending=False)

    def discard(self) -> None:
        """LCM-E5: forget lists, trees and plans that no message here goes by."""
        used = {(entry.message.topic, entry.epoch) for entry in self.store.entries.values()}
        used |= {(copy.message.topic, copy.epoch) for copy in self.held.copies.values()}
        self.outdated = self.tables.discard(used)
        self.here.keep_plans(self.tables.ways)


def _note_change(topic: Topic, out: Outbox, *, joins: bool, pending: bool) -> None:
    """LCM-E6: pending: messages may come from now on, or may not; otherwise all do that are published now, or none."""
    info = {"topic": str(topic), "pending": "true"} if pending else {"topic": str(topic)}
    out.note("subscribe" if joins else "unsubscribe", info)
