"""Reliable links: what one node sends to a neighbour, the neighbour takes over exactly once.

Under them packets may be lost, duplicated and reordered, and either end may crash and come back with its state; a
neighbour that comes back without it is greeted as a new one. Order is not promised: the layers above see to that.
Spec: docs/protocols/links.md (LNK-L1 to LNK-L9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import msgspec

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId
from ordercast.core.machine import Outbox, Place
from ordercast.core.messages import Packet
from ordercast.core.state import State
from ordercast.protocols.shared.seen import Summary

ACK_EVERY = 32
"""So many packets are acknowledged at once, without waiting for the timer."""
ABOVE_LIMIT = 64
"""An acknowledgement lists at most so many packets that arrived ahead of a gap."""

ACK = "ack"
RESEND = "resend"
HELLO = "hello"

_UNWELCOMED = -1


class Numbered(Packet, frozen=True):
    """Base of the packets that are transferred exactly once."""

    session: int
    """The sum of both ends' lives. Lives only grow, so no two sessions of a link share it (LNK-L7)."""
    number: int
    ack: int
    """All packets of the session up to this one have arrived in the other direction."""
    asks: bool
    """Whether the sender wants its acknowledgement at once."""


Kind = Callable[[int, int, int, bool, Any, Any], Numbered]
"""A type of numbered packet. It has two fields of its own; unpacking any number of them doubled a packet's cost."""


class Ack(Packet, frozen=True, tag=2):
    session: int
    received: int
    above: tuple[int, ...] = ()
    """Numbers that arrived although a lower one is missing."""


class Hello(Packet, frozen=True, tag=3):
    """Says that the sender has begun a new life and knows nothing."""

    life: int


class Welcome(Packet, frozen=True, tag=4):
    """Answers a Hello: the session is open, and what is in `seen` will not be sent in it."""

    life: int
    to: int
    """The life that is welcomed."""
    seen: Summary


class ReliableLink(State):
    """One node's end of the link to one neighbour."""

    def __init__(self, welcomed: bool) -> None:
        self.session = 0 if welcomed else _UNWELCOMED
        self.peer_life = 0
        self.suspected = False
        self.quiet = not welcomed  # Suspected or not welcomed: packets are kept but not sent.
        self.sent = 0
        self.acked = 0
        self.unacked: dict[int, Numbered] = {}
        self.resendable = 0
        self.received = 0
        self.early: set[int] = set()
        self.owed = 0

    def take(self, number: int) -> bool:
        """Enter a packet's number; whether it is new (LNK-L3)."""
        if number <= self.received or number in self.early:
            return False
        self.early.add(number)
        while self.received + 1 in self.early:
            self.received += 1
            self.early.discard(self.received)
        return True

    def reopen(self, session: int) -> None:
        """LNK-L8: begin a session with nothing received and all that was not acknowledged numbered anew."""
        self.session = session
        self.received = self.acked = self.resendable = self.owed = 0
        self.early.clear()
        pending = list(self.unacked.values())
        self.unacked = {
            number: msgspec.structs.replace(packet, session=session, number=number, ack=0)
            for number, packet in enumerate(pending, 1)
        }
        self.sent = len(pending)
        self.quiet = self.suspected


