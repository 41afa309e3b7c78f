"""Total order by a fixed sequencer: one node numbers all publications, everyone delivers by number.

The order respects causality, because the sequencer numbers each publisher's messages in their order and nobody
delivers, and so answers, what has no number yet. Spec: docs/protocols/sequencer.md (FLD-S1 to FLD-S6).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, Any, ClassVar

import msgspec

from ordercast.core.errors import PeerError, UsageError, unknown_name
from ordercast.core.ids import NodeId, Origin
from ordercast.core.machine import Outbox, Place
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.protocols.flood import flood
from ordercast.protocols.flood.flood import FLOOD, Flood, Stamp
from ordercast.protocols.shared.fixed_group import refuse_newcomer
from ordercast.protocols.shared.links import Numbered
from ordercast.protocols.shared.seen import Seen

Publication = tuple[int, int]
"""Rank of the publisher and number of the message."""

BATCH = "batch"


class Order(Numbered, frozen=True, tag=5):
    """Places publications, in this sequence, from a first position on."""

    heading: tuple[int, int, int]
    """Rank of the sequencer; number of the order, from 1 without gaps like a message's; first position."""
    publications: tuple[Publication, ...]


class SequencerOptions(flood.FloodOptions, frozen=True, forbid_unknown_fields=True):
    """Settings of flood, and who numbers."""

    sequencer: str = ""
    """Node id; empty: the first node."""
    batch_ms: Annotated[float, msgspec.Meta(ge=0, le=60_000)] = 0.0
    """How long the sequencer collects publications into one order; 0: not at all."""


class Sequencer(Flood):
    """One node of the group; the one called `sequencer` also numbers."""

    constant: ClassVar[tuple[str, ...]] = (*Flood.constant, "rank", "sequencer", "batch_ns")
    durable: ClassVar[tuple[str, ...]] = (
        *Flood.durable, "arrived", "positions", "position", "orders", "due", "fresh", "batches", "numbered",
    )  # fmt: skip

    def __init__(self, place: Place, options: SequencerOptions) -> None:
        super().__init__(place, options)
        self.rank: dict[str, int] = {node: i for i, node in enumerate(place.nodes)}
        self.sequencer = NodeId(options.sequencer or place.nodes[0])
        self.batch_ns = round(options.batch_ms * 1_000_000)
        self.arrived: dict[Publication, Message] = {}
        """Flooded messages that are not delivered yet."""
        self.positions: dict[int, Publication] = {}
        """Known positions that are not delivered yet."""
        self.position = 0
        """The last position delivered."""
        self.orders = Seen()
        # From here on only the sequencer's business.
        self.due = [1] * len(place.nodes)
        self.fresh: list[Publication] = []
        self.batches = 0
        self.numbered = 0

    def _flooded(self, message: Message, _stamp: Stamp, out: Outbox) -> None:
        """FLD-S2: a message waits for its position; at the sequencer it may be given one now."""
        rank = self.rank[message.origin]
        self.arrived[rank, message.number] = message
        if self.node == self.sequencer:
            self._collect(rank, out)
        else:
            self._deliver_ready(out)

    def _collect(self, rank: int, out: Outbox) -> None:
        """FLD-S3: number a publisher's messages in their order, so that the total order respects causality."""
        before = len(self.fresh)
        while (rank, self.due[rank]) in self.arrived:
            self.fresh.append((rank, self.due[rank]))
            self.due[rank] += 1
        if not self.batch_ns:
            self._give_order(out)
        elif self.fresh and not before:
            out.set_timer(BATCH, self.batch_ns)

    def _give_order(self, out: Outbox) -> None:
        """FLD-S4: tell everyone the positions of what was collected."""
        if not self.fresh:
            return
        self.batches += 1
        first = self.numbered + 1
        self.numbered += len(self.fresh)
        publications = tuple(self.fresh)
        self.fresh = []
        self.orders.add(Origin(self.node), self.batches)
        self.links.spread(Order, (self.rank[self.node], self.batches, first), publications, None, False, out)
        self._note_positions(first, publications)
        self._deliver_ready(out)

    def _on_control(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        if not isinstance(packet, Order):
            super()._on_control(peer, packet, out)
            return
        self._check(peer, packet)
        _, batch, first = packet.heading
        if self.links.accept(peer, packet, out) and self.orders.add(Origin(self.sequencer), batch, peer):
            # FLD-S5: orders are flooded like messages.
            self.links.spread(Order, packet.heading, packet.publications, peer, False, out)
            self._note_positions(first, packet.publications)
            self._deliver_ready(out)
        if self.links.confirmed:
            self._add_confirmed(out)

    def _check(self, peer: NodeId, order: Order) -> None:
        author, batch, _ = order.heading
        if author != self.rank[self.sequencer]:
            raise PeerError(peer, f"relays an order that is not from the sequencer {self.sequencer}")
        if any(not 0 <= rank < len(self.rank) for rank, _ in order.publications):
            raise PeerError(peer, f"relays order {batch}, which names a publisher that nobody knows")

    def _note_positions(self, first: int, publications: tuple[Publication, ...]) -> None:
        self.positions.update(enumerate(publications, first))

    def _deliver_ready(self, out: Outbox) -> None:
        """FLD-S6: deliver by position, without gaps."""
        positions, arrived = self.positions, self.arrived
        while (publication := positions.get(self.position + 1)) is not None:
            message = arrived.pop(publication, None)
            if message is None:
                return
            self.position += 1
            del positions[self.position]
            self._deliver(message, out)

    def on_timer(self, name: Hashable, out: Outbox) -> None:
        if name == BATCH:
            self._give_order(out)
        else:
            super().on_timer(name, out)

    def on_recover(self, out: Outbox) -> None:
        super().on_recover(out)
        self._give_order(out)


def build(place: Place, options: Any) -> Sequencer:
    refuse_newcomer("sequencer", place)
    if options.sequencer and options.sequencer not in place.nodes:
        raise UsageError(f"options of sequencer: {unknown_name('node', options.sequencer, place.nodes)}")
    return Sequencer(place, options)


SEQUENCER = msgspec.structs.replace(
    FLOOD,
    name="sequencer",
    summary="total order: one fixed node numbers all publications, everyone delivers by number",
    source=(
        "Defago, Schiper and Urban, Total Order Broadcast and Multicast Algorithms, ACM Computing Surveys 36(4), 2004 "
        "(fixed sequencer)"
    ),
    guarantee=Guarantee.TOTAL,
    faults=(
        "crashes and recoveries with state without limit; up to f nodes, but not the sequencer, may crash for good, as "
        "long as the overlay without them stays connected; partitions that heal; wrong suspicions (f >= 2 then counts "
        "as 1); no restart without state; while the sequencer is down nothing is delivered"
    ),
    metadata="38 + o + t",
    build=build,
    packets=(*FLOOD.packets, Order),
    options=SequencerOptions,
    readmits=False,
)
