"""The tree half of a broker: who is its parent, who are its children, and who is root (O, PC and J rules)."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any, ClassVar

from ordercast.broker.packet_checks import check
from ordercast.broker.place import BrokerLedger, BrokerPlace, SavedBroker
from ordercast.broker.tree.claim import RootClaim
from ordercast.broker.tree.election import Election
from ordercast.broker.tree.joining import BrokerJoining
from ordercast.broker.tree.lease import RootLease
from ordercast.broker.tree.neighbours import Neighbours
from ordercast.broker.tree.notices import Notices
from ordercast.broker.tree.parenting import Parenting
from ordercast.broker.tree.promise_recovery import PromiseRecovery
from ordercast.broker.tree.rtt import RoundTrips
from ordercast.broker.tree.seeking import Seeker
from ordercast.broker.tree.terms import Terms
from ordercast.broker.tree.tree_state import MS, TreeState, natural
from ordercast.broker.tree.views import Views
from ordercast.core.errors import InvariantError, PeerError
from ordercast.core.ids import NodeId, Topic
from ordercast.core.messages import Packet
from ordercast.core.process import Connection, Peer, Wires
from ordercast.pubsub.client_packets import CLIENT_PACKETS, REPLACED_BY_NEWER, Attach, Denied, Entries, Ping, Pong
from ordercast.pubsub.settings import BrokerSettings
from ordercast.pubsub.tree_packets import (
    TREE_PACKETS,
    About,
    AskToLeave,
    BrokerDown,
    BrokerUp,
    Bye,
    DirectoryAck,
    DirectoryWave,
    Farewell,
    Handover,
    JoinRequest,
    LeaseAck,
    LeaveRequest,
    NewTerm,
    ParentRequest,
    ParentResponse,
    Recall,
    Recalled,
    RootAnnounce,
    RootCheck,
    RootCheckReply,
    RootElection,
    RootElectionReply,
    TreeView,
    Welcome,
)

_FOR_CLIENTS = frozenset(CLIENT_PACKETS)
Handler = Callable[[Connection, NodeId, Any], None]


class TreeHalf(TreeState):
    """The tree half: takes every event of the broker's connections and hands it to the part that it concerns.

    A part knows those that it is given, which were made before it; what happens to it and concerns others it tells
    as one of the `TreeEvents`, which this class hands on.
    """

    constant = (*TreeState.constant, "_handlers", "_timers")
    packets: ClassVar[tuple[type[Packet], ...]] = (*TREE_PACKETS, Attach, Ping, Pong)
    lease_type: ClassVar[type[RootLease]] = RootLease
    parenting_type: ClassVar[type[Parenting]] = Parenting
    election_type: ClassVar[type[Election]] = Election

    def __init__(
        self,
        place: BrokerPlace,
        settings: BrokerSettings,
        wires: Wires,
        ledger: BrokerLedger,
        saved: SavedBroker | None,
    ) -> None:
        super().__init__(place, settings, wires, ledger, saved)
        number = saved.term_number if saved is not None else 0
        self.neighbours = Neighbours(self, self)
        self.notices = Notices(self, self.neighbours, self)
        self.views = Views(self)
        self.round_trips = RoundTrips(self, self.neighbours)
        self.joining = BrokerJoining(self, self.neighbours, self.notices, self)
        self.terms = Terms(self, self.joining, number)
        remembers = place.life == 0 or (saved is not None and saved.whole and number > 0)
        self.recovery = PromiseRecovery(self, self.terms, self.neighbours, self, remembers=remembers)
        self.lease = self.lease_type(self, self.terms, self.recovery, self.neighbours, self)
        self.parenting = self.parenting_type(self, self.neighbours, self.notices, self.views, self.joining, self.lease)
        self.claim = RootClaim(self)
        self.seeker = Seeker(
            self, self.terms, self.recovery, self.claim, self.neighbours, self.notices, self.joining, self.parenting,
            self.round_trips,
        )  # fmt: skip
        self.election = self.seeker.election = self.election_type(
            self, self.terms, self.recovery, self.claim, self.neighbours, self.joining, self.lease, self.parenting,
            self.seeker,
        )  # fmt: skip
        self._handlers = self._routes()
        self._timers: dict[object, Callable[[], None]] = {
            "idle": self.neighbours.sweep,
            "request": self.seeker.timed_out,
            "retry": self.seeker.resume,
            "election": self.election.timed_out,
            "lease": self.lease.timer,
            "decide": self.lease.refresh,
            "join": self.joining.ask,
            "recall": self.recovery.ask,
            "rtt": self.round_trips.timer,
        }

    def _routes(self) -> dict[type[Packet], Handler]:
        return {
            ParentRequest: self.parenting.asked,
            ParentResponse: lambda line, _, packet: self.seeker.answered(line, packet),
            RootCheck: lambda line, _, packet: self.parenting.check(line, packet),
            RootCheckReply: lambda _, __, packet: self.parenting.checked(packet),
            Bye: lambda line, _, packet: self.parenting.bye(line, packet),
            RootElection: self.election.claimed,
            RootElectionReply: lambda _, node, packet: self.election.replied(node, packet),
            RootAnnounce: lambda _, node, packet: self.election.announced(node, packet),
            NewTerm: lambda line, _, packet: self.lease.new_term(line, packet),
            LeaseAck: lambda line, _, packet: self.lease.answers(line, packet),
            TreeView: lambda line, _, packet: self.views.received(line, packet),
            BrokerDown: lambda line, _, packet: self.notices.down(line, packet),
            BrokerUp: lambda line, _, packet: self.notices.up(line, packet),
            About: self.views.learned,
            Handover: self._handed_over,
            JoinRequest: lambda line, _, packet: self.joining.passed_on(line, packet),
            LeaveRequest: lambda line, _, packet: self.joining.passed_on(line, packet),
            DirectoryWave: lambda line, _, packet: self.joining.wave(line, packet),
            DirectoryAck: lambda line, _, packet: self.joining.recorded(line, packet),
            Welcome: lambda _, __, packet: self.joining.welcomed(packet),
            Farewell: lambda _, __, ___: self.joining.farewell(),
            AskToLeave: lambda _, __, ___: self.leave(),
            Recall: lambda line, _, __: self.recovery.asked(line),
            Recalled: lambda _, node, packet: self.recovery.answered(node, packet),
            Pong: self._answered,
        }

    def _answered(self, line: Connection, node: NodeId, packet: Pong) -> None:
        self.round_trips.pong(node, packet)
        self.topics.answered(line, packet.at)

    # events

    def start(self) -> None:
        """BRK-O1: the configured root of a tree that has never run begins it; anybody else seeks a parent."""
        self.lease.start()
        self.recovery.start()
        self.round_trips.start()
        if self.place.parent is None and self.life == 0 and not self.place.seeds:
            self.election.bootstrap()
            return
        patient_until_ns = self.wires.now_ns + int(self.settings.startup_grace_ms * MS)
        self.seeker.begin_life(patient_until_ns, insists=self.life == 0 and self.member)
        if self.terms.promised == 0:
            self.claims_from_ns = patient_until_ns
        self.seeker.seek()

    def opened(self, connection: Connection, peer: Peer) -> None:
        self._happened()
        if self.left:
            self.wires.close(connection, "it has left the tree")
            return
        self.neighbours.opened(connection, peer)

    def closed(self, connection: Connection, *, gone: bool) -> None:
        self._happened()
        if not self.left:
            self.neighbours.closed(connection, gone=gone)

    def receive(self, connection: Connection, packet: Packet) -> None:
        """A packet about the tree. Clients may only attach and ping."""
        peer = self.neighbours.peers.get(connection)
        if peer is None or self.left:
            return  # What a connection brought that has ended here meanwhile.
        if isinstance(packet, Ping):
            self.wires.send(connection, Pong(packet.at))
            self._heard(connection)
        elif peer.kind == "client":
            self._from_client(connection, peer, packet)
        elif isinstance(packet, Attach):
            raise PeerError(peer.name, "a broker cannot attach as a client")
        else:
            check(peer.name, packet)
            self._heard(connection)
            self._handlers[type(packet)](connection, NodeId(peer.name), packet)

    def heard(self, connection: Connection) -> None:
        """Count an arrival as a sign of life: with many topics, much comes before the next word about the tree."""
        self.lease.heard(connection)

    def _heard(self, connection: Connection) -> None:
        self.views.look_again()
        self.neighbours.touched(connection)
        self.heard(connection)

    def timer(self, name: tuple[object, ...]) -> None:
        self._happened()
        try:
            handler = self._timers[name[0]]
        except KeyError:
            raise InvariantError(f"nobody set the timer {name!r}") from None
        handler()

    def turn_end(self) -> None:
        if self.left:
            return
        self.views.turn_end()
        self.lease.turn_end()
        self.joining.turn_end()

    def refresh(self) -> None:
        """BRK-PC3: before anything else, look whether the lease still runs."""
        if self.is_root:
            self.lease.refresh()

    def _happened(self) -> None:
        self.refresh()
        self.views.look_again()

    def leave(self) -> None:
        """BRK-J3: leave the tree; `left` becomes true when nobody counts on this broker any more."""
        self.joining.leave()

    @property
    def counted_on(self) -> bool:
        """Whether others may count on this broker: it is one of them, or has asked to be."""
        return self.joining.has_asked or (self.member and len(self.directory) > 1)

    def ask_to_leave(self, node: NodeId) -> str:
        """BRK-J4: let this broker or another one leave; why that cannot be, or nothing."""
        if node not in self.directory:
            return "no broker of the directory has that name"
        if len(self.directory) == 1:
            return "the last broker of a tree has nobody to leave it to; just stop it"
        if node == self.node:
            self.leave()
        else:
            self.neighbours.say(node, AskToLeave())
        return ""

    def remove(self, node: NodeId) -> str:
        """BRK-J5, at the root: strike off a broker that is dead for good; why that cannot be, or nothing."""
        refusal = self.joining.refuses_to_remove(node, self.lease.answering())
        if not refusal:
            self.joining.asked(node, "")
        return refusal

    def left_behind(self) -> None:
        self.topics.left_behind()

    def stopped(self) -> None:
        for name in self._timers:
            self.wires.cancel_timer((name,))
        for line in [*self.neighbours.peers, *self.neighbours.dialing]:
            self.neighbours.close(line)
        self.stop()

    # what the parts tell each other

    def line_ended(self, line: Connection, *, gone: bool) -> None:
        """BRK-O2.4 to BRK-O2.6: whatever was going on there is over."""
        self.parenting.line_ended(line)
        self.election.line_ended(line, gone=gone)
        self.seeker.line_ended(line, gone=gone)
        if line == self.parent:
            self.seeker.lose_parent("down" if gone else "closed")
        self.joining.somebody_died()

    def in_use(self, line: Connection) -> bool:
        """Whether the connection is needed for a conversation that is going on."""
        return line == self.seeker.line or self.parenting.uses(line) or self.claim.awaits(line)

    def found_dead(self, node: NodeId, life: int, *, neighbour: bool, lines: list[Connection]) -> None:
        self.notices.found_dead(node, life, neighbour=neighbour, lines=lines)

    def somebody_died(self) -> None:
        self.joining.somebody_died()

    def broker_is_up(self, node: NodeId) -> None:
        self.seeker.broker_is_up(node)

    def forget_all_but(self, nodes: Set[NodeId]) -> None:
        super().forget_all_but(nodes)
        self.lease.forget_all_but(nodes)
        self.round_trips.forget_all_but(nodes)
        self.views.forget_all_but(nodes)

    def remembers(self) -> None:
        self.lease.answer()

    def step_down(self, why: str, hint: NodeId | None = None) -> None:
        self.seeker.step_down(why, hint)

    def _handed_over(self, line: Connection, _: NodeId, packet: Handover) -> None:
        if line == self.parent:
            self.seeker.handed_over(packet)

    # clients

    def _from_client(self, connection: Connection, peer: Peer, packet: Packet) -> None:
        if isinstance(packet, Pong):
            return
        if not isinstance(packet, Attach):
            raise PeerError(peer.name, f"a client must not send {type(packet).__name__}")
        check(peer.name, packet)
        if connection in self.clients:
            raise PeerError(peer.name, "has attached already")
        if not self.member or self.leaving:
            self.neighbours.close(connection)
            return
        lines = list(self.lines_of.get(peer.name, ()))
        if any(self.clients[line].life > peer.life for line in lines):
            self._replaced(connection)
            return
        self.views.look_again()
        older = [line for line in lines if self._is_over(line, peer)]
        self.take_client(connection, peer)
        self.views.greet(connection)
        self.topics.client_attached(connection, peer, packet.attach_no, packet.ticket, packet.seal)
        for line in lines:
            if line in older:
                self._replaced(line)
            else:
                self.neighbours.close(line)

    def _is_over(self, line: Connection, peer: Peer) -> bool:
        """BRK-M1: what the client had here before is over; whether it was an older session of it, which is dead."""
        self.views.forget(line)
        dropped = self.drop_client(line)
        if dropped is None or dropped.life >= peer.life:
            return False
        self.topics.client_lost(line, gone=True)
        return True

    def _replaced(self, line: Connection) -> None:
        """BRK-M13: if the older session is alive all the same, it is told; else it would dial again for ever."""
        self.wires.send(line, Denied(Topic(""), REPLACED_BY_NEWER))
        self.neighbours.close(line)

    def client_ended(self, connection: Connection, *, gone: bool) -> None:
        """BRK-M8: the topics learn that the client is gone, unless it never attached."""
        self.views.forget(connection)
        if self.drop_client(connection) is not None:
            self.topics.client_lost(connection, gone=gone)

    def peer_of(self, connection: Connection) -> Peer | None:
        """The broker at the other end; None once the connection has ended, or this broker has left."""
        return None if self.left else self.neighbours.peers.get(connection)

    def from_client(self, connection: Connection) -> bool:
        peer = self.neighbours.peers.get(connection)
        return peer is not None and peer.kind == "client"

    def check_client(self, connection: Connection, packet: Packet) -> None:
        """A client is heard once it has attached, and never where brokers talk among themselves."""
        if connection not in self.clients:
            raise PeerError(self.neighbours.peers[connection].name, "must send Attach first")
        if type(packet) not in _FOR_CLIENTS:
            raise PeerError(self.clients[connection].name, f"a client must not send {type(packet).__name__}")
        if type(packet) is not Entries:  # Of its publications each one is answered for itself (BRK-P1).
            check(self.clients[connection].name, packet)

    # for people

    def status(self) -> dict[str, Any]:
        """For the admin page."""
        role = "root" if self.is_root else "seeking" if self.seeking else "attached"
        return {
            "node": self.node, "life": self.life, "role": role, "term": list(self.term), "decides": self.decides,
            "parent": self.parent_name, "children": sorted(self.children.values(), key=natural),
            "clients": sorted(peer.name for peer in self.clients.values()),
            "view": [{"node": entry.node, "hops": entry.hops, "kind": entry.kind} for entry in self.view],
            "residual": self.residual, "directory": dict(sorted(self.directory.items())),
            "known_dead": sorted(filter(self.believed_dead, self.others()), key=natural),
            "lease_ms": self._lease_left_ms(), "member": self.member, "leaving": self.leaving, "left": self.left,
            "changing": self.joining.changing,
        }  # fmt: skip

    def _lease_left_ms(self) -> float | None:
        if not self.primary or not self.is_root:
            return None
        return max(0.0, (self.lease.until_ns - self.wires.now_ns) / MS)
