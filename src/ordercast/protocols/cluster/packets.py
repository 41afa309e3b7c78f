"""Packets between members of a cluster, and to the managers of its entries. Every packet names its cluster."""

from __future__ import annotations

from ordercast.core.messages import Packet
from ordercast.protocols.cluster.events import Event, Range, Value, Vector
from ordercast.protocols.gossip.members import Gone, Heard

Owner = tuple[int, int, str]
"""Of an entry: an epoch, and where its owner listens."""


class Update(Packet, frozen=True, tag=1):
    """CLU-2: some updates that go round, some members, and what the sender has. The same for all targets of a round."""

    cluster: str
    events: tuple[Event, ...]
    ages: bytes
    members: tuple[Heard, ...] = ()
    gone: tuple[Gone, ...] = ()
    digest: Vector = ()
    """The clock of the sender, if it keeps the order."""


class Recover(Packet, frozen=True, tag=2):
    """CLU-4.3: which updates the sender misses."""

    cluster: str
    ranges: tuple[Range, ...]


class Recovered(Packet, frozen=True, tag=3):
    """CLU-4.4: what the sender has of them, in causal order."""

    cluster: str
    events: tuple[Event, ...]


class SnapshotAsked(Packet, frozen=True, tag=4):
    """CLU-5.1: the sender wants to keep the order, and knows nothing of the past. On a connection."""

    cluster: str


class Snapshot(Packet, frozen=True, tag=5):
    """CLU-5.1: where the sender stands. Without a vector: it stands nowhere yet itself."""

    cluster: str
    vector: Vector
    owners: tuple[Owner, ...]
    state: bytes
    last: tuple[Value, Value] = (0, 0)
    """CLU-9.3: with a total order, the stamp of the last update in the state."""
    held: tuple[Event, ...] = ()
    """CLU-9.3: updates that the vector covers and the state does not have yet."""


class TicketAsked(Packet, frozen=True, tag=6):
    """CLU-6.1: is the entry free? To a manager."""

    cluster: str
    entry: int
    nonce: int


class TicketState(Packet, frozen=True, tag=7):
    """CLU-6.2: what a manager knows of the entry."""

    cluster: str
    entry: int
    nonce: int
    promised: int
    busy: bool
    base: Value


class Claim(Packet, frozen=True, tag=8):
    """CLU-6.3: the sender wants to own the entry in this epoch."""

    cluster: str
    entry: int
    epoch: int


class Granted(Packet, frozen=True, tag=9):
    """CLU-6.4: the manager gives it to the receiver. `base`: the highest value that it knows of former epochs."""

    cluster: str
    entry: int
    epoch: int
    base: Value


class Denied(Packet, frozen=True, tag=10):
    """CLU-6.4: the manager does not give it to the receiver."""

    cluster: str
    entry: int
    epoch: int


class Renew(Packet, frozen=True, tag=11):
    """CLU-6.6: the owner is still there, and has come so far."""

    cluster: str
    entry: int
    epoch: int
    nonce: int
    value: Value


class Renewed(Packet, frozen=True, tag=12):
    """CLU-6.6: the manager keeps the entry for the receiver for another lease."""

    cluster: str
    entry: int
    epoch: int
    nonce: int


class Release(Packet, frozen=True, tag=13):
    """CLU-6.7: the owner, or who tried to become it, wants it no more. `value`: its last; 0 if it made nothing."""

    cluster: str
    entry: int
    epoch: int
    value: Value


PACKETS = (
    Update, Recover, Recovered, SnapshotAsked, Snapshot, TicketAsked, TicketState, Claim, Granted, Denied, Renew,
    Renewed, Release,
)  # fmt: skip
