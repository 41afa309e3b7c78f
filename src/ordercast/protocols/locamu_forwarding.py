"""LoCaMu's routing and sending: where a node stands, whom a message goes on to, which hops are safe, what copies say.

Spec: docs/protocols/locamu.md (G1 to G6, H1 to H3).
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.ids import Origin, Topic
from ordercast.core.machine import Machine, Outbox, Place
from ordercast.core.messages import Message
from ordercast.overlay.extended import Ball, TreePlace
from ordercast.protocols.fixed import refuse_newcomer
from ordercast.protocols.locamu_links import References
from ordercast.protocols.locamu_packets import Alias, Columns, Data, Past, Vector, to_columns
from ordercast.protocols.locamu_rules import CORRECTED, Options, Rules, radii
from ordercast.protocols.locamu_sizes import Tally
from ordercast.protocols.locamu_store import Copy, Entry, Name, Processed, Waiting

NOBODY = -1

Plan = tuple[tuple[int, ...], tuple[tuple[int, int, bool], ...]]
"""Whom a message is numbered for, and whom of these it can be sent to: rank, distance, whether with its payload."""


class Forwarding(Machine):
    """The state of a node and everything that sends copies."""

    constant: ClassVar[tuple[str, ...]] = (
        "routes", "me", "size", "radii", "rules", "delta", "check", "ack_ns", "need_ns", "distance", "way", "linked",
        "column", "streams_in", "beside", "plans", "depths", "balls", "origins",
    )  # fmt: skip
    durable: ClassVar[tuple[str, ...]] = (
        "past", "processed", "store", "names", "buffer", "waiting", "references", "serial", "round",
    )  # fmt: skip

    rules: Rules = CORRECTED

    def __init__(self, place: Place, options: Options) -> None:
        if not isinstance(place, TreePlace) or place.routes is None:
            raise UsageError(f"{place.node}: locamu runs on a tree, and this runtime does not say which")
        refuse_newcomer("locamu", place)
        self.routes = routes = place.routes
        self.me = me = routes.rank[place.node]
        self.size = len(routes.nodes)
        self.radii = radii(options.f, options.profile)
        self.delta = options.delta
        self.check = options.check
        self.ack_ns = round(options.ack_ms * 1_000_000)
        self.need_ns = round(options.need_ms * 1_000_000)
        ball = routes.ball(me, self.radii.window)
        self.distance = {node: distance for node, (distance, _) in ball.items()}
        self.way = {node: way for node, (_, way) in ball.items()}
        self.linked = tuple(node for node, distance in self.distance.items() if 0 < distance <= self.radii.jump)
        self.column = {node: self._column(node) for node in ball if node != me}
        """Whose number in the vector of a forwarder tells this node what it has processed (S1, S2)."""
        near = [node for node in self.column if self.distance[node] <= self.radii.numbering]
        far = [node for node in self.column if self.distance[node] > self.radii.numbering]
        self.streams_in = tuple((node, node * self.size + me) for node in near)
        self.beside: dict[int, bool] = {}
        self.plans: dict[tuple[int, Topic, int], Plan] = {}
        self.depths: dict[tuple[int, Topic, int], int] = {}
        self.balls: dict[int, Ball] = {}
        self.origins: dict[Origin, int] = {}
        self.past: Past = {}
        self.processed = Processed(near, far)
        self.store: dict[int, Entry] = {}
        self.names: dict[Name, int] = {}
        self.buffer: dict[tuple[str, int], Copy] = {}
        self.waiting = Waiting(self.linked)
        self.references = References(self.linked, self.size)
        self.serial = 0
        self.suspected: set[int] = set()
        self.active: set[int] = set(routes.near[me])
        self.tally: Tally | None = Tally() if options.tally else None
        self.round = 1
        self.news = False
        """Whether the event at hand has taught this node anything."""

    def _column(self, forwarder: int) -> int:
        """S1, S2: this node where the forwarder numbers it, else the last node on the way that it does number."""
        node = forwarder
        for _ in range(min(self.distance[forwarder], self.radii.numbering)):
            node = self.routes.step(node, self.me)
        return node

    # Where messages go

    def _plan(self, came: int, topic: Topic, depth: int) -> Plan:
        """G3, G4: the targets of a message that came from that neighbour."""
        key = (came, topic, depth)
        plan = self.plans.get(key)
        if plan is None:
            found = self.routes.targets(self.me, came, topic, depth, self.radii.numbering, self.radii.shadow)
            plan = self.plans[key] = (
                tuple(node for node, _, _ in found),
                tuple((node, far, off == 0) for node, far, off in found if far <= self.radii.jump),
            )
        return plan

    def _depth_after(self, forwarder: int, topic: Topic, depth: int) -> int:
        """G4: how far off the route this node is, given where the last forwarder is."""
        if not self.radii.shadow:
            return 0
        key = (forwarder, topic, depth)
        known = self.depths.get(key)
        if known is None:
            known = self.depths[key] = self.routes.depth_beyond(forwarder, self.me, topic, depth)
        return known

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

    def _is_safe(self, upstream: int, vectors: list[Vector] | tuple[Vector, ...], start: int, hop: int) -> bool:
        """G6: whether a hop leaves at most f of the window without a name.

        `vectors` are those before the forwarder, `start` is its distance from here, `hop` how far the copy goes.
        """
        if hop == 1 or not self.rules.checks_safety:
            return True
        window = self.radii.window
        known = 1
        for vector in vectors:
            known += self.distance[vector[0] >> 1] - start + hop <= window
        return min(window, upstream + hop) - known <= self.radii.f

    # What copies say

    def _vectors_for(self, entry: Entry, hop: int) -> tuple[Vector, ...]:
        """H1: the known vectors within the window of a node so far downstream, the own one last."""
        reach = self.radii.window - hop
        distance = self.distance
        return (*[vector for vector in entry.vectors if distance[vector[0] >> 1] <= reach], entry.own)

    def _send_first(self, entry: Entry, mark: int, out: Outbox) -> None:
        """G6: on to all active targets."""
        nodes, me = self.routes.nodes, self.me
        built: dict[int, tuple[Vector, ...]] = {}
        for peer, hop, whole in self._plan(entry.came, entry.message.topic, entry.depth)[1]:
            if peer not in self.active or not self._is_safe(entry.upstream, entry.vectors, 0, hop):
                continue
            vectors = built.get(hop)
            if vectors is None:
                vectors = built[hop] = self._vectors_for(entry, hop)
            message = entry.message if whole else without_payload(entry.message)
            if self.delta:
                past, session, number = self.references.encode(peer, entry.past, mark)
            else:
                past, session, number = self._whole(entry.past), 0, 0
            if not self.rules.whole:
                vectors, past = self._trimmed(peer, vectors, past)
            if self.tally is not None:
                self.tally.add(vectors, min(self.radii.window, entry.upstream + hop), past)
            out.send(nodes[peer], Data(message, me, entry.depth, vectors, past, session, number))

    def _send_again(self, entry: Entry, peer: int, out: Outbox) -> bool:
        """R2: an own copy with all that is known by now; False: the peer is no target, or the hop is not safe."""
        for node, hop, whole in self._plan(entry.came, entry.message.topic, entry.depth)[1]:
            if node == peer and self._is_safe(entry.upstream, entry.vectors, 0, hop):
                message = entry.message if whole else without_payload(entry.message)
                vectors, past = self._vectors_for(entry, hop), self._whole(entry.past)
                if not self.rules.whole:
                    vectors, past = self._trimmed(peer, vectors, past)
                out.send(self.routes.nodes[peer], Data(message, self.me, entry.depth, vectors, past))
                self._note_sent(entry, peer)
                return True
        return False

    def _send_proxy(self, entry: Entry, received: Copy, peer: int, out: Outbox) -> None:
        """R4: the copy that the forwarder would have sent to the peer, if that hop is safe by what came from it."""
        forwarder, vectors, depth = received.forwarder, received.vectors, received.depth
        routes, start = self.routes, self.distance[forwarder]
        hop = routes.distance(forwarder, peer)
        publisher = routes.rank[entry.message.publisher]
        upstream = routes.distance(publisher, forwarder)
        before = [vector for vector in vectors if vector[0] >> 1 != forwarder]
        if not self._is_safe(upstream, before, start, hop):
            return
        off = routes.depth_beyond(forwarder, peer, entry.message.topic, depth)
        if entry.depth and not off:
            return  # This node has no payload to give.
        reach = self.radii.window - hop + start
        kept = tuple([vector for vector in vectors if self.distance[vector[0] >> 1] <= reach])
        message = without_payload(entry.message) if off else entry.message
        columns = self._whole(received.past)
        if not self.rules.whole:
            kept, columns = self._trimmed(peer, kept, columns)
        out.send(routes.nodes[peer], Data(message, forwarder, depth, kept, columns))

    def _send_alias(self, entry: Entry, peer: int, out: Outbox) -> None:
        """R5: all names of the message; they deliver nothing."""
        out.send(self.routes.nodes[peer], Alias((*entry.vectors, entry.own)))
        self._note_sent(entry, peer)

    def _note_sent(self, entry: Entry, peer: int) -> None:
        for forwarder, nodes, numbers in (*entry.vectors, entry.own):
            if peer in nodes:
                self.waiting.sent(peer, forwarder >> 1, numbers[nodes.index(peer)], self.round)

    def _whole(self, past: Past) -> Columns:
        return to_columns(past, list(past), {}, self.size)

    def _trimmed(self, peer: int, vectors: tuple[Vector, ...], past: Columns) -> tuple[tuple[Vector, ...], Columns]:
        """What the printed algorithm leaves of a header: only nodes around the receiver."""
        ball = self.balls.get(peer)
        if ball is None:
            ball = self.balls[peer] = self.routes.ball(peer, self.radii.window)
        kept = []
        for forwarder, nodes, numbers in vectors:
            pairs = [(node, number) for node, number in zip(nodes, numbers, strict=True) if node in ball]
            kept.append((forwarder, tuple(node for node, _ in pairs), tuple(number for _, number in pairs)))
        columns = []
        for column in past:
            if column[0] in ball:
                pairs = [(column[i], column[i + 1]) for i in range(1, len(column), 2) if column[i] in ball]
                if pairs:
                    columns.append((column[0], *[part for pair in pairs for part in pair]))
        return tuple(kept), tuple(columns)


def without_payload(message: Message) -> Message:
    """G4: what nodes beside the route get."""
    return msgspec.structs.replace(message, payload=b"")
