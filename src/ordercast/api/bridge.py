"""The client machine's application port: notes what the machine reports during an event; tasks act on it later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from ordercast.api.cuts import PendingCut
from ordercast.api.errors import ConnectError, HistoryLost, PublishRefused, SessionLost
from ordercast.api.history import PendingRead, failure
from ordercast.api.subscriptions import Subscriptions
from ordercast.api.waiting import AckWaiting
from ordercast.core.ids import Origin, Topic
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector

if TYPE_CHECKING:
    from ordercast.trace.journal import Journal


class ConnectionEvent(msgspec.Struct, frozen=True):
    """Something that happened to the connection, as `Client.on_event` callbacks are told.

    Kinds: `connected`, `disconnected`, `paused`, `resumed`, `denied`, `refused`, `session_lost`,
    `no_history`.
    """

    kind: str
    detail: str


class KeptTold(Protocol):
    """Port to those who want to know the kept topics of filters."""

    def told(self, pattern: str, topics: tuple[Topic, ...], why_not: str) -> None: ...

    def fail(self, error: Exception) -> None: ...


class Bridge:
    """The application port of the client machine: keeps deliveries, acknowledgements and events for the library."""

    def __init__(self, origin: Origin, *, durable: bool = False) -> None:
        self.origin = origin
        self.durable = durable
        """There is a data directory, which is in use until the client is closed."""
        self.subscriptions = Subscriptions(self._taken)
        self.tell_taken: Callable[[], None] = _nobody_cares
        """Called soon after the application has read something."""
        self._taken_counts: dict[Topic, int] = {}
        self.waiting: dict[Topic, AckWaiting] = {}
        self.reads: dict[int, PendingRead] = {}
        """What is being read of kept topics."""
        self.cuts: dict[int, PendingCut] = {}
        self.looks: KeptTold | None = None
        """Who wants to know the kept topics of filters, once there is a client."""
        self.broker: str | None = None
        self.failures: tuple[tuple[str, str, bool], ...] = ()
        """Why the last pass over all brokers found none."""
        self.lost: SessionLost | None = None
        self.refusals: list[PublishRefused] = []
        """Refused publications that nobody waited for."""
        self.closed_flows: set[Topic] = set()
        self.watchers: list[Callable[[ConnectionEvent], None]] = []
        self.journal: Journal | None = None
        self.now_ns: Callable[[], int] = int
        self._changed: dict[asyncio.Future[None], None] = {}
        """Who waits for something to happen, in the order in which they began to."""
        self._loop = asyncio.get_running_loop()

    async def change(self) -> None:
        """Wait until something happened that a waiting task may want to look at."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._changed[future] = None
        try:
            await future
        finally:
            del self._changed[future]

    def _taken(self, topic: Topic, count: int) -> None:
        if not self._taken_counts:
            self._loop.call_soon(self.tell_taken)
        self._taken_counts[topic] = self._taken_counts.get(topic, 0) + count

    def taken(self) -> dict[Topic, int]:
        """How many deliveries of which topics the application has read since the last look."""
        counts, self._taken_counts = self._taken_counts, {}
        return counts

    def _stir(self) -> None:
        for future in self._changed:
            if not future.done():
                future.set_result(None)

    def _tell(self, kind: str, detail: str) -> None:
        self._stir()
        event = ConnectionEvent(kind, detail)
        for watcher in self.watchers:
            self._loop.call_soon(watcher, event)

    # What the machine calls

    def deliver(self, entries: Sequence[Publication]) -> None:
        if self.journal is not None:
            self.journal.deliver_many(self.now_ns(), entries)
        if self._changed:
            self._stir()  # An echo makes room in the outbox.
        self.subscriptions.deliver(entries)

    def acknowledged(self, topic: Topic, level: str, low: int, extras: tuple[int, ...]) -> None:
        self.waiting_of(topic).reached(level, low, extras)
        if self._changed:
            self._stir()

    def waiting_of(self, topic: Topic) -> AckWaiting:
        waiting = self.waiting.get(topic)
        if waiting is None:
            waiting = self.waiting[topic] = AckWaiting(self.lost)
        return waiting

    def live(self, topic: Topic) -> None:
        self.subscriptions.went_live(topic)
        self._stir()

    def left(self, topic: Topic) -> None:
        self.subscriptions.left(topic)

    def replaying(self, topic: Topic) -> None:
        self.subscriptions.went_live(topic)

    def no_history(self, topic: Topic, code: str, cut: Vector) -> None:
        error = failure(topic, code, cut)
        self.subscriptions.refused(topic, error)
        self._tell("no_history", str(error))

    def missed(self, topic: Topic) -> None:
        away = "is not kept: what was published while this client was away for too long may be missing"
        error = HistoryLost(topic, away, None)
        self.subscriptions.missed(topic, error)
        self._tell("no_history", str(error))

    def history(self, read: int, entries: Sequence[Publication]) -> None:
        self.reads[read].batches.append(entries)
        self.reads[read].stir()

    def history_bounds(self, read: int, since: Vector, until: Vector) -> None:
        self.reads[read].bounds = (since, until)
        self.reads[read].stir()

    def history_ended(self, read: int, code: str, cut: Vector) -> None:
        self.reads[read].end = (code, cut)
        self.reads[read].stir()

    def cut_told(self, number: int, cuts: dict[Topic, Vector], why_not: str) -> None:
        pending = self.cuts.get(number)
        if pending is not None:
            pending.told(cuts, why_not)

    def watching(self, pattern: str, topics: tuple[Topic, ...]) -> None:
        self.subscriptions.watching(pattern, topics)
        self._stir()

    def kept_found(self, pattern: str, topics: tuple[Topic, ...], why_not: str) -> None:
        if self.looks is not None:
            self.looks.told(pattern, topics, why_not)

    def denied(self, topic: Topic, reason: str) -> None:
        self.subscriptions.denied(topic, reason)
        self._tell("denied", f"{topic}: {reason}")

    def refused(self, topic: Topic, number: int, reason: str) -> None:
        error = PublishRefused(f"{self.origin}/{topic}#{number}", reason)
        if not self.waiting_of(topic).refused(number, error):
            self.refusals.append(error)
        self._tell("refused", str(error))

    def flow(self, topic: Topic, *, open_: bool) -> None:
        if open_:
            self.closed_flows.discard(topic)
        else:
            self.closed_flows.add(topic)
        self._tell("resumed" if open_ else "paused", topic)

    def session_lost(self, reason: str, unanswered: Sequence[Publication]) -> None:
        first = "close this client, then connect anew" if self.durable else "connect anew"
        self.lost = SessionLost(f"{reason}; {first}", unanswered)
        self.broker = None
        self.end(self.lost)
        self._tell("session_lost", reason)

    def connected(self, broker: str) -> None:
        self.broker = broker
        self._tell("connected", broker)

    def disconnected(self, reason: str) -> None:
        self.broker = None
        self.closed_flows.clear()
        self._tell("disconnected", reason)

    def nobody_answers(self, failures: tuple[tuple[str, str, bool], ...]) -> None:
        self.failures = failures
        self._stir()

    def end(self, error: Exception | None) -> None:
        """Nobody waits for what will not come."""
        self.subscriptions.fail(error)
        for pending in self.reads.values():
            pending.error = error or ConnectError("the client is closed")
            pending.stir()
        for cut in self.cuts.values():
            cut.fail(error or ConnectError("the client is closed"))
        if self.looks is not None:
            self.looks.fail(error or ConnectError("the client is closed"))
        for waiting in self.waiting.values():
            waiting.fail(error or ConnectError("the client is closed"))
        self._stir()


def _nobody_cares() -> None:
    """Until there is a client that does."""
