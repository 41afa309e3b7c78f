"""LoCaMu's other half: acknowledgements, requests, retransmission, takeover, and what may be forgotten.

Spec: docs/protocols/locamu.md (R1 to R6, D1, D2).
"""

from __future__ import annotations

from collections.abc import Hashable

from ordercast.core.errors import PeerError, UsageError
from ordercast.core.ids import NodeId, Topic
from ordercast.core.machine import Outbox, Place
from ordercast.core.messages import Packet
from ordercast.protocols.locamu.canonical_state import nameless
from ordercast.protocols.locamu.giving import PUSH, Giving
from ordercast.protocols.locamu.packets import SECOND_BITS, Ack, Alias, Columns, Data, Plain, read_names
from ordercast.protocols.locamu.rules import Options
from ordercast.protocols.locamu.store import Copy, Entry, named

ACK_EVERY = 64
"""So many processed messages are acknowledged at once."""
PATIENCE = 50
"""After so many rounds or looks in vain a node goes on asking, but no longer keeps a run from its rest."""
AT_ONCE = 4
"""Up to so many messages are sent to a node that has become active before it says what it has."""
ALL_LINKED_AFTER = 2
"""Looks in vain after which everybody near is asked."""

_LEAST_COLUMN = 2
"""A forwarder and a prefix."""

TICK = "tick"
NEED = "need"

_NOT_ARMED, _IN_BACKGROUND, _ARMED = range(3)


