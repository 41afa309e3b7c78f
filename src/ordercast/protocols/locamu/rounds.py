"""A LoCaMu node's acknowledgements: when it says what it has, whom it asks the same, and what it takes from others.

Spec: docs/protocols/locamu.md (LCM-R1, LCM-D2).
"""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.machine import Outbox
from ordercast.protocols.locamu.neighbourhood import Neighbourhood
from ordercast.protocols.locamu.packets import SECOND_BITS, Ack, Columns
from ordercast.protocols.locamu.parts import NodePart
from ordercast.protocols.locamu.processed import Processed
from ordercast.protocols.locamu.rules import Rules
from ordercast.protocols.locamu.store import MessageStore
from ordercast.protocols.locamu.streams import Streams
from ordercast.protocols.locamu.waiting import WaitingCopies

ACK_EVERY = 64
"""So many processed messages are acknowledged at once."""
PATIENCE = 50
"""After so many rounds or looks in vain a node goes on asking, but no longer keeps a run from its rest."""

TICK = "tick"
NOT_ARMED, IN_BACKGROUND, ARMED = range(3)
"""Of a timer that is armed in the background while there is little hope."""


class Rounds(NodePart):
    """Sends and answers acknowledgements in numbered rounds."""

    constant: ClassVar[tuple[str, ...]] = ("rules", "ack_ns")
    durable: ClassVar[tuple[str, ...]] = ("round",)
    here: Neighbourhood
    streams: Streams
    processed: Processed
    store: MessageStore
    waiting: WaitingCopies

    def __init__(self, rules: Rules, ack_ns: int) -> None:
        self.rules = rules
        self.ack_ns = ack_ns
        self.round = 1
        self.changes = 0
        """How often the own columns have changed in this life."""
        self.told: dict[int, int] = {}
        """Up to which change each linked node has been sent the columns."""
        self.last_told = 0
        self.attending: dict[int, int] = {}
        """Who was asked what it has, to be served like a request (LCM-R3, LCM-H8), and in which round."""
        self.quiet = 0
        """Rounds since something happened."""
        self.armed = NOT_ARMED

    def forget(self, peer: int) -> None:
        """LCM-V6: nobody acknowledges anything to who has left."""
        self.attending.pop(peer, None)
        self.told.pop(peer, None)

    # When

    def went_on(self, out: Outbox) -> None:
        """Something was processed or named: there is something to acknowledge."""
        self.changes += 1
        if self.changes - self.last_told >= ACK_EVERY:
            self._acknowledge_all(set(), out)
        self.stir(out)

    def stir(self, out: Outbox) -> None:
        """Something happened: the next round is worth waiting for."""
        self.quiet = 0
        if self.armed != ARMED:
            self._arm(ARMED, out)

    def stir_quietly(self, out: Outbox) -> None:
        """There will be a next round, but nobody need wait for it."""
        if self.armed == NOT_ARMED:
            self._arm(IN_BACKGROUND, out)

    def _arm(self, how: int, out: Outbox) -> None:
        self.armed = how
        out.set_timer(TICK, self.ack_ns, background=how == IN_BACKGROUND)

    def tick(self, out: Outbox) -> None:
        """LCM-R1: a round. Who has something to acknowledge is asked, so that no loss goes unnoticed."""
        self.armed = NOT_ARMED
        self.round += 1
        self.quiet += 1
        self.store.forget()
        asked = self.waiting.owing(entry.vectors for entry in reversed(self.store.entries.values()))
        column, linked = self.here.column, self.here.linked
        for node in self.processed.sparse:
            if node not in self.processed.gapless and column[node] in linked:
                asked.add(column[node])
        asked -= self.here.suspected
        self._acknowledge_all(asked, out)
        if asked:
            self._arm(ARMED if self.quiet <= PATIENCE else IN_BACKGROUND, out)

    # What

    def _acknowledge_all(self, asked: set[int], out: Outbox) -> None:
        """LCM-R1: tell everybody near what is new, and ask those who have something to answer."""
        self.last_told = self.changes
        self.store.forget()
        columns = self.processed.columns()
        for peer in self.here.linked:
            if peer in asked or self.told.get(peer, 0) < self.changes:
                self.acknowledge(peer, out, columns, ask=self.round if peer in asked else 0)

    def acknowledge(
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
        """Tell a peer what this node has, and that it needs more, wants an answer, gives one, or lost its session."""
        here = self.here
        self.told[peer] = self.changes
        sent = self.streams.value(here.me << SECOND_BITS | peer)
        columns = self.processed.columns() if columns is None else columns
        out.send(here.routes.nodes[peer], Ack(columns, need, ask, reply, reset, self._floors(peer), sent))

    def _floors(self, peer: int) -> tuple[int, ...]:
        """LCM-D2: what a direct neighbour can take over of forwarders that number this node and no longer that one."""
        here, numbering = self.here, self.here.radii.numbering
        if here.distance[peer] > 1 or numbering == here.radii.window:
            return ()
        prefix, way = self.processed.prefix, here.way
        return tuple([
            part
            for node, distance in here.distance.items()
            if distance == numbering and way[node] != peer
            for part in (node, prefix[node])
        ])  # fmt: skip

    def adopt(self, peer: int, ack: Ack) -> None:
        """LCM-D2: a neighbour's floors hold here once all it had sent by then has been processed."""
        if self.rules.fenced and self.processed.prefix[peer] < ack.sent:
            return
        for i in range(0, len(ack.floors) - 1, 2):
            if self.here.column.get(ack.floors[i]) == peer:
                self.processed.raise_to(ack.floors[i], ack.floors[i + 1])

    # Who is asked before it is served

    def ask_first(self, peer: int, out: Outbox) -> None:
        """LCM-R3: ask the peer what it has, and serve its answer like a request."""
        self.attending[peer] = self.round
        self.acknowledge(peer, out, ask=self.round)

    def is_awaited(self, peer: int, reply: int) -> bool:
        """LCM-R3: whether this answer is one that was asked for in order to serve it. It counts once."""
        awaited = self.attending.get(peer, reply + 1) <= reply
        if awaited:
            del self.attending[peer]
        return awaited
