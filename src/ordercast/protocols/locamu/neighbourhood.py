"""A LoCaMu node's place on the tree: who is near, whom a message goes on to, and which hops are safe.

Spec: docs/protocols/locamu.md (LCM-G1 to LCM-G6).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from ordercast.core.errors import InvariantError, PeerError
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.messages import Message
from ordercast.overlay.extended import Audience, Ball, Routes
from ordercast.protocols.locamu.membership.tables import Tables
from ordercast.protocols.locamu.packets import SECOND, SECOND_BITS
from ordercast.protocols.locamu.parts import NodePart
from ordercast.protocols.locamu.rules import Radii, Rules
from ordercast.protocols.locamu.vectors import Vector

NOBODY = -1

Plan = tuple[tuple[int, ...], tuple[tuple[int, int, bool], ...]]
"""Whom a message is numbered for, and whom of these it can be sent to: rank, distance, whether with its payload."""


class Neighbourhood(NodePart):
    """A node's reading of the tree, and the neighbours it suspects."""

    constant: ClassVar[tuple[str, ...]] = (
        "routes", "me", "radii", "rules", "distance", "way", "linked", "column", "plans", "depths", "balls", "origins",
    )  # fmt: skip
    tables: Tables

    def __init__(self, node: NodeId, routes: Routes, radii: Radii, rules: Rules) -> None:
        self.me = routes.rank[node]
        self.radii = radii
        self.rules = rules
        self.suspected: set[int] = set()
        self.look_around(routes)

    def look_around(self, routes: Routes) -> None:
        """LCM-G1, LCM-G2: see who is near. Can be done again when the tree has changed."""
        self.routes = routes
        ball = routes.ball(self.me, self.radii.window)
        self.distance = {node: distance for node, (distance, _) in ball.items()}
        self.way = {node: way for node, (_, way) in ball.items()}
        self.linked = tuple(node for node, distance in self.distance.items() if 0 < distance <= self.radii.jump)
        self.column = {node: self._column(node) for node in ball if node != self.me}
        """Whose number in the vector of a forwarder tells this node what it has processed (LCM-S1, LCM-S2)."""
        self.plans: dict[tuple[int, Topic, int, int], Plan] = {}
        self.depths: dict[tuple[int, Topic, int, int], int] = {}
        self.balls: dict[int, Ball] = {}
        self.origins: dict[Origin, int] = {}
        self.active = self._find_active()

    def _column(self, forwarder: int) -> int:
        """This node where the forwarder numbers it, else the last node on the way that it does number."""
        node = forwarder
        for _ in range(min(self.distance[forwarder], self.radii.numbering)):
            node = self.routes.step(node, self.me)
        return node

    def numbering(self) -> tuple[list[int], list[int]]:
        """Forwarders that number this node, and those just beyond that do not (LCM-S1, LCM-S2)."""
        reach, distance = self.radii.numbering, self.distance
        near = [node for node in self.column if distance[node] <= reach]
        return near, [node for node in self.column if distance[node] > reach]

    def is_inside(self, stream: int) -> bool:
        """LCM-H2: whether a stream belongs to the past of this node."""
        return stream >> SECOND_BITS in self.distance and stream & SECOND in self.distance

    # Where messages go

    def audience(self, topic: Topic, epoch: int) -> tuple[Routes, Audience]:
        """By which tree, and by which list of members, a message travels."""
        way = self.tables.way(topic, epoch)
        if way is None:
            raise InvariantError(f"{self.name}: no list of the members of {topic!r} for tag {epoch}")
        return way

    def is_member(self, topic: Topic, epoch: int) -> bool:
        members = self.audience(topic, epoch)[1].members
        return members is None or self.me in members

    def plan(self, came: int, topic: Topic, epoch: int, depth: int) -> Plan:
        """LCM-G3, LCM-G4: the targets of a message that came from that neighbour."""
        key = (came, topic, epoch, depth)
        plan = self.plans.get(key)
        if plan is None:
            tree, audience = self.audience(topic, epoch)
            found = tree.targets(self.me, came, audience, depth, self.radii.numbering, self.radii.shadow)
            plan = self.plans[key] = (
                tuple(node for node, _, _ in found),
                tuple((node, far, off == 0) for node, far, off in found if far <= self.radii.jump),
            )
        return plan

    def depth_after(self, forwarder: int, topic: Topic, epoch: int, depth: int) -> int:
        """LCM-G4: how far off the route this node is, given where the last forwarder is."""
        if not self.radii.shadow:
            return 0
        key = (forwarder, topic, epoch, depth)
        known = self.depths.get(key)
        if known is None:
            known = self.depths[key] = self.depth_between(forwarder, self.me, topic, epoch, depth)
        return known

    def depth_between(self, start: int, there: int, topic: Topic, epoch: int, depth: int) -> int:
        """LCM-G4: how far off the route `there` is, if `start` is so far off it."""
        tree, audience = self.audience(topic, epoch)
        return tree.depth_beyond(start, there, audience, depth)

    def keep_plans(self, kept: Iterable[tuple[Topic, int]]) -> None:
        """Forget the plans for all lists but these."""
        ways = set(kept)
        self.plans = {key: plan for key, plan in self.plans.items() if (key[1], key[2]) in ways}
        self.depths = {key: depth for key, depth in self.depths.items() if (key[1], key[2]) in ways}

    def ball(self, node: int) -> Ball:
        """The nodes within the window of another node."""
        ball = self.balls.get(node)
        if ball is None:
            ball = self.balls[node] = self.routes.ball(node, self.radii.window)
        return ball

    def is_safe(self, upstream: int, vectors: Sequence[Vector], start: int, hop: int) -> bool:
        """LCM-G6: whether a hop leaves at most f of the window without a name.

        `vectors` are all that are known, `start` is the forwarder's distance from here, `hop` how far the copy goes.
        """
        if hop == 1 or not self.rules.checks_safety:
            return True
        window = self.radii.window
        known = 0
        for shape, _, _ in vectors:
            known += shape.distance - start + hop <= window
        return min(window, upstream + hop) - known <= self.radii.f

    # Suspicions

    def suspect(self, nodes: Iterable[int]) -> list[int]:
        """Suspect these from now on; who has become active by that."""
        self.suspected.update(nodes)
        return self._look_who_is_active()

    def trust(self, node: int) -> list[int]:
        """Suspect it no longer; who has become active by that."""
        self.suspected.discard(node)
        return self._look_who_is_active()

    def _look_who_is_active(self) -> list[int]:
        before, self.active = self.active, self._find_active()
        return sorted(self.active - before)

    def _find_active(self) -> set[int]:
        """LCM-G5: in every direction the first node that is not suspected, and none beyond the longest link."""
        active: set[int] = set()
        rim = [(node, self.me) for node in self.routes.near[self.me]]
        for _ in range(self.radii.jump):
            outer = []
            for node, before in rim:
                if node not in self.suspected:
                    active.add(node)
                else:
                    outer += [(other, node) for other in self.routes.near[node] if other != before]
            rim = outer
        return active

    # Who is who

    @property
    def name(self) -> NodeId:
        return self.routes.nodes[self.me]

    def may_forward(self, node: int) -> bool:
        """Whether this node may hear of messages that the other has numbered."""
        return (node in self.distance and node != self.me) or node in self.routes.gone

    def origin(self, message: Message) -> int:
        """The rank of the publisher."""
        rank = self.origins.get(message.origin)
        if rank is None:
            rank = self.routes.rank.get(message.publisher, NOBODY)
            if rank != NOBODY:
                self.origins[message.origin] = rank
        return rank

    def is_linked(self, peer: NodeId) -> bool:
        return self.routes.rank.get(peer) in self.linked

    def linked_rank(self, peer: NodeId) -> int:
        """The rank of a linked node; nobody else may send anything."""
        rank = self.routes.rank.get(peer, NOBODY)
        if not 0 < self.distance.get(rank, 0) <= self.radii.jump:
            raise PeerError(peer, "is not linked to this node")
        return rank
