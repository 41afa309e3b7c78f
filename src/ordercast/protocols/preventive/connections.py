"""Which connections there are, who needs them, and when they end (PRV-6.4, PRV-6.6, PRV-8.3).

A connection is wanted by either end, or needed by a lock that this process has promised to let pass. Two that dial each
other at the same time keep one. What a connection is used for is decided in `links`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from ordercast.core.errors import PeerError
from ordercast.core.ids import Origin, publisher_of
from ordercast.core.messages import Packet
from ordercast.core.process import Connection, OverlayWires, Peer
from ordercast.core.state import State
from ordercast.overlay.sampling import Contact, Sampler
from ordercast.protocols.preventive.leaving import Farewells
from ordercast.protocols.preventive.lines import Line
from ordercast.protocols.preventive.packets import Arc, Bye, Hello, HoldRelease
from ordercast.protocols.preventive.settings import PreventiveOptions


class Connections(State, ABC):
    """The connections of one process. `Links`, which is one with links over them, says what follows from each."""

    constant: ClassVar[tuple[str, ...]] = ("wires", "me", "options", "sampler", "leaving")

    def __init__(self, wires: OverlayWires, me: Contact, options: PreventiveOptions) -> None:
        self.wires = wires
        self.me = me
        self.options = options
        self.sampler: Sampler
        self.leaving: Farewells
        self.open = False
        """Whether this process takes part: it has joined and does not leave."""
        self.lines: dict[Connection, Line] = {}
        self.at: dict[Origin, Connection] = {}
        """The connection in use with each peer."""
        self.spare: dict[Origin, Connection] = {}
        """Another one that the peer dialed at the same time."""
        self.wanted: set[Origin] = set()
        self.meeting: dict[Connection, str] = {}
        """Dials to see who is there."""
        self.holds: dict[tuple[Origin, Origin], int] = {}
        """Locks that this process has promised to let pass (PRV-8.3)."""

    # What the links do with it

    @abstractmethod
    def open_link(self, pid: Origin, via: tuple[Origin, ...]) -> None:
        """There is a connection with the peer, which both ends have greeted on: a link over it may begin."""

    @abstractmethod
    def move_link(self, pid: Origin, new: Connection) -> None:
        """Another connection has taken the place of the one in use."""

    @abstractmethod
    def forget_link(self, pid: Origin) -> None:
        """The connection with the peer is about to end."""

    @abstractmethod
    def look_for_ways(self) -> None:
        """A connection has ended."""

    @abstractmethod
    def pay_owed(self, pid: Origin, connection: Connection) -> None:
        """Somebody who could not be reached can be."""

    # Life

    def take_part(self) -> None:
        """The process has joined, or was there from the beginning: links may be opened."""
        self.open = True

    def withdraw(self) -> None:
        """PRV-6.9: the process leaves and takes no new links."""
        self.open = False

    # Who is wanted

    def meet(self, address: str) -> None:
        if address != self.me.address:
            self.meeting[self.wires.open(address)] = address

    def want(self, peer: Contact, via: tuple[Origin, ...] = ()) -> None:
        """PRV-6.4: there shall be a link to the peer. A link that is there is never downgraded (C18)."""
        if peer.pid == self.me.pid or not self.open:
            return
        if peer.address == self.me.address:  # An earlier life of this process, which is over.
            self.wires.set_timer(("stale", peer.pid), 0)
            return
        self.wanted.add(peer.pid)
        connection = self.at.get(peer.pid)
        if connection is None:
            self._dial(peer, via)
            return
        line = self.lines[connection]
        if line.parting:
            self._end(connection, "is needed again")
            self._dial(peer, via)
        elif via:
            self.say(via[0], HoldRelease(self.me.pid, peer.pid))
        self._tell_need(peer.pid)

    def unwant(self, peer: Origin) -> None:
        if peer in self.wanted:
            self.wanted.discard(peer)
            self.review(peer)

    def _tell_need(self, peer: Origin) -> None:
        """PRV-8.3: the other end may part only while nobody here wants the connection and no promised lock needs it."""
        connection = self.at.get(peer)
        if connection is None:
            return
        line = self.lines[connection]
        needed = peer in self.wanted or self._promised(peer)
        if line.up and line.greeted and not line.parting and line.mine != needed:
            line.mine = needed
            self.wires.send(connection, Arc(needed))

    def _promised(self, peer: Origin) -> bool:
        return any(peer in pair for pair in self.holds)

    def hold(self, one: Origin, other: Origin) -> None:
        """PRV-8.3: keep the links to both until the lock has passed, for a while at most."""
        self.holds[one, other] = self.holds.get((one, other), 0) + 1
        self.wires.set_timer(("hold", one, other), int(self.options.hold_ms * 1_000_000), background=True)
        self._tell_need(one)
        self._tell_need(other)

    def discharge(self, one: Origin, other: Origin, *, all_of_them: bool = False) -> None:
        """PRV-8.3: a promise is kept, released or too old."""
        count = self.holds.pop((one, other), 0)
        if count > 1 and not all_of_them:
            self.holds[one, other] = count - 1
            return
        if count:
            self.wires.cancel_timer(("hold", one, other))
            self.review(one)
            self.review(other)

    def is_met(self, peer: Origin) -> bool:
        connection = self.at.get(peer)
        return connection is not None and self.lines[connection].up

    def _kept(self, peer: Origin) -> bool:
        """Whether either end wants the connection: others are about to go (RETIRING)."""
        return peer in self.wanted or self.lines[self.at[peer]].theirs

    # Beginning

    def _dial(self, peer: Contact, via: tuple[Origin, ...]) -> None:
        connection = self.wires.open(peer.address)
        self.lines[connection] = Line(peer.pid, peer.address, dialed=True)
        self.at[peer.pid] = connection
        self.wires.send(connection, Hello(self.options.rules, peer.pid, via, True))
        self.open_link(peer.pid, via)

    def opened(self, connection: Connection, peer: Peer, pid: Origin) -> None:
        """A connection is up, and the runtime has seen to it that the peer is who it says."""
        address = self.meeting.pop(connection, None)
        if address is not None:
            self._met(connection, Contact(pid, peer.address or address))
            return
        line = self.lines.get(connection)
        if line is None:
            self._accepted(connection, Contact(pid, peer.address))
            return
        if line.pid != pid:
            self.wires.close(connection, f"{line.pid} was expected")
            self.lost(connection)
            return
        line.answered()
        self.pay_owed(pid, connection)
        self.sampler.on_met(Contact(pid, line.address), dialed=True)
        if pid not in self.wanted:
            self.review(pid)

    def _met(self, connection: Connection, peer: Contact) -> None:
        """Somebody who was only to be met: kept if the sampler wants it, and if this end's dial wins."""
        other = self.at.get(peer.pid)
        if peer.pid == self.me.pid or not self.open:
            self.wires.close(connection, "is not needed")
            return
        if other is not None and not self.lines[other].dialed and peer.pid < self.me.pid:
            self.wires.close(connection, "was known already")
            self.sampler.on_met(peer, dialed=True)
            return
        self.lines[connection] = line = Line(peer.pid, peer.address, dialed=True)
        line.answered()
        if other is not None:
            self._move(peer.pid, other, connection)
        self.at[peer.pid] = connection
        line.mine = peer.pid in self.wanted
        self.wires.send(connection, Hello(self.options.rules, peer.pid, (), line.mine))
        self.pay_owed(peer.pid, connection)
        self.sampler.on_met(peer, dialed=True)
        if peer.pid in self.wanted:
            self.open_link(peer.pid, ())
        else:
            self._end(connection, "is not needed")

    def _accepted(self, connection: Connection, peer: Contact) -> None:
        """Somebody dialed. Of two connections that crossed, the one whose dialer has the smaller name stays."""
        if peer.pid == self.me.pid:
            raise PeerError(peer.pid, "has the name and life of this process")
        self.lines[connection] = line = Line(peer.pid, peer.address, dialed=False)
        line.answered()
        other = self.at.get(peer.pid)
        if other is not None and self.lines[other].dialed and (self.me.pid < peer.pid or self.lines[other].chosen):
            # The peer will close it when it learns of ours; or ours is dead and the news not here yet.
            stale = self.spare.get(peer.pid)
            if stale is not None:
                self._drop(stale, "another one came")
            self.spare[peer.pid] = connection
            return
        if other is not None:
            self._move(peer.pid, other, connection)
        self.at[peer.pid] = connection
        self.pay_owed(peer.pid, connection)

    def _move(self, pid: Origin, old: Connection, new: Connection) -> None:
        """The new connection takes the place of the old one."""
        self._drop(old, "another one came")
        self.move_link(pid, new)

    def prefer(self, pid: Origin, connection: Connection) -> None:
        """Use this connection with the peer and no other: a joiner listens to the one that it dialed."""
        self.spare.pop(pid, None)
        other = self.at.get(pid)
        if other is not None and other != connection:
            self._end(other, "another one came")
        self.at[pid] = connection

    def greeted(self, connection: Connection, line: Line, hello: Hello) -> None:
        """The dialer has said hello: this end makes its own direction safe, too."""
        if line.greeted:
            raise PeerError(line.pid, "says hello twice")
        if hello.rules != self.options.rules:
            ours = self.options.rules
            raise PeerError(line.pid, f"follows rules {hello.rules} of this broadcast, and this process {ours}")
        if hello.to != self.me.pid:  # Meant for an earlier life of this process.
            self.wires.close(connection, f"{self.me.pid} is here, and not {hello.to}")
            self.lost(connection)
            return
        line.greet(wants=hello.wants)
        if self.at.get(line.pid) != connection:
            return
        self._tell_need(line.pid)
        self.sampler.on_met(Contact(line.pid, line.address), dialed=False)
        if self.at.get(line.pid) == connection:
            self.open_link(line.pid, hello.via[::-1])

    # Ending

    def settle(self, connection: Connection, line: Line) -> None:
        """Handle what had to wait for the end of a join."""
        if self.lines.get(connection) is line:
            self.review(line.pid)

    def lost(self, connection: Connection) -> None:
        """PRV-6.6: a connection has ended, and with it the links over it; nobody else's."""
        address = self.meeting.pop(connection, None)
        if address is not None:
            self.sampler.on_unreachable(address)
            return
        line = self.lines.pop(connection, None)
        self.leaving.lost(connection)
        if line is None:
            return
        pid = line.pid
        if self.spare.get(pid) == connection:
            del self.spare[pid]
        elif self.at.get(pid) == connection:
            del self.at[pid]
            self.forget_link(pid)
            self._after_loss(pid)

    def forget(self, connection: Connection) -> None:
        """A connection that carried no link yet has ended."""
        self.lines.pop(connection, None)

    def _after_loss(self, pid: Origin) -> None:
        spare = self.spare.pop(pid, None)
        if spare is not None:
            self.at[pid] = spare
            self.pay_owed(pid, spare)
            if self.lines[spare].greeted:  # Otherwise its first word is still to come, and may be a wish to join.
                self.open_link(pid, ())
        else:
            self.wanted.discard(pid)
            self.sampler.on_lost(pid)
        self.look_for_ways()

    def _drop(self, connection: Connection, reason: str) -> None:
        """End a connection without telling anybody here."""
        line = self.lines.pop(connection)
        self.leaving.lost(connection)
        if self.at.get(line.pid) == connection:
            del self.at[line.pid]
        if self.spare.get(line.pid) == connection:
            del self.spare[line.pid]
        self.wires.close(connection, reason)

    def _end(self, connection: Connection, reason: str) -> None:
        pid = self.lines[connection].pid
        self.forget_link(pid)
        self._drop(connection, reason)

    # Parting

    def review(self, pid: Origin) -> None:
        """PRV-8.3: part once neither end wants the connection and no promised lock needs it."""
        connection = self.at.get(pid)
        if connection is None:
            return
        line = self.lines[connection]
        if line.parting or not line.up or not line.greeted:
            return
        self._tell_need(pid)
        if line.mine:
            if line.parted and pid in self.wanted:
                self._renew_line(connection, line)
            elif pid not in self.wanted:
                self.note(pid, "retiring")
            return
        if line.theirs:
            return
        line.parting = True
        self.wires.send(connection, Bye())
        self.forget_link(pid)
        self._part(connection, line)

    def parted(self, connection: Connection, line: Line) -> None:
        """The peer has said goodbye: its link is at its end."""
        line.peer_parted()
        if line.pid in self.wanted:
            self._renew_line(connection, line)
        elif self.at.get(line.pid) == connection:
            self.review(line.pid)
            if connection in self.lines:
                self._part(connection, line)

    def _renew_line(self, connection: Connection, line: Line) -> None:
        """The peer has parted and is wanted again: over a new connection, once no promised lock needs this one."""
        if not self._promised(line.pid):
            self._end(connection, "is needed again")
            self._dial(Contact(line.pid, line.address), ())

    def _part(self, connection: Connection, line: Line) -> None:
        """Both have said goodbye, so nothing is under way."""
        if line.parting and line.parted:
            self._drop(connection, "nobody needs it")
            self.look_for_ways()

    # Odds and ends

    def say(self, pid: Origin, packet: Packet) -> None:
        connection = self.at.get(pid)
        if connection is not None and self.lines[connection].up:
            self.wires.send(connection, packet)

    def note(self, pid: Origin, state: str) -> None:
        self.wires.note("link", {"peer": publisher_of(pid), "state": state})