class Locamu(Giving):
    """One node."""

    def __init__(self, place: Place, options: Options) -> None:
        super().__init__(place, options)
        self.changes = 0
        """How often the own columns have changed in this life."""
        self.told: dict[int, int] = {}
        """Up to which change each linked node has been sent the columns."""
        self.last_told = 0
        self.attending: dict[int, int] = {}
        """Who was asked what it has, to be served like a request (R3, H8), and in which round."""
        self.quiet_rounds = 0
        self.held_for: dict[tuple[str, int], int] = {}
        """How many looks each copy has been held back for, as of the last one (R1)."""
        self.asking: set[int] = set()
        """Whom the last look found worth asking."""
        self.tick_armed = _NOT_ARMED
        self.need_armed = _NOT_ARMED

    def frozen(self) -> Hashable:
        """What this node calls streams makes no difference, unless others know them by these names."""
        return super().frozen() if self.delta else nameless(self, ACK_EVERY)

    def _survey(self) -> None:
        super()._survey()
        self.waiting.queues, self.waiting.complete = {}, {}
        for number, entry in list(self.store.items()):
            if not self.waiting.wait(number, entry.vectors):
                self._collect(number)

    # Events

    def on_recover(self, out: Outbox) -> None:
        """R6: back with the durable state: say what is here and ask for what is not."""
        for entry in self.store.values():
            entry.given, entry.sent = [], None  # What was on its way may be lost.
        for peer in self.linked:
            self._acknowledge(peer, out, need=self.distance[peer] == 1, ask=self.round, reset=True)
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
                self._on_alias(rank, packet, out)
            case _:
                raise PeerError(peer, f"sent a {type(packet).__name__}, which is not part of this protocol")

    def on_timer(self, name: Hashable, out: Outbox) -> None:
        if name == TICK:
            self._tick(out)
        elif name == NEED:
            self._ask(out)
        elif name == PUSH:
            self._push_on(out)

    def on_suspect(self, peer: NodeId, out: Outbox) -> None:
        rank = self._rank(peer)
        self.suspected.add(rank)
        for entry in self.store.values():
            entry.forget_sent(rank)  # It may have been lost.
            if rank in entry.received:
                entry.sent = None  # From now on this node may send it in the other's name, too.
        self._detector_changed(out)

    def on_trust(self, peer: NodeId, out: Outbox) -> None:
        rank = self._rank(peer)
        self.suspected.discard(rank)
        self._close(rank)
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
        takers = sorted(self._takers()) if self.suspected else []
        for peer in dict.fromkeys([*fresh, *takers]):
            self._attend_to(peer, out)
        self._stir(out)
        if self.buffer:
            self._look_afresh()
            self._held_back(out)

    def _takers(self) -> set[int]:
        """R4: active nodes that have not acknowledged what a suspected forwarder numbered for them."""
        found: set[int] = set()
        for entry in self.store.values():
            for forwarder in self.suspected.intersection(entry.received):
                found.update(self._lacking(entry, forwarder))
        return found & self.active

    def _attend_to(self, peer: int, out: Outbox) -> None:
        """R3: a few messages are sent at once; of many, most have come another way, so the peer is asked first."""
        due = [entry for entry in self.store.values() if entry.is_due(peer, self.round)]
        lacking = [entry for entry in due if self.waiting.lacks(peer, entry.vectors)]
        if len(lacking) > AT_ONCE:
            self._ask_first(peer, out)
        else:
            self._give(lacking, peer, out, need=False)

    def _ask_first(self, peer: int, out: Outbox) -> None:
        self.attending[peer] = self.round
        self._acknowledge(peer, out, ask=self.round)

    def _on_alias(self, peer: int, packet: Alias, out: Outbox) -> None:
        """R5: names of a message that this node has; otherwise they say nothing."""
        try:
            messages = read_names(packet.names)
        except ValueError:
            raise PeerError(self.routes.nodes[peer], "sent names that make no sense") from None
        while messages:
            unknown = [told for told in messages if not self._learn(told, out)]
            if len(unknown) == len(messages):
                break
            if self.buffer:
                self._unbuffer(out)
            messages = unknown  # What was held back until now may be one of these.
        self._look_up(out)

    def _learn(self, told: list[Plain], out: Outbox) -> bool:
        """R5: names of one message; False: it is not known under any of them."""
        vectors = [self._vector(vector) for vector in told if self._may_forward(vector[0] >> 1)]
        names = self._usable(vectors)
        if not self.processed.has_any(names):
            return False
        self._add_names(names, vectors, None, out)
        return True

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
        self._forget()
        columns = self.processed.columns()
        for peer in self.linked:
            if peer in asked or self.told.get(peer, 0) < self.changes:
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
        sent = self.streams.value(self.me << SECOND_BITS | peer)
        columns = self.processed.columns() if columns is None else columns
        out.send(self.routes.nodes[peer], Ack(columns, need, ask, reply, reset, self._floors(peer), sent))

    def _floors(self, peer: int) -> tuple[int, ...]:
        """D2: what a direct neighbour can take over of the forwarders that number this node and no longer that one."""
        numbering = self.radii.numbering
        if self.distance[peer] > 1 or numbering == self.radii.window:
            return ()
        prefix, way = self.processed.prefix, self.way
        return tuple([
            part
            for node, distance in self.distance.items()
            if distance == numbering and way[node] != peer
            for part in (node, prefix[node])
        ])  # fmt: skip

    def _tick(self, out: Outbox) -> None:
        """R1: a round. Who has something to acknowledge is asked, so that no loss goes unnoticed."""
        self.tick_armed = _NOT_ARMED
        self.round += 1
        self.quiet_rounds += 1
        self._forget()
        asked = self.waiting.owing(self.store)
        for node in self.processed.sparse:
            if node not in self.processed.gapless and self.column[node] in self.linked:
                asked.add(self.column[node])
        asked -= self.suspected
        self._acknowledge_all(asked, out)
        if asked:
            patient = self.quiet_rounds <= PATIENCE
            self.tick_armed = _ARMED if patient else _IN_BACKGROUND
            out.set_timer(TICK, self.ack_ns, background=not patient)

    def _on_ack(self, peer: int, ack: Ack, out: Outbox) -> None:
        """R2, D1, D2."""
        forwarders = {column[0] for column in ack.columns if len(column) >= _LEAST_COLUMN}
        if len(forwarders) < len(ack.columns):
            raise PeerError(self.routes.nodes[peer], "sent an acknowledgement that makes no sense")
        if ack.reset:
            self._close(peer)
            for entry in self.store.values():
                entry.forget_sent(peer)
        columns = [column for column in ack.columns if column[0] in self.distance]
        if self.waiting.acknowledge(peer, columns) and self.store:
            self._stir(out)
        if ack.floors:
            self._adopt(peer, ack)
        self._serve(peer, ack, out)
        if ack.ask:
            self._acknowledge(peer, out, need=bool(self.buffer) and peer in self.asking, reply=ack.ask)

    def _adopt(self, peer: int, ack: Ack) -> None:
        """D2: a neighbour's floors hold here once all it had sent by then has been processed."""
        if self.rules.fenced and self.processed.prefix[peer] < ack.sent:
            return
        for i in range(0, len(ack.floors) - 1, 2):
            if self.column.get(ack.floors[i]) == peer:
                self.processed.raise_to(ack.floors[i], ack.floors[i + 1])

    # Retransmission

    def _serve(self, peer: int, ack: Ack, out: Outbox) -> None:
        """R2: give the peer what it needs, or has not acknowledged in two answers."""
        if not ack.need and not ack.reply:
            return
        attended = self.attending.get(peer, ack.reply + 1) <= ack.reply
        if attended:
            del self.attending[peer]
        before = self.round + 1 if ack.need or attended else ack.reply - 1
        due = [entry for entry in self._older(before) if entry.is_due(peer, before)]
        lacking = [entry for entry in due if self.waiting.lacks(peer, entry.vectors)]
        self._give(lacking, peer, out, need=ack.need, answered=ack.reply)
        if ack.need and self.store and self.tick_armed == _NOT_ARMED:
            # What gets lost once more must become due once more, even if nobody is asked for answers.
            self.tick_armed = _IN_BACKGROUND
            out.set_timer(TICK, self.ack_ns, background=True)

    def _older(self, before: int) -> list[Entry]:
        """Messages that were processed before that round."""
        found: list[Entry] = []
        for entry in self.store.values():
            if entry.round >= before:
                break
            found.append(entry)
        return found

    # Requests

    def _held_back(self, out: Outbox) -> None:
        if self.need_armed != _ARMED:
            self.need_armed = _ARMED
            self._look_afresh()
            out.set_timer(NEED, self.need_ns)

    def _look_afresh(self) -> None:
        """What is held back now counts from now on."""
        self.held_for = dict.fromkeys(self.buffer, 0)
        self.asking = set()

    def _ask(self, out: Outbox) -> None:
        """R1: ask for what copies wait for that were here at the last look: others may just have been overtaken."""
        self.need_armed = _NOT_ARMED
        gaps = self._gaps()
        looks = {key: self.held_for.get(key, -1) + 1 for key in self.buffer}
        self.held_for = {key: min(count, PATIENCE + 1) for key, count in looks.items()}
        asked = set(gaps)
        for key, count in self.held_for.items():
            asked |= self._to_ask(self.buffer[key], count)
        self.asking = asked.intersection(self.linked)
        for peer in sorted(self.asking):
            self._acknowledge(peer, out, need=True, reset=peer in gaps)
        if self.buffer:
            longest = max(self.held_for.values())
            patient = longest <= PATIENCE
            self.need_armed = _ARMED if patient else _IN_BACKGROUND
            delay = min(self.need_ns << min(longest, 10), max(self.ack_ns, self.need_ns))
            out.set_timer(NEED, delay, background=not patient)

    def _to_ask(self, copy: Copy, looks: int) -> set[int]:
        """R1: whoever sent what waits, whoever numbered what is missing, then also everybody who is not suspected."""
        if not looks:
            return set()
        asked = {forwarder for forwarder, number in copy.wants if number > self.processed.prefix[forwarder]}
        asked.add(copy.sender)
        if looks == 1:
            return self._nearest(asked) or asked
        return asked if looks <= ALL_LINKED_AFTER else asked | (set(self.linked) - self.suspected)

    def _nearest(self, peers: set[int]) -> set[int]:
        """Those of them with nobody between who would do as well."""
        return {peer for peer in peers if self.distance.get(peer) == 1 or self.way.get(peer) in self.suspected}

    # Forgetting

    def _forget(self) -> None:
        """D1: look at what was acknowledged since the last look."""
        for number in sorted(self.waiting.released(), reverse=True):  # What holds for the last holds for those before.
            entry = self.store.get(number)
            if entry is not None and not self.waiting.wait(number, entry.vectors):
                self._collect(number)

    def _collect(self, number: int) -> None:
        """D1: every linked node has the message under every name known here, and no near forwarder can add one."""
        entry = self.store[number]
        if self.rules.keeps_until_complete:
            near = self.radii.numbering
            if named(entry.vectors, near) < min(near, entry.upstream):
                return
        del self.store[number]
        for name in entry.names:
            self.names.pop(name, None)
