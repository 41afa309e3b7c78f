"""The start of a configuration: its machines after `start`, and what is in transit to them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.machine import Machine, Place
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.registry import ProtocolInfo
from ordercast.explore.scope.configurations import Configuration
from ordercast.explore.scope.faults import DETECTOR, DetectorChange, Faults, check_faults
from ordercast.explore.scope.publications import Edges, Groups, nodes_of
from ordercast.overlay.extended import Overlay
from ordercast.overlay.graphs import Graph, build_graph
from ordercast.scenario import model

OVERLAYS: dict[str, Callable[..., model.Overlay]] = {
    "clique": model.Clique,
    "line": model.LineGraph,
    "ring": model.Ring,
    "star": model.Star,
    "tree": model.Tree,
}

APPLICATION = -1
"""Stands for the application of a node where others stand for the peer that an input comes from."""

_TOPIC = Topic("t0")


class Effects:
    """An outbox that keeps apart what the explorer treats apart."""

    def __init__(self) -> None:
        self.sent: list[tuple[NodeId, Packet]] = []
        self.delivered: list[Message] = []
        self.completed: list[str] = []
        self.timers: list[tuple[Hashable, bool]] = []
        """Names that were armed (true) or cancelled, in order."""
        self.delays: dict[Hashable, int] = {}
        """For how many nanoseconds, where time matters."""

    def send(self, peer: NodeId, packet: Packet) -> None:
        self.sent.append((peer, packet))

    def deliver(self, message: Message) -> None:
        self.delivered.append(message)

    def set_timer(self, name: Hashable, delay_ns: int, *, background: bool = False) -> None:
        _check_name(name)
        if not background:
            self.timers.append((name, True))
            self.delays[name] = delay_ns

    def cancel_timer(self, name: Hashable) -> None:
        _check_name(name)
        self.timers.append((name, False))

    def complete(self, message_id: str) -> None:
        self.completed.append(message_id)

    def note(self, kind: str, info: Mapping[str, str]) -> None:
        """Nothing to explore in a note."""

    def armed(self, before: frozenset[Hashable]) -> frozenset[Hashable]:
        """The armed timers after these effects."""
        names = set(before)
        for name, on in self.timers:
            if on:
                names.add(name)
            else:
                names.discard(name)
        return frozenset(names)


class Arrival:
    """Something that waits at a node: a packet of a peer, a message to be published, or a change of suspicions."""

    __slots__ = ("channel", "node", "peer", "what")

    def __init__(self, node: int, peer: int, what: Packet | Message | DetectorChange, channel: int) -> None:
        self.node = node
        self.peer = peer
        self.what = what
        self.channel = channel
        """Arrivals of one channel keep their order. The peer's, unless interchangeable clients share one."""


