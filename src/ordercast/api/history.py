"""Reading kept topics between two positions, without a subscription."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING

from ordercast.api.errors import HistoryLost, SubscribeDenied
from ordercast.api.messages import unpacked
from ordercast.api.position import Position, start_of
from ordercast.client.history import Start
from ordercast.core.errors import UsageError
from ordercast.core.ids import Topic
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector

if TYPE_CHECKING:
    from ordercast.client.machine import ClientMachine
    from ordercast.net.host import ProcessHost


class PendingRead:
    """One read of one topic, as the client machine tells of it."""

    def __init__(self) -> None:
        self.batches: deque[Sequence[Publication]] = deque()
        self.bounds: tuple[Vector, Vector] | None = None
        self.end: tuple[str, Vector] | None = None
        self.error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def stir(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def change(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter
        self._waiter = None


class History:
    """The publications of kept topics between two cuts: `async for message in client.read(...)`.

    One topic after the other, each in an order that is legal for all its guarantees. `end` is the position behind the
    last of them: whoever reads on from it misses nothing and gets nothing twice. Of several topics it is closed across
    them: no answer on one is in it without its question on another (ARC-C1).
    """

    def __init__(
        self, host: ProcessHost, machine: ClientMachine, reads: dict[int, PendingRead], topics: Sequence[str],
        start: str | Position | dt.datetime, end: Position | None,
        across: Callable[[Sequence[Topic]], Awaitable[Position]], *, over_gaps: bool = False,
    ) -> None:  # fmt: skip
        self._host = host
        self._machine = machine
        self._reads = reads
        self._topics = [Topic(topic) for topic in topics]
        self._start = start
        self._until = end
        self._across = across
        self._over_gaps = over_gaps
        self._cuts: dict[Topic, Vector] = {}
        self.gaps = False
        """Some of what was read over is gone for good; complete when the reading is (`over_gaps`)."""

    @property
    def end(self) -> Position:
        """Behind everything that was read; complete when the reading is."""
        return Position(self._cuts)

    async def __aiter__(self) -> AsyncIterator[Publication]:
        async for batch in self.batches():
            for message in batch:
                yield message

    async def batches(self, *, raw: bool = False) -> AsyncGenerator[Sequence[Publication]]:
        """Many messages of one topic at a time: the fastest way to read. `raw`: what is a whole batch stays one."""
        starts = {topic: start_of(self._start, topic) for topic in self._topics}
        if None in starts.values():
            raise UsageError("start: nothing lies between now and now; 'earliest', a Position or a datetime")
        if self._until is None and len(self._topics) > 1:
            self._until = await self._across(self._topics)
        for topic, start in starts.items():
            assert start is not None
            async with aclosing(self._read(topic, start, raw=raw)) as batches:  # Who stops stops it at the copy too.
                async for batch in batches:
                    yield batch

    async def last(self, count: int, *, most_bytes: int | None = None) -> list[Publication]:
        """The last `count` messages of all topics read, topic by topic; a UsageError if those of one take too much."""
        return [message for topic in self._topics for message in await self._last(topic, count, most_bytes)]

    async def _last(self, topic: Topic, count: int, most_bytes: int | None) -> Iterable[Publication]:
        while True:
            try:
                async with aclosing(self._read(topic, Start("last", {}, count))) as batches:
                    return await newest_of(batches, count, most_bytes)
            except HistoryLost as lost:
                if lost.earliest is None:
                    raise  # Else: cleaned while it was read, and nobody was handed any of it: others are the last now.

    async def bounds(self, timeout: float | None = 30.0) -> tuple[Position, Position]:
        """The positions between which it lies, without reading what does: where `earliest` or a time is, and the end.

        Each topic for itself, also where several are read: `position_across` is the end of them all.
        """
        found: dict[Topic, tuple[Vector, Vector]] = {}
        for topic in self._topics:
            start = start_of(self._start, topic)
            if start is None:
                raise UsageError("start: nothing lies between now and now; 'earliest', a Position or a datetime")
            try:
                async with asyncio.timeout(timeout):
                    found[topic] = await self._bounds(topic, start)
            except TimeoutError:
                raise TimeoutError(f"no copy of {topic} answers within {timeout:g} s") from None
        return Position({t: cuts[0] for t, cuts in found.items()}), Position({t: cuts[1] for t, cuts in found.items()})

    async def _bounds(self, topic: Topic, start: Start) -> tuple[Vector, Vector]:
        with self._reading(topic, start) as (_, pending):
            while pending.bounds is None:
                if pending.error is not None:
                    raise pending.error
                if pending.end is not None:
                    self._check(topic, *pending.end)
                    return {}, {}
                await pending.change()
            return pending.bounds

    async def _read(self, topic: Topic, start: Start, *, raw: bool = False) -> AsyncGenerator[Sequence[Publication]]:
        with self._reading(topic, start) as (number, pending):
            while True:
                while pending.batches:
                    batch = pending.batches.popleft()
                    yield batch if raw else unpacked(batch)
                    self._host.turn(self._machine.read_taken, number, len(batch))
                if pending.error is not None:
                    raise pending.error
                if pending.end is not None:
                    break
                await pending.change()
            self._check(topic, *pending.end)
            self._cuts[topic] = pending.bounds[1] if pending.bounds is not None else {}

    @contextmanager
    def _reading(self, topic: Topic, start: Start) -> Iterator[tuple[int, PendingRead]]:
        until = self._until.of(topic) if self._until is not None else None
        number = self._host.turn(self._machine.read, topic, start, until, over=self._over_gaps)
        pending = self._reads[number] = PendingRead()
        try:
            yield number, pending
        finally:
            del self._reads[number]
            if pending.end is None and self._host.failure is None and not self._machine.ended:
                self._host.turn(self._machine.end_read, number)

    def _check(self, topic: Topic, code: str, cut: Vector) -> None:
        if code == "gaps":
            self.gaps = True
        elif code:
            raise failure(topic, code, cut)


def failure(topic: Topic, code: str, cut: Vector) -> Exception:
    """The error that an application gets when the past cannot be had."""
    if code == "denied":
        return SubscribeDenied(topic, "no right to subscribe to it, and so none to its history")
    if code == "unkept":
        return HistoryLost(topic, "is not kept: see [[keep]] of the cluster, or `ordercast keep`", None)
    why = "was cleaned up to a later position" if code == "cleaned" else "has lost a part that no broker has any more"
    return HistoryLost(topic, f"{why}; start='earliest' begins behind it", Position({topic: cut}))


async def newest_of(
    batches: AsyncIterator[Sequence[Publication]], count: int, most_bytes: int | None = None
) -> deque[Publication]:
    """The last so many of what is read; a UsageError if they take more memory than that."""
    newest: deque[Publication] = deque()
    size = 0
    async for batch in batches:
        newest.extend(batch)
        size += sum([message.weight for message in batch])
        while len(newest) > count:
            size -= newest.popleft().weight
        if most_bytes is not None and size > most_bytes:
            raise UsageError(f"last: {count} messages take more than {most_bytes} bytes (slow_consumer_bytes); fewer?")
    return newest
