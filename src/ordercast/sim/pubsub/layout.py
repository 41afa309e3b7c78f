"""Checks a scenario's tree: which brokers and clients there are, where they are attached, and all latencies."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ordercast.core.chance import mix, salt
from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.ids import NodeId, Topic, valid_node
from ordercast.pubsub.filters import allows, check_filter, check_topic
from ordercast.pubsub.keeping import KeepRule
from ordercast.scenario.brokers import BrokerClient, BrokerTree, Join
from ordercast.scenario.model import Link, LinkOverride, Scenario
from ordercast.scenario.tables import Latency
from ordercast.sim.connections import LatencyOf, by_region
from ordercast.sim.links.network import check_link


class Layout(msgspec.Struct, frozen=True):
    """The tree of a scenario, checked. Everything is in the order of the file."""

    parents: dict[NodeId, NodeId | None]
    """Every broker and whom it asks first."""
    clients: dict[NodeId, BrokerClient]
    late: frozenset[NodeId]
    """Who is not there from the beginning."""
    latency: LatencyOf
    keep: tuple[KeepRule, ...]
    detection: dict[str, Latency]
    """Who notices the death of others after another time than all others."""

    @property
    def topics(self) -> list[Topic]:
        """In order of appearance."""
        named = [topic for client in self.clients.values() for topic in (*client.topics, *client.publishes)]
        return list(dict.fromkeys(map(Topic, named)))

    def directory(self) -> dict[NodeId, str]:
        """The brokers that are configured from the beginning, and their addresses."""
        return {broker: address_of(broker) for broker in self.parents if broker not in self.late}


def receives(client: BrokerClient, topic: str) -> bool:
    """Whether the client is to be given what is published on the topic."""
    return topic in client.topics or allows(client.filters, topic)


def address_of(broker: str) -> str:
    return f"{broker}:1"


def lay_out(scenario: Scenario, seed: int) -> Layout:
    """The layout that the scenario asks for, or a UsageError that names what is wrong with it."""
    tree = scenario.overlay
    if not isinstance(tree, BrokerTree):
        raise UsageError("overlay.kind: protocol 'broker' runs on a 'broker-tree'")
    parents = _given_tree(tree) if tree.parents else _random_tree(tree, seed)
    clients = {NodeId(name): client for name, client in tree.clients.items()}
    if not clients:
        raise UsageError("overlay.clients: nobody publishes or receives anything")
    for name, client in clients.items():
        _check_client(name, client, parents)
    everybody = [*parents, *clients]
    late = frozenset(
        _known(fault.node, everybody, f"fault[{i}].node")
        for i, fault in enumerate(scenario.fault)
        if isinstance(fault, Join)
    )
    root = next(broker for broker, parent in parents.items() if parent is None)
    if root in late:
        raise UsageError(f"fault: {root} is the root of the tree and cannot join it later")
    for broker, parent in parents.items():
        if parent in late and broker not in late:
            raise UsageError(f"overlay.parents.{broker}: its parent {parent} is not there from the beginning")
    for process, latency in tree.detection.items():
        _known(process, everybody, "overlay.detection")
        check_link(Link(latency_ms=latency), f"overlay.detection.{process}")
    return Layout(
        parents, clients, late, _latencies(scenario, tree, clients, everybody), _kept(tree, scenario), tree.detection
    )


def _kept(tree: BrokerTree, scenario: Scenario) -> tuple[KeepRule, ...]:
    if tree.keep and scenario.options.get("order_scope", "session") != "session":
        raise UsageError("overlay.keep: only with order_scope = 'session'")
    rules = []
    for i, keep in enumerate(tree.keep):
        try:
            check_filter(keep.filter)
        except UsageError as error:
            raise UsageError(f"overlay.keep[{i}].{error}") from None
        rules.append(KeepRule(keep.filter, int(keep.max_age_ms), keep.max_bytes, keep.copies, keep.compact))
    return tuple(rules)


def _given_tree(tree: BrokerTree) -> dict[NodeId, NodeId | None]:
    if tree.brokers:
        raise UsageError("overlay.brokers: the tree is given by its parents already")
    names = list(dict.fromkeys([*tree.parents.values(), *tree.parents]))
    for name in names:
        _check_name(name, "overlay.parents")
    roots = [name for name in names if name not in tree.parents]
    if len(roots) != 1:
        raise UsageError(f"overlay.parents: a tree has one root, not {len(roots)} ({', '.join(roots) or 'a cycle'})")
    reached = set(roots)
    while grown := {child for child, parent in tree.parents.items() if parent in reached} - reached:
        reached |= grown
    if len(reached) != len(names):
        raise UsageError(f"overlay.parents: {min(set(names) - reached)} is on a cycle")
    return {NodeId(name): NodeId(tree.parents[name]) if name in tree.parents else None for name in sorted(names)}


def _random_tree(tree: BrokerTree, seed: int) -> dict[NodeId, NodeId | None]:
    if tree.brokers < 1:
        raise UsageError("overlay: give either parents or a number of brokers")
    if tree.degree < 2 and tree.brokers > 2:
        raise UsageError(f"overlay.degree: no tree of {tree.brokers} brokers has at most {tree.degree} neighbours each")
    names = [NodeId(f"b{i}") for i in range(tree.brokers)]
    parents: dict[NodeId, NodeId | None] = {names[0]: None}
    used = dict.fromkeys(names, 0)
    salted = salt(seed, "broker-tree")
    for i, name in enumerate(names[1:], 1):
        room = [node for node in names[:i] if used[node] < tree.degree]
        parent = room[mix(salted, i) % len(room)]
        parents[name] = parent
        used[parent] += 1
        used[name] += 1
    return parents


def _check_client(name: NodeId, client: BrokerClient, brokers: Iterable[NodeId]) -> None:
    where = f"overlay.clients.{name}"
    _check_name(name, "overlay.clients")
    if name in brokers:
        raise UsageError(f"{where}: there is a broker of that name")
    _known(client.edge, brokers, f"{where}.edge")
    if not client.topics and not client.publishes and not client.filters:
        raise UsageError(f"{where}.topics: it has none")
    for topic in (*client.topics, *client.publishes):
        check_topic(topic)
    for pattern in client.filters:
        check_filter(pattern)
    both = set(client.topics) & set(client.publishes)
    if both:
        raise UsageError(f"{where}.publishes: {min(both)!r} is among its topics already")


def _check_name(name: str, where: str) -> None:
    if not valid_node(name) or "/" in name:
        raise UsageError(f"{where}: {name!r} cannot be a name")


def _known(name: str, known: Iterable[str], where: str) -> NodeId:
    if name not in known:
        raise UsageError(f"{where}: {unknown_name('process', name, known)}")
    return NodeId(name)


def _latencies(
    scenario: Scenario, tree: BrokerTree, clients: dict[NodeId, BrokerClient], everybody: list[NodeId]
) -> LatencyOf:
    _check_links(scenario)
    for name in tree.regions:
        _known(name, everybody, "overlay.regions")
    places = {str(name): tree.regions[client.edge] for name, client in clients.items() if client.edge in tree.regions}
    places |= tree.regions
    between: dict[tuple[str, str], Latency] = {}
    for i, entry in enumerate(tree.latency):
        for region in entry.between:
            if region not in places.values():
                raise UsageError(f"overlay.latency[{i}].between: {unknown_name('region', region, places.values())}")
        check_link(Link(latency_ms=entry.latency_ms), f"overlay.latency[{i}]")
        _note(between, entry.between, entry.latency_ms, one_way=entry.one_way)
    pairs: dict[tuple[str, str], Latency] = {}
    for i, link in enumerate(scenario.links):
        one, other = (_known(name, everybody, f"links[{i}].between") for name in link.between)
        if link.latency_ms is not None:
            _note(pairs, (one, other), link.latency_ms, one_way=link.one_way)
    return by_region(places, between, pairs, scenario.link.latency_ms)


def _note(
    table: dict[tuple[str, str], Latency], pair: tuple[str, str], latency: Latency, *, one_way: bool
) -> None:  # fmt: skip
    table[pair] = latency
    if not one_way:
        table[pair[1], pair[0]] = latency


def _check_links(scenario: Scenario) -> None:
    """Connections are reliable and in order: a scenario that says otherwise means something else."""
    check_link(scenario.link, "link")
    named: list[tuple[str, Link | LinkOverride]] = [("link", scenario.link)]
    named += [(f"links[{i}]", link) for i, link in enumerate(scenario.links)]
    for where, link in named:
        if link.loss or link.duplicate or link.fifo is False:
            raise UsageError(f"{where}: connections between processes neither lose, double nor reorder")
