"""Brokers that join and leave while the tree runs (BRK-J2, BRK-J3).

One change at a time: the root floods it, every broker that has recorded it says so, and only when all that live have
(with partitions: more than half, before and after the change) does the newcomer learn that it is one of them. Any two
brokers that may claim the root therefore know each other, or a majority of one knows the other.
"""

from __future__ import annotations

from ordercast.broker.tree.directory_book import NEVER
from ordercast.broker.tree.events import TreeEvents
from ordercast.broker.tree.neighbours import Neighbours
from ordercast.broker.tree.notices import Notices
from ordercast.broker.tree.tree_state import NOBODY, TreePart, TreeState
from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId
from ordercast.core.process import Connection
from ordercast.pubsub.tree_packets import (
    Bye,
    Change,
    DirectoryAck,
    DirectoryWave,
    Farewell,
    Handover,
    JoinRequest,
    KnownDirectory,
    LeaveRequest,
    Stamp,
    Welcome,
)


class BrokerJoining(TreePart):
    """Changes of the directory of brokers, and at the root who has recorded them."""

    constant = (*TreePart.constant, "neighbours", "notices", "events", "ledger", "book")

    def __init__(self, state: TreeState, neighbours: Neighbours, notices: Notices, events: TreeEvents) -> None:
        super().__init__(state)
        self.neighbours = neighbours
        self.notices = notices
        self.events = events
        self.book = state.book
        self.ledger = state.ledger
        self._recorded: dict[NodeId, Stamp] = {}
        self._pending: set[NodeId] = set()
        """Brokers of this subtree whose record is still to be reported."""
        self._queue: list[tuple[NodeId, str]] = []
        self._addresses: dict[NodeId, str] = {}
        """Where those who asked are."""
        self._under_way: Change | None = None
        self._before: frozenset[NodeId] = frozenset()
        self.has_asked = False
        """This life has asked for a place: the others may count on it before it hears so."""

    # what everybody does

    def known(self) -> KnownDirectory:
        return self.book.known()

    def learn(self, known: KnownDirectory, *, but: list[Connection]) -> list[NodeId]:
        """Record what is new and pass it on along the links; whoever is new in the directory."""
        if not self.book.merge(known):
            return []
        arrived = self._changed()
        self.notices.flood(DirectoryWave(self.known()), but=but)
        self._report(self.state.node)
        return arrived

    def _changed(self) -> list[NodeId]:
        """The book has: the directory is what it says, with this broker in it for itself at least."""
        before, listed = self.state.directory, self.book.directory()
        now = {**listed, self.state.node: self.state.place.address}
        self.state.know(now)
        if self.state.member:
            self.ledger.directory(self.known())
            if self.state.node not in listed and not self.state.leaving:
                self.state.struck_off()  # Without having asked for it: it joins again.
                self.events.left_behind()
                self.ask()
        self._forget_strangers()
        return [node for node in now if node != self.state.node and before.get(node) != now[node]]

    def _forget_strangers(self) -> None:
        """BRK-J6: of a broker that is neither in the directory nor connected nothing is remembered."""
        about = self.state.directory.keys() | {NodeId(peer.name) for peer in self.neighbours.peers.values()}
        about |= {node for node, _ in self._queue} | {self.changing or self.state.node}
        self.state.forget_all_but(about)
        for book in (self._recorded, self._addresses):
            for node in [node for node in book if node not in about]:
                del book[node]

    def wave(self, line: Connection, packet: DirectoryWave) -> None:
        """Acknowledged up the tree, or to a root that asks directly because no acknowledgement has come."""
        self.learn(packet.directory, but=[line])
        if line in self.state.links():
            self._report(self.state.node)
        else:
            self.wires.send(line, DirectoryAck(self.book.newest, (self.state.node,)))

    def greet(self, child: Connection) -> None:
        if self.book.newest > NEVER:
            self.wires.send(child, DirectoryWave(self.known()))

    def attached(self) -> None:
        assert self.state.parent is not None
        if self.book.newest > NEVER:
            self.wires.send(self.state.parent, DirectoryWave(self.known()))
            self._report(self.state.node)
        self.ask()

    def term_adopted(self) -> None:
        """A new root knows nothing of what was reported to the old one."""
        if self.book.newest > NEVER:
            self._report(self.state.node)

    def _report(self, *nodes: NodeId) -> None:
        if self.state.is_root:
            for node in nodes:
                self._recorded[node] = self.book.newest
        else:
            self._pending.update(nodes)

    def recorded(self, line: Connection, packet: DirectoryAck) -> None:
        if self.state.is_root:
            for node in packet.nodes:
                self._recorded[node] = max(packet.stamp, self._recorded.get(node, NEVER))
            self._proceed()
        elif line in self.state.children and self.state.parent is not None:
            self.wires.send(self.state.parent, packet)

    def turn_end(self) -> None:
        if self._pending:
            if self.state.parent is not None:
                packet = DirectoryAck(self.book.newest, tuple(sorted(self._pending)))
                self.wires.send(self.state.parent, packet)
            self._pending = set()

    # newcomers and leavers

    def ask(self) -> None:
        """Repeated until it is answered: the root may change meanwhile."""
        if self.state.member and not self.state.leaving:
            return
        self.wires.set_timer(("join",), self.state.draw_retry_ns())
        if self.state.parent is not None and self.state.leaving:
            self.wires.send(self.state.parent, LeaveRequest(self.state.node, self.state.place.address))
        elif self.state.parent is not None:
            self.has_asked = True
            self.wires.send(self.state.parent, JoinRequest(self.state.node, self.state.place.address))

    def passed_on(self, line: Connection, packet: JoinRequest | LeaveRequest) -> None:
        if line not in self.state.children or packet.node == self.state.node:
            return
        sender = self.neighbours.peers[line]
        if packet.node == sender.name and packet.address != sender.address:
            raise PeerError(sender.name, f"listens at {sender.address} and asks for a place at {packet.address}")
        if self.state.is_root:
            self._addresses[packet.node] = packet.address
            self.asked(packet.node, packet.address if isinstance(packet, JoinRequest) else "")
        elif self.state.parent is not None:
            self.wires.send(self.state.parent, packet)

    def welcomed(self, packet: Welcome) -> None:
        """The newcomer is a broker like any other."""
        self.learn(packet.directory, but=[])
        self.state.become_member({**self.book.directory(), self.state.node: self.state.place.address})
        self.ledger.directory(self.known())
        if not self.state.leaving:
            self.wires.cancel_timer(("join",))

    def leave(self) -> None:
        """Ask to be struck off; take nobody on. A root abdicates first: once struck off, no claimant would ask it."""
        if self.state.leaving:
            return
        self.state.begin_leaving()
        if self.state.is_root:
            self.hand_over_children()
            self.events.step_down("leaves")
        self.ask()

    def hand_over_children(self) -> None:
        for child in self.state.children:
            self.wires.send(child, Handover(self.state.parent_name or NOBODY))

    def farewell(self) -> None:
        """Nobody counts on it any more. What its topics hold goes first: it asks again until that is done."""
        if self.state.parent is not None and self.topics.handed_up():
            self.dismissed()

    def dismissed(self) -> None:
        """Hand the children over, say goodbye to the parent and stop."""
        if not self.state.leaving or self.state.left:
            return
        self.hand_over_children()
        if self.state.parent is not None:
            self.wires.send(self.state.parent, Bye(self.state.accepted_request))
        self.state.end_leaving()
        self.wires.note("leave", {"parent": self.state.parent_name or ""})
        self.events.stopped()

    # the root

    def refuses_to_remove(self, node: NodeId, answering: set[NodeId]) -> str:
        """BRK-J5: why a broker is not struck off without its word; empty: nothing is against it."""
        if not self.state.is_root:
            return f"only the root strikes off; it is {self.state.term[1] or 'nobody'} as far as is known here"
        if not self.state.decides:
            return "the root does not decide now: more than half of the brokers must run"
        if node not in self.state.directory:
            return "no broker of the directory has that name"
        if node in answering or self.neighbours.has(node):
            if node != self.state.node:
                self.neighbours.to(node)  # Nobody may have noticed its end.
            return "it is alive, or was a moment ago; ordercast leave lets it go in good order"
        after = self.state.directory.keys() - {node}
        if self.state.primary and 2 * len(answering & after) <= len(after):
            return f"only {len(answering & after)} of the other {len(after)} brokers answer: no majority to record it"
        return ""

    @property
    def changing(self) -> NodeId | None:
        """The broker whose coming or going is being recorded."""
        return self._under_way.node if self._under_way is not None else None

    def asked(self, node: NodeId, address: str) -> None:
        """A join, or without an address a leave, which takes the place of a join that has not begun."""
        if not address:
            self._queue = [waiting for waiting in self._queue if waiting[0] != node or not waiting[1]]
        if self.state.directory.get(node, "") != address:
            if (node, address) not in self._queue:
                self._queue.append((node, address))
        elif self._under_way is None or self._under_way.node != node:
            self._conclude(node, address)
        self._proceed()
        if self._under_way is not None and self._under_way.node == node:
            self._ask_again(self._under_way)

    def _ask_again(self, change: Change) -> None:
        """An acknowledgement may be lost with a link, or its broker may be gone."""
        for node in self.state.others():
            if self._recorded.get(node, NEVER) < change.stamp:
                self.neighbours.say(node, DirectoryWave(self.known()))

    def _proceed(self) -> None:
        """Conclude the change that everybody has recorded, then begin the next: one at a time."""
        change = self._under_way
        if change is not None and self.state.decides and self._is_recorded(change):
            self._under_way = None
            self._settle(change.stamp)
            self._conclude(change.node, change.address)
        if self._under_way is None and self._queue and self.state.decides:
            self._begin(*self._queue.pop(0))

    def _begin(self, node: NodeId, address: str) -> None:
        if self.state.directory.get(node, "") == address:
            self._proceed()
            return
        self._before = frozenset(self.state.directory)
        change = Change(node, address, (self.state.term[0], self.book.newest[1] + 1))
        self._under_way = change
        self.learn(KnownDirectory((change,)), but=[])
        self._proceed()

    def _is_recorded(self, change: Change) -> bool:
        have = {node for node, stamp in self._recorded.items() if stamp >= change.stamp}
        if self.state.primary:
            return self.state.is_majority(have) and 2 * len(have & self._before) > len(self._before)
        return all(node in have or self.state.believed_dead(node) for node in self.state.directory)

    def _settle(self, stamp: Stamp) -> None:
        """BRK-J6: the others hear of it with the next wave."""
        self.book.settle(stamp)
        self.ledger.directory(self.known())

    def _conclude(self, node: NodeId, address: str) -> None:
        """Tell it directly; one that leaves is in no directory any more."""
        if address:
            if self.book.settled == NEVER:  # It is in the root's own configuration.
                self._settle((self.state.term[0], self.book.newest[1] + 1))
            self.neighbours.say(node, Welcome(self.known()))
        elif node in self._addresses:
            line = self.neighbours.line_to(node)
            if line is None:
                line = self.neighbours.dial(self._addresses[node], node)
            self.wires.send(line, Farewell())

    def became_root(self) -> None:
        self._recorded = {self.state.node: self.book.newest}
        self._under_way = None
        self._queue = []

    def stepped_down(self) -> None:
        self._under_way = None
        self._queue = []

    def somebody_died(self) -> None:
        """A dead broker has nothing to record any more."""
        if self.state.is_root:
            self._proceed()
