"""Topic halves of brokers, driven by hand: links are queues that a test empties, the overlay obeys the test."""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar

from ordercast.broker.archive.memory_files import MemoryFiles
from ordercast.broker.place import NO_LIMIT, BrokerPlace, NoBrokerLedger, SavedBroker
from ordercast.broker.topics.topics import Topics
from ordercast.core.ids import NodeId, Origin, Topic, origin_of, ticketed
from ordercast.core.messages import Guarantee, Packet
from ordercast.core.process import Connection, Peer, Rights
from ordercast.pubsub.client_packets import (
    Acks,
    Entries,
    Granted,
    Live,
    Ping,
    Pong,
    Resume,
    SessionsClosed,
    StableReport,
    Subscribe,
    Ticket,
    TopicState,
    Unsubscribe,
)
from ordercast.pubsub.closed import ClosedSessions
from ordercast.pubsub.keeping import KeepRule
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Received
from ordercast.pubsub.settings import BrokerSettings
from tests.support.hand_wires import HandWires

T = Topic("t")


class HandOverlay:
    """An OverlayPort that the test sets."""

    def __init__(self, node: NodeId, directory: dict[NodeId, str]) -> None:
        self.node = node
        self.life = 0
        self.term = (0, NodeId(""))
        self.is_root = self.seeking = self.decides = False
        self.member = True
        self.parent: Connection | None = None
        self.parent_name: NodeId | None = None
        self.children: dict[Connection, NodeId] = {}
        self.directory = directory
        self.dead: dict[NodeId, int] = {}


class TreeWires(HandWires):
    """What one process sends waits in the tree's queues."""

    def __init__(self, tree: Tree, name: str) -> None:
        super().__init__()
        self.tree = tree
        self.name = name

    @property
    def now_ns(self) -> int:  # type: ignore[override]
        return self.tree.now_ns

    @now_ns.setter
    def now_ns(self, now_ns: int) -> None:
        self.tree.now_ns = now_ns

    def open(self, address: str) -> Connection:
        raise NotImplementedError(address)

    def send(self, connection: Connection, packet: Packet) -> None:
        self.tree.post(self.name, connection, packet)

    def close(self, connection: Connection, reason: str = "") -> None:
        raise NotImplementedError(reason)


class Somebody:
    """A client: answers TopicState, remembers what it is told, keeps its history."""

    def __init__(self, tree: Tree, name: str, session: int) -> None:
        self.tree = tree
        self.peer = Peer("client", name, session)
        self.origin: Origin = origin_of(NodeId(name), session)
        self.connection: Connection | None = None
        self.attach_no = 0
        self.receives = True
        self.have = Received()
        self.history: list[Publication] = []
        self.number = 0
        self.ticket = ""
        """Shown with the next attach."""
        self.closed = ClosedSessions()
        self.told: list[Packet] = []

    def of(self, kind: type[Packet]) -> list[Any]:
        return [packet for packet in self.told if type(packet) is kind]

    @property
    def delivered(self) -> list[str]:
        return [f"{e.origin}{e.number}" for e in self.history]

    @property
    def live(self) -> bool:
        return bool(self.of(Live))

    @property
    def acked(self) -> tuple[int, int]:
        """How far edge and safe have come, contiguously."""
        last: Acks = self.of(Acks)[-1] if self.of(Acks) else Acks(T, (0, ()), (0, ()))
        return last.edge[0], last.safe[0]

    def hear(self, packet: Packet) -> None:
        self.told.append(packet)
        if isinstance(packet, TopicState):
            have = self.have.summary()
            mine = [entry for entry in self.history if entry.topic == packet.topic]
            history = tuple(entry for entry in mine if entry.number > packet.base.get(entry.origin, 0))
            self.say(Resume(packet.topic, self.attach_no, have, {}, history, self.receives, packet.life))
        elif isinstance(packet, Granted):
            self.have.raise_to(packet.base)
        elif isinstance(packet, Entries):
            news = [e for e in packet.entries if e.origin not in self.closed]
            self.history += [e for e in news if self.have.add(e.origin, e.number)]
        elif isinstance(packet, Ticket):
            self.ticket = packet.ticket
            self.origin = ticketed(self.origin, packet.ticket)
        elif isinstance(packet, SessionsClosed):
            self.closed.merge(packet.closed)

    def say(self, packet: Packet) -> None:
        assert self.connection is not None
        self.tree.post(self.peer.name, self.connection, packet)

    def subscribe(self, topic: Topic = T, *, receives: bool = True) -> None:
        self.receives = receives
        self.say(Subscribe(topic, receives))

    def publish(
        self, *keys: str, guarantee: str = "causal", topic: Topic = T, number: int | None = None,
        payload: bytes = b"x",
    ) -> Publication:  # fmt: skip
        self.number = self.number + 1 if number is None else number
        kind = Guarantee[guarantee.upper()]
        publication = Publication(self.origin, self.number, T, payload, kind, keys or ("k",))
        self.say(Entries(T, (publication,)))
        return publication

    def leave(self, topic: Topic = T) -> None:
        self.say(Unsubscribe(topic))

    def report(self, topic: Topic = T) -> None:
        self.say(StableReport(topic, self.have.vector()))


