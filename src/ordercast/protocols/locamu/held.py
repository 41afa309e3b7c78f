"""Copies that a LoCaMu node holds back, and how it asks for what they wait for.

Spec: docs/protocols/locamu.md (LCM-R1, LCM-H5).
"""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.machine import Outbox
from ordercast.protocols.locamu.links import LinkEnds
from ordercast.protocols.locamu.neighbourhood import Neighbourhood
from ordercast.protocols.locamu.parts import NodePart
from ordercast.protocols.locamu.processed import Processed
from ordercast.protocols.locamu.rounds import ARMED, IN_BACKGROUND, NOT_ARMED, PATIENCE, Rounds
from ordercast.protocols.locamu.store import Copy
from ordercast.protocols.locamu.streams import Streams

ALL_LINKED_AFTER = 2
"""Looks in vain after which everybody near is asked."""

NEED = "need"

Key = tuple[str, int]
"""A copy that is held back: the message's id, and who forwarded it last."""


class HeldCopies(NodePart):
    """Copies that wait for earlier messages: since when, and which nodes were asked for what is missing."""

    constant: ClassVar[tuple[str, ...]] = ("need_ns",)
    durable: ClassVar[tuple[str, ...]] = ("copies",)
    here: Neighbourhood
    streams: Streams
    processed: Processed
    links: LinkEnds
    rounds: Rounds

    def __init__(self, need_ns: int) -> None:
        self.need_ns = need_ns
        self.copies: dict[Key, Copy] = {}
        self.looks: dict[Key, int] = {}
        """How many looks each copy has been held back for, as of the last one (LCM-R1)."""
        self.asking: set[int] = set()
        """Whom the last look found worth asking."""
        self.armed = NOT_ARMED

    def hold(self, copy: Copy, out: Outbox) -> None:
        """LCM-M2: keep a copy back."""
        key = (copy.message.id, copy.forwarder)
        fresh = key not in self.copies
        self.copies[key] = copy
        if fresh:  # The same once more is no reason to ask more often.
            self.look_soon(out)

    def release(self, key: Key) -> None:
        """The copy is held back no longer."""
        del self.copies[key]

    def needs(self, peer: int) -> bool:
        """Whether the peer is one of those who can help."""
        return bool(self.copies) and peer in self.asking

    def see_anew(self) -> None:
        """The tree has changed, and with it what vectors mean; nobody waits for who has left (LCM-V6)."""
        for copy in self.copies.values():
            copy.see_anew(self.streams.seen_anew(copy.vectors), self.processed.gapless)

    # Asking

    def look_soon(self, out: Outbox) -> None:
        """Something waits: look at it after a while."""
        if self.armed != ARMED:
            self.armed = ARMED
            self.look_afresh()
            out.set_timer(NEED, self.need_ns)

    def look_afresh(self) -> None:
        """Begin to count looks anew, for everything that is held back now."""
        self.looks = dict.fromkeys(self.copies, 0)
        self.asking = set()

    def ask(self, out: Outbox) -> None:
        """LCM-R1: ask for what copies wait for that were here at the last look: others may just have overtaken."""
        self.armed = NOT_ARMED
        gaps = self.links.gaps()
        looks = {key: self.looks.get(key, -1) + 1 for key in self.copies}
        self.looks = {key: min(count, PATIENCE + 1) for key, count in looks.items()}
        asked = set(gaps)
        for key, count in self.looks.items():
            asked |= self._to_ask(self.copies[key], count)
        self.asking = asked.intersection(self.here.linked)
        for peer in sorted(self.asking):
            self.rounds.acknowledge(peer, out, need=True, reset=peer in gaps)
        if self.copies or self.links.has_gaps():
            longest = max(self.looks.values(), default=0)
            patient = longest <= PATIENCE
            self.armed = ARMED if patient else IN_BACKGROUND
            delay = min(self.need_ns << min(longest, 10), max(self.rounds.ack_ns, self.need_ns))
            out.set_timer(NEED, delay, background=not patient)

    def _to_ask(self, copy: Copy, looks: int) -> set[int]:
        """LCM-R1: who sent what waits, and who numbered what is missing; in the end everybody who is not suspected."""
        if not looks:
            return set()
        asked = {forwarder for forwarder, number in copy.wants if number > self.processed.prefix[forwarder]}
        asked.add(copy.sender)
        if looks == 1:
            return self._nearest(asked) or asked
        return asked if looks <= ALL_LINKED_AFTER else asked | (set(self.here.linked) - self.here.suspected)

    def _nearest(self, peers: set[int]) -> set[int]:
        """Those of them with nobody between who would do as well."""
        distance, way, suspected = self.here.distance, self.here.way, self.here.suspected
        return {peer for peer in peers if distance.get(peer) == 1 or way.get(peer) in suspected}
