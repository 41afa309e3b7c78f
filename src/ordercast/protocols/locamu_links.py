"""Pasts as differences: the references that the two ends of a link share, and what to do when one is lost.

Spec: docs/protocols/locamu.md (H3 to H5). Nothing here survives a restart but the number of the last session.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ordercast.core.state import State
from ordercast.protocols.locamu_packets import Columns, Data, Past, from_columns, to_columns

_LONG_LOG = 4096
_MOST_HELD = 256


class Outgoing(State):
    """The end of a link that sends."""

    def __init__(self) -> None:
        self.session = 0
        """0: none is open."""
        self.number = 0
        self.reference: Past = {}
        self.mark = 0
        """Up to where the log of changes is part of the reference."""


class Incoming(State):
    """The end of a link that receives."""

    def __init__(self) -> None:
        self.session = 0
        self.next = 0
        self.broken = False
        """The session cannot go on: a reset was asked for."""
        self.reference: Past = {}
        self.unmerged: set[int] = set()
        """Streams whose news arrived only in copies that changed nothing here."""
        self.held: dict[tuple[int, int], Data] = {}
        """Copies ahead of their turn."""


class References(State):
    """All links of one node, and the log of changes to its past."""

    constant: ClassVar[tuple[str, ...]] = ("size",)
    durable: ClassVar[tuple[str, ...]] = ("sessions",)

    def __init__(self, linked: tuple[int, ...], size: int) -> None:
        self.size = size
        self.sessions = 0
        self.log: list[int] = []
        self.dropped = 0
        """How many entries of the log were thrown away."""
        self.outgoing = {peer: Outgoing() for peer in linked}
        self.incoming = {peer: Incoming() for peer in linked}

    def mark(self) -> int:
        """The end of the log."""
        if len(self.log) > _LONG_LOG:
            half = len(self.log) // 2
            del self.log[:half]
            self.dropped += half
        return self.dropped + len(self.log)

    def close(self, peer: int) -> None:
        """H5: the next copy to the peer begins a session."""
        self.outgoing[peer].session = 0

    def encode(self, peer: int, past: Past, mark: int) -> tuple[Columns, int, int]:
        """H3: the past as the next copy to the peer says it, with session and number."""
        link = self.outgoing[peer]
        if not link.session or link.mark < self.dropped:
            self.sessions += 1
            link.session, link.number = self.sessions, 0
            columns = to_columns(past, list(past), {}, self.size)
        else:
            link.number += 1
            news = self.log[link.mark - self.dropped : mark - self.dropped]
            columns = to_columns(past, list(dict.fromkeys(news)), link.reference, self.size)
        link.reference, link.mark = past, mark
        return columns, link.session, link.number

    def take(self, peer: int, packet: Data) -> Iterator[tuple[Data, Past]]:
        """H4: the copies that can be read now, this one among them if it is its turn; each before the next is read."""
        link = self.incoming[peer]
        session, number = packet.session, packet.number
        if session < link.session or (session == link.session and number < link.next):
            return
        if session == link.session and number == link.next and not link.held and not link.broken:
            yield packet, self._read(link, packet)
            return
        if len(link.held) < _MOST_HELD:
            link.held[session, number] = packet
        while link.held:
            newest = max(link.held)[0]
            if newest > link.session and (newest, 0) in link.held:
                self._begin(link, newest)
            following = None if link.broken else link.held.pop((link.session, link.next), None)
            if following is None:
                break
            yield following, self._read(link, following)

    def _read(self, link: Incoming, packet: Data) -> Past:
        link.reference, changed = from_columns(packet.past, link.reference, self.size)
        link.unmerged.update(changed)
        link.next += 1
        return link.reference

    def _begin(self, link: Incoming, session: int) -> None:
        link.session, link.next, link.broken = session, 0, False
        link.reference = {}
        link.unmerged.clear()
        link.held = {key: packet for key, packet in link.held.items() if key[0] >= session}

    def gaps(self) -> list[int]:
        """H5: peers whose copies cannot be read because one before them is missing; their sessions end here."""
        found = [peer for peer, link in self.incoming.items() if link.held]
        for peer in found:
            link = self.incoming[peer]
            link.session, link.next, link.broken = max(link.held)[0], 0, True
            link.held.clear()
        return found
