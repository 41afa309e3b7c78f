"""Shared work over a filter: one inbox for the work of all kept topics that it takes in, also of those to come."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol, Self

from ordercast.api.errors import ConnectError
from ordercast.api.inbox import InboxEnded
from ordercast.api.position import Position
from ordercast.api.sharing.beginning import PositionedClient, beginning_of, check_start
from ordercast.api.sharing.looking import Looker
from ordercast.api.waiting import within
from ordercast.api.work import TopicWork, Work, WorkInbox
from ordercast.api.work_leader import TopicNotKept
from ordercast.client.work.leader import WorkSettings
from ordercast.client.work.window import SharedWindow
from ordercast.client.work.words import beginning_topic, is_groups_own
from ordercast.core.errors import UsageError
from ordercast.core.ids import Topic
from ordercast.pubsub.filters import check_topic

_AT_ONCE = 16
"""Groups that are joined at a time."""


class FilterClient(PositionedClient, Protocol):
    """Port to a client that tells of the kept topics of a filter."""

    def look(self, pattern: str, looker: Looker) -> None: ...

    def look_no_more(self, pattern: str, looker: Looker) -> None: ...


class FilterWork(WorkInbox):
    """The work of all kept topics of a filter. Of each topic it is a member of the group of that name."""

    def __init__(
        self, client: FilterClient, pattern: str, group: str, settings: WorkSettings, start: Any, dead: str | None
    ) -> None:
        super().__init__(pattern, group)
        check_start(start)
        check_topic(beginning_topic(pattern, group))
        self._client = client
        self._settings = settings
        self._start = start
        self._dead = dead
        self._answer: asyncio.Future[None] = self._loop.create_future()
        self._named: dict[Topic, None] = {}
        """Topics that were found, and are not joined yet."""
        self._begun: Position | None = None
        self._parts: dict[Topic, TopicWork] = {}
        self._ready: dict[TopicWork, None] = {}
        """Those that may have something to hand over, whose turn is next first."""
        self._window = SharedWindow(settings.window)
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def open(self, timeout: float | None) -> Self:
        """Be a member of the groups of all topics that are there; of those to come as soon as they begin."""
        try:
            await within(self._open(), timeout, f"the group {self.group} on {self.pattern} has not begun")
        except BaseException:
            await self.close()
            raise
        return self

    async def _open(self) -> None:
        self._client.look(self.pattern, self)
        await self._answer
        self._begun = await beginning_of(self._client, self.pattern, self.group, self._start)
        named, self._named = list(self._named), {}
        await asyncio.gather(*map(self._join, named))
        self._join_named()
        self._spawn(self._share_window())

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted(self._parts))

    @property
    def joined(self) -> bool:
        return all(part.joined for part in self._parts.values())

    @property
    def leads(self) -> bool:
        return any(part.leads for part in self._parts.values())

    # Topics

    def found(self, topics: Sequence[Topic], why_not: str) -> None:
        """ARC-K1: these are kept and belong to the filter; what groups write themselves is nobody's work."""
        if why_not:
            self._refuse(UsageError(f"group {self.group!r} on {self.pattern}: {why_not}"))
        for topic in topics:
            if topic not in self._parts and not is_groups_own(topic, self.group, self._dead):
                self._named[topic] = None
        if not self._answer.done():
            self._answer.set_result(None)
        self._join_named()

    def _join_named(self) -> None:
        if self._begun is not None and self._end is None:
            named, self._named = self._named, {}
            for topic in named:
                self._spawn(self._join(topic))

    def lost(self, error: Exception) -> None:
        self._refuse(error)
        self._finish_all(error)

    def _refuse(self, error: Exception) -> None:
        """Whoever waits for the first answer is told that there is none."""
        if not self._answer.done():
            self._answer.set_exception(error)
            self._answer.exception()  # Nobody may wait for it any more.

    async def _join(self, topic: Topic) -> None:
        if topic in self._parts:
            return
        part = TopicWork(self._client, topic, self.group, self._settings, self._begun, self._dead)
        part.stirred, part.reader = self._stirred, self
        self._parts[topic] = part
        self._window.add(topic, part.member)
        async with self._gate:
            await part.open(None)

    async def _leave(self, topic: Topic) -> None:
        """The topic is not kept any more: the others go on."""
        self._window.remove(topic)
        part = self._parts.pop(topic)
        self._ready.pop(part, None)
        await part.close()

    # Reading

    def _stirred(self, part: TopicWork) -> None:
        """A topic may have work to hand over, or has come to its end."""
        if part.ended is None:
            self._ready.setdefault(part)
            if self._window.grow(part.member):
                part.flush_soon()
            self._wake_reader()
        elif self._end is None and self._parts.get(Topic(part.pattern)) is part:
            if isinstance(part.ended, TopicNotKept):
                self._spawn(self._leave(Topic(part.pattern)))
            else:
                self._finish_all(part.ended)

    def _next(self) -> Work | None:
        """The topics take turns."""
        while self._ready:
            part = next(iter(self._ready))
            del self._ready[part]
            work = part.take()
            if work is not None:
                self._ready[part] = None
                return work
        return None

    async def _share_window(self) -> None:
        """SHW-9: now and then room goes from topics that have nothing to those that have more."""
        while True:
            await asyncio.sleep(self._settings.beat_ns / 4e9)
            for topic in self._window.settle():
                self._parts[Topic(topic)].flush_soon()

    # The end

    async def close(self) -> None:
        """Leave the groups of all topics: what is not done goes to others at once."""
        await self._end_all(InboxEnded(f"the membership in {self.group} has ended"))
        await asyncio.gather(*(part.close() for part in self._parts.values()))

    async def abandon(self) -> None:
        """End without a word, as in a crash."""
        await self._end_all(ConnectError("the client is closed"))
        await asyncio.gather(*(part.abandon() for part in self._parts.values()))

    async def _end_all(self, error: Exception) -> None:
        self._finish_all(error)
        self._client.look_no_more(self.pattern, self)
        self._refuse(error)
        await self._stop_tasks()
