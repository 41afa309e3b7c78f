"""Ports of the client machine: the application above it and the ledger beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import msgspec

from ordercast.core.ids import Origin, Topic
from ordercast.pubsub.closed import Closed
from ordercast.pubsub.publications import Publication, PublicationId
from ordercast.pubsub.received import Summary, Vector

NO_SEALS: Mapping[Origin, bytes] = MappingProxyType({})
EDGE = "edge"
"""The edge broker holds it."""
SAFE = "safe"
"""So many brokers hold it that it survives the crashes it is promised to survive."""
STABLE = "stable"
"""Every member of the topic has it."""


class ClientApp(Protocol):
    """Port to the application. Calls come in the middle of an event: they note things and return."""

    def deliver(self, entries: Sequence[Publication]) -> None:
        """New publications of one topic, in the order of delivery. The sequence must not be changed."""

    def acknowledged(self, topic: Topic, level: str, low: int, extras: tuple[int, ...]) -> None:
        """The own publications of the topic up to `low`, and the extras, have reached the level. It never falls."""

    def live(self, topic: Topic) -> None:
        """The subscription is confirmed and caught up; again after every change of the edge."""

    def left(self, topic: Topic) -> None:
        """No longer a member."""

    def replaying(self, topic: Topic) -> None:
        """A copy serves the past that the subscription asked for; it is delivered like everything else."""

    def no_history(self, topic: Topic, code: str, cut: Vector) -> None:
        """ARC-S5: the subscription is over, because its past is `unkept`, `denied`, `cleaned` or `lost`."""

    def missed(self, topic: Topic) -> None:
        """ARC-S8: the subscription goes on, but what came while this client had no session is gone: it is not kept."""

    def history(self, read: int, entries: Sequence[Publication]) -> None:
        """The next publications of a read that the application began."""

    def history_bounds(self, read: int, since: Vector, until: Vector) -> None:
        """It will get everything in `until` that is not in `since`."""

    def history_ended(self, read: int, code: str, cut: Vector) -> None:
        """The read is over; with a code it failed, and could begin at `cut`."""

    def cut_told(self, number: int, cuts: dict[Topic, Vector], why_not: str) -> None:
        """ARC-C4: the cut that was asked for; or why there is none yet, and it is asked for again."""

    def watching(self, pattern: str, topics: tuple[Topic, ...]) -> None:
        """The edge knows the filter; these topics were found and are being subscribed to."""

    def kept_found(self, pattern: str, topics: tuple[Topic, ...], why_not: str) -> None:
        """ARC-K1: kept topics of the filter, of which some may be known already; or why there never will be any."""

    def denied(self, topic: Topic, reason: str) -> None:
        """This client may not be a member of the topic; what waited in its outbox was refused before."""

    def refused(self, topic: Topic, number: int, reason: str) -> None:
        """This publication will never be delivered to anybody."""

    def flow(self, topic: Topic, *, open_: bool) -> None:
        """BRK-ST4: whether the broker tree takes publications of the topic now."""

    def session_lost(self, reason: str, unanswered: Sequence[Publication]) -> None:
        """BRK-C9: the brokers have given this session up; who has what is unanswered is unknown. It is over."""

    def connected(self, broker: str) -> None:
        """There is an edge."""

    def disconnected(self, reason: str) -> None:
        """The edge is lost; another one is being sought."""

    def nobody_answers(self, failures: tuple[tuple[str, str, bool], ...]) -> None:
        """All brokers were tried in vain: address, why, and whether nobody was there (or somebody refused)."""


class SavedReplay(msgspec.Struct, frozen=True, array_like=True):
    """The saved progress of a subscription that began in the past (ARC-S1)."""

    progress: Vector
    """Taken by the application."""
    until: Vector | None = None
    """The base that its membership was granted with; None: it is not a member yet."""
    optional: bool = False
    """It goes on without the past where the topic is not kept."""
    untouched: tuple[str, int] | None = None
    """Nothing of it was handed over yet, and it began so: kind and amount of a start that is no position."""
    tells: bool = False
    """The application is told where it goes on without the past."""
    before: int = 0
    """Deliveries of a former session that the application has not taken: the first ones in the history."""
    had: dict[Origin, tuple[int, ...]] = {}
    """What a former session had delivered beyond `progress`."""


class MissedFilters(msgspec.Struct, frozen=True, array_like=True):
    """Filters of a session that was given up: topics of them may have begun since, and nobody told of them (ARC-S8)."""

    patterns: tuple[str, ...] = ()
    since_ms: int = 0
    """The time of the epoch at which that session began: what it did not know began later."""
    tells: bool = False
    """The application is told where such a topic is not kept."""


class SavedTopic(msgspec.Struct):
    """The saved state of one topic at a client."""

    receives: bool | None = None
    """None: not a member, only the numbers are kept."""
    granted: bool = False
    counter: int = 0
    outbox: list[Publication] = []
    history: list[Publication] = []
    """Delivered, not stable, in order; the ones that the application has taken first."""
    untaken: int = 0
    """How many at the end of the history the application had not taken."""
    have: Summary = {}
    base: Vector = {}
    seals: dict[PublicationId, bytes] = {}
    """Proofs of what is in the history, as far as the brokers gave any."""
    base_seals: dict[Origin, bytes] = {}
    replay: SavedReplay | None = None
    safe: tuple[int, tuple[int, ...]] = (0, ())
    """What of the outbox was called safe: up to a number, and some beyond it."""


class SavedClient(msgspec.Struct):
    """The state that a client with a data directory goes on from, as the same session (BRK-FM6)."""

    attach_no: int = 0
    topics: dict[Topic, SavedTopic] = {}
    watched: tuple[str, ...] = ()
    followed: tuple[str, ...] = ()
    """Those of them that were confirmed."""
    ticket: str = ""
    """BRK-F1: of the session, with the proof of it."""
    ticket_seal: bytes = b""
    closed: Closed = {}
    """BRK-F8: sessions of which nothing is remembered one by one."""
    granted: bool = False
    """A broker has confirmed a membership of this session, of a topic or of a filter."""
    missed: MissedFilters = MissedFilters()
    gaps: tuple[Topic, ...] = ()
    """Topics of which the application is to be told that something is gone."""


class ClientLedger(Protocol):
    """Port to the client's durable state (BRK-D1).

    Calls are cheap; the runtime makes everything written in a turn durable before any packet of that turn leaves.
    """

    def attach(self, attach_no: int) -> None: ...

    def ticket(self, ticket: str, seal: bytes) -> None:
        """BRK-F1: part of the session's origin from now on, of what is in the outbox too; none: it has none."""

    def closed(self, closed: Closed) -> None:
        """BRK-F8: what is kept of these sessions one by one goes."""

    def member(self, topic: Topic, receives: bool | None, *, granted: bool) -> None:
        """Write this client's membership in the topic, had or wanted; None: none any more."""

    def safe(self, topic: Topic, low: int, extras: tuple[int, ...]) -> None:
        """The application hears that these publications are safe: they are never unanswered any more."""

    def watched(self, patterns: tuple[str, ...]) -> None:
        """Write which filters the application wants."""

    def followed(self, patterns: tuple[str, ...]) -> None:
        """Write which of them are confirmed."""

    def granted(self) -> None:
        """A broker has confirmed a membership of this session: it would lose something by ending (BRK-F2)."""

    def missed(self, filters: MissedFilters) -> None:
        """Write of which filters it is still to be asked what has begun since the last session."""

    def gap(self, topic: Topic, *, told: bool) -> None:
        """Write that something of the topic is gone, or that the application has been told so."""

    def published(self, topic: Topic, publications: Sequence[Publication]) -> None:
        """In the outbox from now on."""

    def refused(self, topic: Topic, number: int) -> None:
        """Out of the outbox, for good."""

    def delivered(self, topic: Topic, entries: Sequence[Publication], seals: bytes = b"") -> None:
        """In the history from now on, with their seals if any; the own ones among them are out of the outbox."""

    def consumed(self, topic: Topic, count: int) -> None:
        """The application has taken the next `count` deliveries of the topic."""

    def base(self, topic: Topic, base: Vector, seals: Mapping[Origin, bytes] = NO_SEALS) -> None:
        """Everything up to here is stable: out of history and outbox; and counts as received. Seals prove it."""

    def replay(self, topic: Topic, replay: SavedReplay | None) -> None:
        """Write how far the past was taken, of which everything counts as received; None: it is over."""

    def lost(self, unanswered: Sequence[Publication]) -> None:
        """BRK-C9: the session is over. These go out of the outbox and stay for the application to decide about."""


