"""Connections of a process, and the links that leave it over them."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

from ordercast.core.ids import Origin
from ordercast.core.process import Connection
from ordercast.core.state import State


class Way(Enum):
    """The way in which the current attempt makes a link safe: by a lock, or by a digest."""

    LOCK = "lock"
    DIGEST = "digest"


class OutLink(State):
    """The link from this process to a peer (PRV-4): nothing is put on it before it is safe (PRV-I2)."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.safe = False
        self.attempt = 0
        """The current attempt; 0: none has begun."""
        self.start = 0
        """The log index at which it began: what is delivered from there on is the buffer of this link."""
        self.way = Way.LOCK
        self.tries = 0
        self.marks = 0
        """Marks that the peer has not answered."""

    def try_again(self) -> int:
        """Another attempt begins; gives how many there were."""
        self.tries += 1
        return self.tries

    def collect_from(self, start: int) -> None:
        """Begin the link's buffer at this place of the log: it is what is delivered from there on."""
        self.start = start

    def give_up_attempt(self) -> None:
        """Ignore whatever the peer says of this attempt from now on."""
        self.attempt = 0


class Line(State):
    """A connection to a peer; it carries a link in each direction, and what belongs to neither."""

    constant: ClassVar[tuple[str, ...]] = ("pid", "address", "dialed")

    def __init__(self, pid: Origin, address: str, *, dialed: bool) -> None:
        self.pid = pid
        self.address = address
        self.dialed = dialed
        self.up = False
        """The other end has answered and is who it should be."""
        self.greeted = dialed
        """Whether the dialer has said its first word."""
        self.incoming_safe = False
        """Whether the peer uses its link to this process."""
        self.theirs = False
        """Whether the peer wants the connection for itself."""
        self.mine = dialed
        """Whether the peer believes that this end needs the connection."""
        self.chosen = False
        """Whether the peer uses this connection and no other: it has taken this process in over it."""
        self.parting = False
        """This process has said goodbye on it."""
        self.parted = False
        """The peer has said goodbye on it."""

    def answered(self) -> None:
        """The other end is there and is who it should be."""
        self.up = True

    def greet(self, *, wants: bool) -> None:
        """The dialer has said its first word, and whether it wants the connection for itself."""
        self.greeted = True
        self.theirs = wants

    def peer_wants(self, *, wants: bool) -> None:
        self.theirs = wants

    def peer_uses_it(self) -> None:
        """The link from the peer is safe."""
        self.incoming_safe = True

    def taken_in(self) -> None:
        """The peer has taken this process in over it: it uses this connection, and no other."""
        self.incoming_safe = self.chosen = True

    def peer_parted(self) -> None:
        """The peer has said goodbye: its link is at its end."""
        self.parted = True
        self.theirs = self.incoming_safe = False
