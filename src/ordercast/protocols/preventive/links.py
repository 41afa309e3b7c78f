"""Which links may be used (PRV-6.4 to PRV-6.6).

A link is used only once everything that its sender has delivered is delivered, or on its way before, at its receiver:
because its sender has delivered nothing at all, because a lock that followed all of it over safe links has arrived, or
because the receiver has said what it has.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from ordercast.core.errors import PeerError
from ordercast.core.ids import Origin
from ordercast.core.messages import Message, Packet
from ordercast.core.process import Connection, OverlayWires
from ordercast.overlay.sampling import Contact
from ordercast.protocols.preventive.broadcast import Broadcast
from ordercast.protocols.preventive.connections import Connections
from ordercast.protocols.preventive.lines import Line, OutLink, Way
from ordercast.protocols.preventive.packets import (
    Ack,
    Data,
    DigestAsk,
    DigestRefused,
    FloodedLock,
    HintAsk,
    Lock,
    Mark,
    Probe,
    SafeMark,
)
from ordercast.protocols.preventive.settings import PreventiveOptions

MOST_HOPS = 32
"""No lock goes further: what exceeds it is nonsense."""
_MOST_OWED = 1024
"""Acknowledgements to processes that are not connected yet; more are forgotten, as if they were lost."""


class Links(Connections):
    """The outgoing links of one process, and the connections that they are on."""

    constant: ClassVar[tuple[str, ...]] = (*Connections.constant, "broadcast")
    ordered: ClassVar[tuple[str, ...]] = ("owed", "floods")

    def __init__(
        self, wires: OverlayWires, me: Contact, options: PreventiveOptions, broadcast: Broadcast, boot: int = 0
    ) -> None:
        super().__init__(wires, me, options)
        self.broadcast = broadcast
        self.out: dict[Origin, OutLink] = {}
        self.waiting = False
        """Whether any link is not safe yet."""
        self.owed: dict[Origin, int] = {}
        """Acknowledgements for processes that are not connected yet."""
        self.floods: dict[Origin, int] = {}
        """Per origin the latest of its flooded locks that was met here."""
        self.boot = boot
        """How often this incarnation has restarted with its state."""
        self.attempts = 0
        self.marks = 0

    def restarted(self, boot: int) -> None:
        """Attempts of this start must not have the numbers of earlier ones (PRV-I6)."""
        self.boot = boot

    def is_safe(self, peer: Origin) -> bool:
        link = self.out.get(peer)
        return link is not None and link.safe and self.lines[link.connection].incoming_safe and self._kept(peer)

    # Making a link safe

    def open_link(self, pid: Origin, via: tuple[Origin, ...]) -> None:
        """PRV-6.4: every opening goes through a phase; there is no exemption for first or only links (C1, C2)."""
        link = self.out.get(pid)
        if link is not None:
            if not link.safe and not link.attempt:
                self._attempt(pid, link, via)
            return
        self.out[pid] = link = OutLink(self.at[pid])
        self._recount()
        self.note(pid, "pending")
        self._attempt(pid, link, via)

    def _attempt(self, pid: Origin, link: OutLink, via: tuple[Origin, ...]) -> None:
        """PRV-6.4.1: begin to collect what is delivered from now on, and send a lock after all that was before."""
        if self.broadcast.log.empty:
            self._begin_use(pid, link)  # PRV-6.10: who has delivered nothing leaves nobody behind.
            return
        if link.try_again() > self.options.max_attempts:
            self.fail(pid, "it could not be made safe")
            return
        self.attempts += 1
        link.attempt = (self.boot << 40) + self.attempts
        link.collect_from(self.broadcast.log.end)
        self.wires.set_timer(("ack", pid), _ns(self.options.ack_ms))
        self._send_lock(pid, link, via)

    def _send_lock(self, pid: Origin, link: OutLink, via: tuple[Origin, ...]) -> None:
        first = self.out.get(via[0]) if via else None
        link.way = Way.LOCK
        if first is not None and first.safe and len(via) < MOST_HOPS:
            route = (self.me.pid, *via, pid)
            self.wires.send(first.connection, self._lock(route, link.attempt))
        elif self._needs_digest(link):
            link.way = Way.DIGEST
            self.wires.send(link.connection, DigestAsk(link.attempt))
        elif self.options.fallback == "flood":
            self.flood(FloodedLock(self.me.pid, pid, link.attempt, 0))
        else:
            self.wires.send(link.connection, HintAsk(link.attempt))

    def _lock(self, route: tuple[Origin, ...], attempt: int) -> Packet:
        return Lock(route, 0, attempt)

    def _needs_digest(self, link: OutLink) -> bool:
        """Locks are tried once, or twice where the peer names mediators, if any link is safe; then a digest (C14)."""
        tried = 2 if self.options.fallback == "hint" else 1
        last_chance = link.tries > tried or link.tries == self.options.max_attempts
        return self.options.fallback == "digest" or last_chance or not self.broadcast.safe

    def hinted(self, line: Line, attempt: int, peers: tuple[Origin, ...]) -> None:
        """PRV-6.4.1: the peer has named some who have safe links to it; the lock takes the first way that exists."""
        link = self.out.get(line.pid)
        if link is None or link.safe or link.attempt != attempt:
            return
        for peer in peers:
            first = self.out.get(peer)
            if first is not None and first.safe:
                self.wires.send(first.connection, self._lock((self.me.pid, peer, line.pid), attempt))
                return

    def flood(self, lock: FloodedLock) -> None:
        """Send a lock over all safe links, once."""
        self.floods.pop(lock.origin, None)
        self.floods[lock.origin] = lock.attempt
        if len(self.floods) > _MOST_OWED:
            del self.floods[next(iter(self.floods))]
        for connection in self.broadcast.safe:
            self.wires.send(connection, lock)

    def has_met(self, lock: FloodedLock) -> bool:
        """Whether this flooded lock, or a later one of its origin, was here before."""
        return lock.attempt <= self.floods.get(lock.origin, 0)

    def acked(self, line: Line, attempt: int) -> None:
        """PRV-6.6: the lock has arrived. A word about an earlier attempt changes nothing (C3, C4, C12)."""
        link = self.out.get(line.pid)
        if link is None or link.safe or link.attempt != attempt or link.way is not Way.LOCK:
            self.wires.count("stale_acks")
            return
        self._begin_use(line.pid, link, [*self.broadcast.log.since(link.start)])

    def digested(self, line: Line, attempt: int, theirs: dict[Origin, int]) -> None:
        """PRV-6.8: the peer has said what it has: send it the rest. If that is kept no more, tell it, and ask again."""
        link = self.out.get(line.pid)
        log = self.broadcast.log
        if link is None or link.safe or link.attempt != attempt or link.way is not Way.DIGEST:
            self.wires.count("stale_digests")
        elif (lost := log.beyond(theirs)) is not None:
            self.wires.count("refused_digests")
            self.wires.send(link.connection, DigestRefused(*lost, log.total, log.mark))
        else:
            self.wires.count("repaired_links")
            self._begin_use(line.pid, link, log.lacking(theirs))

    def _begin_use(self, pid: Origin, link: OutLink, first: list[Message] | None = None) -> None:
        """The link is safe: the mark, what was collected, and from now on every delivery."""
        link.safe = True
        link.tries = 0
        self.wires.cancel_timer(("ack", pid))
        self.wires.send(link.connection, self._first_item(link, len(first or ())))
        for message in first or ():
            self.wires.send(link.connection, Data(message))
        self.leaving.say_on(link.connection)
        self._recount()
        self.note(pid, "safe")
        if self.lines[link.connection].incoming_safe:
            self.sampler.on_safe(pid)

    def _first_item(self, link: OutLink, collected: int) -> Packet:  # noqa: ARG002
        return SafeMark(link.attempt)

    def adopt(self, pid: Origin, connection: Connection) -> None:
        """PRV-6.7: one of the two links of a join, safe from its first item on."""
        self.out[pid] = link = OutLink(connection)
        link.safe = True
        self._recount()
        self.note(pid, "safe")

    def restart(self, pid: Origin, link: OutLink) -> None:
        """The attempt has failed; its number is dead from now on."""
        self.wires.count("lock_restarts")
        self._attempt(pid, link, ())

    def fail(self, pid: Origin, reason: str) -> None:
        """PRV-6.6: give the link up; the sampler finds another."""
        self.wires.count("failed_links")
        self.note(pid, "failed")
        self._end(self.at[pid], reason)
        self.wanted.discard(pid)
        self.sampler.on_failed(pid)

    def incoming(self, line: Line) -> None:
        """The peer uses its link from now on."""
        if line.incoming_safe:
            raise PeerError(line.pid, "says twice that its link is safe")
        line.peer_uses_it()
        if self.is_safe(line.pid):
            self.sampler.on_safe(line.pid)

    # Losing a connection

    def move_link(self, pid: Origin, new: Connection) -> None:
        """An attempt goes on over another connection, because nothing was sent yet (I2)."""
        link = self.out.get(pid)
        if link is not None and link.safe:
            self.forget_link(pid)
        elif link is not None:
            link.connection = new
            if link.way is Way.DIGEST:  # Its question has gone with the old connection.
                link.give_up_attempt()
                link.tries -= 1

    def forget_link(self, pid: Origin) -> None:
        link = self.out.pop(pid, None)
        if link is not None:
            self.wires.cancel_timer(("ack", pid))
            self.note(pid, "closed")
            self._recount()

    def look_for_ways(self) -> None:
        """Once nobody hears this process any more, locks cannot pass: do not wait for them."""
        if self.broadcast.safe:
            return
        self.wires.count("isolated_out")
        for pid in sorted(self.out):
            link = self.out.get(pid)
            if link is not None and not link.safe and link.way is Way.LOCK and link.attempt:
                self.restart(pid, link)

    # Locks of others

    def lock_failed(self, to: Origin, attempt: int) -> None:
        """PRV-6.6: a process on the route could not pass the lock on; do not wait for the timer."""
        link = self.out.get(to)
        if link is not None and not link.safe and link.attempt == attempt and link.way is Way.LOCK:
            self.wires.count("failed_locks")
            self.restart(to, link)

    def with_safe_link(self, most: int) -> tuple[Origin, ...]:
        """Some who have a safe link to this process."""
        return tuple(sorted(line.pid for line in self.lines.values() if line.incoming_safe)[:most])

    def pass_on(self, line: Line, lock: Lock) -> Origin | None:
        """PRV-6.5: a lock goes on over safe links only (C7, C8). Returns to whom it could not, if so."""
        route, place = lock.route, self._place_of(line, lock)
        if place == len(route) - 1:
            self.acknowledge(route[0], lock.attempt)
            return None
        passed = self._forward(lock, place)
        self.discharge(route[0], route[-1])
        return None if passed else route[0]

    def _place_of(self, line: Line, lock: Lock | Probe) -> int:
        """This process's place in the route of a lock that has come the right way."""
        route, place = lock.route, lock.hop + 1
        if not 0 < place < len(route) <= MOST_HOPS + 2 or route[place] != self.me.pid or route[place - 1] != line.pid:
            raise PeerError(line.pid, "sent a lock that has lost its way")
        if not line.incoming_safe:
            raise PeerError(line.pid, "sent a lock over a link that is not safe")
        return place

    def _forward(self, lock: Lock | Probe, place: int) -> bool:
        following = self.out.get(lock.route[place + 1])
        if following is None or not following.safe:
            return False
        self.wires.send(following.connection, msgspec.structs.replace(lock, hop=place))
        return True

    def acknowledge(self, origin: Origin, attempt: int) -> None:
        """Answer the sender of a lock, or wait for its connection."""
        connection = self.at.get(origin)
        if connection is not None and self.lines[connection].up:
            self.wires.send(connection, Ack(attempt))
            return
        self.owed.pop(origin, None)
        self.owed[origin] = attempt
        if len(self.owed) > _MOST_OWED:
            del self.owed[next(iter(self.owed))]

    def pay_owed(self, pid: Origin, connection: Connection) -> None:
        attempt = self.owed.pop(pid, None)
        if attempt is not None:
            self.wires.send(connection, Ack(attempt))

    # After each delivery

    def delivered(self) -> None:
        """PRV-6.3 step 5: buffers that are full begin anew, after the message was passed on (C10)."""
        least = self.broadcast.log.end - self.options.max_buffer
        for pid in sorted(self.out):
            link = self.out.get(pid)
            if link is not None and not link.safe and link.way is Way.LOCK and link.attempt and link.start < least:
                self.restart(pid, link)

    def mark(self) -> None:
        """PRV-6.6: a neighbour that has not read for so long is given up; a slow one must not cost the others (C23)."""
        self.marks += 1
        for pid in sorted(self.out):
            link = self.out.get(pid)
            if link is None or not link.safe:
                continue
            if link.marks >= 2:
                self.fail(pid, "it is too far behind")
            else:
                link.marks += 1
                self.wires.send(link.connection, Mark(self.marks))

    def marked(self, line: Line, number: int) -> None:
        link = self.out.get(line.pid)
        if link is not None and number >= self.marks - 1:
            link.marks = min(link.marks, self.marks - number)

    def pinned(self) -> int:
        """PRV-4: buffers are places in the log; and what nobody was told of yet is kept, too."""
        log = self.broadcast.log
        if not self.broadcast.safe:
            return log.first
        starts = [link.start for link in self.out.values() if not link.safe and link.attempt and link.way is Way.LOCK]
        return min(starts, default=log.end)

    def timer(self, name: tuple[object, ...]) -> None:
        if name[0] == "hold":
            self.discharge(name[1], name[2], all_of_them=True)  # type: ignore[arg-type]
            return
        pid = Origin(str(name[1]))
        link = self.out.get(pid)
        if link is not None and not link.safe:
            self.restart(pid, link)

    def _recount(self) -> None:
        links = [link for _, link in sorted(self.out.items())]
        self.broadcast.use(tuple(link.connection for link in links if link.safe))
        self.waiting = len(self.broadcast.safe) < len(links)


def _ns(milliseconds: float) -> int:
    return int(milliseconds * 1_000_000)
