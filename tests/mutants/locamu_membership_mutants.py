"""LoCaMu with one rule of its changing groups and trees broken at a time."""

from __future__ import annotations

from collections.abc import Iterable

from ordercast.core.ids import NodeId, Topic
from ordercast.core.machine import Outbox
from ordercast.overlay.extended import Audience, Routes
from ordercast.protocols.locamu.membership.groups import Groups
from ordercast.protocols.locamu.membership.notices import MembersChange, is_internal, tag_of
from ordercast.protocols.locamu.membership.tables import Tables
from ordercast.protocols.locamu.membership.views import ViewsOfTree
from ordercast.protocols.locamu.neighbourhood import Neighbourhood
from ordercast.protocols.locamu.node import Locamu
from ordercast.protocols.locamu.ordering import CausalOrdering
from ordercast.protocols.locamu.store import Copy
from tests.support.locamu_lab import with_parts


class NewestAudience(Neighbourhood):
    def audience(self, topic: Topic, epoch: int) -> tuple[Routes, Audience]:
        return super().audience(topic, epoch if is_internal(topic) else self.tables.tag(topic))


class ChecksNoTable(CausalOrdering):
    def _check_table(self, copy: Copy) -> None:
        pass


class DropsAtOnce(Groups):
    def _on_members(self, change: MembersChange, owner: NodeId, out: Outbox) -> None:
        super()._on_members(change, owner, out)
        before = self.tables.stable.get(change.topic, 0)
        self.tables.stable[change.topic] = change.epoch
        self.tables.discard(())
        self.tables.stable[change.topic] = before


class InheritsNothing(ViewsOfTree):
    def inherit(self, past: Iterable[tuple[int, int, int]]) -> None:
        pass


class TagsBySettledTrees(Tables):
    def tag(self, topic: Topic) -> int:
        if not is_internal(topic):
            return super().tag(topic)
        joins = bool(self.view) and self.changes[self.view - 1][1] is not None
        return tag_of(self.settled if joins else self.view, 0)


RoutesByTheNewest = with_parts(Locamu, here=NewestAudience, ordering=ChecksNoTable)
"""Whatever list a message says, it goes by the newest that the router has."""
ForgetsTooEarly = with_parts(Locamu, groups=DropsAtOnce)
"""Drops a list as soon as there is a newer one."""
BeginsWithoutPast = with_parts(Locamu, views=InheritsNothing)
"""Takes an empty past at its join."""
AddressesWhoIsIn = with_parts(Locamu, tables=TagsBySettledTrees)
"""What is for everybody goes to a new leaf only once that is known to be in: what was on its way passes it by."""
