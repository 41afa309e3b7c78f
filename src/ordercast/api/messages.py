"""Messages as an application is handed them, made from what the client machine delivered.

Everything delivered has its place in the order and counts as taken in its turn. Not handed over is what has expired and
what repeats an idempotence id. A publication of several parts is handed over as so many messages, all at once.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from ordercast.core.ids import Topic
from ordercast.core.wire import NOT_DECODABLE
from ordercast.pubsub.publications import Publication, PublicationId, any_extras

DEDUP_NS = 3600 * 1_000_000_000
"""Two publications with one idempotence id count once if their times of publication are no further apart."""
MOST_DEDUPS = 100_000
"""Of a topic; beyond it the ids that came first are forgotten."""
_LAST_NS = (1 << 63) - 1
_decode_parts = msgspec.msgpack.Decoder(list[bytes]).decode

Reply = Callable[..., Any]


class Part(Publication, frozen=True, array_like=True, gc=False):
    """One of the messages that `publish_many` published together."""

    part: int = 0
    """Which, from 1."""

    @property
    def id(self) -> str:
        """The id of the whole message, with the number of this part."""
        return f"{super().id}.{self.part}"


class Request(Publication, frozen=True, array_like=True, gc=True):
    """A message whose publisher waits for an answer: `await message.reply(...)`."""

    answer: Reply | None = None

    def reply(self, payload: bytes, **options: Any) -> Any:
        """Publish the answer; options as of `publish`. Only the first answer that arrives in time counts."""
        assert self.answer is not None
        return self.answer(self, payload, **options)


class HandedView:
    """Turns deliveries into what is handed over."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def of(self, entries: Sequence[Publication]) -> Sequence[Publication]:
        """The messages to hand over now; the very same sequence if nothing about it is special."""
        if not any_extras(entries):
            return entries
        now = time.time_ns()
        live = [entry for entry in entries if entry.extras is None or not 0 < entry.extras.expires_ns <= now]
        return [self._answerable(message) for message in unpacked(live)]

    def _answerable(self, message: Publication) -> Publication:
        if message.extras is None or not message.extras.reply_to:
            return message
        return Request(
            message.origin, message.number, message.topic, message.payload, message.guarantee, message.keys,
            message.published_ns, message.extras, self._reply,
        )  # fmt: skip


def unpacked(entries: Sequence[Publication]) -> Sequence[Publication]:
    """With the parts in the place of what has any; one that is not what it says is handed over as it came."""
    if not any(entry.extras is not None and entry.extras.parts for entry in entries):
        return entries
    return [message for entry in entries for message in _parts_of(entry)]


def _parts_of(entry: Publication) -> Sequence[Publication]:
    if entry.extras is None or not entry.extras.parts:
        return (entry,)
    try:
        payloads = _decode_parts(entry.payload)
    except NOT_DECODABLE:
        return (entry,)
    if len(payloads) != entry.extras.parts:
        return (entry,)
    head, tail = (entry.origin, entry.number, entry.topic), (entry.guarantee, entry.keys, entry.published_ns)
    return [Part(*head, payload, *tail, entry.extras, i) for i, payload in enumerate(payloads, start=1)]


class Dedup(NamedTuple):
    """The publication that an idempotence id on a topic belongs to, as a subscriber remembers it."""

    topic: Topic
    dedup: str
    published_ns: int
    first: PublicationId
    seen_ns: int
    """By the subscriber's own clock."""


class DedupStore(Protocol):
    """Port to where a client with a data directory keeps the ids."""

    def remember_dedups(self, known: Sequence[Dedup]) -> None: ...

    def forget_dedups(self, known: Sequence[Dedup]) -> None: ...


class Duplicates:
    """The idempotence ids that a client has been delivered: an hour's at least, if they are not too many."""

    def __init__(self, store: DedupStore | None = None, known: Iterable[Dedup] = ()) -> None:
        self._store = store
        self._of: dict[Topic, dict[str, Dedup]] = {}
        self._order: dict[Topic, deque[Dedup]] = {}
        for one in sorted(known, key=lambda known: known.seen_ns):
            self._enter(one)

    def without(self, entries: Sequence[Publication]) -> Sequence[Publication]:
        """The entries of one topic that do not repeat an earlier one; what is new is remembered."""
        if not any_extras(entries) or not any(entry.dedup for entry in entries):
            return entries
        now, new = time.time_ns(), []
        shown = []
        for entry in entries:
            if entry.dedup:
                repeated, fresh = self._look(entry, now)
                if repeated:
                    continue
                if fresh is not None:
                    new.append(fresh)
            shown.append(entry)
        self._keep(entries[0].topic, new, now)
        return shown

    def _look(self, entry: Publication, now: int) -> tuple[bool, Dedup | None]:
        """Whether it repeats another one; and what to remember, if it is the first."""
        pair = entry.origin, entry.number
        known = self._of.get(entry.topic, {}).get(entry.dedup)
        if known is not None and abs(entry.published_ns - known.published_ns) <= DEDUP_NS:
            return known.first != pair, None
        published_ns = min(max(entry.published_ns, 0), _LAST_NS)  # A stranger may say anything.
        return False, self._enter(Dedup(entry.topic, entry.dedup, published_ns, pair, now))

    def _enter(self, one: Dedup) -> Dedup:
        self._of.setdefault(one.topic, {})[one.dedup] = one
        self._order.setdefault(one.topic, deque()).append(one)
        return one

    def _keep(self, topic: Topic, new: Sequence[Dedup], now: int) -> None:
        order, known, gone = self._order.get(topic, deque()), self._of.get(topic, {}), []
        while order and (len(order) > MOST_DEDUPS or order[0].seen_ns < now - 2 * DEDUP_NS):
            oldest = order.popleft()
            if known.get(oldest.dedup) is oldest:
                del known[oldest.dedup]
                gone.append(oldest)
        if self._store is not None:
            self._store.remember_dedups(new)
            self._store.forget_dedups(gone)