class NoClientLedger:
    """A client without a data directory: a restart is a new session."""

    def attach(self, attach_no: int) -> None:
        pass

    def ticket(self, ticket: str, seal: bytes) -> None:
        pass

    def closed(self, closed: Closed) -> None:
        pass

    def member(self, topic: Topic, receives: bool | None, *, granted: bool) -> None:
        pass

    def safe(self, topic: Topic, low: int, extras: tuple[int, ...]) -> None:
        pass

    def watched(self, patterns: tuple[str, ...]) -> None:
        pass

    def followed(self, patterns: tuple[str, ...]) -> None:
        pass

    def granted(self) -> None:
        pass

    def missed(self, filters: MissedFilters) -> None:
        pass

    def gap(self, topic: Topic, *, told: bool) -> None:
        pass

    def published(self, topic: Topic, publications: Sequence[Publication]) -> None:
        pass

    def refused(self, topic: Topic, number: int) -> None:
        pass

    def delivered(self, topic: Topic, entries: Sequence[Publication], seals: bytes = b"") -> None:
        pass

    def consumed(self, topic: Topic, count: int) -> None:
        pass

    def base(self, topic: Topic, base: Vector, seals: Mapping[Origin, bytes] = NO_SEALS) -> None:
        pass

    def replay(self, topic: Topic, replay: SavedReplay | None) -> None:
        pass

    def lost(self, unanswered: Sequence[Publication]) -> None:
        pass
