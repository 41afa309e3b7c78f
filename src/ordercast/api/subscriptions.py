"""Keeps track of which inboxes read which topics, and which deliveries they have not finished with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from ordercast.api.errors import ConnectError, HistoryLost, SubscribeDenied
from ordercast.api.inbox import Batch, Inbox
from ordercast.api.messages import Duplicates, HandedView
from ordercast.core.ids import Topic
from ordercast.pubsub.filters import allows
from ordercast.pubsub.publications import Publication

_Futures = list["asyncio.Future[None]"]


class Subscriptions:
    """All inboxes of a client: hands each delivery to those whose topic or filter takes it in."""

    def __init__(self, taken: Callable[[Topic, int], None]) -> None:
        self._taken = taken
        self.heard: Callable[[Topic], None] = _nobody_hears
        """Called when the application has been told that something of a topic is gone."""
        self.view: HandedView = HandedView(_nobody_answers)
        self.duplicates = Duplicates()
        self.one_by_one = False
        """Messages are counted as taken one by one, and not when all that came together have been."""
        self.expected: dict[Topic, list[Sequence[Publication]]] = {}
        """Subscriptions of an earlier life that the application has not opened again, and what came for them."""
        self.expected_filters: set[str] = set()
        self._unheard: dict[Topic, HistoryLost] = {}
        """Subscriptions of an earlier life whose past is gone, which the application has not been told yet."""
        self._missed: dict[Topic, HistoryLost] = {}
        """Topics of which something is gone, and that no inbox reads yet."""
        self.inboxes: list[Inbox] = []
        self.live: set[Topic] = set()
        self.found: dict[str, set[Topic]] = {}
        """Per filter, the topics that the broker tree has told of."""
        self._routes: dict[Topic, tuple[Inbox, ...]] = {}
        self._waiting_live: dict[str, _Futures] = {}
        self._waiting_left: dict[Topic, _Futures] = {}
        self._over: Exception | None = None
        """Why nothing will be confirmed any more."""

    def open(self, pattern: str, *, raw: bool = False) -> Inbox:
        inbox = Inbox(pattern, self._done, None if raw else self.view)
        self.inboxes.append(inbox)
        self.expected_filters.discard(pattern)
        self._routes.clear()
        for topic in sorted(topic for topic in self.expected if inbox.takes(topic)):
            for entries in self.expected.pop(topic):
                self._put(entries, (inbox,))
        for topic in sorted(topic for topic in self._missed if inbox.takes(topic)):
            inbox.tell(self._missed.pop(topic), partial(self._has_heard, topic))
        return inbox

    def close(self, inbox: Inbox) -> None:
        if inbox in self.inboxes:
            self.inboxes.remove(inbox)
            self._routes.clear()
        inbox.discard()

    def deliver(self, entries: Sequence[Publication]) -> None:
        topic = entries[0].topic
        readers = self._routes.get(topic)
        if readers is None:
            readers = self._routes[topic] = tuple(inbox for inbox in self.inboxes if inbox.takes(topic))
        if not readers:
            if self._is_expected(topic):
                self.expected.setdefault(topic, []).append(entries)
            else:
                self._taken(topic, len(entries))
            return
        self._put(entries, readers)

    def _is_expected(self, topic: Topic) -> bool:
        return topic in self.expected or allows(self.expected_filters, topic)

    def _put(self, entries: Sequence[Publication], readers: tuple[Inbox, ...]) -> None:
        for part in [(entry,) for entry in entries] if self.one_by_one else (entries,):
            batch = Batch(part, len(readers), self.duplicates.without(part))
            for inbox in readers:
                inbox.put(batch)

    def _done(self, batch: Batch) -> None:
        """Inboxes read in order, so the batches of a topic are finished in order too."""
        batch.readers -= 1
        if not batch.readers:
            self._taken(batch.topic, len(batch.entries))

    def needed(self, topic: Topic) -> bool:
        return any(inbox.takes(topic) for inbox in self.inboxes)

    # Waiting for the broker tree

    async def until_live(self, topic: Topic) -> None:
        if topic in self._unheard:
            raise self._unheard.pop(topic)
        if topic not in self.live:
            await self._wait(self._waiting_live.setdefault(topic, []))

    async def until_found(self, pattern: str) -> None:
        """All topics that the filter takes in now are live, or denied to this client."""
        if pattern not in self.found:
            await self._wait(self._waiting_live.setdefault(pattern, []))
        for topic in sorted(self.found.get(pattern, ())):
            try:
                await self.until_live(topic)
            except SubscribeDenied:
                self.found[pattern].discard(topic)

    async def until_left(self, topic: Topic) -> None:
        await self._wait(self._waiting_left.setdefault(topic, []))

    async def _wait(self, futures: _Futures) -> None:
        if self._over is not None:  # Whoever comes late is told too.
            raise self._over
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        futures.append(future)
        await future

    def went_live(self, topic: Topic) -> None:
        self.live.add(topic)
        _release(self._waiting_live.pop(topic, []))

    def watching(self, pattern: str, topics: tuple[Topic, ...]) -> None:
        self.found.setdefault(pattern, set()).update(topics)
        _release(self._waiting_live.pop(pattern, []))

    def denied(self, topic: Topic, reason: str) -> None:
        self.refused(topic, SubscribeDenied(topic, reason))

    def refused(self, topic: Topic, error: Exception) -> None:
        """The subscription to the topic has ended against the reader's will."""
        self.live.discard(topic)
        if isinstance(error, HistoryLost) and self._is_expected(topic):
            self._unheard[topic] = error
        _release(self._waiting_live.pop(topic, []), error)
        for inbox in self.inboxes:
            if inbox.pattern == topic or (isinstance(error, HistoryLost) and inbox.takes(topic)):
                inbox.end(error)

    def missed(self, topic: Topic, error: HistoryLost) -> None:
        """A part of the topic is gone, of which the readers are told once; what comes from now on follows."""
        readers = [inbox for inbox in self.inboxes if inbox.takes(topic)]
        for inbox in readers:
            inbox.tell(error, partial(self._has_heard, topic))
        if not readers:
            self._missed[topic] = error

    def _has_heard(self, topic: Topic) -> None:
        self.heard(topic)

    def left(self, topic: Topic) -> None:
        self.live.discard(topic)
        _release(self._waiting_left.pop(topic, []))

    def fail(self, error: Exception | None) -> None:
        """The client has ended; without an error reading just stops."""
        self._over = error or ConnectError("the client is closed")
        for inbox in self.inboxes:
            inbox.end(error)
        for futures in (*self._waiting_live.values(), *self._waiting_left.values()):
            _release(futures, self._over)


def _release(futures: _Futures, error: Exception | None = None) -> None:
    for future in futures:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


def _nobody_hears(_: Topic) -> None:
    """Until there is a client that does."""


def _nobody_answers(*_: object, **__: object) -> None:
    """Until there is a client that does."""
