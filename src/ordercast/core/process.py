"""A process is a machine with connections: it dials others by address, is dialed, and learns when a connection ends.

Like every machine it has no clock, socket or chance inside: the same object runs under virtual time and over TCP. A
connection is first in, first out; it ends once at each end, and after its end nothing more of it arrives. If the other
process dies, some prefix of what it sent arrives before the end does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import ClassVar, Protocol

import msgspec

from ordercast.core.messages import Message, Packet
from ordercast.core.state import State

Connection = int
"""One end of a connection: a number of its process, never used twice in one life."""

EVERYTHING = (">",)

CAST_BYTES = 60_000
"""The longest packet that can be cast, encoded: it fits a datagram with header and proof. A longer one is lost."""


class Rights(msgspec.Struct, frozen=True):
    """The topics, as filters, that a client may publish on and subscribe to. Whoever names none may do nothing."""

    publish: tuple[str, ...] = EVERYTHING
    subscribe: tuple[str, ...] = EVERYTHING


class Peer(msgspec.Struct, frozen=True):
    """The process at the other end, as the runtime has authenticated it."""

    kind: str
    """`broker`, `client` or `node`."""
    name: str
    life: int = 0
    """Incarnation of a broker or node, session of a client: a higher one has none of the memory of a lower one."""
    address: str = ""
    """Where it listens, if it does; empty for a client."""
    rights: Rights = Rights()
    user: str = ""
    """Whose client it is, where clients prove to be some user's; empty where nobody knows."""


class Wires(Protocol):
    """The outbox of a process takes its effects. The order of calls is the order in which they take effect."""

    now_ns: int
    """The time of the event that is being handled: an input like any other, the same at every look."""

    def open(self, address: str) -> Connection:
        """Dial. `on_opened` follows, or `on_closed` if nobody answers; what is sent before then waits."""

    def send(self, connection: Connection, packet: Packet) -> None:
        """Put the packet on the connection; dropped if it has ended.

        One object sent on several connections is encoded once; a received packet that is passed on, not at all.
        """

    def send_all(self, connections: Iterable[Connection], packet: Packet, but: Connection = 0) -> None:
        """One `send` on each of the connections, in their order, except on `but`."""

    def close(self, connection: Connection, reason: str = "") -> None:
        """End it on purpose: what was sent before still arrives, then the other end's `on_closed` with `gone` false.

        The own `on_closed` does not follow.
        """

    def cast(self, address: str, packet: Packet) -> None:
        """Send one datagram to whoever listens at the address: no connection, no order, no resend, no word of a loss.

        It may be lost, come late, or come twice. One object cast to several addresses is encoded once.
        """

    def cast_all(self, addresses: Iterable[str], packet: Packet) -> None:
        """One `cast` to each of the addresses, in their order."""

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

    def on_recover(self) -> None:
        """The process begins again, with what was durable of its last life already restored."""
        self.on_start()

    def on_opened(self, connection: Connection, peer: Peer) -> None:
        """A connection, dialed or accepted, is up and its other end is authenticated."""

    def on_packets(self, connection: Connection, packets: Sequence[Packet]) -> None:
        """Packets arrived, in order."""

    def on_cast(self, peer: Peer, packets: Sequence[Packet]) -> None:
        """Packets that an authenticated peer cast arrived, each by itself, in any order.

        A PeerError drops what is left of them and is counted; there is no connection that it could end.
        """

    def on_closed(self, connection: Connection, *, gone: bool, reason: str = "") -> None:
        """The connection has ended, or a dial found nobody.

        `gone`: without a word, so the other process is dead, or out of reach where partitions are possible.
        """

    def on_timer(self, name: Hashable) -> None:
        """A timer that this machine set has run out."""

    def on_turn_end(self) -> None:
        """All inputs that were at hand are handled: send what was only noted (acknowledgements, reports)."""


class OverlayWires(Wires, Protocol):
    """The outbox of a protocol whose neighbours change at run time: connections, and an application on top."""

    def deliver(self, message: Message) -> None:
        """Hand `message` to the application."""

    def complete(self, message_id: str) -> None:
        """Answer the application: what this node promised for its own message of that id is done."""

    def snapshot(self) -> bytes:
        """The application's state as of everything delivered so far, for a process that joins through this one."""

    def install(self, state: bytes) -> None:
        """Give the application the state that this process inherits."""

    def begin_anew(self, reason: str, through: str) -> None:
        """This life cannot go on: end it, and start another without its memory, which joins `through` that address.

        Where nobody can do that, the process ends with the reason.
        """

    def depart(self) -> None:
        """The machine was told to leave, and nothing keeps it any longer: its connections are closed in order."""


class OverlayPlace(msgspec.Struct, frozen=True):
    """The start of one life of an overlay machine: who it is, and whom it knows."""

    me: Peer
    contacts: tuple[str, ...] = ()
    """Addresses of some others. With links that stay as they are: its neighbours."""
    genesis: bool = False
    """Whether the network begins with it. Its contacts then begin with it too and know it as well; of two, the one
    with the smaller address dials. False: it joins through one of its contacts."""
    salt: int = 0
    """What its draws begin with: `mix(salt, round)`. Another one for every life."""


class OverlayMachine(ProcessMachine):
    """Base of protocols that choose their neighbours themselves: they open and close links, and strangers dial them.

    A machine that did not begin with the network notes `join` once it is in: from then on it is owed what is
    published. It notes `link` with `peer` and `state` when a link changes; the state `closed` is its end.
    """

    def on_publish(self, message: Message) -> None:
        """The application of this node publishes. The runtime has numbered and recorded the message."""

    def redeliver(self, message: Message) -> None:
        """Take over that a former life with this memory has delivered the message; before `on_recover`."""
        raise NotImplementedError(f"{type(self).__name__} keeps no memory of {message.id}")

    def published_before(self) -> int:
        """How many messages of its own the machine remembers: numbers go on from there."""
        return 0

    def unheard(self) -> str:
        """Why what this node published may be lost if it leaves now, in words; empty: others have it."""
        return ""

    lingers: ClassVar[bool] = False
    """Whether the machine says itself, by `depart`, when it may go after `on_leave`."""

    def on_leave(self) -> None:
        """The node goes for good: its connections are closed in order, when this turn is over or it says `depart`.

        It publishes nothing more meanwhile.
        """


BuildOverlay = Callable[[OverlayWires, OverlayPlace], OverlayMachine]
"""Makes the machine of a life."""
