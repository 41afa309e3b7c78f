"""Trees of brokers with nothing to carry: the tree half under virtual time, checked at every event."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from random import Random

from ordercast.broker.memory_ledger import MemoryBrokerLedger
from ordercast.broker.place import BrokerPlace
from ordercast.broker.ports import Ages, Fenced, Roster
from ordercast.broker.tree.tree import TreeHalf
from ordercast.core.ids import NodeId, Topic
from ordercast.core.messages import Packet
from ordercast.core.process import Connection, Peer, ProcessMachine, Wires
from ordercast.core.wire import Codec
from ordercast.pubsub.client_packets import CLIENT_PACKETS, Attach, View
from ordercast.pubsub.closed import Closed
from ordercast.pubsub.settings import BrokerSettings
from ordercast.pubsub.tree_packets import TREE_PACKETS
from ordercast.sim.clock import ns
from ordercast.sim.connections import LatencyOf, Life, Processes, Timing, drawn_pairs

CODEC = Codec((*CLIENT_PACKETS, *TREE_PACKETS))

# The eight brokers of the source's evaluation, and at which of them its clients are.
EIGHT: dict[str, str | None] = {
    "b0": None, "b1": "b0", "b2": "b0", "b3": "b0", "b4": "b1", "b5": "b1", "b6": "b2", "b7": "b3",
}  # fmt: skip
EIGHT_CLIENTS = {"c0": "b4", "c1": "b5", "c2": "b6", "c3": "b6", "c4": "b7"}
EIGHT_TOPICS = {
    "b0": ("t1", "t2"), "b1": ("t1", "t2"), "b2": ("t1", "t2"), "b3": ("t1",),
    "b4": ("t1",), "b5": ("t2",), "b6": ("t1", "t2"), "b7": ("t1",),
}  # fmt: skip


class FakeTopics:
    """Takes part in given topics and writes down what it is told."""

    def __init__(self, topics: Sequence[str] = ()) -> None:
        self.topics = tuple(map(Topic, topics))
        self.told: list[str] = []
        self.children: list[Connection] = []
        self.clients: list[Connection] = []

    def attached(self) -> None:
        self.told.append("attached")

    def left_behind(self) -> None:
        self.told.append("left_behind")

    def parent_lost(self) -> None:
        self.told.append("parent_lost")

    def child_added(self, child: Connection) -> None:
        assert child not in self.children
        self.children.append(child)

    def child_lost(self, child: Connection) -> None:
        self.children.remove(child)

    def term_adopted(self) -> None:
        self.told.append("term_adopted")

    def became_root(self) -> None:
        self.told.append("became_root")

    def may_decide(self) -> None:
        self.told.append("may_decide")

    def stepped_down(self) -> None:
        self.told.append("stepped_down")

    def answered(self, link: Connection, asked: int) -> None:
        pass

    def handed_up(self) -> bool:
        return True

    def names(self) -> tuple[Topic, ...]:
        return self.topics

    def has(self, topic: Topic) -> bool:
        return topic in self.topics

    def roster(self) -> Roster:
        return {}

    def fenced(self) -> Fenced:
        return {}

    def closed(self) -> Closed:
        return {}

    def absent(self) -> Ages | None:
        return None

    def learn_absent(self, number: int, since: Ages) -> None:
        pass

    def merge_roster(self, roster: Roster, fenced: Fenced, closed: Closed | None = None) -> None:
        pass

    def client_attached(
        self, client: Connection, peer: Peer, attach_no: int, ticket: str = "", seal: bytes = b""
    ) -> None:
        self.clients.append(client)

    def client_lost(self, client: Connection, *, gone: bool) -> None:
        self.clients.remove(client)

    def receive(self, sender: Connection, packet: Packet) -> None:
        raise AssertionError(f"no topics here, but {packet}")

    def timer(self, name: tuple[object, ...]) -> None:
        raise AssertionError(name)

    def turn_end(self) -> None:
        pass


class BareBroker(ProcessMachine):
    """A broker without its topics."""

    def __init__(self, overlay: TreeHalf) -> None:
        self.overlay = overlay

    def on_start(self) -> None:
        self.overlay.start()

    def on_opened(self, connection: Connection, peer: Peer) -> None:
        self.overlay.opened(connection, peer)

    def on_packets(self, connection: Connection, packets: Sequence[Packet]) -> None:
        self.overlay.refresh()
        for packet in packets:
            assert type(packet) in self.overlay.packets
            self.overlay.receive(connection, packet)

    def on_closed(self, connection: Connection, *, gone: bool, reason: str = "") -> None:
        self.overlay.closed(connection, gone=gone)

    def on_timer(self, name: Hashable) -> None:
        assert isinstance(name, tuple)
        self.overlay.timer(name)

    def on_turn_end(self) -> None:
        self.overlay.turn_end()


class Guest(ProcessMachine):
    """A client that attaches and stays."""

    def __init__(self, wires: Wires, address: str, first: Packet | None = None) -> None:
        self.wires = wires
        self.address = address
        self.first = first or Attach(1)
        self.views: list[View] = []
        self.ended = False

    def on_start(self) -> None:
        self.wires.send(self.wires.open(self.address), self.first)

    def on_packets(self, connection: Connection, packets: Sequence[Packet]) -> None:
        self.views += [packet for packet in packets if isinstance(packet, View)]

    def on_closed(self, connection: Connection, *, gone: bool, reason: str = "") -> None:
        self.ended = True


class Lab:
    """A tree of brokers."""

    def __init__(
        self, parents: Mapping[str, str | None], settings: BrokerSettings, *, seed: int = 0,
        topics: Mapping[str, Sequence[str]] | None = None, clients: Mapping[str, str] | None = None,
        latency: LatencyOf | None = None, timing: Timing | None = None, durable: bool = False, start: bool = True,
    ) -> None:  # fmt: skip
        self.settings = settings
        self.world = Processes(seed, latency or drawn_pairs(seed, 1, 40), timing or Timing(detection_ms=2), codec=CODEC)
        self.world.after_event = self._check
        self.world.tap = self._tap
        self.world.notes = lambda node, kind, info: self.notes.append((self.now_ms, node, kind, dict(info)))
        self.parents = dict(parents)
        self.topics = topics or {}
        self.durable = durable
        self.disks: dict[str, MemoryBrokerLedger] = {}
        self.notes: list[tuple[float, str, str, dict[str, str]]] = []
        self.sent: list[tuple[float, str, str, Packet]] = []
        self.listening = False
        self.directory = {NodeId(node): f"{node}:1" for node in parents}
        for node in parents:
            self.add(node)
        for client, edge in (clients or {}).items():
            self.world.add(client, "client", lambda wires, _, edge=edge: Guest(wires, f"{edge}:1"))
        if start:
            self.run(1)
            for node in parents:
                self.world.start(node)
            self.settle()
            for client in clients or {}:
                self.world.start(client)
            self.run(200)

    def add(self, node: str, *, seeds: tuple[str, ...] = ()) -> None:
        def build(wires: Wires, peer: Peer) -> BareBroker:
            parent = self.parents.get(node)
            known = {NodeId(node): f"{node}:1"} if seeds else dict(self.directory)
            disk = self.disks.setdefault(node, MemoryBrokerLedger())
            saved = disk.saved() if self.durable else None
            place = BrokerPlace(
                NodeId(node), f"{node}:1", known, None if parent is None else NodeId(parent), peer.life, seeds
            )
            overlay = TreeHalf(place, self.settings, wires, disk, saved)
            overlay.topics = FakeTopics(self.topics.get(node, ()))
            return BareBroker(overlay)

        self.world.add(node, "broker", build, address=f"{node}:1")

    @property
    def now_ms(self) -> float:
        return self.world.clock.now / 1e6

    def run(self, ms: float) -> None:
        self.world.clock.run_until(self.world.clock.now + ns(ms))

    def settle(self, limit_ms: float = 120_000) -> None:
        """Until there is one whole tree."""
        end = self.now_ms + limit_ms
        while self.now_ms < end:
            self.run(100)
            if not self.defects():
                return
        raise AssertionError(f"no tree after {limit_ms} ms: {self.defects()}")

    def settle_members(self, new: Sequence[str], leavers: Sequence[str], limit_ms: float = 120_000) -> None:
        """Until there is one tree of exactly those who belong to it, and every one of them knows all."""
        end = self.now_ms + limit_ms
        while self.now_ms < end:
            self.run(500)
            for node in leavers:
                if (life := self.world.life(node)) is not None and self.overlay(node).left:
                    self.world.stop(life.name)
            expected = {*self.parents, *new} - set(leavers)
            known = [set(overlay.directory) for overlay in self.living().values()]
            if not self.defects() and all(each == expected for each in known):
                assert all(overlay.member for overlay in self.living().values())
                return
        raise AssertionError(f"not {sorted(expected)} after {limit_ms} ms: {self.defects()}, {known}")

    def overlay(self, node: str) -> TreeHalf:
        machine = self.world.machine(node)
        assert isinstance(machine, BareBroker), node
        return machine.overlay

    def living(self) -> dict[str, TreeHalf]:
        found = {life.name: life.machine for life in self.world.living()}
        return {name: machine.overlay for name, machine in found.items() if isinstance(machine, BareBroker)}

    def tree(self) -> dict[str, str | None]:
        return {name: overlay.parent_name for name, overlay in self.living().items()}

    def root(self) -> str:
        (root,) = [name for name, overlay in self.living().items() if overlay.is_root]
        return root

    def requests(self, node: str) -> list[str]:
        """Whom the broker asked to be its parent, in order, since `listening`."""
        return [target for _, source, target, packet in self.sent
                if source == node and type(packet).__name__ == "ParentRequest"]  # fmt: skip

    def _tap(self, source: str, target: str, packet: Packet) -> None:
        if self.listening:
            self.sent.append((self.now_ms, source, target, packet))

    # -- invariants -------------------------------------------------------------------------------------------------

    def _check(self, _: Life) -> None:
        living = self.living()
        if self.settings.partitions == "excluded":
            roots = [name for name, overlay in living.items() if overlay.is_root]
            assert len(roots) <= 1, f"two roots: {roots} at {self.now_ms} ms"
        else:
            now = self.world.clock.now
            leaders = [name for name, overlay in living.items() if overlay.decides and overlay.lease.until_ns > now]
            assert len(leaders) <= 1, f"two deciding roots: {leaders} at {self.now_ms} ms"
        for name in living:
            self._check_chain(name, living)

    def _check_chain(self, name: str, living: Mapping[str, TreeHalf]) -> None:
        seen = [name]
        while (above := self._parent_of(seen[-1], living)) is not None:
            assert above not in seen, f"a cycle: {[*seen, above]} at {self.now_ms} ms"
            seen.append(above)

    def _parent_of(self, name: str, living: Mapping[str, TreeHalf]) -> str | None:
        overlay = living[name]
        if overlay.parent is None or overlay.parent_name not in living:
            return None
        life = overlay.neighbours.peers[overlay.parent].life
        return overlay.parent_name if living[overlay.parent_name].life == life else None

    def defects(self) -> list[str]:
        """What keeps the living brokers from being one tree; 5.12.5."""
        living = {name: overlay for name, overlay in self.living().items() if not overlay.left}
        found = []
        roots = [name for name, overlay in living.items() if overlay.is_root]
        if len(roots) != 1:
            found.append(f"roots: {roots}")
        for name, overlay in living.items():
            if not overlay.is_root and self._parent_of(name, living) is None:
                found.append(f"{name} has no parent")
            elif not overlay.is_root and name not in living[overlay.parent_name or ""].children.values():
                found.append(f"{name} is unknown to its parent")
            if roots and overlay.term != living[roots[0]].term:
                found.append(f"{name} lives in another term")
            topics = overlay.topics
            assert isinstance(topics, FakeTopics)
            assert sorted(topics.children) == sorted(overlay.children)
            strangers = [c for c in overlay.children.values() if c not in living or living[c].parent_name != name]
            found += [f"{name} has a child {child} that is none" for child in strangers]
        if roots and self.settings.partitions == "primary" and not living[roots[0]].decides:
            found.append("the root does not decide")
        return found


def random_parents(random: Random, size: int) -> dict[str, str | None]:
    """A tree of so many brokers."""
    return {f"b{i}": None if i == 0 else f"b{random.randrange(max(0, i - 3), i)}" for i in range(size)}
