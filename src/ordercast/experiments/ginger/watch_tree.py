"""Watches the tree of a run from outside: requests, elections, repairs, views and free connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from ordercast.core.ids import NodeId
from ordercast.core.messages import Packet
from ordercast.experiments.ginger.setting import BROKERS, DEGREE, MAX_HOPS
from ordercast.pubsub.client_packets import View
from ordercast.pubsub.tree_packets import ParentRequest, ParentResponse, RootElection, TreeView

if TYPE_CHECKING:
    from ordercast.broker.node import Broker
    from ordercast.sim.pubsub.world import PubsubWorld

ACCEPTED = "accepted"
_NS_PER_MS = 1e6

SeenView = dict[str, tuple[int, str]]
"""Broker to hops and kind."""


class WatchedRequest(msgspec.Struct):
    """A parent request and what became of it."""

    asker: str
    asked: str
    at_ns: int
    answer: str = "none"


class WatchedRepair(msgspec.Struct):
    """From the loss of a parent to a place in the tree, and to the last missed publication."""

    broker: str
    lost: str
    began_ns: int
    rounds: int | None = None
    role: str = ""
    parent: str = ""
    election_ms: float = 0.0
    attached_ms: float | None = None
    synchronised_ms: float | None = None
    received: int = 0


class TreeWatch:
    """Fed with every packet, every note, and every broker that has just handled an event."""

    def __init__(self, world: PubsubWorld) -> None:
        self._world = world
        self.requests: list[WatchedRequest] = []
        self.repairs: list[WatchedRepair] = []
        self.election_values: dict[str, int] = {}
        """Broker that claimed to be root to the free connections that it named."""
        self.changes = 0
        """How often a broker won or lost a broker as a neighbour."""
        self.not_told: list[str] = []
        """Children and clients that were not told of one."""
        self.wrong_residuals: list[str] = []
        self.residual_after_loss: dict[str, int] = {}
        """Free connections of a broker when it had just lost its parent."""
        self._pending: dict[tuple[str, int], WatchedRequest] = {}
        self._neighbours: dict[str, tuple[str | None, frozenset[str]]] = {}
        self._told: dict[str, set[str]] = {}
        """To whom a broker has sent a view in the event that it is handling."""

    # Inputs

    def sent(self, source: str, target: str, packet: Packet) -> None:
        if isinstance(packet, ParentRequest):
            request = WatchedRequest(source, target, self._world.clock.now)
            self._pending[source, packet.request] = request
            self.requests.append(request)
        elif isinstance(packet, ParentResponse):
            pending = self._pending.pop((target, packet.request), None)
            if pending is not None:
                pending.answer = ACCEPTED if packet.accepted else packet.reason
        elif isinstance(packet, RootElection):
            self.election_values[source] = -packet.rank[0]
        elif isinstance(packet, TreeView | View):
            self._told.setdefault(source, set()).add(target)

    def noted(self, broker: str, kind: str, info: Mapping[str, str]) -> None:
        now = self._world.clock.now
        if broker not in BROKERS:
            return  # A client that fails over repairs nothing.
        if kind == "repair_start":
            self.repairs.append(WatchedRepair(broker, info["lost"], now))
        elif kind == "repair_end":
            repair = next((r for r in reversed(self.repairs) if r.broker == broker), None)
            if repair is None:
                return
            if info.get("phase") == "synchronised":
                repair.synchronised_ms, repair.received = float(info["ms"]), int(info["received"])
            else:
                repair.rounds, repair.role, repair.parent = int(info["rounds"]), info["role"], info["parent"]
                repair.election_ms = float(info["election_ms"])
                repair.attached_ms = (now - repair.began_ns) / _NS_PER_MS

    def handled(self, name: str, broker: Broker) -> None:
        """E1, E4: an event has just been handled there."""
        overlay = broker.tree
        told = self._told.pop(name, set())
        now = (overlay.parent_name, frozenset(overlay.children.values()))
        before = self._neighbours.get(name, (None, frozenset()))
        if now == before:
            return
        self._neighbours[name] = now
        self.changes += 1
        affected = {str(child) for child in now[1] & before[1]} | {peer.name for peer in overlay.clients.values()}
        self.not_told += [f"{name} did not tell {other}" for other in sorted(affected - told)]
        neighbours = (now[0] is not None) + len(now[1]) + len(overlay.clients)
        if overlay.residual != DEGREE - neighbours:
            self.wrong_residuals.append(f"{name}: {overlay.residual} free with {neighbours} neighbours")
        if before[0] is not None and now[0] is None:
            self.residual_after_loss[name] = overlay.residual

    # What there is to see

    def views(self) -> dict[str, SeenView]:
        """The view of each living broker now."""
        return {
            name: {entry.node: (entry.hops, entry.kind) for entry in broker.tree.view}
            for name, broker in self._world.brokers().items()
        }

    def client_views(self) -> dict[str, set[str]]:
        """The view of each living client now."""
        found = {}
        for name, client in self._world.clients.items():
            if client.machine is not None:
                found[str(name)] = {entry.node for entry in client.machine.edge.candidates.view.neighbours}
        return found

    def expected_views(self) -> dict[str, SeenView]:
        """O17, computed from the tree: the parent's parent, siblings and uncles, as far as views reach."""
        brokers = self._world.brokers()
        return {name: _expected(brokers, name) for name in brokers}

    def residuals(self) -> dict[str, int]:
        return {name: broker.tree.residual for name, broker in self._world.brokers().items()}

    def roots(self) -> list[str]:
        return [name for name, broker in self._world.brokers().items() if broker.tree.is_root]

    def unattached(self) -> list[str]:
        """Living brokers that are neither the root nor somebody's child."""
        brokers = self._world.brokers()
        return [
            name
            for name, broker in brokers.items()
            if not broker.tree.is_root and broker.tree.parent_name not in brokers
        ]

    def of(self, asker: str) -> list[WatchedRequest]:
        return [request for request in self.requests if request.asker == asker]


def _expected(brokers: Mapping[NodeId, Broker], name: NodeId) -> SeenView:
    seen: SeenView = {}
    below, above, hops = name, brokers[name].tree.parent_name, 2
    while above is not None and above in brokers and hops <= MAX_HOPS:
        overlay = brokers[above].tree
        if overlay.parent_name is not None:
            seen[overlay.parent_name] = (hops, "ancestor")
        kind = "sibling" if hops == 2 else "uncle"
        seen |= {child: (hops, kind) for child in overlay.children.values() if child != below}
        below, above, hops = above, overlay.parent_name, hops + 1
    return seen
