"""Packets of the preventive broadcast. Spec: docs/protocols/preventive.md.

*Items* keep their place in the one queue of a link: Data, Lock, FloodedLock, SafeMark, Snapshot, Mark, Farewell and
Bye. All others are *control*: they may be lost, repeated and reordered without harm.
"""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.ids import Origin
from ordercast.core.messages import Message, Packet

RULES = 2
"""Version of these packets and of what they oblige to. Processes with another one are no neighbours."""

Counts = tuple[tuple[Origin, int], ...]
"""How much of each origin a process has; sorted, so that equal knowledge has equal bytes."""


class Data(Packet, frozen=True, tag=1):
    """A message on its way: nothing in its header depends on how many processes there are or were (PRV-P7)."""

    carries: ClassVar[str | None] = "message"

    message: Message


class Lock(Packet, frozen=True, tag=2):
    """Goes the safe links of its route; where it arrives, everything that its first sender had delivered is too."""

    route: tuple[Origin, ...]
    hop: int
    """The place of the sender in the route."""
    attempt: int


class FloodedLock(Packet, frozen=True, tag=3):
    """A lock that nobody knows a route for: it goes over all safe links."""

    origin: Origin
    to: Origin
    attempt: int
    hops: int


class SafeMark(Packet, frozen=True, tag=4):
    """The first item of a link that is in use from now on."""

    attempt: int
    """Which one has made it safe; 0: none was needed, because its sender had delivered nothing or has just joined."""


class Snapshot(Packet, frozen=True, tag=5):
    """The first item for a joiner: what it inherits."""

    nonce: int
    received: Counts
    forgetful: bool
    """Whether the contact may have forgotten origins that will speak again."""
    state: bytes


class Mark(Packet, frozen=True, tag=6):
    """Asks how far the receiver has read."""

    number: int


class Marked(Packet, frozen=True, tag=7):
    number: int


class Bye(Packet, frozen=True, tag=8):
    """The last item of a link: nothing follows on it."""


class Hello(Packet, frozen=True, tag=9):
    """The first word of who dialed."""

    rules: int
    to: Origin
    """Whom it expects to find here."""
    via: tuple[Origin, ...]
    """Whom a lock could pass from the sender to the receiver; backwards it is the receiver's way."""
    wants: bool


class Arc(Packet, frozen=True, tag=10):
    """Whether the sender wants this connection for itself."""

    wants: bool


class Ack(Packet, frozen=True, tag=11):
    """The sender has met the lock of that attempt."""

    attempt: int


class LockFailed(Packet, frozen=True, tag=12):
    """The sender could not pass the lock on."""

    to: Origin
    attempt: int


class HintAsk(Packet, frozen=True, tag=13):
    attempt: int


class Hint(Packet, frozen=True, tag=14):
    """Some who have a safe link to the sender."""

    attempt: int
    peers: tuple[Origin, ...]


class DigestAsk(Packet, frozen=True, tag=15):
    attempt: int


class Digest(Packet, frozen=True, tag=16):
    """The sender's received vector."""

    attempt: int
    received: Counts


class DigestRefused(Packet, frozen=True, tag=17):
    """The receiver lacks what the sender keeps no more: at least this message of that origin."""

    origin: Origin
    number: int
    total: int
    """How many messages the sender has."""
    mark: int
    """Of what it has: equal for all who have the same."""


class JoinAsk(Packet, frozen=True, tag=18):
    rules: int
    nonce: int


class HoldRelease(Packet, frozen=True, tag=19):
    """The lock that the receiver was to let pass will not come."""

    one: Origin
    other: Origin


class Probe(Packet, frozen=True, tag=20):
    """PRV-9.3: one of the four items that go to and fro over safe links before a link with a memory begins."""

    route: tuple[Origin, ...]
    hop: int
    """The place of the sender in the route."""
    attempt: int
    stage: int

    @property
    def link(self) -> tuple[Origin, Origin]:
        """From whom to whom the new link is: every other item goes backwards."""
        ends = self.route[0], self.route[-1]
        return ends if self.stage % 2 == 0 else ends[::-1]


class Begin(Packet, frozen=True, tag=21):
    """PRV-9.2, PRV-9.3: the first item of a link with a memory."""

    attempt: int
    """0: all that its sender ever delivered comes over it."""
    count: int
    """So many of the messages that follow were collected before."""


class Stranded(Packet, frozen=True, tag=22):
    """PRV-9.3: no link leads from, or to, the sender, and it cannot begin one."""

    total: int
    """How much it has delivered."""


class BeginAnew(Packet, frozen=True, tag=23):
    """PRV-9.3: the receiver had better join again, through the sender."""


class Farewell(Packet, frozen=True, tag=24):
    """PRV-6.9: the sender is about to leave; all that it has delivered came before on this link."""

    number: int


class Heard(Packet, frozen=True, tag=25):
    """PRV-6.9: the sender stays, and has what the receiver had when it said this farewell."""

    number: int


PREVENTIVE_PACKETS: tuple[type[Packet], ...] = (
    Data, Lock, FloodedLock, SafeMark, Snapshot, Mark, Marked, Bye, Hello, Arc, Ack, LockFailed, HintAsk, Hint,
    DigestAsk, Digest, DigestRefused, JoinAsk, HoldRelease, Probe, Begin, Stranded, BeginAnew,
    Farewell, Heard,
)  # fmt: skip
