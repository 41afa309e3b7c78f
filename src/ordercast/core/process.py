"""A process is a machine with connections: it dials others by address, is dialed, and learns when a connection ends.

Like every machine it has no clock, socket or chance inside: the same object runs under virtual time and over TCP. A
connection is first in, first out; it ends once at each end, and after its end nothing more of it arrives. If the other
process dies, some prefix of what it sent arrives before the end does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol

import msgspec

from ordercast.core.messages import Message, Packet
from ordercast.core.state import State

Connection = int
"""One end of a connection: a number of its process, never used twice in one life."""

EVERYTHING = (">",)


class Rights(msgspec.Struct, frozen=True):
    """The topics, as filters, that a client may publish on and subscribe to. Whoever names none may do nothing."""

    publish: tuple[str, ...] = EVERYTHING
    subscribe: tuple[str, ...] = EVERYTHING


class Peer(msgspec.Struct, frozen=True):
    """Who is at the other end, as the runtime has authenticated it."""

    kind: str
    """`broker`, `client` or `node`."""
    name: str
    life: int = 0
    """Incarnation of a broker or node, session of a client: a higher one has none of the memory of a lower one."""
    address: str = ""
    """Where it listens, if it does; empty for a client."""
    rights: Rights = Rights()


class Wires(Protocol):
    """Where a process puts its effects. The order of calls is the order in which they take effect."""

    now_ns: int
    """The time of the event that is being handled: an input like any other, the same at every look."""

    def open(self, address: str) -> Connection:
        """Dial. `on_opened` follows, or `on_closed` if nobody answers; what is sent before then waits."""

    def send(self, connection: Connection, packet: Packet) -> None:
        """Put the packet on the connection; dropped if it has ended.

        One object sent on several connections is encoded once; a received packet that is passed on, not at all.
        """

    def close(self, connection: Connection, reason: str = "") -> None:
        """End it on purpose: what was sent before still arrives, then the other end's `on_closed` with `gone` false.

        The own `on_closed` does not follow.
        """

    def set_timer(self, name: Hashable, delay_ns: int, *, background: bool = False) -> None:
        """Ask for `on_timer(name)` after the delay; replaces an armed timer of that name.

        A background timer (a heartbeat) does not keep a run from counting as come to rest.
        """

    def cancel_timer(self, name: Hashable) -> None:
        """Forget the timer, armed or not."""

    def note(self, kind: str, info: Mapping[str, str]) -> None:
        """Record an event of the trace format that is neither packet nor message, such as `repair_start`."""

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter that metrics show, such as `entries_admitted`."""


class ProcessMachine(State):
    """Base of broker, client and every overlay that changes. A handler runs to its end before the next event."""

    def on_start(self) -> None:
        """The process begins."""

    def on_opened(self, connection: Connection, peer: Peer) -> None:
        """A connection, dialed or accepted, is up and its other end is authenticated."""

    def on_packets(self, connection: Connection, packets: Sequence[Packet]) -> None:
        """Packets arrived, in order."""

    def on_closed(self, connection: Connection, *, gone: bool, reason: str = "") -> None:
        """The connection has ended, or a dial found nobody.

        `gone`: without a word, so the other process is dead, or out of reach where partitions are possible.
        """

    def on_timer(self, name: Hashable) -> None:
        """A timer that this machine set has run out."""

    def on_turn_end(self) -> None:
        """All inputs that were at hand are handled: send what was only noted (acknowledgements, reports)."""


class OverlayWires(Wires, Protocol):
    """What a protocol has whose neighbours change at run time: connections, and an application on top."""

    def deliver(self, message: Message) -> None:
        """Hand `message` to the application."""

    def complete(self, message_id: str) -> None:
        """Answer the application: what this node promised for its own message of that id is done."""


class OverlayMachine(ProcessMachine):
    """Base of protocols that choose their neighbours themselves: they open and close links, and strangers dial them."""

    def on_publish(self, message: Message) -> None:
        """The application of this node publishes. The runtime has numbered and recorded the message."""


BuildOverlay = Callable[[OverlayWires, Peer, tuple[str, ...]], OverlayMachine]
"""Makes the machine of a life: how others see it, and the addresses of some who are there already."""
