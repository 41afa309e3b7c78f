"""What LoCaMu gives to nodes that lack a message, or a name of one: copies, proxy copies, and names alone.

Spec: docs/protocols/locamu.md (M5, R2, R4, R5).
"""

from __future__ import annotations

from ordercast.core.machine import Outbox, Place
from ordercast.protocols.locamu.forwarding import LONGEST_BURST
from ordercast.protocols.locamu.ordering import Ordering
from ordercast.protocols.locamu.rules import Options
from ordercast.protocols.locamu.store import Entry

PUSH = "push"


class Giving(Ordering):
    """Everything that is sent once more, or later."""

    def __init__(self, place: Place, options: Options) -> None:
        super().__init__(place, options)
        self.pushing: dict[int, set[int]] = {}
        """Who is to hear soon of which messages, that have names it may not know (M5)."""

    def _ask_first(self, peer: int, out: Outbox) -> None:
        """R3: ask the peer what it has, and serve its answer like a request."""

    # What a peer lacks

    def _give(self, lacking: list[Entry], peer: int, out: Outbox, *, need: bool, answered: int = 0) -> None:
        """R2: what this node can do for a peer that lacks these, or some name of them.

        `answered` is the round that the peer has just answered.
        """
        again: list[Entry] = []
        by_name: list[Entry] = []
        for entry in lacking:
            if self.rules.pushes and self.waiting.holds(peer, entry.vectors):
                by_name.append(entry)
            elif need and self._is_under_way(entry, peer, answered):
                continue
            elif self._wants_copy(entry, peer, need):
                again.append(entry)
            else:
                proxies = self._send_proxies(entry, peer, out)
                if need and self.rules.pushes:
                    by_name.append(entry)
                elif proxies:
                    entry.note_sent(peer, self.round)
        self._send_names(by_name, peer, out)
        self._send_as_many(again, peer, out)

    def _is_under_way(self, entry: Entry, peer: int, answered: int) -> bool:
        """R2: whether the peer was sent a copy that will show if it was lost, by a gap in its session or by answers.

        Suspected nodes are not asked for answers, and whole headers have no sessions.
        """
        shows = self.delta and self.rules.pushes and peer not in self.suspected
        return shows and entry.is_under_way(peer, answered - 1)

    def _send_as_many(self, again: list[Entry], peer: int, out: Outbox) -> None:
        """H8: a burst; of more, it is asked what it has before it gets the rest."""
        self._send_together(again, peer, out)
        if len(again) > LONGEST_BURST:
            self._ask_first(peer, out)

    def _wants_copy(self, entry: Entry, peer: int, need: bool) -> bool:
        """R2: whether an own copy is what a peer should get that does not have the message under any name."""
        wanted = self.rules.pushes or self._lacks_own(entry, peer)
        return wanted and (need or peer in self.active) and self._target(entry, peer) is not None

    def _send_proxies(self, entry: Entry, peer: int, out: Outbox) -> bool:
        """R4: copies in the name of suspected forwarders that the peer has not heard from; whether there were any."""
        suspected = sorted(self.suspected.intersection(entry.received))
        silent = [forwarder for forwarder in suspected if peer in self._lacking(entry, forwarder)]
        for forwarder in silent:
            self._send_proxy(entry, entry.received[forwarder], peer, out)
        return bool(silent)

    def _lacking(self, entry: Entry, forwarder: int) -> list[int]:
        """Linked nodes that have not acknowledged the number the forwarder gave them."""
        for vector in entry.received[forwarder].vectors:
            if vector[0].forwarder == forwarder:
                return self.waiting.lacking(vector)
        return []

    def _lacks_own(self, entry: Entry, peer: int) -> bool:
        return self.waiting.lacks(peer, (entry.own,))

    # What is pushed

    def _push_soon(self, serial: int, peer: int, out: Outbox) -> None:
        """M5: what is pushed goes together: most of it comes in bursts, and alike."""
        if self.push_ns and not self.pushing:
            out.set_timer(PUSH, self.push_ns)
        self.pushing.setdefault(peer, set()).add(serial)
        if not self.push_ns:
            self._push_on(out)

    def _push_on(self, out: Outbox) -> None:
        """M5: new names go downstream, and copies on paths that have become safe."""
        pushing, self.pushing = self.pushing, {}
        for peer in sorted(self.active.intersection(pushing)):
            by_name: list[Entry] = []
            again: list[Entry] = []
            for entry in [self.store[serial] for serial in sorted(pushing[peer]) if serial in self.store]:
                if not self.waiting.lacks(peer, entry.vectors):
                    continue
                # If a message that a peer was given got lost, that will show (R2). By printed rules names are no use.
                if self.rules.gapless and (peer in entry.given or self.waiting.holds(peer, entry.vectors)):
                    by_name.append(entry)
                elif self._target(entry, peer) is not None:
                    again.append(entry)
            self._send_names(by_name, peer, out)
            self._send_as_many(again, peer, out)
