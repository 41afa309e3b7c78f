"""LoCaMu with one rule of its changing groups and trees broken at a time."""

from __future__ import annotations

from ordercast.core.ids import NodeId, Topic
from ordercast.core.machine import Outbox
from ordercast.overlay.extended import Audience, Routes
from ordercast.protocols.locamu.membership.node import Membership
from ordercast.protocols.locamu.membership.notices import Members, Welcome, is_internal, tag_of
from ordercast.protocols.locamu.store import Copy


class RoutesByTheNewest(Membership):
    """Whatever list a message says, it goes by the newest that the router has."""

    def _audience(self, topic: Topic, epoch: int) -> tuple[Routes, Audience]:
        return super()._audience(topic, epoch if is_internal(topic) else self.tables.tag(topic))

    def _check_table(self, copy: Copy) -> None:
        pass


class ForgetsTooEarly(Membership):
    """Drops a list as soon as there is a newer one."""

    def _on_members(self, change: Members, owner: NodeId, out: Outbox) -> None:
        super()._on_members(change, owner, out)
        before = self.tables.stable.get(change.topic, 0)
        self.tables.stable[change.topic] = change.epoch
        self.tables.discard(())
        self.tables.stable[change.topic] = before


class BeginsWithoutPast(Membership):
    """Takes an empty past at its join."""

    def _inherit(self, welcome: Welcome) -> None:
        pass


class AddressesWhoIsIn(Membership):
    """What is for everybody goes to a new leaf only once that is known to be in: what was on its way passes it by."""

    def _epoch_of(self, topic: Topic) -> int:
        tables = self.tables
        if not is_internal(topic):
            return super()._epoch_of(topic)
        joins = bool(tables.view) and tables.changes[tables.view - 1][1] is not None
        return tag_of(tables.settled if joins else tables.view, 0)