class Tree:
    """Brokers, clients and the queues between them."""

    topics_type: ClassVar[type[Topics]] = Topics
    """What brokers are made of; a test of a rule replaces it."""

    def __init__(
        self, parents: dict[str, str], *, seal_key: bytes = b"", max_payload_bytes: int = NO_LIMIT,
        keep: tuple[KeepRule, ...] = (), **settings: Any,
    ) -> None:  # fmt: skip
        self.place = BrokerPlace(
            NodeId(""), "", {}, max_payload_bytes=max_payload_bytes, seal_key=seal_key, keep=keep
        )  # fmt: skip
        self.disks: dict[str, MemoryFiles] = {}
        """Of the brokers, where topics are kept; a test may take one away."""
        self.now_ns = 0
        self.settings = BrokerSettings(**{"partitions": "excluded", "safe_copies": 1, "order_scope": "key", **settings})
        self.ends: dict[tuple[str, Connection], tuple[str, Connection]] = {}
        self.queues: dict[tuple[str, str], deque[tuple[Connection, Packet]]] = {}
        self.brokers: dict[str, Topics] = {}
        self.overlays: dict[str, HandOverlay] = {}
        self.clients: dict[str, Somebody] = {}
        self.frozen: set[tuple[str, str]] = set()
        self.dead: set[str] = set()
        self.connections = 0
        self.log: list[tuple[str, str, Packet]] = []
        names = sorted({*parents, *parents.values()} or {"b0"})
        self.directory = {NodeId(name): name for name in names}
        for name in names:
            self.start(name)
        (root,) = [name for name in names if name not in parents]
        self.crown(root, 1)
        for child, parent in sorted(parents.items()):
            self.attach(child, parent)
        self.run()

    def start(self, name: str, *, life: int = 0, saved: SavedBroker | None = None) -> None:
        overlay = self.overlays[name] = HandOverlay(NodeId(name), self.directory)
        overlay.life = life
        self.dead.discard(name)
        files = self.disks.setdefault(name, MemoryFiles(int)) if self.place.keep else None
        self.brokers[name] = self.topics_type(
            self.settings, TreeWires(self, name), overlay, NoBrokerLedger(), saved, self.place, files
        )
        self.brokers[name].started()

    def wires(self, name: str) -> TreeWires:
        wires = self.brokers[name].wires
        assert isinstance(wires, TreeWires)
        return wires

    def connect(self, one: str, other: str) -> tuple[Connection, Connection]:
        self.connections += 2
        mine, yours = self.connections - 1, self.connections
        self.ends[one, mine] = (other, yours)
        self.ends[other, yours] = (one, mine)
        return mine, yours

    def post(self, sender: str, connection: Connection, packet: Packet) -> None:
        end = self.ends.get((sender, connection))
        if end is not None:
            self.log.append((sender, end[0], packet))
            self.queues.setdefault((sender, end[0]), deque()).append((end[1], packet))

    # The tree

    def crown(self, name: str, number: int) -> None:
        overlay = self.overlays[name]
        overlay.is_root = overlay.decides = True
        overlay.term = (number, NodeId(name))
        self.brokers[name].became_root()
        self._pass_term(name)
        self.brokers[name].turn_end()

    def _pass_term(self, name: str) -> None:
        for link in self.overlays[name].children:
            child = self.ends[name, link][0]
            self.overlays[child].term = self.overlays[name].term
            self.brokers[child].term_adopted()
            self.brokers[child].turn_end()
            self._pass_term(child)

    def attach(self, child: str, parent: str) -> None:
        up, down = self.connect(child, parent)
        self.overlays[parent].children[down] = NodeId(child)
        self.brokers[parent].child_added(down)
        self.brokers[parent].turn_end()
        overlay = self.overlays[child]
        overlay.parent, overlay.parent_name = up, NodeId(parent)
        if overlay.term != self.overlays[parent].term:
            overlay.term = self.overlays[parent].term
            self.brokers[child].term_adopted()
            self._pass_term(child)
        self.brokers[child].attached()
        self.brokers[child].turn_end()

    def crash(self, name: str) -> None:
        """Everything it had sent and that has not been carried is lost."""
        self.dead.add(name)
        for pair in [pair for pair in self.queues if name in pair]:
            del self.queues[pair]
        for (owner, _), (other, theirs) in sorted(self.ends.items()):
            if owner == name:
                del self.ends[other, theirs]
                if other in self.brokers and other not in self.dead:
                    self._lose(other, theirs)
                elif other in self.clients:
                    self.clients[other].connection = None
        self.ends = {end: peer for end, peer in self.ends.items() if name not in (end[0], peer[0])}

    def cut(self, child: str, parent: str) -> None:
        """The link between the two ends, and what is on it is lost; both live."""
        up = self.overlays[child].parent
        assert up is not None
        _, down = self.ends.pop((child, up))
        self.ends.pop((parent, down))
        for pair in ((child, parent), (parent, child)):
            self.queues.pop(pair, None)
        self._lose(child, up)
        self._lose(parent, down)

    def _lose(self, name: str, connection: Connection) -> None:
        overlay, broker = self.overlays[name], self.brokers[name]
        if connection in overlay.children:
            del overlay.children[connection]
            broker.child_lost(connection)
        elif connection == overlay.parent:
            overlay.parent = overlay.parent_name = None
            broker.parent_lost()
        else:
            broker.client_lost(connection, gone=True)
        broker.turn_end()

    # Clients

    def client(
        self, name: str, at: str, *, session: int = 0, rights: Rights | None = None, ticket: str = "", user: str = ""
    ) -> Somebody:
        somebody = self.clients[name] = Somebody(self, name, session)
        somebody.ticket = ticket
        if rights is not None or user:
            somebody.peer = Peer("client", name, session, "", rights or Rights(), user)
        self.move(name, at)
        return somebody

    def move(self, name: str, at: str) -> None:
        somebody = self.clients[name]
        somebody.connection, theirs = self.connect(name, at)
        somebody.attach_no += 1
        somebody.told = []
        self.brokers[at].client_attached(theirs, somebody.peer, somebody.attach_no, somebody.ticket)
        self.brokers[at].turn_end()

    def hang_up(self, name: str, *, gone: bool) -> None:
        somebody = self.clients[name]
        assert somebody.connection is not None
        at, theirs = self.ends.pop((name, somebody.connection))
        self.ends.pop((at, theirs), None)
        self.brokers[at].client_lost(theirs, gone=gone)
        self.brokers[at].turn_end()
        somebody.connection = None

    def member(self, name: str, at: str, *, receives: bool = True, ticket: str = "", session: int = 0) -> Somebody:
        """A client that is a live member of the topic."""
        somebody = self.client(name, at, ticket=ticket, session=session)
        somebody.subscribe(receives=receives)
        self.run()
        assert somebody.live, f"{name} was not granted"
        return somebody

    # Time and packets

    def freeze(self, sender: str, receiver: str) -> None:
        self.frozen.add((sender, receiver))

    def thaw(self, sender: str, receiver: str) -> None:
        self.frozen.discard((sender, receiver))

    def carry(self, sender: str, receiver: str, most: int = 1 << 30) -> int:
        """Deliver up to so many packets of one direction."""
        queue = self.queues.get((sender, receiver), deque())
        carried = 0
        while queue and carried < most:
            connection, packet = queue.popleft()
            carried += 1
            if receiver in self.clients:
                self.clients[receiver].hear(packet)
            elif (receiver, connection) in self.ends:
                self._hand(receiver, connection, packet)
                self.brokers[receiver].turn_end()
                self.brokers[receiver].check_invariants()
        return carried

    def _hand(self, receiver: str, connection: Connection, packet: Packet) -> None:
        """Pings are answered, and answers handed on, by the half that is not here."""
        if isinstance(packet, Ping):
            self.post(receiver, connection, Pong(packet.at))
        elif isinstance(packet, Pong):
            self.brokers[receiver].answered(connection, packet.at)
        else:
            self.brokers[receiver].receive(connection, packet)

    def run(self) -> None:
        """Until nothing is under way but what is frozen."""
        while sum(self.carry(*pair) for pair in sorted(self.queues) if pair not in self.frozen):
            pass

    def pass_time(self, ms: float) -> None:
        """Timers that become due ring, in order, and everything is carried after each."""
        until = self.now_ns + int(ms * 1e6)
        while True:
            due = [
                (when, name, str(timer), timer)
                for name in sorted(self.brokers)
                if name not in self.dead
                for timer, when in self.wires(name).timers.items()
                if when <= until
            ]
            if not due:
                break
            when, name, _, timer = min(due)
            self.now_ns = max(self.now_ns, when)
            del self.wires(name).timers[timer]
            assert isinstance(timer, tuple)
            self.brokers[name].timer(timer)
            self.brokers[name].turn_end()
            self.run()
        self.now_ns = until

    def log_of(self, broker: str, topic: Topic = T) -> list[str]:
        node = self.brokers[broker].nodes.get(topic)
        return [f"{e.origin}{e.number}" for e in node.log] if node is not None else []

    def sent(self, kind: type[Packet], sender: str | None = None) -> list[Any]:
        return [packet for one, _, packet in self.log if type(packet) is kind and sender in (None, one)]
