"""LoCaMu's sending: first copies, copies sent again, copies in another's name, and names alone.

Spec: docs/protocols/locamu.md (LCM-G6, LCM-H1 to LCM-H3, LCM-R2, LCM-R4, LCM-R5).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import msgspec

from ordercast.core.machine import Outbox
from ordercast.core.messages import Message
from ordercast.protocols.locamu.links import LinkEnds, Outgoing
from ordercast.protocols.locamu.neighbourhood import Neighbourhood
from ordercast.protocols.locamu.packets import (
    MOST_NUMBERS,
    SECOND,
    SECOND_BITS,
    Alias,
    Data,
    Notice,
    Plain,
    Whole,
    flat_names,
)
from ordercast.protocols.locamu.parts import NodePart
from ordercast.protocols.locamu.rounds import Rounds
from ordercast.protocols.locamu.rules import Rules
from ordercast.protocols.locamu.sizes import Tally
from ordercast.protocols.locamu.store import Copy, Entry
from ordercast.protocols.locamu.streams import Streams
from ordercast.protocols.locamu.vectors import Vector, plain
from ordercast.protocols.locamu.waiting import WaitingCopies

LONGEST_BURST = 128
"""So many copies are sent again together, the oldest first; more only when the receiver says that it has these."""


class Forwarding(NodePart):
    """Sends all copies of messages: first ones, further ones, and those in another node's name."""

    constant: ClassVar[tuple[str, ...]] = ("rules",)
    here: Neighbourhood
    streams: Streams
    waiting: WaitingCopies
    links: LinkEnds
    rounds: Rounds

    def __init__(self, rules: Rules, *, tally: bool) -> None:
        self.rules = rules
        self.tally: Tally | None = Tally() if tally else None

    def send_first(self, entry: Entry, late: bool, out: Outbox) -> list[int]:
        """LCM-G6: send a message on to all active targets; of one that came late, who has it is to get names alone.

        Returns who is.
        """
        here, links = self.here, self.links
        sent = entry.given
        named: list[int] = []
        by_hop: dict[int, list[Vector]] = {}
        message, active = entry.message, here.active
        kind = self._kind(entry)
        for peer, hop, whole in here.plan(entry.came, message.topic, entry.epoch, entry.depth)[1]:
            if peer not in active or (hop > 1 and not here.is_safe(entry.upstream, entry.vectors, 0, hop)):
                continue
            if late and self.waiting.holds(peer, entry.vectors):
                named.append(peer)
                continue
            vectors = by_hop.get(hop)
            if vectors is None:
                vectors = by_hop[hop] = self._vectors_for(entry, hop)
            link = links.outgoing_to(peer, entry.past)
            if link is not None:
                header = links.encode(link, entry.past, vectors, entry.depth, entry.epoch)
                link.pending += self._uncarried(entry, hop)
                session, number = link.session, link.number
            else:
                header, session, number = self._whole(entry, peer, vectors), 0, 0
            if self.tally is not None:
                window = min(here.radii.window, entry.upstream + hop)
                if session:
                    self.tally.first(peer, vectors, window, entry.past, self.streams.keys, again=number > 0)
                else:
                    self.tally.first_whole(vectors, window, here.routes, here.me, here.radii)
            sent.append(peer)
            carried = message if whole else _without_payload(message)
            out.send(here.routes.nodes[peer], kind(carried, session, number, header))
        if len(sent) < len(links.outgoing):
            links.note_changes(
                [*self._uncarried(entry, here.radii.window), *entry.own[0].merged],
                [link for peer, link in links.outgoing.items() if peer not in sent],
            )
        return named

    def _uncarried(self, entry: Entry, hop: int) -> list[int]:
        """LCM-H7: streams whose number has just risen, and not in vectors that a copy over that distance carries."""
        reach = self.here.radii.window - hop
        streams: list[int] = []
        for shape, _, late in entry.vectors:
            if shape.distance > reach and not late:
                streams += shape.merged
        return streams

    def _vectors_for(self, entry: Entry, hop: int) -> list[Vector]:
        """LCM-H1: the known vectors within the window of a node so far downstream, the own one last."""
        reach = self.here.radii.window - hop
        return [vector for vector in entry.vectors if vector[0].distance <= reach]

    def _whole(self, entry: Entry, peer: int, vectors: Sequence[Vector]) -> tuple[int, ...]:
        past = self.streams.pairs(entry.past)
        return self._whole_header(self.here.me, entry.depth, entry.epoch, peer, vectors, past)

    def _whole_header(
        self,
        forwarder: int,
        depth: int,
        epoch: int,
        peer: int,
        vectors: Sequence[Vector],
        past: Iterable[tuple[int, int]],
    ) -> tuple[int, ...]:
        told = plain(vectors)
        if not self.rules.whole:
            ball = self.here.ball(peer)
            past = [(key, value) for key, value in past if key >> SECOND_BITS in ball and key & SECOND in ball]
            told = [
                (flagged, *_transposed([pair for pair in zip(nodes, numbers, strict=True) if pair[0] in ball]))
                for flagged, nodes, numbers in told
            ]
        return Whole(forwarder, depth, epoch, told, past).flat()

    def send_together(self, entries: Sequence[Entry], peer: int, out: Outbox) -> None:
        """LCM-H8: copies sent again, each with little more than its difference from the one before."""
        entries = entries[:LONGEST_BURST]
        burst = self.links.burst(peer, len(entries)) if entries else None
        for entry in entries:
            self._send_again(entry, peer, out, burst)

    def _send_again(self, entry: Entry, peer: int, out: Outbox, burst: Outgoing | None = None) -> None:
        """LCM-R2: an own copy with all that is known by now, if the peer is a target and the hop is safe."""
        target = self.target(entry, peer)
        if target is None:
            return
        hop, whole = target
        message = entry.message if whole else _without_payload(entry.message)
        vectors = self._vectors_for(entry, hop)
        if burst is None:
            header, session, number = self._whole(entry, peer, vectors), 0, 0
        else:
            header = self.links.encode_again(burst, entry.past, vectors, entry.depth, entry.epoch)
            session, number = -burst.session, burst.number
        if self.tally is not None:
            window = min(self.here.radii.window, entry.upstream + hop)
            self.tally.again(vectors, window, self.here.routes, self.here.me, self.here.radii)
        out.send(self.here.routes.nodes[peer], self._kind(entry)(message, session, number, header))
        entry.note_sent(peer, self.rounds.round)
        if peer not in entry.given:
            entry.given.append(peer)

    def target(self, entry: Entry, peer: int) -> tuple[int, bool] | None:
        """LCM-R2: how far it is to a target, and whether it gets the payload; None: no target, or no safe hop."""
        for node, hop, whole in self.here.plan(entry.came, entry.message.topic, entry.epoch, entry.depth)[1]:
            if node == peer and self.here.is_safe(entry.upstream, entry.vectors, 0, hop):
                return hop, whole
        return None

    def send_proxy(self, entry: Entry, received: Copy, peer: int, out: Outbox) -> None:
        """LCM-R4: the copy that the forwarder would have sent to the peer, if that hop is safe by what came from it."""
        if not self.rules.proxies:
            return
        forwarder, depth = received.forwarder, received.depth
        routes, start = self.here.routes, self.here.distance[forwarder]
        hop = routes.distance(forwarder, peer)
        upstream = routes.distance(self.here.origin(entry.message), forwarder)
        if not self.here.is_safe(upstream, received.vectors, start, hop):
            return
        off = self.here.depth_between(forwarder, peer, entry.message.topic, entry.epoch, depth)
        if entry.depth and not off:
            return  # This node has no payload to give.
        reach = self.here.radii.window - hop + start
        kept = [vector for vector in received.vectors if vector[0].distance <= reach]
        message = _without_payload(entry.message) if off else entry.message
        header = self._whole_header(forwarder, depth, entry.epoch, peer, kept, received.pairs())
        if self.tally is not None:
            window = min(self.here.radii.window, upstream + hop)
            self.tally.again(kept, window, self.here.routes, forwarder, self.here.radii)
        out.send(self.here.routes.nodes[peer], self._kind(entry)(message, 0, 0, header))

    @staticmethod
    def _kind(entry: Entry) -> type[Data]:
        return Notice if entry.internal else Data

    def send_names(self, entries: Sequence[Entry], peer: int, out: Outbox) -> None:
        """LCM-R5: all names of these messages; they deliver nothing."""
        named: list[list[Plain]] = []
        room = MOST_NUMBERS
        for entry in entries:
            vectors = plain(entry.vectors)
            numbers = sum(len(nodes) for _, nodes, _ in vectors)
            if numbers > room and named:
                out.send(self.here.routes.nodes[peer], Alias(flat_names(named)))
                named, room = [], MOST_NUMBERS
            named.append(vectors)
            room -= numbers
            entry.note_sent(peer, self.rounds.round)
        if named:
            out.send(self.here.routes.nodes[peer], Alias(flat_names(named)))


def _transposed(pairs: list[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple([node for node, _ in pairs]), tuple([number for _, number in pairs])


def _without_payload(message: Message) -> Message:
    """LCM-G4: what nodes beside the route get."""
    return msgspec.structs.replace(message, payload=b"")
