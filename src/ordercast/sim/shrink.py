"""From a failing run to a small scenario that still fails, by leaving out whatever the failure does not need.

Draws belong to identities, so leaving out one message leaves the fate of all others as it was: what remains at the end
is what the failure is made of. Every candidate is run again; nothing is kept on faith.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.core.registry import ProtocolInfo
from ordercast.overlay.graphs import Graph, build_graph
from ordercast.overlay.groups import build_groups
from ordercast.scenario.brokers import BrokerTree, Cut, Join, Leave
from ordercast.scenario.load import dump_scenario
from ordercast.scenario.model import (
    Crash,
    Delay,
    Edges,
    Everyone,
    Explicit,
    Fault,
    Link,
    NodeCapacity,
    Partition,
    Scenario,
)
from ordercast.sim.explicit_workload import Deed, deeds_of, schedule_of
from ordercast.sim.pubsub.layout import lay_out
from ordercast.sim.run import Progress

T = TypeVar("T")

Fails = Callable[[Scenario], bool]

MAX_TRIES = 1000


def shrink(
    scenario: Scenario,
    protocol: ProtocolInfo,
    fails: Fails,
    *,
    seed: int,
    progress: Progress | None = None,
    max_tries: int = MAX_TRIES,
) -> Scenario:
    """A scenario for which `fails` still holds and from which nothing more can be left out, or `max_tries` are used up.

    Args:
        scenario: what failed with this protocol and seed. Its seed is set, so that the result stands for itself.
        protocol: the protocol it failed with.
        fails: runs a scenario and says whether it fails in the same way.
        seed: of the failing run.
        progress: told the share of the tries that are used up.
        max_tries: how often `fails` may be asked.
    """
    named = msgspec.structs.replace(scenario, seed=seed, protocol=protocol.name)
    return _Shrinker(protocol, fails, progress, max_tries).smallest(named)


class _Shrinker:
    """Holds the smallest failing scenario so far and tries to do better."""

    def __init__(self, protocol: ProtocolInfo, fails: Fails, progress: Progress | None, max_tries: int) -> None:
        self._protocol = protocol
        self._fails = fails
        self._progress = progress
        self._left = self._max_tries = max_tries
        self._tried: set[str] = set()
        self.best: Scenario
        self._deeds: tuple[Deed, ...] | None = None

    def smallest(self, scenario: Scenario) -> Scenario:
        self.best = scenario
        self._make_explicit()
        before = ""
        while (now := dump_scenario(self.best)) != before and self._left:
            before = now
            self._drop_deeds()
            self._drop_list("fault")
            self._drop_list("links")
            self._drop_list("nodes")
            self._simplify_links()
            self._drop_nodes()
            self._drop_processes()
            self._drop_groups()
            self._shorten()
        if self._progress is not None:
            self._progress(1.0)
        return self.best

    # --- trying ---

    def _try(self, candidate: Scenario, deeds: tuple[Deed, ...] | None = None) -> bool:
        """Take the candidate if it fails too. One that makes no sense any more does not fail."""
        deeds = self._deeds if deeds is None else deeds
        if deeds is not None:
            candidate = msgspec.structs.replace(candidate, workload=[schedule_of(deeds)])
        text = dump_scenario(candidate)
        if not self._left or text in self._tried:
            return False
        self._tried.add(text)
        self._left -= 1
        if self._progress is not None:
            self._progress(1 - self._left / self._max_tries)
        try:
            failed = self._fails(candidate)
        except UsageError:
            return False
        if failed:
            self.best, self._deeds = candidate, deeds
        return failed

    def _with(self, **changes: Any) -> bool:
        return self._try(msgspec.structs.replace(self.best, **changes))

    # --- what can be left out ---

    def _make_explicit(self) -> None:
        """If the schedule alone does not fail, because the load depends on what happens, the loads stay as they are."""
        deeds = deeds_of(self.best, self._protocol, self.best.seed)
        by_time = tuple(msgspec.structs.replace(deed, after="") for deed in deeds)
        _ = self._try(self.best, tuple(deeds)) or self._try(self.best, by_time)

    def _drop_deeds(self) -> None:
        if self._deeds is None:
            self._drop_list("workload")
        else:
            _minimise(self._deeds, lambda fewer: bool(fewer) and self._try(self.best, tuple(fewer)))

    def _drop_list(self, field: str) -> None:
        _minimise(getattr(self.best, field), lambda fewer: self._with(**{field: list(fewer)}))

    def _simplify_links(self) -> None:
        plain = Link()
        for field in ("loss", "duplicate", "fifo", "latency_ms"):
            link = msgspec.structs.replace(self.best.link, **{field: getattr(plain, field)})
            self._with(link=link)
        self._with(node=NodeCapacity())

    def _drop_nodes(self) -> None:
        """A node goes with everything that mentions it; its neighbours are joined to each other if need be."""
        if isinstance(self.best.overlay, BrokerTree):
            return
        if self._deeds is None or build_graph(self.best.overlay, self.best.seed).clients:
            return
        busy = {deed.step.node for deed in self._deeds}
        for node in reversed(build_graph(self.best.overlay, self.best.seed).nodes):
            graph = build_graph(self.best.overlay, self.best.seed)
            if node not in busy and len(graph.nodes) > 2:
                self._try(self._on(_without_node(graph, node), gone=node), _not_sent_to(self._deeds, node))

    def _drop_processes(self) -> None:
        """A client goes with all it did; a broker leaves its children and clients to its parent."""
        tree = self.best.overlay
        if not isinstance(tree, BrokerTree):
            return
        if not tree.parents:
            grown = {child: parent for child, parent in lay_out(self.best, self.best.seed).parents.items() if parent}
            self._with(overlay=msgspec.structs.replace(tree, parents=dict(grown), brokers=0))
        for client in list(tree.clients):
            tree = cast("BrokerTree", self.best.overlay)
            if len(tree.clients) > 1:
                others = {name: spec for name, spec in tree.clients.items() if name != client}
                deeds = None if self._deeds is None else tuple(d for d in self._deeds if d.step.node != client)
                if deeds != ():
                    self._try(self._without(msgspec.structs.replace(tree, clients=others), client), deeds)
        for broker in list(cast("BrokerTree", self.best.overlay).parents):
            tree = cast("BrokerTree", self.best.overlay)
            if len(tree.parents) > 1:
                self._try(self._without(_without_broker(tree, broker), broker))

    def _without(self, tree: BrokerTree, gone: str) -> Scenario:
        plain = msgspec.structs.replace(
            tree,
            regions={name: region for name, region in tree.regions.items() if name != gone},
            detection={name: time for name, time in tree.detection.items() if name != gone},
        )
        return msgspec.structs.replace(self._unmentioned(gone), overlay=plain)

    def _unmentioned(self, gone: str) -> Scenario:
        """The best so far without faults and links of somebody."""
        return msgspec.structs.replace(
            self.best,
            fault=[kept for fault in self.best.fault if (kept := _fault_without(fault, gone)) is not None],
            links=[link for link in self.best.links if gone not in link.between],
        )

    def _on(self, graph: Graph, gone: str) -> Scenario:
        best = self.best
        return msgspec.structs.replace(
            self._unmentioned(gone),
            overlay=Edges(edges=_ordered_edges(graph)),
            groups=self._groups_without(gone),
            nodes=[
                msgspec.structs.replace(override, nodes=names)
                for override in best.nodes
                if (names := [name for name in override.nodes if name != gone])
            ],
        )

    def _groups_without(self, gone: str) -> Everyone | Explicit:
        groups = self.best.groups
        if isinstance(groups, Everyone):
            return groups
        members = self._members()
        return Explicit(members={topic: [name for name in names if name != gone] for topic, names in members.items()})

    def _members(self) -> dict[str, list[str]]:
        built = build_groups(self.best.groups, build_graph(self.best.overlay, self.best.seed), self.best.seed)
        return {topic: list(nodes) for topic, nodes in built.items()}

    def _drop_groups(self) -> None:
        """Topics nobody uses, then members nobody needs."""
        if self.best.groups == Everyone() or self._deeds is None:
            return
        members = self._members()
        used = {deed.step.topic for deed in self._deeds}
        self._with(groups=Explicit(members={topic: names for topic, names in members.items() if topic in used}))
        if not isinstance(self.best.groups, Explicit):
            return
        for topic in members:
            current = self._members()
            if topic in current:
                _minimise(current[topic], lambda fewer: self._with(groups=self._regrouped(topic, fewer)))  # noqa: B023

    def _regrouped(self, topic: str, names: Sequence[str]) -> Explicit:
        return Explicit(members={**self._members(), topic: list(names)})

    def _shorten(self) -> None:
        """A duration that just covers what happens in it, and round times and bare messages where that is enough."""
        if self._deeds is not None:
            self._try(self.best, tuple(_bare(deed) for deed in self._deeds))
            self._try(self.best, tuple(_rounded(deed) for deed in self._deeds))
            last = max((deed.step.at_ms or 0.0 for deed in self._deeds), default=0.0)
            ends = [end for fault in self.best.fault for end in _times(fault)]
            needed = float(int(max([last, *ends])) + 1)
            if needed < self.best.duration_ms:
                self._with(duration_ms=needed)


def _minimise(items: Sequence[T], keeps: Callable[[Sequence[T]], bool]) -> None:
    """Leave out ever smaller runs of items, last ones first, for as long as `keeps` agrees."""
    kept = list(items)
    size = len(kept)
    while size:
        removed = False
        end = len(kept)
        while end > 0:
            start = max(0, end - size)
            fewer = kept[:start] + kept[end:]
            if keeps(fewer):
                kept, removed = fewer, True
            end = start
        if not (removed and size == 1):
            size //= 2


def _without_broker(tree: BrokerTree, gone: str) -> BrokerTree:
    heir = tree.parents[gone]
    return msgspec.structs.replace(
        tree,
        parents={child: heir if up == gone else up for child, up in tree.parents.items() if child != gone},
        clients={
            name: msgspec.structs.replace(spec, edge=heir) if spec.edge == gone else spec
            for name, spec in tree.clients.items()
        },
    )


def _without_node(graph: Graph, node: NodeId) -> Graph:
    """The graph without a node: as it is if it stays connected, else with the neighbours joined."""
    nodes = [name for name in graph.nodes if name != node]
    edges = [(a, b) for a, b in graph.edges if node not in (a, b)]
    plain = Graph(nodes, edges)
    if len(plain.reachable(nodes[0])) == len(nodes):
        return plain
    first, *others = graph.neighbours[node]
    return Graph(nodes, [*edges, *((first, other) for other in others)])


def _ordered_edges(graph: Graph) -> list[tuple[str, str]]:
    """Edges such that the nodes, read in order of appearance, keep their order as far as possible."""
    rank = {node: i for i, node in enumerate(graph.nodes)}
    return [(a, b) for a, b in sorted(graph.edges, key=lambda edge: (rank[edge[1]], rank[edge[0]]))]


def _not_sent_to(deeds: Sequence[Deed], gone: str) -> tuple[Deed, ...]:
    """The deeds without a node among their destinations, unless it is the only one."""
    return tuple(
        msgspec.structs.replace(
            deed, step=msgspec.structs.replace(deed.step, dst=[name for name in deed.step.dst if name != gone])
        )
        if len(deed.step.dst) > 1
        else deed
        for deed in deeds
    )


def _fault_without(fault: Fault, gone: str) -> Fault | None:
    """A fault of a node goes with it; a partition only loses a member."""
    if isinstance(fault, Cut | Delay):
        return None if gone in fault.between else fault
    if not isinstance(fault, Partition):
        return None if fault.node == gone or getattr(fault, "by", None) == gone else fault
    left, right = ([name for name in side if name != gone] for side in fault.sides)
    return msgspec.structs.replace(fault, sides=(left, right)) if left and right else None


def _times(fault: Fault) -> list[float]:
    if isinstance(fault, Cut | Join | Leave):
        return [fault.at_ms]
    end = fault.recover_ms if isinstance(fault, Crash) else fault.until_ms
    return [fault.at_ms, fault.at_ms if end is None else end]


def _bare(deed: Deed) -> Deed:
    return msgspec.structs.replace(deed, step=msgspec.structs.replace(deed.step, keys=[], payload_bytes=64))


def _rounded(deed: Deed) -> Deed:
    return msgspec.structs.replace(
        deed, step=msgspec.structs.replace(deed.step, at_ms=round(deed.step.at_ms or 0.0, 1))
    )
