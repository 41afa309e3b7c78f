"""Inboxes: where an application reads what is delivered to its subscription."""

from __future__ import annotations

import asyncio
import operator
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Self

from ordercast.api.errors import ConnectError
from ordercast.api.messages import HandedView
from ordercast.core.ids import Topic
from ordercast.pubsub.filters import matches
from ordercast.pubsub.publications import Publication


class InboxEnded(ConnectError):  # noqa: N818 - No error where reading can simply stop.
    """Nothing more will come to this inbox."""


class Batch:
    """Deliveries of one topic that came together, and how many inboxes have not finished with them."""

    __slots__ = ("entries", "readers", "shown", "topic")

    def __init__(
        self, entries: Sequence[Publication], readers: int, shown: Sequence[Publication] | None = None
    ) -> None:
        self.entries = entries
        self.shown = entries if shown is None else shown
        """Without those that repeat an idempotence id."""
        self.topic: Topic = entries[0].topic
        self.readers = readers


class ToldOnce:
    """An error between two deliveries: the reader is told once, and then reads on."""

    __slots__ = ("error", "heard")

    def __init__(self, error: Exception, heard: Callable[[], None]) -> None:
        self.error = error
        self.heard = heard
        """Called when the reader has been told."""

    def told(self) -> Exception:
        self.heard()
        return self.error


class Inbox:
    """The deliveries of one subscription, in order: `async for message in inbox`.

    A message counts as taken when the next ones are asked for. What is not taken is not stable anywhere: an application
    that stops reading stops, in the end, the publishers of its topics; it loses nothing.
    """

    def __init__(self, pattern: str, done: Callable[[Batch], None], view: HandedView | None) -> None:
        self.pattern = pattern
        """The topic or filter that it reads."""
        self._done = done
        self._view = view
        """What the application is handed of what is delivered; None: everything, as it is."""
        self._batches: deque[Batch | ToldOnce] = deque()
        self._current: Batch | None = None
        self._in_hand: list[Batch] = []
        self._page: Sequence[Publication] = ()
        """What the application is handed of the current batch."""
        self._entries: Iterator[Publication] = iter(())
        self._waiter: asyncio.Future[None] | None = None
        self._end: Exception | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Publication:
        for message in self._entries:
            return message
        while not self._turn_page():
            if isinstance(self._end, InboxEnded):
                raise StopAsyncIteration
            if self._end is not None:
                raise self._end
            await self._arrival()
        return next(self._entries)

    async def get(self, timeout: float | None = None) -> Publication:
        """The next message; a TimeoutError if none comes within so many seconds."""
        for message in self._entries:
            return message
        await self._next_page(timeout)
        return next(self._entries)

    async def get_batch(self, timeout: float | None = None) -> Sequence[Publication]:
        """All that is at hand of one topic, at least one message; a TimeoutError if none comes in time."""
        rest = list(self._entries)
        if rest:
            return rest
        await self._next_page(timeout)
        self._entries = iter(())
        return self._page

    async def batches(self) -> AsyncIterator[Sequence[Publication]]:
        """Messages at hand, several of one topic at a time: the fastest way to read."""
        try:
            while True:
                yield await self.get_batch()
        except InboxEnded:
            return

    async def hand_out(self) -> Sequence[Publication]:
        """All that is here, at least one message. It counts as taken when `taken` says so, and not before.

        For applications that make it safe first. Whoever reads this way reads in no other.
        """
        messages: list[Publication] = []
        while not messages:
            while not self._batches:
                if self._end is not None:
                    raise self._end
                await self._arrival()
            new = self._up_to_an_error()
            self._in_hand += new
            messages = [message for batch in new for message in self._shown(batch)]
        return messages

    def _up_to_an_error(self) -> list[Batch]:
        """All that is here before the next error; or that one is raised."""
        new: list[Batch] = []
        while self._batches:
            following = self._batches[0]
            if isinstance(following, ToldOnce):
                if not new:
                    self._batches.popleft()
                    raise following.told()
                break
            new.append(following)
            self._batches.popleft()
        return new

    def taken(self) -> None:
        """Everything that was handed out is safe with the application."""
        in_hand, self._in_hand = self._in_hand, []
        for batch in in_hand:
            self._done(batch)

    async def _next_page(self, timeout: float | None) -> None:
        try:
            async with asyncio.timeout(timeout):
                while not self._turn_page():
                    if self._end is not None:
                        raise self._end
                    await self._arrival()
        except TimeoutError:
            raise TimeoutError(f"no message of {self.pattern} within {timeout:g} s") from None

    @property
    def waiting(self) -> int:
        """Messages that are here and not read yet."""
        here = sum(len(batch.shown) for batch in self._batches if isinstance(batch, Batch))
        return here + self._left_of_batch()

    def _left_of_batch(self) -> int:
        return operator.length_hint(self._entries)

    def takes(self, topic: Topic) -> bool:
        return matches(self.pattern, topic)

    def _turn_page(self) -> bool:
        """Give back the batch that has been read, begin the next one; whether there is one."""
        if self._current is not None:
            finished, self._current = self._current, None
            self._done(finished)
        while self._batches:
            following = self._batches.popleft()
            if isinstance(following, ToldOnce):
                raise following.told()
            self._current = following
            self._page = self._shown(self._current)
            self._entries = iter(self._page)
            if self._page:
                return True
            self._done(self._current)
            self._current = None
        return False

    def _shown(self, batch: Batch) -> Sequence[Publication]:
        return batch.entries if self._view is None else self._view.of(batch.shown)

    async def _arrival(self) -> None:
        if self._waiter is not None:
            raise RuntimeError(f"two readers of one inbox ({self.pattern}): subscribe once for each")
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # The client's side

    def put(self, batch: Batch) -> None:
        self._batches.append(batch)
        self._wake()

    def tell(self, error: Exception, heard: Callable[[], None]) -> None:
        """Something is missing between what is here and what comes: reading raises the error there, and goes on."""
        self._batches.append(ToldOnce(error, heard))
        self._wake()

    def end(self, error: Exception | None = None) -> None:
        """No more will come: reading stops, or raises the error, after what is here."""
        if self._end is None:
            self._end = error if error is not None else InboxEnded(f"the subscription to {self.pattern} has ended")
            self._wake()

    def settle(self) -> None:
        """The reader is done with what it was given: if that is a whole batch, it counts as taken."""
        if self._current is not None and not self._left_of_batch():
            finished, self._current = self._current, None
            self._done(finished)

    def discard(self) -> None:
        """Nobody reads any more: everything here counts as taken."""
        self.end()
        self._entries = iter(())
        self._batches = deque(batch for batch in self._batches if isinstance(batch, Batch))
        while self._turn_page():
            self._entries = iter(())

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
