"""Causal broadcast with vector clocks: if m1 happened before m2, every node delivers m1 first, whatever the topics.

Fixed group, whole vector in every message: the baseline that the tree protocols are compared with.
Spec: docs/protocols/vector.md (FLD-V1 to FLD-V4), from [BSS91].
"""

from __future__ import annotations

from operator import lt
from typing import Any, ClassVar

import msgspec

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId
from ordercast.core.machine import Outbox, Place
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.protocols.flood.flood import FLOOD, Data, Flood, FloodOptions, Stamp
from ordercast.protocols.shared.fixed_group import refuse_newcomer

Blocker = tuple[int, int]
"""The publication that a message waits for: index of the publisher and number."""


class Vector(Flood):
    """Delivers a message once everything its publisher had delivered before it is delivered here."""

    constant: ClassVar[tuple[str, ...]] = (*Flood.constant, "rank")
    durable: ClassVar[tuple[str, ...]] = (*Flood.durable, "delivered", "blocked")

    def __init__(self, place: Place, options: FloodOptions) -> None:
        super().__init__(place, options)
        self.rank: dict[str, int] = {node: i for i, node in enumerate(place.nodes)}
        self.delivered = [0] * len(place.nodes)
        """How many messages of each node were delivered or, where the application did not want them, passed over."""
        self.blocked: dict[Blocker, list[tuple[Message, Stamp]]] = {}

    def on_receive(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        if type(packet) is Data:
            self._check(peer, packet)
        super().on_receive(peer, packet, out)

    def _check(self, peer: NodeId, packet: Data) -> None:
        message, stamp = packet.message, packet.stamp
        if len(stamp) != len(self.delivered):
            raise PeerError(peer, f"stamped {message.id} with {len(stamp)} entries in a group of {len(self.delivered)}")
        rank = self.rank.get(message.origin)
        if rank is None or stamp[rank] != message.number:
            raise PeerError(peer, f"stamped {message.id} with a vector that does not count the message itself")

    def _stamp(self, message: Message) -> Stamp:
        """FLD-V1: what this node has delivered, and the message itself."""
        counts = self.delivered.copy()
        counts[self.rank[self.node]] = message.number
        return tuple(counts)

    def _flooded(self, message: Message, stamp: Stamp, out: Outbox) -> None:
        """FLD-V2 to FLD-V4: deliver the message and what waited for it alone, or file it under what it waits for."""
        candidates = [(message, stamp)]
        for candidate in candidates:  # It grows while it is looked at.
            message, stamp = candidate
            blocker = self._blocker(message, stamp)
            if blocker is not None:
                self.blocked.setdefault(blocker, []).append(candidate)
                continue
            rank = self.rank[message.origin]
            self.delivered[rank] = message.number
            self._deliver(message, out)
            if self.blocked:
                candidates += self.blocked.pop((rank, message.number), ())

    def _blocker(self, message: Message, stamp: Stamp) -> Blocker | None:
        """FLD-V2: one publication that must be delivered before the message; None: nothing is missing."""
        publisher = self.rank[message.origin]
        if self.delivered[publisher] < message.number - 1:
            return publisher, message.number - 1
        # The publisher's own entry counts the message itself, so it is always ahead; mostly it is the only one.
        if sum(map(lt, self.delivered, stamp)) == 1:
            return None
        entries = enumerate(zip(self.delivered, stamp, strict=True))
        return next(((rank, need) for rank, (have, need) in entries if have < need and rank != publisher), None)


def build(place: Place, options: Any) -> Vector:
    refuse_newcomer("vector", place)
    return Vector(place, options)


VECTOR = msgspec.structs.replace(
    FLOOD,
    name="vector",
    summary="causal broadcast: every message carries how much of everyone its publisher had delivered",
    source="[BSS91] Birman, Schiper and Stephenson, Lightweight Causal and Atomic Group Multicast, ACM TOCS 9(3), 1991",
    guarantee=Guarantee.CAUSAL,
    faults=(
        "crashes and recoveries with state without limit; up to f nodes may crash for good, as long as the overlay "
        "without them stays connected; partitions that heal; wrong suspicions (f >= 2 then counts as 1); "
        "no restart without state"
    ),
    metadata="20 + o + t + N + 2*(N > 15)",
    build=build,
    readmits=False,
)
