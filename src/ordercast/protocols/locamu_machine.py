"""LoCaMu's other half: acknowledgements, requests, retransmission, takeover, and what may be forgotten.

Spec: docs/protocols/locamu.md (R1 to R6, D1, D2).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from ordercast.core.errors import PeerError, UsageError
from ordercast.core.ids import NodeId, Topic
from ordercast.core.machine import Outbox, Place
from ordercast.core.messages import Packet
from ordercast.protocols.locamu_ordering import Ordering
from ordercast.protocols.locamu_packets import Ack, Alias, Columns, Data
from ordercast.protocols.locamu_rules import Options
from ordercast.protocols.locamu_store import Entry

ACK_EVERY = 64
"""So many processed messages are acknowledged at once."""
PATIENCE = 50
"""After so many rounds without any news a node goes on asking, but no longer keeps a run from its rest."""
ALL_LINKED_AFTER = 2
"""Unanswered rounds after which everybody near is asked."""

_LEAST_COLUMN = 2
"""A forwarder and a prefix."""

TICK = "tick"
NEED = "need"

_NOT_ARMED, _IN_BACKGROUND, _ARMED = range(3)


class Locamu(Ordering):
    """One node."""

    constant: ClassVar[tuple[str, ...]] = (*Ordering.constant, "floors_for")

    def __init__(self, place: Place, options: Options) -> None:
        super().__init__(place, options)
        rim = [node for node in self.column if self.distance[node] == self.radii.numbering < self.radii.window]
        self.floors_for: dict[int, tuple[int, ...]] = {
            peer: tuple(node for node in rim if self.way[node] != peer) for peer in self.routes.near[self.me]
        }
        self.changes = 0
        """How often the own columns have changed in this life."""
        self.told = dict.fromkeys(self.linked, 0)
        """Up to which change each linked node has been sent the columns."""
        self.last_told = 0
        self.quiet_rounds = 0
        self.need_rounds = 0
        self.tick_armed = _NOT_ARMED
        self.need_armed = _NOT_ARMED

    # Events

    def on_recover(self, out: Outbox) -> None:
        """R6: back with the durable state: say what is here and ask for what is not."""
        for peer in self.linked:
            self._acknowledge(peer, out, need=True, ask=self.round, reset=True)
        self._stir(out)
        if self.buffer:
            self._held_back(out)

    def on_receive(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        rank = self._rank(peer)
        match packet:
            case Data():
                self._on_data(rank, packet, out)
            case Ack():
                self._on_ack(rank, packet, out)
            case Alias():
                self._on_alias(packet, out)
            case _:
                raise PeerError(peer, f"sent a {type(packet).__name__}, which is not part of this protocol")

    def on_timer(self, name: Hashable, out: Outbox) -> None:
        if name == TICK:
            self._tick(out)
        elif name == NEED:
            self._ask(out)

    def on_suspect(self, peer: NodeId, out: Outbox) -> None:
        self.suspected.add(self._rank(peer))
        self._detector_changed(out)

    def on_trust(self, peer: NodeId, out: Outbox) -> None:
        rank = self._rank(peer)
        self.suspected.discard(rank)
        self.references.close(rank)
        self._acknowledge(rank, out, need=bool(self.buffer), ask=self.round)
        self._detector_changed(out)

    def on_subscribe(self, topic: Topic, _out: Outbox) -> None:
        raise UsageError(f"{self._name} cannot subscribe to {topic!r}: the members of a group are fixed")

    def on_unsubscribe(self, topic: Topic, _out: Outbox) -> None:
        raise UsageError(f"{self._name} cannot leave {topic!r}: the members of a group are fixed")

    def _detector_changed(self, out: Outbox) -> None:
        """R3: nodes that are active now get what they lack, and for suspected ones others take over."""
        before, self.active = self.active, self._find_active()
        fresh = sorted(self.active - before)
        for entry in list(self.store.values()) if fresh or self.suspected else ():
            for peer in fresh:
                if self._lacks_own(entry, peer):
                    self._send_again(entry, peer, out)
            for forwarder in sorted(self.suspected.intersection(entry.received)):
                self._take_over(entry, forwarder, out)
        self._stir(out)
        if self.buffer:
            self.need_rounds = 0
            self._held_back(out)

    def _take_over(self, entry: Entry, forwarder: int, out: Outbox) -> None:
        """R3, R4: send in the name of a suspected forwarder, to whom nobody downstream of it will."""
        for peer in self._lacking(entry, forwarder):
            if peer in self.active and peer not in entry.own[1]:
                self._send_proxy(entry, entry.received[forwarder], peer, out)

    def _lacking(self, entry: Entry, forwarder: int) -> list[int]:
        """Linked nodes that have not acknowledged the number the forwarder gave them."""
        for flagged, nodes, numbers in entry.received[forwarder].vectors:
            if flagged >> 1 == forwarder:
                pairs = [(node, numbers[i]) for i, node in enumerate(nodes) if node in self.waiting.open]
                return [node for node, number in pairs if not self.waiting.has(node, forwarder, number)]
        return []

    def _lacks_own(self, entry: Entry, peer: int) -> bool:
        flagged, nodes, numbers = entry.own
        return peer in nodes and not self.waiting.has(peer, flagged >> 1, numbers[nodes.index(peer)])

    def _on_alias(self, packet: Alias, out: Outbox) -> None:
        """R5: names of a message that this node has; otherwise they say nothing."""
        vectors = tuple(vector for vector in packet.vectors if len(vector[1]) == len(vector[2]))
        names = self._usable(vectors)
        if self._is_known(names):
            self._add_names(names, vectors, None, out)
            if self.buffer:
                self._unbuffer(out)
            self._look_up(out)

    # Acknowledgements

    def _went_on(self, out: Outbox) -> None:
        self.changes += 1
        if self.changes - self.last_told >= ACK_EVERY:
            self._acknowledge_all(set(), out)
        self._stir(out)

    def _stir(self, out: Outbox) -> None:
        """Something happened: the next round is worth waiting for."""
        self.quiet_rounds = 0
        if self.tick_armed != _ARMED:
            self.tick_armed = _ARMED
            out.set_timer(TICK, self.ack_ns)

    def _acknowledge_all(self, asked: set[int], out: Outbox) -> None:
        """R1: tell everybody near what is new, and ask those who have something to answer."""
        self.last_told = self.changes
        columns = self.processed.columns()
        for peer in self.linked:
            if peer in asked or self.told[peer] < self.changes:
                self._acknowledge(peer, out, columns, ask=self.round if peer in asked else 0)

    def _acknowledge(
        self,
        peer: int,
        out: Outbox,
        columns: Columns | None = None,
        *,
        need: bool = False,
        ask: int = 0,
        reply: int = 0,
        reset: bool = False,
    ) -> None:
        self.told[peer] = self.changes
        prefix = self.processed.prefix
        floors = tuple([part for node in self.floors_for.get(peer, ()) for part in (node, prefix[node])])
        sent = self.past.get(self.me * self.size + peer, 0)
        columns = self.processed.columns() if columns is None else columns
        out.send(self.routes.nodes[peer], Ack(columns, need, ask, reply, reset, floors, sent))

    def _tick(self, out: Outbox) -> None:
        """R1: a round. Who has something to acknowledge is asked, so that no loss goes unnoticed."""
        self.tick_armed = _NOT_ARMED
        self.round += 1
        self.quiet_rounds += 1
        asked = {peer for peer in self.waiting.peers() if peer not in self.suspected}
        for node in self.processed.sparse:
            if node not in self.processed.gapless and self.column[node] in self.waiting.open:
                asked.add(self.column[node])
        asked -= self.suspected
        self._acknowledge_all(asked, out)
        if asked:
            patient = self.quiet_rounds <= PATIENCE
            self.tick_armed = _ARMED if patient else _IN_BACKGROUND
            out.set_timer(TICK, self.ack_ns, background=not patient)

    def _on_ack(self, peer: int, ack: Ack, out: Outbox) -> None:
        """R2, D1, D2."""
        if any(len(column) < _LEAST_COLUMN for column in ack.columns):
            raise PeerError(self.routes.nodes[peer], "sent an acknowledgement that makes no sense")
        if ack.reset:
            self.references.close(peer)
        done = self.waiting.acknowledge(peer, ack.columns)
        for number in done:
            entry = self.store[number]
            entry.open -= 1
            if not entry.open:
                self._collect(number)
        if done:
            self._stir(out)
        if ack.floors:
            self._adopt(peer, ack)
        self._serve(peer, ack, out)
        if ack.ask:
            self._acknowledge(peer, out, need=bool(self.buffer), reply=ack.ask)

    def _adopt(self, peer: int, ack: Ack) -> None:
        """D2: a neighbour's floors hold here once all it had sent by then has been processed."""
        if self.rules.fenced and self.processed.prefix[peer] < ack.sent:
            return
        for i in range(0, len(ack.floors) - 1, 2):
            if self.column.get(ack.floors[i]) == peer:
                self.processed.raise_to(ack.floors[i], ack.floors[i + 1])

    # Retransmission

    def _serve(self, peer: int, ack: Ack, out: Outbox) -> None:
        """R2: send again what the peer asks for, or has not acknowledged in two answers."""
        if ack.need:
            lacking = self.waiting.unacknowledged(peer, self.round + 1)
        elif ack.reply:
            lacking = self.waiting.unacknowledged(peer, ack.reply - 1)
        else:
            return
        for number in lacking:
            entry = self.store.get(number)
            if entry is not None:
                self._give(entry, peer, ack.need, out)

    def _give(self, entry: Entry, peer: int, need: bool, out: Outbox) -> None:
        if self.rules.pushes and self._is_held_by(entry, peer):
            self._send_alias(entry, peer, out)
            return
        wanted = self.rules.pushes or self._lacks_own(entry, peer)
        if wanted and (need or peer in self.active) and self._send_again(entry, peer, out):
            return
        if need:
            for forwarder in sorted(self.suspected.intersection(entry.received)):
                if peer in self._lacking(entry, forwarder):
                    self._send_proxy(entry, entry.received[forwarder], peer, out)
            if self.rules.pushes:
                self._send_alias(entry, peer, out)

    def _is_held_by(self, entry: Entry, peer: int) -> bool:
        """Whether the peer has acknowledged the message under one of its names."""
        return any(
            peer in nodes and self.waiting.has(peer, flagged >> 1, numbers[nodes.index(peer)])
            for flagged, nodes, numbers in (*entry.vectors, entry.own)
        )

    # Requests

    def _held_back(self, out: Outbox) -> None:
        if self.need_armed != _ARMED:
            self.need_armed = _ARMED
            self.need_rounds = 0
            out.set_timer(NEED, self.need_ns)

    def _ask(self, out: Outbox) -> None:
        """R1: ask for what is missing: whoever sent what waits, whoever numbered what is missing, then everybody."""
        self.need_armed = _NOT_ARMED
        gaps = self.references.gaps()
        if not self.buffer and not gaps:
            return
        self.need_rounds += 1
        asked = set(gaps)
        for copy in self.buffer.values():
            asked.add(copy.sender)
            past, prefix = copy.past, self.processed.prefix
            asked |= {forwarder for forwarder, stream in self.streams_in if past.get(stream, 0) > prefix[forwarder]}
        if self.need_rounds > ALL_LINKED_AFTER:
            asked |= set(self.linked) - self.suspected
        for peer in sorted(asked.intersection(self.waiting.open)):
            self._acknowledge(peer, out, need=True, reset=peer in gaps)
        if self.buffer:
            patient = self.need_rounds <= PATIENCE
            self.need_armed = _ARMED if patient else _IN_BACKGROUND
            delay = min(self.need_ns << min(self.need_rounds, 10), max(self.ack_ns, self.need_ns))
            out.set_timer(NEED, delay, background=not patient)

    # Forgetting

    def _collect(self, number: int) -> None:
        """D1: every linked node has the message under every name known here, and no near forwarder can add one."""
        entry = self.store[number]
        if self.rules.keeps_until_complete:
            near = min(self.radii.numbering, entry.upstream)
            named = sum(self.distance[vector[0] >> 1] <= self.radii.numbering for vector in entry.vectors)
            if named < near:
                return
        del self.store[number]
        for name in entry.names:
            self.names.pop(name, None)
