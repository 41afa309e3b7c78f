"""The world of one run of an overlay that changes: processes, applications, trace rows, the workload's view of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.ids import NodeId, Topic
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.process import OverlayMachine, OverlayPlace, OverlayWires
from ordercast.core.registry import ProtocolInfo
from ordercast.overlay.graphs import whom_each_knows
from ordercast.overlay.script import check_script
from ordercast.scenario.checking import check_possible
from ordercast.scenario.choosing import Population, joining
from ordercast.scenario.model import Detector, Everyone, Link, Scenario
from ordercast.scenario.tables import Latency
from ordercast.sim.connections import LatencyOf, Life, Processes, Timing, both_ways
from ordercast.sim.connections.casts import CastModel
from ordercast.sim.links.network import check_link
from ordercast.sim.links.packets import PacketFacts
from ordercast.sim.overlays.node import OverlayNode
from ordercast.trace.recorder import Recorder


class OverlayWorld:
    """Built from a scenario, a protocol and a seed; nothing in it depends on anything else."""

    def __init__(self, scenario: Scenario, protocol: ProtocolInfo, seed: int, recorder: Recorder | None) -> None:
        check_possible(scenario, protocol)
        self.scenario = scenario
        self.protocol = protocol
        self.seed = seed
        self.recorder = recorder
        self._options: Any = protocol.parse_options(scenario.options)
        joiners = joining(scenario.fault)
        graph, contacts = whom_each_knows(scenario.overlay, joiners, seed)
        self.names = graph.nodes
        check_script(getattr(self._options, "script", ()), self.names)
        casts = CastModel(scenario.link.loss, scenario.link.duplicate)
        self.processes = Processes(seed, self._latency(scenario), _timing(scenario.detector), casts=casts)
        self.clock = self.processes.clock
        self.processes.notes = self._note
        self.processes.deliveries = self._deliver
        self.processes.completions = self._complete
        self.processes.renewals = self._renew
        self.processes.departures = self._depart
        if recorder is not None and recorder.packets:
            self._facts = PacketFacts(protocol.codec())
            self.processes.tap = self._sent
            self.processes.receipts = self._received
        self.faults: Counter[str] = Counter()
        self.published = 0
        self.delivery_watchers: list[Any] = []
        self.completion_watchers: list[Any] = []
        self.leave_watchers: list[Any] = []
        self.return_watchers: list[Any] = []
        self.reply_depths: dict[str, int] = {}
        assert isinstance(scenario.groups, Everyone)
        topics = [Topic(f"t{i}") for i in range(scenario.groups.topics)]
        self.groups: dict[Topic, tuple[NodeId, ...]] = dict.fromkeys(topics, self.names)
        self.members: dict[Topic, set[NodeId]] = {topic: set() for topic in topics}
        late = set(joiners)
        self.nodes = {name: OverlayNode(self, name, contacts[name], late=name in late) for name in self.names}
        self._check_detector()

    def _latency(self, scenario: Scenario) -> LatencyOf:
        check_link(scenario.link, "link")
        known, pairs = frozenset(self.names), {}
        for i, override in enumerate(scenario.links):
            for name in override.between:
                if name not in known:
                    raise UsageError(f"links[{i}].between: {unknown_name('node', name, known)}")
            latency = scenario.link.latency_ms if override.latency_ms is None else override.latency_ms
            check_link(Link(latency_ms=latency), f"links[{i}]")
            one_way = {override.between: latency}
            pairs.update(one_way if override.one_way else both_ways(one_way))
        return _by_pair(pairs, scenario.link.latency_ms)

    def _check_detector(self) -> None:
        for name in self.scenario.detector.by:
            self.host(name, "detector.by")

    def build(self, wires: OverlayWires, place: OverlayPlace) -> OverlayMachine:
        assert self.protocol.build_overlay is not None
        return self.protocol.build_overlay(wires, place, self._options)

    # What the workload sees

    @property
    def default_guarantee(self) -> Guarantee:
        return self.protocol.guarantee

    def population(self) -> Population:
        return Population(self.names, self.names, (), self.groups)

    def host(self, name: str, where: str) -> OverlayNode:
        node = self.nodes.get(NodeId(name))
        if node is None:
            raise UsageError(f"{where}: {unknown_name('node', name, self.nodes)}")
        return node

    # What nodes tell

    def joined(self, node: OverlayNode) -> None:
        """From now on it is a member of everything."""
        for topic, members in self.members.items():
            members.add(node.node)
            self.record("subscribe", node.node, {"topic": topic})

    def gone(self, node: OverlayNode) -> None:
        """It crashed or left: nobody need wait for it."""
        for members in self.members.values():
            members.discard(node.node)
        for watch in self.leave_watchers:
            watch(node)

    def back(self, node: OverlayNode) -> None:
        """It is up again with its state, and still a member."""
        for members in self.members.values():
            members.add(node.node)

    def end_faults(self) -> None:
        """End stalls and partitions; the dead stay dead."""
        self.processes.heal_all()
        for node in self.nodes.values():
            self.processes.resume(node.node)

    def _deliver(self, name: str, message: Message) -> None:
        node = self.nodes[NodeId(name)]
        node.delivered += 1
        if self.recorder is not None:
            self.recorder.deliver(name, self.clock.now, message)
        for watch in self.delivery_watchers:
            watch(node, message)

    def _complete(self, name: str, message_id: str) -> None:
        for watch in self.completion_watchers:
            watch(self.nodes[NodeId(name)], message_id)

    def _renew(self, name: str, through: str) -> None:
        """A node gives its life up, and begins the next one as soon as its event is over."""
        node = self.nodes[NodeId(name)]
        node.join_through(through)
        self.clock.at(self.clock.now, self._begin_anew, node, self.processes.life(name))

    def _begin_anew(self, node: OverlayNode, life: Life | None) -> None:
        if life is None or node.process.life is not life:
            return  # It has ended already.
        if node.leaving:
            self._let_go(node, life)
            return
        self.faults["renewal"] += 1
        self.record("crash", node.node)
        node.crash("all")
        self.gone(node)
        self.record("recover", node.node, {"state": "lost"})
        node.recover("lost")

    def leave(self, node: OverlayNode) -> None:
        """A node is to go for good; it may stay until others have what it had."""
        self.faults["leave"] += 1
        if node.machine is not None and not node.machine.lingers:
            self._record_leave(node)
        node.leave()

    def _depart(self, name: str) -> None:
        self.clock.at(self.clock.now, self._let_go, self.nodes[NodeId(name)], self.processes.life(name))

    def _let_go(self, node: OverlayNode, life: Life | None) -> None:
        if life is not None and node.process.life is life:
            self._record_leave(node)
            node.go()

    def _record_leave(self, node: OverlayNode) -> None:
        unheard = node.machine.unheard() if node.machine is not None else ""
        self.record("leave", node.node, {"lost": unheard} if unheard else None)

    # Rows

    def record(self, kind: str, node: str, info: Mapping[str, str] | None = None) -> None:
        if self.recorder is not None:
            self.recorder.event(kind, node, self.clock.now, info)

    def _note(self, name: str, kind: str, info: Mapping[str, str]) -> None:
        self.record(kind, name, info)
        if kind == "join":
            self.joined(self.nodes[NodeId(name)])

    def _sent(self, source: str, target: str, packet: Packet) -> None:
        self._packet("send", source, target, packet)

    def _received(self, target: str, source: str, packet: Packet) -> None:
        self._packet("receive", target, source, packet)

    def _packet(self, kind: str, node: str, peer: str, packet: Packet) -> None:
        assert self.recorder is not None
        facts = self._facts
        facts.look(packet)
        self.recorder.packet(
            kind, node, self.clock.now, peer, facts.msg, facts.payload_bytes, facts.header_bytes, facts.info
        )


def _by_pair(pairs: Mapping[tuple[str, str], Latency], default: Latency) -> LatencyOf:
    return lambda source, target: pairs.get((source, target), default)


def _timing(detector: Detector) -> Timing:
    """A crash is noticed after the detector's delay, and so is silence."""
    delay = detector.delay_ms
    return Timing(delay, delay, dial_timeout_ms=max(delay, 1.0), detection=dict(detector.by))
