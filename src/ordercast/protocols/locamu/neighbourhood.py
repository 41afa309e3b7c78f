"""Where a LoCaMu node stands: who is near, whom a message goes on to, and which hops are safe.

Spec: docs/protocols/locamu.md (G1 to G6).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from ordercast.core.errors import PeerError, UsageError
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.machine import Machine, Place
from ordercast.core.messages import Message
from ordercast.overlay.extended import Audience, Ball, Routes, TreePlace
from ordercast.protocols.locamu.packets import SECOND_BITS, Plain
from ordercast.protocols.locamu.rules import CORRECTED, Options, Rules, radii
from ordercast.protocols.locamu.store import Copy, Entry, Name, Processed, Waiting
from ordercast.protocols.locamu.streams import Shape, Streams, Vector
from ordercast.protocols.shared.fixed_group import refuse_newcomer

NOBODY = -1

Plan = tuple[tuple[int, ...], tuple[tuple[int, int, bool], ...]]
"""Whom a message is numbered for, and whom of these it can be sent to: rank, distance, whether with its payload."""


class Surroundings(Machine):
    """The state of a node, and what it reads off the tree."""

    constant: ClassVar[tuple[str, ...]] = (
        "routes", "me", "radii", "rules", "delta", "check", "ack_ns", "need_ns", "push_ns", "distance", "way", "linked",
        "column", "plans", "depths", "balls", "origins",
    )  # fmt: skip
    durable: ClassVar[tuple[str, ...]] = (
        "streams", "shapes", "processed", "store", "names", "buffer", "waiting", "serial", "round",
    )  # fmt: skip

    rules: Rules = CORRECTED

    def __init__(self, place: Place, options: Options) -> None:
        if not isinstance(place, TreePlace) or place.routes is None:
            raise UsageError(f"{place.node}: locamu runs on a tree, and this runtime does not say which")
        refuse_newcomer("locamu", place)
        self.routes = place.routes
        self.me = place.routes.rank[place.node]
        self.radii = radii(options.f, options.profile)
        self.delta = options.delta and self.rules.whole
        self.check = options.check
        self.ack_ns = round(options.ack_ms * 1_000_000)
        self.need_ns = round(options.need_ms * 1_000_000)
        self.push_ns = round(options.push_ms * 1_000_000)
        self.origins: dict[Origin, int] = {}
        self.streams = Streams()
        self.shapes: dict[tuple[int, tuple[int, ...]], Shape] = {}
        self.processed = Processed()
        self.store: dict[int, Entry] = {}
        self.names: dict[Name, int] = {}
        self.buffer: dict[tuple[str, int], Copy] = {}
        self.waiting = Waiting()
        self.serial = 0
        self.round = 1
        self.suspected: set[int] = set()
        self._survey()

    def _survey(self) -> None:
        """G1, G2: look around on the tree. Can be done again when it has grown: what is known already stays."""
        ball = self.routes.ball(self.me, self.radii.window)
        self.distance = {node: distance for node, (distance, _) in ball.items()}
        self.way = {node: way for node, (_, way) in ball.items()}
        self.linked = tuple(node for node, distance in self.distance.items() if 0 < distance <= self.radii.jump)
        self.column = {node: self._column(node) for node in ball if node != self.me}
        """Whose number in the vector of a forwarder tells this node what it has processed (S1, S2)."""
        numbering = self.radii.numbering
        self.processed.watch(
            [node for node in self.column if self.distance[node] <= numbering],
            [node for node in self.column if self.distance[node] > numbering],
        )
        self.plans: dict[tuple[int, Topic, int, int], Plan] = {}
        self.depths: dict[tuple[int, Topic, int, int], int] = {}
        self.balls: dict[int, Ball] = {}
        self.active = self._find_active()
        self._see_shapes_anew()

    def _see_shapes_anew(self) -> None:
        """What was derived from the tree before may be more now."""
        keys = self.streams.keys
        for i, key in enumerate(keys):
            stream = key if key >= 0 else ~key
            keys[i] = stream if self._is_inside(stream) else ~stream
        self.shapes = {key: self._derive(*key, shape.code) for key, shape in self.shapes.items()}
        for copy in self.buffer.values():
            copy.vectors = tuple([self._seen_anew(vector) for vector in copy.vectors])
            copy.names = self._usable(copy.vectors)
            copy.wants = [want for want in copy.wants if want[0] in self.processed.gapless]  # V6
        for entry in self.store.values():
            entry.vectors = tuple([self._seen_anew(vector) for vector in entry.vectors])

    def _seen_anew(self, vector: Vector) -> Vector:
        shape, numbers, late = vector
        return (self.shapes[shape.forwarder, shape.nodes], numbers, late)

    def _column(self, forwarder: int) -> int:
        """S1, S2: this node where the forwarder numbers it, else the last node on the way that it does number."""
        node = forwarder
        for _ in range(min(self.distance[forwarder], self.radii.numbering)):
            node = self.routes.step(node, self.me)
        return node

    # Vectors

    def _is_inside(self, stream: int) -> bool:
        """H2: whether a stream belongs to the past of this node."""
        return stream >> SECOND_BITS in self.distance and stream & ((1 << SECOND_BITS) - 1) in self.distance

    def _shape(self, forwarder: int, nodes: tuple[int, ...]) -> Shape:
        """What a vector of that forwarder for these nodes means here."""
        key = (forwarder, nodes)
        shape = self.shapes.get(key)
        if shape is None:
            shape = self.shapes[key] = self._derive(forwarder, nodes, len(self.shapes))
        return shape

    def _derive(self, forwarder: int, nodes: tuple[int, ...], code: int) -> Shape:
        row = forwarder << SECOND_BITS
        near = forwarder in self.distance
        streams = tuple([self.streams.at(row | node, near and node in self.distance) for node in nodes])
        inside = tuple([(i, streams[i]) for i, node in enumerate(nodes) if near and node in self.distance])
        watched = self.column.get(forwarder)
        linked = [(i, row | node) for i, node in enumerate(nodes) if 0 < self.distance.get(node, 0) <= self.radii.jump]
        return Shape(
            forwarder,
            nodes,
            code,
            self.distance.get(forwarder, self.radii.window + 1),
            streams,
            inside,
            tuple([stream for _, stream in inside]),
            nodes.index(watched) if watched in nodes else -1,
            tuple(linked),
        )

    def _vector(self, told: Plain) -> Vector:
        flagged, nodes, numbers = told
        return (self._shape(flagged >> 1, nodes), numbers, flagged & 1)

    def _usable(self, vectors: Sequence[Vector]) -> list[Name]:
        """S1, S2: the numbers that tell this node something, by forwarder."""
        return [
            (shape.forwarder, numbers[shape.watched]) for shape, numbers, _ in vectors if shape.watched >= 0
        ]  # fmt: skip

    # Where messages go

    def _audience(self, topic: Topic, _epoch: int) -> tuple[Routes, Audience]:
        """By which tree, and by which list of members, a message travels."""
        return self.routes, self.routes.group(topic)

    def _is_member(self, topic: Topic, epoch: int) -> bool:
        members = self._audience(topic, epoch)[1].members
        return members is None or self.me in members

    def _plan(self, came: int, topic: Topic, epoch: int, depth: int) -> Plan:
        """G3, G4: the targets of a message that came from that neighbour."""
        key = (came, topic, epoch, depth)
        plan = self.plans.get(key)
        if plan is None:
            tree, audience = self._audience(topic, epoch)
            found = tree.targets(self.me, came, audience, depth, self.radii.numbering, self.radii.shadow)
            plan = self.plans[key] = (
                tuple(node for node, _, _ in found),
                tuple((node, far, off == 0) for node, far, off in found if far <= self.radii.jump),
            )
        return plan

    def _depth_after(self, forwarder: int, topic: Topic, epoch: int, depth: int) -> int:
        """G4: how far off the route this node is, given where the last forwarder is."""
        if not self.radii.shadow:
            return 0
        key = (forwarder, topic, epoch, depth)
        known = self.depths.get(key)
        if known is None:
            known = self.depths[key] = self._depth_between(forwarder, self.me, topic, epoch, depth)
        return known

    def _depth_between(self, start: int, there: int, topic: Topic, epoch: int, depth: int) -> int:
        tree, audience = self._audience(topic, epoch)
        return tree.depth_beyond(start, there, audience, depth)

    def _find_active(self) -> set[int]:
        """G5: in every direction the first node that is not suspected, and none beyond the longest link."""
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

    def _is_safe(self, upstream: int, vectors: Sequence[Vector], start: int, hop: int) -> bool:
        """G6: whether a hop leaves at most f of the window without a name.

        `vectors` are all that are known, `start` is the forwarder's distance from here, `hop` how far the copy goes.
        """
        if hop == 1 or not self.rules.checks_safety:
            return True
        window = self.radii.window
        known = 0
        for shape, _, _ in vectors:
            known += shape.distance - start + hop <= window
        return min(window, upstream + hop) - known <= self.radii.f

    # Who is who

    def _may_forward(self, node: int) -> bool:
        """Whether this node may hear of messages that the other has numbered."""
        return node in self.distance and node != self.me

    def _origin(self, message: Message) -> int:
        """The rank of the publisher."""
        rank = self.origins.get(message.origin)
        if rank is None:
            rank = self.routes.rank.get(message.publisher, NOBODY)
            if rank != NOBODY:
                self.origins[message.origin] = rank
        return rank

    @property
    def _name(self) -> NodeId:
        return self.routes.nodes[self.me]

    def _rank(self, peer: NodeId) -> int:
        rank = self.routes.rank.get(peer, NOBODY)
        if not 0 < self.distance.get(rank, 0) <= self.radii.jump:
            raise PeerError(peer, "is not linked to this node")
        return rank


def without_payload(message: Message) -> Message:
    """G4: what nodes beside the route get."""
    return msgspec.structs.replace(message, payload=b"")
