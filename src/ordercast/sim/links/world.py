"""The world of one run: clock, hosts, channels, members and counters."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import msgspec

from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.ids import NodeId, Topic
from ordercast.core.machine import Machine
from ordercast.core.messages import Guarantee, Message
from ordercast.core.registry import ProtocolInfo
from ordercast.overlay.extended import Overlay, at_start
from ordercast.overlay.graphs import Graph, build_graph
from ordercast.overlay.groups import Membership, build_groups
from ordercast.scenario.choosing import Population, joining
from ordercast.scenario.model import Link, LinkOverride, NodeCapacity, NodeOverride, OpenLoad, Scenario
from ordercast.sim.clock import Scheduler
from ordercast.sim.links.host import Host
from ordercast.sim.links.network import LinkDirection, check_link
from ordercast.sim.links.packets import PacketFacts, Scales
from ordercast.trace.recorder import Recorder

Watcher = Callable[[Host, Message], None]


class World:
    """Built from a scenario, a protocol and a seed; nothing in it depends on anything else."""

    def __init__(self, scenario: Scenario, protocol: ProtocolInfo, seed: int, recorder: Recorder | None) -> None:
        self.scenario = scenario
        self.protocol = protocol
        self.seed = seed
        self.recorder = recorder
        self.sees_packets = recorder is not None and recorder.packets
        self.clock = Scheduler()
        codec = protocol.codec()
        self.facts = PacketFacts(codec)
        self.scales = Scales(codec, by_model=scenario.sizes == "model")
        self.counts_packets = any(isinstance(load, OpenLoad) and load.window for load in scenario.workload)
        """Whether somebody has to know how many packets are on their way."""
        self._options: Any = protocol.parse_options(scenario.options)
        base = build_graph(scenario.overlay, seed)
        joiners = joining(scenario.fault) if protocol.admits else []
        self.groups: Membership = build_groups(scenario.groups, at_start(base, joiners), seed)
        self._overlay = Overlay(base, self.groups, protocol, self._options, joiners)
        self.graph: Graph = self._overlay.graph
        self.members: dict[Topic, set[NodeId]] = defaultdict(set, {t: set(m) for t, m in self.groups.items()})
        self.delivery_watchers: list[Watcher] = []
        self.completion_watchers: list[Callable[[Host, str], None]] = []
        """Called with the publisher and the message id when a protocol answers a publication."""
        self.leave_watchers: list[Callable[[Host], None]] = []
        self.return_watchers: list[Callable[[Host], None]] = []
        self.faults: Counter[str] = Counter()
        self.published = 0
        self.reply_depths: dict[str, int] = {}
        """How many answers lie between a message and one that answers nothing; 0 where it is not listed."""
        self.hosts: dict[NodeId, Host] = {}
        abilities = self._abilities()
        for node in self.graph.nodes:
            self.hosts[node] = Host(self, node, abilities[node])
        self._check_sizes()
        self._connect()

    def build_machine(self, node: NodeId, incarnation: int) -> Machine:
        return self.protocol.build(self._overlay.place(node, incarnation), self._options)

    @property
    def default_guarantee(self) -> Guarantee:
        return self.protocol.guarantee

    def population(self) -> Population:
        """The living nodes, as workloads see them."""
        return Population(self.graph.nodes, self.graph.servers, self.graph.clients, self.groups)

    def host(self, name: str, where: str) -> Host:
        """The host a scenario names, or an error that says where it named it."""
        host = self.hosts.get(NodeId(name))
        if host is None:
            raise UsageError(f"{where}: {unknown_name('node', name, self.hosts)}")
        return host

    def channels(self) -> list[LinkDirection]:
        return [channel for host in self.hosts.values() for channel in host.channels.values()]

    def someone_left(self, host: Host) -> None:
        """A node crashed or unsubscribed: nobody need wait for it."""
        for watch in self.leave_watchers:
            watch(host)

    def count_fault(self, kind: str) -> None:
        self.faults[kind] += 1

    def _check_sizes(self) -> None:
        machine: Any = next(iter(self.hosts.values())).machine
        if self.scenario.sizes == "model" and not hasattr(getattr(machine, "tally", None), "last"):
            raise UsageError(
                f"sizes: {self.protocol.name} does not count as a source does; choose a protocol that does, and set "
                "its option tally"
            )

    def _connect(self) -> None:
        check_link(self.scenario.link, "link")
        special: dict[tuple[NodeId, NodeId], Link] = {}
        for i, override in enumerate(self.scenario.links):
            link = _merged(self.scenario.link, override, ("latency_ms", "fifo", "loss", "duplicate"))
            check_link(link, f"links[{i}]")
            for pair in self._pairs(override, f"links[{i}].between"):
                special[pair] = link
        for a in self.graph.nodes:
            for b in self.graph.neighbours[a]:
                link = special.get((a, b), self.scenario.link)
                self.hosts[a].channels[b] = LinkDirection(self.hosts[a], self.hosts[b], link, self.seed)

    def _pairs(self, override: LinkOverride, where: str) -> list[tuple[NodeId, NodeId]]:
        a, b = (self.host(name, where).node for name in override.between)
        if b not in self.graph.neighbours[a]:
            raise UsageError(f"{where}: {a} and {b} are not neighbours on the overlay")
        return [(a, b)] if override.one_way else [(a, b), (b, a)]

    def _abilities(self) -> dict[NodeId, NodeCapacity]:
        abilities = dict.fromkeys(self.graph.nodes, self.scenario.node)
        for i, override in enumerate(self.scenario.nodes):
            for name in override.nodes:
                if name not in abilities:
                    raise UsageError(f"nodes[{i}].nodes: {unknown_name('node', name, abilities)}")
                abilities[NodeId(name)] = _merged(
                    self.scenario.node, override, ("bandwidth_mbps", "ingress_mbps", "shared", "cpu")
                )
        for node, ability in abilities.items():
            _check_ability(node, ability)
        return abilities


def _merged(base: Any, override: LinkOverride | NodeOverride, fields: tuple[str, ...]) -> Any:
    changes = {name: getattr(override, name) for name in fields if getattr(override, name) is not None}
    return msgspec.structs.replace(base, **changes)


def _check_ability(node: NodeId, ability: NodeCapacity) -> None:
    costs = msgspec.to_builtins(ability)
    flat = {**costs, **(costs.pop("cpu") or {})}
    for name, value in flat.items():
        if isinstance(value, int | float) and value < 0:
            raise UsageError(f"node {node}: {name} is {value}, which is negative")
    if ability.shared and (ability.ingress_mbps or not ability.bandwidth_mbps):
        raise UsageError(f"node {node}: shared needs bandwidth_mbps, which is then for both directions, and no other")