class ReliableLinks(State):
    """All links of one node. One timer for acknowledgements and one for resending, armed only while needed."""

    constant: ClassVar[tuple[str, ...]] = ("life", "ack_ns", "resend_ns")
    durable: ClassVar[tuple[str, ...]] = ("links",)

    def __init__(self, place: Place, ack_ms: float, retransmit_ms: float) -> None:
        self.life = place.incarnation
        self.ack_ns = round(ack_ms * 1_000_000)
        self.resend_ns = round(retransmit_ms * 1_000_000)
        self.links = {peer: ReliableLink(welcomed=self.life == 0) for peer in place.neighbours}
        self.confirmed: list[tuple[NodeId, Numbered]] = []
        """Packets that asked and were acknowledged during this event; the layer above empties it."""
        self.ack_armed = False
        self.resend_armed = False

    # Sending

    def spread(self, kind: Kind, content: Any, extra: Any, source: NodeId | None, asks: bool, out: Outbox) -> None:
        """LNK-L1: send a packet of this kind and with these two fields of its own to every neighbour but `source`."""
        for peer, link in self.links.items():
            if peer == source:
                continue
            link.sent = number = link.sent + 1
            link.unacked[number] = packet = kind(link.session, number, link.received, asks, content, extra)
            if link.quiet:
                continue
            out.send(peer, packet)
            if not self.resend_armed:
                self._arm_resend(out)
            if link.owed and not link.early:
                link.owed = 0  # The packet carries the acknowledgement.

    def _resend_all(self, peer: NodeId, link: ReliableLink, out: Outbox) -> None:
        """LNK-L6: everything unacknowledged, at once."""
        if link.quiet or not link.unacked:
            return
        for packet in link.unacked.values():
            out.send(peer, packet)
        self._arm_resend(out)

    def _resend_old(self, out: Outbox) -> None:
        """LNK-L5: what was already unacknowledged a whole period ago; what is younger may just be on its way."""
        self.resend_armed = False
        for peer, link in self.links.items():
            if link.quiet or not link.unacked:
                continue
            for number, packet in link.unacked.items():
                if number > link.resendable:
                    break
                out.send(peer, packet)
            link.resendable = link.sent
            self._arm_resend(out)

    def _arm_resend(self, out: Outbox) -> None:
        if not self.resend_armed:
            self.resend_armed = True
            out.set_timer(RESEND, self.resend_ns)

    # Receiving

    def accept(self, peer: NodeId, packet: Numbered, out: Outbox) -> bool:
        """LNK-L2 to LNK-L4: whether the packet is taken over now. False: it was before, or is of another session."""
        link = self.links.get(peer)
        if link is None:
            raise _stranger(peer)
        if packet.session != link.session:
            return False
        if packet.ack > link.acked:
            self._settle(peer, link, packet.ack, ())
        number = packet.number
        new = True
        if number == link.received + 1 and not link.early:
            link.received = number
        else:
            new = link.take(number)
        link.owed += 1
        if packet.asks or link.owed >= ACK_EVERY:
            self._acknowledge(peer, link, out)
        elif not self.ack_armed:
            self.ack_armed = True
            out.set_timer(ACK, self.ack_ns)
        return new

    def on_ack(self, peer: NodeId, packet: Ack) -> None:
        """LNK-L4: the neighbour has taken over what the acknowledgement names."""
        link = self._link(peer)
        if packet.session == link.session and (packet.received > link.acked or packet.above):
            self._settle(peer, link, max(packet.received, link.acked), packet.above)

    def _settle(self, peer: NodeId, link: ReliableLink, received: int, above: tuple[int, ...]) -> None:
        if max(received, max(above, default=0)) > link.sent:
            raise PeerError(peer, f"acknowledges packets beyond {link.sent}, the last one sent to it")
        unacked = link.unacked
        for numbers in (range(link.acked + 1, received + 1), above):
            for number in numbers:
                packet = unacked.pop(number, None)
                if packet is not None and packet.asks:
                    self.confirmed.append((peer, packet))
        link.acked = received

    def take_confirmed(self) -> list[tuple[NodeId, Numbered]]:
        """Packets that have been acknowledged since the last call, and by whom."""
        confirmed, self.confirmed = self.confirmed, []
        return confirmed

    def _acknowledge(self, peer: NodeId, link: ReliableLink, out: Outbox) -> None:
        link.owed = 0
        above = tuple(sorted(link.early)[:ABOVE_LIMIT]) if link.early else ()
        out.send(peer, Ack(link.session, link.received, above))

    def _acknowledge_all(self, out: Outbox) -> None:
        self.ack_armed = False
        for peer, link in self.links.items():
            if link.owed:
                self._acknowledge(peer, link, out)

    # Time, suspicion and restarts

    def on_start(self, out: Outbox) -> None:
        """LNK-L7: a new life begins by saying so to every neighbour."""
        self._greet(out)

    def on_recover(self, out: Outbox) -> None:
        """LNK-L6: whom the former self suspected is forgotten, what it had not got rid of is sent again."""
        for peer, link in self.links.items():
            link.suspected = False
            link.quiet = link.session == _UNWELCOMED
            self._resend_all(peer, link, out)
        self._greet(out)

    def on_timer(self, name: object, out: Outbox) -> None:
        if name == ACK:
            self._acknowledge_all(out)
        elif name == RESEND:
            self._resend_old(out)
        elif name == HELLO:
            self._greet(out)

    def on_suspect(self, peer: NodeId) -> None:
        """LNK-L6: keep everything for the neighbour, but send it nothing."""
        link = self._link(peer)
        link.suspected = link.quiet = True

    def on_trust(self, peer: NodeId, out: Outbox) -> None:
        link = self._link(peer)
        link.suspected = False
        link.quiet = link.session == _UNWELCOMED
        if link.quiet:
            self._greet(out)
        else:
            self._resend_all(peer, link, out)

    def _greet(self, out: Outbox) -> None:
        """LNK-L7: say Hello to whoever has not welcomed this life, until they have."""
        strangers = [peer for peer, link in self.links.items() if link.session == _UNWELCOMED and not link.suspected]
        for peer in strangers:
            out.send(peer, Hello(self.life))
        if strangers:
            out.set_timer(HELLO, self.resend_ns)

    def on_hello(self, peer: NodeId, life: int) -> bool:
        """LNK-L8: whether the Hello deserves a Welcome. One of a new life opens a new session."""
        link = self._link(peer)
        if life <= 0 or life < link.peer_life:
            return False
        if life > link.peer_life:
            link.peer_life = life
            if link.session != _UNWELCOMED:
                link.reopen(self.life + life)
        return True

    def resume(self, peer: NodeId, out: Outbox) -> None:
        """LNK-L8: send what is pending for a neighbour that was just welcomed."""
        self._resend_all(peer, self._link(peer), out)

    def on_welcome(self, peer: NodeId, packet: Welcome, out: Outbox) -> bool:
        """LNK-L9: whether this Welcome opens the link."""
        link = self._link(peer)
        if packet.to != self.life or link.session != _UNWELCOMED or packet.life < link.peer_life:
            return False
        link.peer_life = packet.life
        link.reopen(self.life + packet.life)
        self._resend_all(peer, link, out)
        return True

    # What the layer above may ask

    def pending(self, peer: NodeId) -> Iterable[Numbered]:
        """Packets that the neighbour has not acknowledged, oldest first."""
        return self._link(peer).unacked.values()

    def unsuspected(self) -> set[NodeId]:
        return {peer for peer, link in self.links.items() if not link.suspected}

    def _link(self, peer: NodeId) -> ReliableLink:
        link = self.links.get(peer)
        if link is None:
            raise _stranger(peer)
        return link


def _stranger(peer: NodeId) -> PeerError:
    return PeerError(peer, "is not a neighbour")
