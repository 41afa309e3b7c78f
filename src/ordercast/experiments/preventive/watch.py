"""Looks on while an overlay lives: links that become safe, messages that reach everybody, and the graph at instants."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from statistics import fmean

from ordercast.core.chance import mix, salt
from ordercast.core.ids import NodeId, origin_of, publisher_of
from ordercast.core.messages import Message, Packet
from ordercast.experiments.kit.study import Row
from ordercast.protocols.preventive.lines import Way
from ordercast.protocols.preventive.node import Preventive
from ordercast.protocols.preventive.packets import Ack, Data, Lock
from ordercast.protocols.preventive.remembering_broadcast import RememberingBroadcast
from ordercast.protocols.preventive.vector_overlay import Stamped, VectorBroadcast
from ordercast.scenario.model import OpenLoad, Scenario
from ordercast.sim.clock import ns
from ordercast.sim.overlays.node import OverlayNode
from ordercast.sim.overlays.world import OverlayWorld

_SOURCES = 12
"""Processes from which paths are measured; fewer where each has a long way to look."""
_LARGE = 20_000
_CONTROL = 3
"""Packets that make a link safe: two hops of a lock, and its acknowledgement."""


class RunWatch:
    """The numbers of one run."""

    def __init__(self, world: OverlayWorld, begin_ns: int) -> None:
        self.world = world
        self.begin_ns = begin_ns
        self.end_ns = ns(world.scenario.duration_ms)
        self.talk_end_ns = begin_ns + _talk_ns(world.scenario)
        self._pending: dict[tuple[str, str], int] = {}
        self.phases_ns: list[int] = []
        self.new_links = 0
        """Those that go through a phase."""
        self.published: dict[str, int] = {}
        self.last: dict[str, int] = {}
        self.reached: defaultdict[str, set[NodeId]] = defaultdict(set)
        self.there: dict[str, frozenset[NodeId]] = {}
        self.headers: list[int] = []
        self.looks: list[Row] = []
        self.locks: defaultdict[tuple[NodeId, int], int] = defaultdict(int)
        """By attempt: hops of its lock, and acknowledgements."""
        self.collected: list[int] = []
        """Messages that had waited for a link, when a lock made it safe while everybody talked."""
        self._codec = world.protocol.codec()
        world.processes.tap = self._sent
        self._inner = world.processes.notes
        world.processes.notes = self._note
        world.delivery_watchers.append(self._delivered)

    def _note(self, name: str, kind: str, info: Mapping[str, str]) -> None:
        if self._inner is not None:
            self._inner(name, kind, info)
        if kind != "link":
            return
        key, now = (name, info["peer"]), self.world.clock.now
        if info["state"] == "pending":
            self._pending[key] = now
            self.new_links += self.begin_ns <= now < self.end_ns
        elif info["state"] == "safe":
            began = self._pending.pop(key, None)
            if began is not None and self.begin_ns <= began < self.end_ns:
                if began == now:  # Who has delivered nothing yet needs no phase.
                    self.new_links -= 1
                    return
                self.phases_ns.append(now - began)
                self._look_at_buffer(name, info["peer"])
        else:
            self._pending.pop(key, None)

    def _look_at_buffer(self, name: str, peer: str) -> None:
        machine = self.world.nodes[NodeId(name)].machine
        if not isinstance(machine, Preventive) or self.world.clock.now > self.talk_end_ns:
            return
        link = machine.links.out.get(origin_of(NodeId(peer), 0))
        if link is not None and link.attempt and link.way is Way.LOCK:
            self.collected.append(machine.broadcast.log.end - link.start)

    def _delivered(self, node: OverlayNode, message: Message) -> None:
        now, key = self.world.clock.now, message.id
        if message.publisher == node.node and key not in self.published:
            self.published[key] = now
            self.there[key] = self._members()
            if self.world.protocol.name != "vector-overlay":
                self.headers.append(self._codec.size(Data(message)) - len(message.payload))
        self.last[key] = now
        self.reached[key].add(node.node)

    def _sent(self, _source: str, target: str, packet: Packet) -> None:
        """Count what makes links safe; and weigh clocks, each where it is sent first."""
        if type(packet) is Data:
            return
        if isinstance(packet, Lock):
            key = publisher_of(packet.route[0]), packet.attempt
            if key in self.locks or (packet.hop == 0 and self._is_now()):
                self.locks[key] += 1
        elif isinstance(packet, Ack):
            if (key := (NodeId(target), packet.attempt)) in self.locks:
                self.locks[key] += 1
        elif isinstance(packet, Stamped) and packet.message.id not in self.published:
            self.headers.append(self._codec.size(packet) - len(packet.message.payload))

    def _is_now(self) -> bool:
        return self.begin_ns <= self.world.clock.now < self.end_ns

    # Looks at an instant

    def look(self) -> None:
        """Links, buffers and paths as they are now."""
        machines = self._machines()
        safe = {name: [] for name in machines}  # type: dict[NodeId, list[NodeId]]
        every = {name: [] for name in machines}  # type: dict[NodeId, list[NodeId]]
        buffers: list[int] = []
        for name, machine in machines.items():
            for pid, link in machine.links.out.items():
                peer = NodeId(pid.partition("~")[0])
                if peer in machines:
                    every[name].append(peer)
                    if link.safe:
                        safe[name].append(peer)
                    elif link.attempt and link.way is Way.LOCK:  # A digest needs no buffer.
                        buffers.append(machine.broadcast.log.end - link.start)
        count = max(len(machines), 1)
        links = sum(map(len, every.values())) / count
        self.looks.append(
            {
                "links": links,
                "unsafe": links - sum(map(len, safe.values())) / count,
                "path_safe": self._path(safe),
                "path_all": self._path(every),
                "buffer_mean": fmean(buffers) if buffers else 0.0,
                "buffer_max": max(buffers, default=0),
                "remembered": self._remembered(machines),
            }
        )

    def _machines(self) -> dict[NodeId, Preventive]:
        return {name: node.machine for name, node in self.world.nodes.items() if isinstance(node.machine, Preventive)}

    def _remembered(self, machines: Mapping[NodeId, Preventive]) -> float:
        """Entries that a process has to tell copies from news: of its vector, or of its memories of links."""
        return fmean(map(_entries, machines.values())) if machines else 0.0

    def _path(self, links: Mapping[NodeId, list[NodeId]]) -> float:
        """The mean of the shortest ways from some processes to all others that they reach."""
        names = list(links)
        salted = salt(self.world.seed, "paths")
        total = ways = 0
        for i in range(min(_SOURCES if len(names) < _LARGE else 3, len(names))):
            for distance in _distances(links, names[mix(salted, i) % len(names)]).values():
                total += distance
                ways += distance > 0
        return total / ways if ways else 0.0

    # What it comes to

    def results(self) -> Row:
        """The columns of the results."""
        times = sorted((self.last[key] - at) / 1e6 for key, at in self.published.items())
        machines = list(self._machines().values())
        delivered = sum(node.delivered for node in self.world.nodes.values())
        duplicates = sum(machine.duplicates + machine.broadcast.duplicates for machine in machines)
        counters = self._counters()
        usual = sum(count == _CONTROL for count in self.locks.values())
        compared = sum(m.broadcast.comparisons for m in machines if isinstance(m.broadcast, VectorBroadcast))
        mean = {name: fmean(float(look[name] or 0) for look in self.looks) for name in self.looks[0]}
        return {
            **mean,
            "buffer_max": max(float(look["buffer_max"] or 0) for look in self.looks),
            "time_to_all_ms": fmean(times) if times else None,
            "time_to_all_p99_ms": times[int(0.99 * (len(times) - 1))] if times else None,
            "published": len(self.published),
            "missing": sum(len(self._owed(key) - self.reached[key]) for key in self.published),
            "header_min": min(self.headers, default=None),
            "header_max": max(self.headers, default=None),
            "copies": (delivered + duplicates - len(self.published)) / max(1, delivered - len(self.published)),
            "new_links": self.new_links,
            "new_links_per_s": self.new_links / len(self.world.nodes) / ((self.end_ns - self.begin_ns) / 1e9),
            "phase_ms": fmean(self.phases_ns) / 1e6 if self.phases_ns else None,
            "three_packets": usual / len(self.phases_ns) if self.phases_ns else None,
            "collected": fmean(self.collected) if self.collected else None,
            "comparisons": compared / max(1, delivered),
            "remembered_at_rest": self._remembered(self._machines()),
            "lock_restarts": counters.get("lock_restarts", 0),
            "failed_locks": counters.get("failed_locks", 0),
            "failed_links": counters.get("failed_links", 0),
            "digests": counters.get("repaired_links", 0),
            "isolated": counters.get("isolated_out", 0),
            "isolated_at_end": sum(not _is_connected(machine) for machine in machines),
            "gaps": counters.get("causal_gaps", 0),
            "peer_errors": len(self.world.processes.peer_errors),
        }

    def _owed(self, key: str) -> frozenset[NodeId]:
        """Those that were members at the publication and are at the end."""
        return self.there[key] & self._members()

    def _members(self) -> frozenset[NodeId]:
        return frozenset(next(iter(self.world.members.values())))

    def _counters(self) -> dict[str, int]:
        found: defaultdict[str, int] = defaultdict(int)
        for process in self.world.processes.processes.values():
            for name, count in process.counters.items():
                found[name] += count
        return found


def _talk_ns(scenario: Scenario) -> int:
    (load,) = scenario.workload
    assert isinstance(load, OpenLoad)
    return int(1e9 * (load.limit or 0) / load.rate_per_s)


def _is_connected(machine: Preventive) -> bool:
    """Whether somebody hears this process, and it hears somebody."""
    return bool(machine.broadcast.safe) and any(line.incoming_safe for line in machine.links.lines.values())


def _entries(machine: Preventive) -> int:
    broadcast = machine.broadcast
    if isinstance(broadcast, RememberingBroadcast):
        return broadcast.memory.entries
    return len(broadcast.log.received)


def _distances(links: Mapping[NodeId, list[NodeId]], source: NodeId) -> dict[NodeId, int]:
    distances = {source: 0}
    todo = deque([source])
    while todo:
        node = todo.popleft()
        for peer in links[node]:
            if peer not in distances:
                distances[peer] = distances[node] + 1
                todo.append(peer)
    return distances
