"""Brokers that join and leave while the tree runs (J2, J3).

One change at a time: the root floods it, every broker that has recorded it says so, and only when all that live have
(with partitions: more than half, before and after the change) does the newcomer learn that it is one of them. Any two
brokers that may claim the root therefore know each other, or a majority of one knows the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from ordercast.broker.tree.tree_state import NOBODY
from ordercast.core.ids import NodeId
from ordercast.core.process import Connection
from ordercast.core.state import State
from ordercast.pubsub.overlay_packets import (
    Bye,
    Change,
    DirectoryAck,
    DirectoryWave,
    Farewell,
    Handover,
    JoinRequest,
    LeaveRequest,
    Stamp,
    Welcome,
)

if TYPE_CHECKING:
    from ordercast.broker.tree.tree import Overlay

_NEVER: Stamp = (0, 0)
_LONG_AGO: Stamp = (0, 1)


def _precedes(old: Change, new: Change) -> bool:
    """Of two that nobody knows the time of any more, the one that strikes off wins: who is there can ask again."""
    return (old.stamp, not old.address) < (new.stamp, not new.address)


def _from_memory(configured: dict[NodeId, str], known: dict[NodeId, str]) -> dict[NodeId, Change]:
    """What a former life had learned, as changes that are older than any other."""
    joined = [node for node in known if node not in configured]
    left = [node for node in configured if node not in known]
    return {node: Change(node, known.get(node, ""), _LONG_AGO) for node in sorted([*joined, *left])}


class Joining(State):
    """The changes of the directory, and at the root who has recorded them."""

    constant: ClassVar[tuple[str, ...]] = ("overlay",)

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        self._changes = _from_memory(overlay.place.directory, overlay.directory)
        self._recorded: dict[NodeId, Stamp] = {}
        self._pending: set[NodeId] = set()
        """Brokers of this subtree whose record is still to be reported."""
        self._queue: list[tuple[NodeId, str]] = []
        self._addresses: dict[NodeId, str] = {}
        """Where those who asked are."""
        self._under_way: Change | None = None
        self._before: frozenset[NodeId] = frozenset()

    # -- what everybody does ----------------------------------------------------------------------------------------

    def all_changes(self) -> tuple[Change, ...]:
        return tuple(self._changes[node] for node in sorted(self._changes))

    @property
    def _newest(self) -> Stamp:
        return max((change.stamp for change in self._changes.values()), default=_NEVER)

    def learn(self, changes: Iterable[Change], *, but: list[Connection]) -> list[NodeId]:
        """Record what is new and pass it on along the links; whoever is new in the directory."""
        overlay = self.overlay
        news = [
            change for change in changes
            if change.node not in self._changes or _precedes(self._changes[change.node], change)
        ]  # fmt: skip
        arrived = []
        for change in news:
            self._changes[change.node] = change
            if change.node == overlay.node:
                self._concerned(change)
            elif not change.address:
                overlay.directory.pop(change.node, None)
            elif overlay.directory.get(change.node) != change.address:
                overlay.directory[change.node] = change.address
                arrived.append(change.node)
        if news:
            overlay.ledger.directory(dict(overlay.directory))
            overlay.notices.flood(DirectoryWave(self.all_changes()), but=but)
            self._report(overlay.node)
        return [node for node in arrived if node != overlay.node]

    def _concerned(self, change: Change) -> None:
        """Struck off without having asked for it (an old leave that others still remember): join again."""
        if not change.address and not self.overlay.leaving:
            self.overlay.member = False
            self.ask()

    def wave(self, line: Connection, packet: DirectoryWave) -> None:
        """Acknowledged up the tree, or to a root that asks directly because no acknowledgement has come."""
        overlay = self.overlay
        self.learn(packet.changes, but=[line])
        if line in overlay.links():
            self._report(overlay.node)
        else:
            overlay.wires.send(line, DirectoryAck(self._newest, (overlay.node,)))

    def greet(self, child: Connection) -> None:
        if self._changes:
            self.overlay.wires.send(child, DirectoryWave(self.all_changes()))

    def attached(self) -> None:
        overlay = self.overlay
        assert overlay.parent is not None
        if self._changes:
            overlay.wires.send(overlay.parent, DirectoryWave(self.all_changes()))
            self._report(overlay.node)
        self.ask()

    def term_adopted(self) -> None:
        """A new root knows nothing of what was reported to the old one."""
        if self._changes:
            self._report(self.overlay.node)

    def _report(self, *nodes: NodeId) -> None:
        if self.overlay.is_root:
            for node in nodes:
                self._recorded[node] = self._newest
        else:
            self._pending.update(nodes)

    def recorded(self, line: Connection, packet: DirectoryAck) -> None:
        overlay = self.overlay
        if overlay.is_root:
            for node in packet.nodes:
                self._recorded[node] = max(packet.stamp, self._recorded.get(node, _NEVER))
            self._proceed()
        elif line in overlay.children and overlay.parent is not None:
            overlay.wires.send(overlay.parent, packet)

    def turn_end(self) -> None:
        if self._pending:
            if self.overlay.parent is not None:
                packet = DirectoryAck(self._newest, tuple(sorted(self._pending)))
                self.overlay.wires.send(self.overlay.parent, packet)
            self._pending = set()

    # -- newcomers and leavers --------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Repeated until it is answered: the root may change meanwhile."""
        overlay = self.overlay
        if overlay.member and not overlay.leaving:
            return
        overlay.wires.set_timer(("join",), overlay.draw_retry_ns())
        if overlay.parent is not None and overlay.leaving:
            overlay.wires.send(overlay.parent, LeaveRequest(overlay.node, overlay.place.address))
        elif overlay.parent is not None:
            overlay.wires.send(overlay.parent, JoinRequest(overlay.node, overlay.place.address))

    def passed_on(self, line: Connection, packet: JoinRequest | LeaveRequest) -> None:
        overlay = self.overlay
        if line not in overlay.children:
            return
        if overlay.is_root:
            self._addresses[packet.node] = packet.address
            self.asked(packet.node, packet.address if isinstance(packet, JoinRequest) else "")
        elif overlay.parent is not None:
            overlay.wires.send(overlay.parent, packet)

    def welcomed(self, packet: Welcome) -> None:
        """The newcomer is a broker like any other."""
        overlay = self.overlay
        self.learn(packet.changes, but=[])
        known = {node: change.address for node, change in self._changes.items()}  # Some may be newer than the packet.
        directory = {**packet.directory, **known, overlay.node: overlay.place.address}
        overlay.directory = {node: address for node, address in directory.items() if address}
        overlay.ledger.directory(dict(overlay.directory))
        overlay.member = True
        overlay.wires.cancel_timer(("join",))

    def leave(self) -> None:
        """Ask to be struck off; take nobody on. A root abdicates first: once struck off, no claimant would ask it."""
        overlay = self.overlay
        if overlay.leaving:
            return
        overlay.leaving = True
        if overlay.is_root:
            self.hand_over_children()
            overlay.lease.step_down("leaves")
        self.ask()

    def hand_over_children(self) -> None:
        for child in self.overlay.children:
            self.overlay.wires.send(child, Handover(self.overlay.parent_name or NOBODY))

    def dismissed(self) -> None:
        """Nobody counts on it any more: hand the children over and stop."""
        overlay = self.overlay
        if not overlay.leaving or overlay.left:
            return
        self.hand_over_children()
        if overlay.parent is not None:
            overlay.wires.send(overlay.parent, Bye(overlay.seeker.accepted_request))
        overlay.left = True
        overlay.wires.note("leave", {"parent": overlay.parent_name or ""})
        overlay.stop()

    # -- the root ---------------------------------------------------------------------------------------------------

    def asked(self, node: NodeId, address: str) -> None:
        """A join, or without an address a leave."""
        overlay = self.overlay
        if overlay.directory.get(node, "") != address:
            if (node, address) not in self._queue:
                self._queue.append((node, address))
        elif self._under_way is None or self._under_way.node != node:
            self._conclude(node, address)
        self._proceed()
        if self._under_way is not None and self._under_way.node == node:
            self._ask_again(self._under_way)

    def _ask_again(self, change: Change) -> None:
        """An acknowledgement may be lost with a link, or its broker may be gone."""
        for node in self.overlay.others():
            if self._recorded.get(node, _NEVER) < change.stamp:
                self.overlay.neighbours.say(node, DirectoryWave(self.all_changes()))

    def _proceed(self) -> None:
        """One change at a time."""
        change = self._under_way
        if change is not None and self._is_recorded(change):
            self._under_way = None
            self._conclude(change.node, change.address)
        if self._under_way is None and self._queue and self.overlay.decides:
            self._begin(*self._queue.pop(0))

    def _begin(self, node: NodeId, address: str) -> None:
        overlay = self.overlay
        if overlay.directory.get(node, "") == address:
            self._proceed()
            return
        self._before = frozenset(overlay.directory)
        change = Change(node, address, (overlay.term[0], self._newest[1] + 1))
        self._under_way = change
        self.learn([change], but=[])
        self._proceed()

    def _is_recorded(self, change: Change) -> bool:
        overlay = self.overlay
        have = {node for node, stamp in self._recorded.items() if stamp >= change.stamp}
        if overlay.primary:
            return overlay.is_majority(have) and 2 * len(have & self._before) > len(self._before)
        return all(node in have or overlay.believed_dead(node) for node in overlay.directory)

    def _conclude(self, node: NodeId, address: str) -> None:
        """Tell it directly; one that leaves is in no directory any more."""
        overlay = self.overlay
        if address:
            overlay.neighbours.say(node, Welcome(dict(overlay.directory), self.all_changes()))
        elif node in self._addresses:
            line = overlay.neighbours.line_to(node)
            if line is None:
                line = overlay.neighbours.dial(self._addresses[node], node)
            overlay.wires.send(line, Farewell())

    def became_root(self) -> None:
        self._recorded = {self.overlay.node: self._newest}
        self._under_way = None
        self._queue = []

    def stepped_down(self) -> None:
        self._under_way = None
        self._queue = []

    def somebody_died(self) -> None:
        """A dead broker has nothing to record any more."""
        if self.overlay.is_root:
            self._proceed()
