"""Watches a run with crashes: bytes by purpose, buffers, queues, deliveries, stores."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from functools import cache

import msgspec

from ordercast.core.ids import NodeId
from ordercast.core.machine import Machine
from ordercast.core.messages import Message, Packet
from ordercast.core.registry import ProtocolInfo
from ordercast.experiments.locamu_scale.meter import metered
from ordercast.experiments.locamu_scale.simulated import machine_of
from ordercast.experiments.locamu_scale.storm import DETECTOR_MS, LATENCY_MS, children
from ordercast.protocols.locamu.node import Locamu
from ordercast.protocols.locamu.packets import Alias, Data
from ordercast.scenario.model import Crash
from ordercast.sim.clock import ns
from ordercast.sim.links.host import Host
from ordercast.sim.links.packets import time_asked
from ordercast.sim.links.world import World

BIN_MS = 20.0
_LOOK_MS = 5.0
_NS_PER_MS = 1e6
_ROUND_TRIPS = 2 * 2 * LATENCY_MS

FIRST, RESEND, PROXY, ALIAS, ACK = "first", "resend", "proxy", "alias", "ack"
KINDS = (FIRST, RESEND, PROXY, ALIAS, ACK)
REPAIRS = (RESEND, PROXY, ALIAS)


class Gap(msgspec.Struct, frozen=True):
    """The time in which a child of a crashed node delivered nothing from beyond it."""

    child: int
    start_ms: float
    ms: float
    backlog_ms: float
    """Longest queue, meanwhile, at a node that could send to it, and its own."""

    @property
    def allowed_ms(self) -> float:
        return DETECTOR_MS + _ROUND_TRIPS + self.backlog_ms


class StormWatch:
    """Watches a run with crashes; installed before the world starts."""

    def __init__(self, protocol: ProtocolInfo, nodes: int) -> None:
        self.protocol = metered(protocol, self._seen, self._handled)
        self.bytes: Counter[str] = Counter()
        self.packets: Counter[str] = Counter()
        self.bins: dict[str, Counter[int]] = defaultdict(Counter)
        """Bytes sent, by kind and time."""
        self.most_buffered = 0
        self.most_stored = 0
        self.emptied_ms: float | None = None
        """Since when every store is empty."""
        self.last_delivery_ms = 0.0
        self._codec = protocol.codec()
        self._nodes = nodes
        self._world: World | None = None
        self.delivered: list[array[int]] = [array("q") for _ in range(nodes)]
        """Per node, when it delivered messages that came from above it."""
        self.due: list[array[int]] = [array("q") for _ in range(nodes)]
        """And when each of them could have been there: published, and a latency for every hop."""
        self._queues: list[array[float]] = [array("f") for _ in range(nodes)]

    def prepare(self, world: World) -> None:
        self._world = world
        world.delivery_watchers.append(self._deliver)
        self._look(None, None)

    # While it runs

    def _seen(self, _node: NodeId, _peer: NodeId, packet: Packet, machine: Machine) -> None:
        assert self._world is not None
        kind = kind_of(packet, machine)
        size = self._codec.size(packet)
        self.bytes[kind] += size
        self.packets[kind] += 1
        self.bins[kind][int(self._world.clock.now / _NS_PER_MS / BIN_MS)] += size

    def _handled(self, _node: NodeId, machine: Machine) -> None:
        buffered = len(machine.held.copies) if isinstance(machine, Locamu) else 0
        self.most_buffered = max(self.most_buffered, buffered)

    def _deliver(self, host: Host, message: Message) -> None:
        assert self._world is not None
        now = self._world.clock.now
        self.last_delivery_ms = now / _NS_PER_MS
        node = _rank(host.node)
        publisher = _rank(message.publisher)
        if not _is_below(publisher, node):
            self.delivered[node].append(now)
            self.due[node].append((time_asked(message) or 0) + ns(LATENCY_MS) * _distance(publisher, node))

    def _look(self, _a: None, _b: None) -> None:
        """Every few milliseconds: how long the queues are, and whether anything is stored."""
        assert self._world is not None
        clock = self._world.clock
        stored = 0
        for host in self._world.hosts.values():
            queue = host.egress.free - clock.now if host.egress is not None else 0
            self._queues[_rank(host.node)].append(max(0, queue) / _NS_PER_MS)
            stored = max(stored, stored_at(machine_of(host)))
        self.most_stored = max(self.most_stored, stored)
        if stored:
            self.emptied_ms = None
        elif self.emptied_ms is None:
            self.emptied_ms = clock.now / _NS_PER_MS
        clock.in_background(clock.now + ns(_LOOK_MS), self._look, None, None)

    # Afterwards

    def gaps(self, crashes: list[Crash]) -> list[Gap]:
        """One for every child of a node that crashed."""
        return [
            self._gap(child, crash)
            for crash in crashes
            for child in children(_rank(NodeId(crash.node)), self._nodes)
        ]  # fmt: skip

    def _gap(self, child: int, crash: Crash) -> Gap:
        """The longest time without a delivery from the crash on, until the first delivery after the recovery.

        A silence counts from when the message that ends it could have been there. One that nothing ends lasts as long
        as the run.
        """
        assert crash.recover_ms is not None
        assert self._world is not None
        times, due = self.delivered[child], self.due[child]
        first = bisect_right(times, ns(crash.at_ms))
        again = bisect_left(times, ns(crash.recover_ms))
        silences = [(0.0, crash.at_ms)]
        before = ns(crash.at_ms)
        for i in range(first, min(again + 1, len(times))):
            start = max(before, due[i])
            silences.append(((times[i] - start) / _NS_PER_MS, start / _NS_PER_MS))
            before = times[i]
        if again == len(times):
            end = max(self._world.clock.now, ns(crash.recover_ms))
            silences.append(((end - before) / _NS_PER_MS, before / _NS_PER_MS))
        longest, start_ms = max(silences)
        return Gap(child, start_ms, longest, self._backlog(child, start_ms, start_ms + longest))

    def _backlog(self, child: int, start_ms: float, end_ms: float) -> float:
        assert self._world is not None
        low, high = int(start_ms / _LOOK_MS), int(end_ms / _LOOK_MS) + 2
        host = self._world.hosts[NodeId(f"n{child}")]
        senders = max(max(self._queues[_rank(peer)][low:high], default=0.0) for peer in host.channels)
        return senders + max(self._queues[child][low:high], default=0.0)

    def deliveries_around(self, crashes: list[Crash], before_ms: float, after_ms: float, step_ms: float) -> list[float]:
        """Deliveries a second and child, in steps of time around the crash of its parent."""
        steps = int((before_ms + after_ms) / step_ms)
        counts = [0] * steps
        observed = 0
        for crash in crashes:
            for child in children(_rank(NodeId(crash.node)), self._nodes):
                observed += 1
                edges = [ns(crash.at_ms - before_ms + step_ms * i) for i in range(steps + 1)]
                places = [bisect_left(self.delivered[child], edge) for edge in edges]
                for i in range(steps):
                    counts[i] += places[i + 1] - places[i]
        return [count / observed / step_ms * 1e3 for count in counts] if observed else []


def stored_at(machine: object) -> int:
    """How many messages a node keeps for others; protocols without repairs of their own have no store."""
    return len(machine.store.entries) if isinstance(machine, Locamu) else 0


def kind_of(packet: Packet, machine: object) -> str:
    """The purpose of a packet; of protocols without repairs of their own, copies of messages count as first ones."""
    if packet.carries is None:
        return ALIAS if isinstance(packet, Alias) else ACK
    if not isinstance(packet, Data) or packet.session > 0:
        return FIRST
    own = isinstance(machine, Locamu) and packet.header[0] == machine.here.me
    return RESEND if packet.session or own else PROXY


def _rank(node: NodeId) -> int:
    return int(node[1:])


@cache
def _distance(one: int, other: int) -> int:
    """Hops between two nodes of a binary tree."""
    hops = 0
    while one != other:
        one, other = (min(one, other), (max(one, other) - 1) // 2)
        hops += 1
    return hops


def _is_below(node: int, top: int) -> bool:
    """Whether a node of a binary tree is at or below another one."""
    while node > top:
        node = (node - 1) // 2
    return node == top
