"""A broker's configuration at its start, and the state that it recovers from its data directory."""

from __future__ import annotations

from typing import Protocol

import msgspec

from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.pubsub.closed import Closed
from ordercast.pubsub.keeping import KeepRule
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector
from ordercast.pubsub.tree_packets import KnownDirectory

NO_LIMIT = 1 << 31


class BrokerPlace(msgspec.Struct, frozen=True):
    """The configuration of one broker."""

    node: NodeId
    address: str
    directory: dict[NodeId, str]
    """All brokers that are configured, itself among them, and their addresses."""
    parent: NodeId | None = None
    """Whom to ask first; None for the one that begins as root."""
    life: int = 0
    """How often it has started before. Only a broker in its first life, without a parent, begins as root."""
    seeds: tuple[str, ...] = ()
    """Addresses to ask by a broker that is not in the directory of the others yet (a join at run time)."""
    max_payload_bytes: int = NO_LIMIT
    """The largest payload that this broker admits."""
    keep: tuple[KeepRule, ...] = ()
    """Topics that are kept, by the configuration."""
    seal_key: bytes = b""
    """Of the seals of this cluster (pubsub/seals.py); without one, clients are believed without proof."""


class SavedBroker(msgspec.Struct):
    """The state that a broker with a data directory had written before it stopped."""

    entries: dict[Topic, list[Publication]] = {}
    """Above the stable base, in the order of its log, prepared totals last."""
    base: dict[Topic, Vector] = {}
    roster: dict[Topic, tuple[Origin, ...]] = {}
    fenced: dict[Origin, int] = {}
    closed: Closed = {}
    """BRK-F7: the sessions that are folded."""
    term_number: int = 0
    directory: KnownDirectory = KnownDirectory()
    whole: bool = True
    """False: damage has taken a part of it, and what was promised in elections may be in that part."""
    prepared: dict[Topic, int] = {}
    """How many of the entries are prepared totals."""


class BrokerLedger(Protocol):
    """The ledger in which a broker writes down what must outlive it.

    Calls are cheap; the runtime makes everything written in a turn durable before any packet of that turn leaves.
    """

    def entries(self, topic: Topic, entries: tuple[Publication, ...], *, prepared: bool = False) -> None:
        """Held from now on: at the end of the log, or, `prepared`, behind all of it until it is written again."""

    def base(self, topic: Topic, base: Vector) -> None:
        """Everything up to here is stable and may be forgotten."""

    def forget(self, topic: Topic) -> None:
        """The topic is gone from this broker and others hold what it had."""

    def roster(
        self, changed: dict[Topic, tuple[Origin, ...]], ended: dict[Origin, int], forgotten: tuple[Origin, ...] = ()
    ) -> None:
        """All members of the topics in which they have changed, perhaps none; what has ended; which ends to forget."""

    def closed(self, closed: Closed) -> None:
        """BRK-F7: these sessions are folded: what is held or known of one of them goes."""

    def term(self, number: int) -> None: ...

    def directory(self, directory: KnownDirectory) -> None: ...


class NoBrokerLedger:
    """The ledger of a broker without a data directory: it keeps nothing."""

    def entries(self, topic: Topic, entries: tuple[Publication, ...], *, prepared: bool = False) -> None:
        pass

    def base(self, topic: Topic, base: Vector) -> None:
        pass

    def forget(self, topic: Topic) -> None:
        pass

    def roster(
        self, changed: dict[Topic, tuple[Origin, ...]], ended: dict[Origin, int], forgotten: tuple[Origin, ...] = ()
    ) -> None:
        pass

    def closed(self, closed: Closed) -> None:
        pass

    def term(self, number: int) -> None:
        pass

    def directory(self, directory: KnownDirectory) -> None:
        pass
