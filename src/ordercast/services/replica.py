"""A replica: deliveries in, effects in the store, each exactly once.

What was received and what it did are written in one store transaction. After a restart the received-set that is read
back says what to ask the brokers for; what is delivered a second time is recognised and skipped. A commit that fails
is repeated with the same changes; nothing is skipped and nothing is done twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.ids import Origin, Topic, plain_origin
from ordercast.core.wire import NOT_DECODABLE
from ordercast.pubsub.closed import Closed
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Summary, Vector
from ordercast.services.data_service import ApplyContext, ReadOnly, checked_call, perform
from ordercast.services.dispatcher import Dispatcher
from ordercast.services.operations import OperationRefused
from ordercast.services.staging import Cells, Prefixed, Retry, StagedWrites
from ordercast.services.stores.port import Store, StoreError
from ordercast.services.topic_received import TopicReceived, closed_key, received_prefix, session_key
from ordercast.services.wire import Call, Unit, UnitOutcome, decode_body

T = TypeVar("T")
LARGEST_BATCH = 1000
"""Deliveries that share a commit, at most."""


class Applied(msgspec.Struct, frozen=True):
    """A delivery that is in the store now."""

    publication: Publication
    unit: Unit | None
    """None: the payload was nothing a service understands."""
    outcome: UnitOutcome


class ReplicaSnapshot(msgspec.Struct, frozen=True):
    """The state of one topic between two deliveries, and which deliveries it contains."""

    topic: Topic
    received: Summary
    services: dict[str, bytes]
    closed: Closed = {}
    origins: dict[Origin, Origin] = {}
    """Whole names, with tickets, of the sessions in `received`."""


class Replica:
    """The state of some topics at one place. Not thread-safe: one call at a time."""

    def __init__(self, store: Store, dispatcher: Dispatcher, *, retry: Retry | None = None) -> None:
        self.store = store
        self.dispatcher = dispatcher
        self._retry = retry or _give_up
        self._stage = StagedWrites(store)
        self._received: dict[Topic, TopicReceived] = {}

    # What it has

    def received(self, topic: Topic) -> Summary:
        """The publications that this replica has applied, of sessions that are not closed."""
        return self.knows(topic).received.summary()

    def has(self, publication: Publication) -> bool:
        return self.knows(publication.topic).has(publication.origin, publication.number)

    def knows(self, topic: Topic) -> TopicReceived:
        """Everything that this replica has received on the topic."""
        found = self._received.get(topic)
        if found is None:
            prefix = received_prefix(topic)
            rows = self._read(lambda: {key[len(prefix) :]: value for key, value in self._stage.scan(prefix)})
            closed = self._read(lambda: self._stage.get(closed_key(topic)))
            found = self._received[topic] = TopicReceived.read(rows, closed)
        return found

    def starts_from(self, topic: Topic, base: Vector, session: Origin) -> bool:
        """Whether nothing is missing here that this session will not be sent.

        The same session as before has taken all that was closed since: nothing is closed without it (BRK-F6).
        """
        known = self.knows(topic)
        mine = self._read(lambda: self._stage.get(session_key(topic))) == session.encode()
        return known.contains_counted(base) if mine else known.contains(base)

    def fold(self, topic: Topic, closed: Closed, session: Origin | None = None) -> None:
        """Everything of these sessions is in the store: their rows become intervals. `session`: which runs here now."""
        known = self.knows(topic)
        gone = known.fold(closed)
        for name in gone or ():
            self._stage.put(received_prefix(topic) + name, None)
        if gone is not None:
            self._stage.put(closed_key(topic), known.closed_row())
        if session is not None:
            self._stage.put(session_key(topic), session.encode())
        self._stage.keep()
        self._insist()

    # Deliveries

    def apply(self, publications: Sequence[Publication], own: Origin | None = None) -> list[Applied]:
        """Do what was delivered, in order, and commit. What is known is skipped; the rest comes back with outcomes.

        `own`: the session that runs here, for `ctx.own`.
        """
        applied: list[Applied] = []
        for start in range(0, len(publications), LARGEST_BATCH):
            batch = publications[start : start + LARGEST_BATCH]
            touched: set[tuple[Topic, Origin]] = set()
            for publication in batch:
                known = self.knows(publication.topic)
                if known.has(publication.origin, publication.number):
                    continue
                applied.append(self._apply_one(_without_ticket(publication), own))
                name = known.add(publication.origin, publication.number)
                touched.add((publication.topic, name))
            self._commit(touched)
        return applied

    def _apply_one(self, publication: Publication, own: Origin | None) -> Applied:
        """The unit is kept or undone as a whole. A store that fails while it is read is asked again."""
        body = decode_body(publication.payload)
        unit = body if isinstance(body, Unit) else None
        if unit is None:
            return Applied(publication, None, UnitOutcome(refused="the payload is not an operation"))
        attempt = 0
        while True:
            try:
                values = tuple(self._perform(call, publication, publication.origin == own) for call in unit.calls)
            except OperationRefused as refusal:
                self._stage.undo()
                return Applied(publication, unit, UnitOutcome(refused=refusal.reason))
            except StoreError as error:
                self._stage.undo()
                self._stage.end()
                attempt += 1
                self._retry(error, attempt)
            else:
                self._stage.keep()
                return Applied(publication, unit, UnitOutcome(values))

    def _perform(self, call: Call, publication: Publication, own: bool) -> object:
        data = self.dispatcher.find(publication.topic, call.service)
        if data is None:
            raise OperationRefused(f"no service {call.service!r} on {publication.topic}")
        whole, read_only = checked_call(data, call, publication)
        cells: Cells = self._cells(publication.topic, call.service)
        context = ApplyContext(
            topic=publication.topic,
            publication=(publication.origin, publication.number),
            level=publication.guarantee,
            store=ReadOnly(cells) if read_only else cells,
            own=own,
        )
        return perform(data, whole, context)

    def _commit(self, touched: Iterable[tuple[Topic, Origin]]) -> None:
        """The received-set and the effects, together."""
        for topic, origin in touched:
            self._stage.put(received_prefix(topic) + origin, self._received[topic].row(origin))
        self._stage.keep()
        self._insist()

    def _insist(self) -> None:
        attempt = 0
        while True:
            try:
                self._stage.commit()
            except StoreError as error:
                attempt += 1
                self._retry(error, attempt)
            else:
                return

    def read(self, topic: Topic, call: Call) -> object:
        """Answer a read-only operation from the present state, without a publication. Refused as it would be."""
        data = self.dispatcher.find(topic, call.service)
        operation = data.service.operations.get(call.operation) if data is not None else None
        if data is None or operation is None or not operation.read_only:
            raise UsageError(f"{call.service}.{call.operation}: is no read-only operation of {topic}")
        context = ApplyContext(
            topic, (Origin(""), 0), operation.level, ReadOnly(self._cells(topic, call.service)), own=True
        )
        return self._read(lambda: perform(data, call, context))

    def _read(self, look: Callable[[], T]) -> T:
        """Look into the store, again if it fails, and leave no transaction open."""
        attempt = 0
        while True:
            try:
                return look()
            except StoreError as error:
                attempt += 1
                self._retry(error, attempt)
            finally:
                self._stage.end()

    # Snapshots

    def snapshot(self, topic: Topic) -> ReplicaSnapshot:
        """The state of the topic as it is between two deliveries. It holds a prefix of what this replica delivers."""
        known = self.knows(topic)
        received, closed = known.received.summary(), known.closed.summary()
        return self._read(lambda: ReplicaSnapshot(topic, received, self._services(topic), closed, known.origins))

    def restore(self, snapshot: ReplicaSnapshot, session: Origin | None = None) -> None:
        """Replace the state of the topic, and what counts as received, by that of another replica; all or nothing.

        `session`: which runs here now.
        """
        topic = snapshot.topic
        self._read(lambda: self._clear(topic))
        for name, data in sorted(snapshot.services.items()):
            implementation = self.dispatcher.find(topic, name)
            if implementation is None:
                self._stage.undo()
                raise UsageError(f"snapshot of {topic}: no service {name!r} is registered here")
            try:
                implementation.restore(data, self._cells(topic, name))
            except NOT_DECODABLE:
                self._stage.undo()
                raise UsageError(f"snapshot of {topic}: what it has of {name!r} is no state of it") from None
        known = TopicReceived(snapshot.received, snapshot.origins, snapshot.closed)
        for key, value in known.rows(topic).items():
            self._stage.put(key, value)
        self._stage.put(_start_over_key(topic), None)
        self._stage.put(session_key(topic), session.encode() if session is not None else None)
        self._stage.keep()
        self._insist()
        self._received[topic] = known

    def start_over(self, topic: Topic) -> None:
        """Remember that the session was fenced: what it holds may be unknown to others, a snapshot must replace it."""
        self._stage.put(_start_over_key(topic), b"1")
        self._stage.keep()
        self._insist()

    def must_start_over(self, topic: Topic) -> bool:
        return self._read(lambda: self._stage.get(_start_over_key(topic))) is not None

    def contents(self, topic: Topic, service: str) -> dict[str, bytes]:
        """All data of a service on a topic."""
        return self._read(lambda: dict(self._cells(topic, service).scan()))

    def digest(self, topic: Topic) -> str:
        """Of the state of the topic: equal for equal data, whatever the order in which they came to be."""
        return self._read(lambda: self._digest(topic))

    def _digest(self, topic: Topic) -> str:
        total = hashlib.sha256()
        prefix = f"d {topic} "
        for key, value in self._stage.scan(prefix):
            name = key[len(prefix) :].encode()
            total.update(len(name).to_bytes(4) + name + len(value).to_bytes(4) + value)
        return total.hexdigest()

    def _services(self, topic: Topic) -> dict[str, bytes]:
        found = {}
        for service in self.dispatcher.services_of(topic):
            data = self.dispatcher.find(topic, service.name)
            if data is not None:
                found[service.name] = data.snapshot(self._cells(topic, service.name))
        return found

    def _clear(self, topic: Topic) -> None:
        for prefix in (f"d {topic} ", received_prefix(topic)):
            for key, _ in list(self._stage.scan(prefix)):
                self._stage.put(key, None)

    def _cells(self, topic: Topic, service: str) -> Prefixed:
        return Prefixed(self._stage, f"d {topic} {service} ")  # No space is allowed in either name.

    def close(self) -> None:
        self.store.close()


def _start_over_key(topic: Topic) -> str:
    return f"m {topic} start-over"


def _without_ticket(publication: Publication) -> Publication:
    """A service knows sessions by the names that they have from their beginning (BRK-F1)."""
    plain = plain_origin(publication.origin)
    return publication if plain == publication.origin else msgspec.structs.replace(publication, origin=plain)


def _give_up(error: StoreError, _attempt: int) -> None:
    """Without anybody who waits there is no point in asking again at once."""
    raise error
