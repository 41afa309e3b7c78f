"""Resends to LoCaMu nodes that lack a message, or a name of one: copies, proxy copies, and names alone.

Spec: docs/protocols/locamu.md (LCM-M5, LCM-R2 to LCM-R5).
"""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.machine import Outbox
from ordercast.protocols.locamu.forwarding import LONGEST_BURST, Forwarding
from ordercast.protocols.locamu.links import LinkEnds
from ordercast.protocols.locamu.neighbourhood import Neighbourhood
from ordercast.protocols.locamu.packets import Ack
from ordercast.protocols.locamu.parts import NodePart
from ordercast.protocols.locamu.rounds import Rounds
from ordercast.protocols.locamu.rules import Rules
from ordercast.protocols.locamu.store import Entry, MessageStore
from ordercast.protocols.locamu.waiting import WaitingCopies

AT_ONCE = 4
"""Up to so many messages are sent to a node that has become active before it says what it has."""

PUSH = "push"


class Resend(NodePart):
    """Sends messages and names once more, or later, to nodes that lack them."""

    constant: ClassVar[tuple[str, ...]] = ("rules", "push_ns")
    here: Neighbourhood
    waiting: WaitingCopies
    store: MessageStore
    links: LinkEnds
    rounds: Rounds
    forwarding: Forwarding

    def __init__(self, rules: Rules, push_ns: int) -> None:
        self.rules = rules
        self.push_ns = push_ns
        self.pushing: dict[int, set[int]] = {}
        """Who is to hear soon of which messages, that have names it may not know (LCM-M5)."""

    def forget(self, peer: int) -> None:
        """LCM-V6: who has left lacks nothing."""
        self.pushing.pop(peer, None)

    # When a peer asks, answers, or has become active

    def serve(self, peer: int, ack: Ack, out: Outbox) -> None:
        """LCM-R2: give the peer what it needs, or has not acknowledged in two answers."""
        if not ack.need and not ack.reply:
            return
        before = ack.reply - 1
        if self.rounds.is_awaited(peer, ack.reply) or ack.need:
            before = self.rounds.round + 1
        due = [entry for entry in self.store.before(before) if entry.is_due(peer, before)]
        lacking = [entry for entry in due if self.waiting.lacks(peer, entry.vectors)]
        self._give(lacking, peer, out, need=ack.need, answered=ack.reply)
        if ack.need and self.store.entries:
            # What gets lost once more must become due once more, even if nobody is asked for answers.
            self.rounds.stir_quietly(out)

    def attend_to(self, peer: int, out: Outbox) -> None:
        """LCM-R3: send a few messages at once; of many, most have come another way, so the peer is asked first."""
        due = [entry for entry in self.store.entries.values() if entry.is_due(peer, self.rounds.round)]
        lacking = [entry for entry in due if self.waiting.lacks(peer, entry.vectors)]
        if len(lacking) > AT_ONCE:
            self.rounds.ask_first(peer, out)
        else:
            self._give(lacking, peer, out, need=False)

    def takers(self) -> list[int]:
        """LCM-R4: active nodes that have not acknowledged what a suspected forwarder numbered for them."""
        found: set[int] = set()
        suspected = self.here.suspected
        for entry in self.store.entries.values() if suspected else ():
            for forwarder in suspected.intersection(entry.received):
                found.update(self._lacking(entry, forwarder))
        return sorted(found & self.here.active)

    def _give(self, lacking: list[Entry], peer: int, out: Outbox, *, need: bool, answered: int = 0) -> None:
        """LCM-R2: what this node can do for a peer that lacks these, or some name of them.

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
                    entry.note_sent(peer, self.rounds.round)
        self.forwarding.send_names(by_name, peer, out)
        self._send_as_many(again, peer, out)

    def _is_under_way(self, entry: Entry, peer: int, answered: int) -> bool:
        """LCM-R2: whether the peer was sent a copy whose loss will show, by a gap in its session or by answers.

        Suspected nodes are not asked for answers, and whole headers have no sessions.
        """
        shows = self.links.compresses(peer) and self.rules.pushes and peer not in self.here.suspected
        return shows and entry.is_under_way(peer, answered - 1)

    def _send_as_many(self, again: list[Entry], peer: int, out: Outbox) -> None:
        """LCM-H8: a burst; of more, it is asked what it has before it gets the rest."""
        self.forwarding.send_together(again, peer, out)
        if len(again) > LONGEST_BURST:
            self.rounds.ask_first(peer, out)

    def _wants_copy(self, entry: Entry, peer: int, need: bool) -> bool:
        """LCM-R2: whether an own copy is what a peer should get that does not have the message under any name."""
        wanted = self.rules.pushes or self._lacks_own(entry, peer)
        return wanted and (need or peer in self.here.active) and self.forwarding.target(entry, peer) is not None

    def _send_proxies(self, entry: Entry, peer: int, out: Outbox) -> bool:
        """LCM-R4: copies in the name of suspected forwarders that the peer has not heard; whether there were any."""
        suspected = sorted(self.here.suspected.intersection(entry.received))
        silent = [forwarder for forwarder in suspected if peer in self._lacking(entry, forwarder)]
        for forwarder in silent:
            self.forwarding.send_proxy(entry, entry.received[forwarder], peer, out)
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

    def push_soon(self, serial: int, peer: int, out: Outbox) -> None:
        """LCM-M5: what is pushed goes together: most of it comes in bursts, and alike."""
        if self.push_ns and not self.pushing:
            out.set_timer(PUSH, self.push_ns)
        self.pushing.setdefault(peer, set()).add(serial)
        if not self.push_ns:
            self.push_on(out)

    def push_on(self, out: Outbox) -> None:
        """LCM-M5: new names go downstream, and copies on paths that have become safe."""
        entries = self.store.entries
        pushing, self.pushing = self.pushing, {}
        for peer in sorted(self.here.active.intersection(pushing)):
            by_name: list[Entry] = []
            again: list[Entry] = []
            for entry in [entries[serial] for serial in sorted(pushing[peer]) if serial in entries]:
                if not self.waiting.lacks(peer, entry.vectors):
                    continue
                # If what a peer was given got lost, that will show (LCM-R2). By printed rules names are no use.
                if self.rules.gapless and (peer in entry.given or self.waiting.holds(peer, entry.vectors)):
                    by_name.append(entry)
                elif self.forwarding.target(entry, peer) is not None:
                    again.append(entry)
            self.forwarding.send_names(by_name, peer, out)
            self._send_as_many(again, peer, out)