class Setting:
    """Nodes n0.. and, for messages with explicit destinations, one client c1.. for each message m1.. ."""

    def __init__(
        self,
        info: ProtocolInfo,
        options: Mapping[str, Any],
        nodes: int,
        clients: int,
        overlay: str = "clique",
        *,
        edges: Edges = (),
        groups: Groups | None = None,
        faults: Faults | None = None,
    ) -> None:
        self.info = info
        self.options = info.parse_options({**_watchful(info), **options})
        base = _graph(overlay, nodes, edges)
        self.servers = base.nodes
        members = {Topic(name): tuple(self.servers[n] for n in ranks) for name, ranks in (groups or {}).items()}
        self._overlay = Overlay(base, members or {_TOPIC: self.servers}, info, self.options)
        self.graph: Graph = self._overlay.graph
        self.clients = tuple(NodeId(f"c{i + 1}") for i in range(clients))
        self.everyone = self.servers + self.clients
        self.genuine = info.genuine and bool(clients)
        """Whether only the destinations of a message may take part in it."""
        self.rank = {node: i for i, node in enumerate(self.everyone)}
        self.neighbours = {node: (*others, *self.clients) for node, others in self.graph.neighbours.items()}
        self.neighbours |= dict.fromkeys(self.clients, self.servers)
        self.linked = [tuple(self.rank[peer] for peer in self.graph.neighbours[node]) for node in self.servers]
        """By node: the nodes that it can send to."""
        self.faults = faults or Faults()
        check_faults(self.faults, self.linked, [packet.__name__ for packet in info.packets])

    def never_arrives(self, packet: Packet) -> bool:
        """Whether the exploration does without packets like this one."""
        return type(packet).__name__ in self.faults.without

    def machine(self, node: NodeId) -> Machine:
        if not self.clients:
            return self.info.build(self._overlay.place(node, 0), self.options)
        place = Place(node, self.neighbours[node], self.everyone, {_TOPIC: self.servers}, clients=self.clients)
        return self.info.build(place, self.options)

    def messages(self, configuration: Configuration) -> list[Message]:
        """The messages of a configuration: m1, m2, ..."""
        if configuration.publishers is None:
            guarantee, servers = self.info.guarantee, self.servers
            return [
                Message(Origin(client), 1, _TOPIC, b"", guarantee, (), tuple(servers[n] for n in members))
                for client, members in zip(self.clients, configuration.destinations, strict=False)
            ]
        numbers = dict.fromkeys(configuration.publishers, 0)
        messages = []
        for i, node in enumerate(configuration.publishers):
            numbers[node] += 1
            topic = Topic(configuration.groups[i]) if configuration.groups else _TOPIC
            messages.append(Message(Origin(self.servers[node]), numbers[node], topic, b"", self.info.guarantee))
        return messages

    def start(self) -> tuple[list[Machine], list[frozenset[Hashable]], list[Arrival]]:
        """The servers' machines after their start, their armed timers, and what they sent."""
        machines, timers, arrivals = [], [], []
        for node in self.servers:
            machine, effects = self.machine(node), Effects()
            machine.on_start(effects)
            machines.append(machine)
            timers.append(effects.armed(frozenset()))
            arrivals += self._arrivals(node, effects)
        return machines, timers, arrivals

    def requests(self, configuration: Configuration, *, twins_in_order: bool = False) -> list[Arrival]:
        """Requests of applications and clients that are sent before anything else happens."""
        arrivals = []
        for i, message in enumerate(self.messages(configuration)):
            if configuration.publishers is not None:
                node = configuration.publishers[i]
                arrivals.append(Arrival(node, APPLICATION, message, APPLICATION))
                continue
            _, sent = self.submission(message)
            if twins_in_order:
                self._share_channel(sent, configuration, i)
            arrivals += sent
        return arrivals

    def toggles(self) -> list[Arrival]:
        """Changes of suspicions that may happen at any time."""
        return [
            Arrival(toggle.node, DETECTOR - i, change, DETECTOR - i)
            for i, toggle in enumerate(self.faults.toggles)
            for change in toggle.inputs()
        ]

    def submission(self, message: Message) -> tuple[Machine, list[Arrival]]:
        """The machine of the message's client once it has sent it, and what it sent."""
        client = NodeId(message.origin)
        machine, effects = self.machine(client), Effects()
        machine.on_start(effects)
        machine.on_publish(message, effects)
        if effects.timers or effects.delivered:
            raise UsageError(f"{self.info.name}: its clients do more than send, which the explorer cannot follow")
        return machine, self._arrivals(client, effects)

    def _share_channel(self, sent: list[Arrival], configuration: Configuration, message: int) -> None:
        """At their lowest destination, let messages with equal destinations arrive in the order of their names."""
        lowest = configuration.destinations[message][0]
        leader = len(self.servers) + configuration.twins(message)[0]
        for arrival in sent:
            if arrival.node == lowest:
                arrival.channel = leader

    def _arrivals(self, sender: NodeId, effects: Effects) -> list[Arrival]:
        """Packets that reach servers. Answers to clients end here: clients only wait."""
        rank = self.rank[sender]
        to_servers = [(self.rank[peer], packet) for peer, packet in effects.sent if peer in self.graph.neighbours]
        return [Arrival(peer, rank, packet, rank) for peer, packet in to_servers if not self.never_arrives(packet)]


def _check_name(name: Hashable) -> None:
    """Of a timer."""
    try:
        hash(name)
    except TypeError:
        raise UsageError(
            f"a {type(name).__name__} cannot be the name of a timer, because it could change; use numbers, strings, "
            "frozen structs and tuples"
        ) from None


def _graph(overlay: str, nodes: int, edges: Edges) -> Graph:
    if edges and nodes_of(edges) != nodes:
        raise UsageError(f"edges: they are about {nodes_of(edges)} nodes, not {nodes}")
    if edges:
        names = [NodeId(f"n{i}") for i in range(nodes)]
        graph = Graph(names, [(names[a], names[b]) for a, b in edges])
        apart = [node for node in names if node not in graph.reachable(names[0])]
        if apart:
            raise UsageError(f"edges: not connected: {apart[0]} cannot be reached from {names[0]}")
        return graph
    if overlay not in OVERLAYS:
        raise UsageError(f"overlay: {unknown_name('overlay', overlay, OVERLAYS)}")
    return build_graph(OVERLAYS[overlay](nodes=nodes), 0)


_WATCHFUL = {"check_invariants": True, "check": True, "delta": False}
"""Options that an exploration is better off with: machines that watch themselves, and copies of a message that can be
read in any order, because none says only what has changed since another."""


def _watchful(info: ProtocolInfo) -> dict[str, Any]:
    """Unless the options say otherwise."""
    return {name: value for name, value in _WATCHFUL.items() if name in info.options.__struct_fields__}


def is_addressed(info: ProtocolInfo) -> bool:
    """Whether messages name their destinations, and so come from clients."""
    return info.guarantee is Guarantee.ATOMIC
