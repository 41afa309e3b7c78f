"""The directory of brokers with its history in short (BRK-J6): who was in it at a stamp, and what has changed since.

Changes are decided one at a time, and a root knows every change that was ever concluded. When it concludes one, all
that led up to it is settled: a broker that has joined and gone leaves nothing behind, and whatever somebody who was
away brings back from before the stamp is void.
"""

from __future__ import annotations

from collections.abc import Iterable

from ordercast.core.ids import NodeId
from ordercast.core.state import State
from ordercast.pubsub.tree_packets import Change, KnownDirectory, Stamp

NEVER: Stamp = (0, 0)


class DirectoryBook(State):
    """This broker's knowledge of the directory. Books merge alike in any order."""

    def __init__(self, configured: dict[NodeId, str], saved: KnownDirectory) -> None:
        """`saved`: what a former life knew; the configuration counts as long as nothing was ever settled."""
        self.settled = saved.settled
        self._members = dict(saved.members) if saved.settled > NEVER else dict(configured)
        """Who was in the directory then, and where."""
        self._changes = {change.node: change for change in saved.changes}
        """The last change of each broker since."""

    @property
    def newest(self) -> Stamp:
        return max((change.stamp for change in self._changes.values()), default=self.settled)

    def known(self) -> KnownDirectory:
        """For others, and for the disk. The configuration is told to nobody: everybody has one."""
        changes = tuple(self._changes[node] for node in sorted(self._changes))
        return KnownDirectory(changes, self.settled, dict(self._members) if self.settled > NEVER else {})

    def merge(self, known: KnownDirectory) -> bool:
        """Take over what another broker knows; whether some of it is news."""
        news = known.settled > self.settled
        if news:
            self._members = dict(known.members)
            self._settle(known.settled)
        for change in known.changes:
            if change.stamp > self.settled and self._is_later(change):
                self._changes[change.node] = change
                news = True
        return news

    def _is_later(self, change: Change) -> bool:
        mine = self._changes.get(change.node)
        return mine is None or mine.stamp < change.stamp

    def settle(self, stamp: Stamp) -> None:
        """BRK-J6, at the root: all changes up to the stamp that it knows count, and no other one ever will."""
        if stamp > self.settled:
            self._members = self._with(change for change in self._changes.values() if change.stamp <= stamp)
            self._settle(stamp)

    def _settle(self, stamp: Stamp) -> None:
        self.settled = stamp
        self._changes = {node: change for node, change in self._changes.items() if change.stamp > stamp}

    def _with(self, changes: Iterable[Change]) -> dict[NodeId, str]:
        now = self._members | {change.node: change.address for change in changes}
        return {node: address for node, address in sorted(now.items()) if address}

    def directory(self) -> dict[NodeId, str]:
        """The brokers that are in the directory now, with their addresses."""
        return self._with(self._changes.values())
