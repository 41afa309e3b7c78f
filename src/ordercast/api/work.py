"""Shared work as an application sees it: an inbox whose messages one member of the group is handed each."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Self

from ordercast.api.errors import ConnectError
from ordercast.api.inbox import InboxEnded
from ordercast.api.messages import unpacked
from ordercast.api.sharing.ports import WorkClient
from ordercast.api.work_leader import LOG, LeaderTask, bury, now_ns
from ordercast.client.work.leader import WorkSettings
from ordercast.client.work.member import WorkInHand, WorkMember
from ordercast.client.work.patience import Patience
from ordercast.client.work.words import dead_topic, encode, group_topic, member_topic, orders_in, report_topic
from ordercast.pubsub.filters import check_topic
from ordercast.pubsub.publications import Publication

_FLUSH_S = 0.002


class WorkLost(ConnectError):  # noqa: N818 - What happened, not whose error it is.
    """This member was given up, because it was not heard of for too long: others are given what it held.

    What it had called done in its last moments before that may have been written down all the same; then nobody is
    given it again. So this is no reason to take back what was done: who must not act twice keeps `message.id` with it.
    """


class Work(Publication, frozen=True, array_like=True, gc=True):
    """A message that this member is to deal with: `done()` when it has, `retry()` when it could not."""

    held: WorkInHand | None = None
    inbox: TopicWork | None = None

    @property
    def attempt(self) -> int:
        """How often somebody has begun it, this time included. Some may have ended without a word."""
        assert self.held is not None
        return self.held.attempt

    @property
    def over(self) -> bool:
        """It is done, or another member has been given it."""
        assert self.held is not None
        return self.held.over

    @property
    def payloads(self) -> Sequence[bytes]:
        """All payloads of a batch, which is one piece of work; the payload, for other messages."""
        return [part.payload for part in unpacked([self])]

    def done(self) -> Awaitable[None]:
        """It is dealt with; the next one of its key may be handed out. Await it to know that it is written down.

        From then on it is never handed to anybody again. A WorkLost says that this member was given up before it knew
        that: another one is given it, unless the word of this one was written down in its last moments.
        """
        assert self.inbox is not None
        assert self.held is not None
        return self.inbox.finish(self.held)

    def retry(self, after: float = 0.0, reason: str = "") -> None:
        """It could not be done now: be handed it again in so many seconds. Others of its key wait until then.

        After `max_attempts` it goes to the dead-letter topic with the reason.
        """
        assert self.inbox is not None
        assert self.held is not None
        self.inbox.again(self.held, after, reason)

    def reply(self, payload: bytes, **options: Any) -> Any:
        """Answer a request, of which one member of the group is handed each; options as of `publish`."""
        assert self.inbox is not None
        return self.inbox.reply(self, payload, **options)


class Confirmation:
    """A future confirmation that what one report says to be done is written down; whoever wants to know awaits it."""

    __slots__ = ("_loop", "_reason", "_waiters", "_written", "number")

    def __init__(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        self.number = number
        """Of the report."""
        self._loop = loop
        self._written = False
        self._reason: Exception | None = None
        self._waiters: list[asyncio.Future[None]] = []

    def __await__(self) -> Generator[Any, None, None]:
        if not self._written and self._reason is None:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            yield from waiter
        if self._reason is not None:
            raise self._reason

    def settle(self, reason: Exception | None = None) -> None:
        """It is written down; or never will be, for that reason."""
        self._written, self._reason = reason is None, reason
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()


class WorkInbox(ABC):
    """The work of one member of a group: `async for message in inbox`, then `message.done()`."""

    def __init__(self, pattern: str, group: str) -> None:
        self.pattern = pattern
        """The topic or filter whose work it is."""
        self.group = group
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self.took_ns = 0
        """When the application last took something here."""
        self._end: Exception | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}

    @property
    @abstractmethod
    def topics(self) -> tuple[str, ...]:
        """The topics whose work it shares."""

    @property
    @abstractmethod
    def joined(self) -> bool:
        """A leader has this member in its books; of a filter, those of all its topics."""

    @property
    @abstractmethod
    def leads(self) -> bool:
        """The group is led from this process; of a filter, that of a topic at least."""

    @property
    def awaited(self) -> bool:
        """The application waits for work here."""
        return self._waiter is not None

    @abstractmethod
    async def open(self, timeout: float | None) -> Self:
        """Join the group; returns when this member has."""

    @abstractmethod
    async def close(self) -> None:
        """Leave the group: what is not done goes to others at once."""

    @abstractmethod
    async def abandon(self) -> None:
        """End without a word, as in a crash."""

    @abstractmethod
    def _next(self) -> Work | None:
        """What there is to hand over now."""

    # Reading

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Work:
        while (work := self._next()) is None:
            if isinstance(self._end, InboxEnded):
                raise StopAsyncIteration
            if self._end is not None:
                raise self._end
            await self._arrival()
        return work

    async def get(self, timeout: float | None = None) -> Work:
        """The next piece of work; a TimeoutError if none comes within so many seconds."""
        work = self._next()
        if work is not None:
            return work
        try:
            async with asyncio.timeout(timeout):
                while (work := self._next()) is None:
                    if self._end is not None:
                        raise self._end
                    await self._arrival()
                return work
        except TimeoutError:
            raise TimeoutError(f"no work of {self.pattern} within {timeout:g} s") from None

    async def _arrival(self) -> None:
        if self._waiter is not None:
            raise RuntimeError(f"two readers of one inbox ({self.pattern}): subscribe once for each")
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake_reader(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Its tasks, and the end

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        error = task.exception() if not task.cancelled() else None
        if error is not None:
            self._finish_all(error if isinstance(error, Exception) else ConnectError(str(error)))

    def _finish_all(self, error: Exception) -> None:
        """Nothing more comes, for that reason."""
        if self._end is None:
            self._end = error
        self._wake_reader()

    async def _stop_tasks(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class TopicWork(WorkInbox):
    """The work of one topic."""

    def __init__(
        self, client: WorkClient, topic: str, group: str, settings: WorkSettings, start: Any, dead: str | None
    ) -> None:
        super().__init__(topic, group)
        check_topic(group_topic(topic, group))
        self._client = client
        self._settings = settings
        self._start = start
        self._dead = dead or dead_topic(topic, group)
        self._member = WorkMember(client.session, settings, now_ns(self._loop))
        self.stirred: Callable[[TopicWork], None] | None = None
        """Called when there may be work to hand over, or when it has ended."""
        self._work: deque[Work] = deque()
        self._patience = Patience(settings.in_hand_ns)
        self._stalled = False
        self.reader: WorkInbox = self
        """The inbox at which the application waits."""
        self._unconfirmed: deque[Confirmation] = deque()
        self._flushing = False
        self._leading: LeaderTask | None = None

    async def open(self, timeout: float | None) -> Self:
        """Be a member of the group, as soon as its leader knows."""
        topic = member_topic(self.pattern, self.group, self._client.client_id)
        self._orders = await self._client.subscribe(topic, timeout=timeout)
        self._spawn(self._read_orders())
        self._spawn(self._beat())
        return self

    @property
    def member(self) -> WorkMember:
        """This member, as the group knows it."""
        return self._member

    @property
    def ended(self) -> Exception | None:
        """Why nothing more comes; None: it does."""
        return self._end

    @property
    def topics(self) -> tuple[str, ...]:
        return (self.pattern,)

    @property
    def joined(self) -> bool:
        return self._member.joined

    @property
    def leads(self) -> bool:
        return self._leading is not None and self._leading.leads

    # Reading

    def take(self) -> Work | None:
        """The next piece of work, for whoever merges it with that of other topics; None: there is none now."""
        return self._next()

    def _next(self) -> Work | None:
        """SHW-8: nothing while somebody else may have been given it."""
        if self._loop.time() * 1e9 >= self._member.safe_until_ns:
            return None
        while self._work:
            work = self._work.popleft()
            if self._current(work):
                assert work.held is not None
                self.reader.took_ns = now_ns(self._loop)
                self._patience.handed(work.held, self.reader.took_ns)
                return work
        return None

    def _current(self, work: Work) -> bool:
        """Whether it is still to be done; what has expired is done as it is."""
        if work.held is None or work.held.over:
            return False
        if work.extras is not None and 0 < work.extras.expires_ns <= time.time_ns():
            self.finish(work.held)
            return False
        return True

    def _hand_out(self) -> None:
        """Hand the member's work to the application, in the order in which it was given."""
        ready, self._member.ready = self._member.ready, []
        self._work += [self._message(held) for held in ready]
        self._wake()

    def _message(self, held: WorkInHand) -> Work:
        entry = held.entry
        return Work(
            entry.origin, entry.number, entry.topic, entry.payload, entry.guarantee, entry.keys,
            entry.published_ns, entry.extras, held, self,
        )  # fmt: skip

    def _put(self, held: WorkInHand) -> None:
        self._work.append(self._message(held))
        self._wake()

    def _wake(self) -> None:
        """There may be work for the reader."""
        if self._work:
            self._wake_reader()
            if self.stirred is not None:
                self.stirred(self)

    def _confirm(self) -> None:
        waiting, member = self._unconfirmed, self._member
        while waiting and waiting[0].number <= max(member.confirmed, member.void):
            confirmation = waiting.popleft()
            lost = confirmation.number <= member.void
            confirmation.settle(
                WorkLost(
                    f"{self.pattern}: this member was not heard of for too long; what it said last may count or not"
                )
                if lost
                else None
            )

    # What the application says

    def finish(self, held: WorkInHand) -> Confirmation:
        self._patience.given_back(held)
        number = self._member.done(held)
        if not number:
            lost = Confirmation(self._loop, 0)
            lost.settle(WorkLost(f"{held.entry.id}: another member has been given it"))
            return lost
        if self._member.ready:
            self._hand_out()
        if self._end is not None:  # Nobody will be told, and it may be handed to others.
            unheard = Confirmation(self._loop, 0)
            unheard.settle(self._end)
            return unheard
        if not self._flushing:
            self.flush_soon()
        if not self._unconfirmed or self._unconfirmed[-1].number != number:
            self._unconfirmed.append(Confirmation(self._loop, number))
        return self._unconfirmed[-1]

    def reply(self, request: Publication, payload: bytes, **options: Any) -> Awaitable[str]:
        return self._client.reply(request, payload, **options)

    def again(self, held: WorkInHand, after: float, reason: str) -> None:
        if held.over:
            return
        self._patience.given_back(held)
        if held.attempt >= self._settings.max_attempts:
            self._spawn(self._bury(held, reason or f"given up at attempt {held.attempt}"))
            return
        self._member.tried(held)
        self.flush_soon()
        self._loop.call_later(after, self._put, held)

    async def _bury(self, held: WorkInHand, reason: str) -> None:
        await bury(self._client, self._dead, held.entry, held.attempt, reason)
        self.finish(held)

    # What is said to the leader

    def flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_later(_FLUSH_S, self.flush)

    def flush(self) -> None:
        """Tell the leader what there is to tell, now."""
        self._flushing = False
        now = now_ns(self._loop)
        report = None if self._stalls(now) else self._member.report(now)
        if report is not None and self._end is None:
            self._client.publish_soon(report_topic(self.pattern, self.group), encode(report))

    def _stalls(self, now_ns: int) -> bool:
        """SHW-14: nothing is said for an application that does nothing; so its member is given up as silent."""
        waiting = bool(self._work) and not self.reader.awaited
        before, over = self._stalled, self._patience.is_over(now_ns, waiting=waiting, took_ns=self.reader.took_ns)
        self._stalled = over and not self._member.leaving
        if self._stalled and not before:
            LOG.warning(
                "group %s: the application of %s does nothing with work of %s for %d ms (in_hand_ms); others get it",
                self.group, self._client.client_id, self.pattern, self._settings.in_hand_ms,
            )  # fmt: skip
        return self._stalled

    async def _read_orders(self) -> None:
        async for batch in self._orders.batches():
            now = now_ns(self._loop)
            for message in batch:
                orders = orders_in(message.payload)
                if orders is not None:
                    self._member.orders(orders, now)
            self._hand_out()
            self._confirm()
            self.flush()

    async def _beat(self) -> None:
        """Be heard of; and look for a leader that is gone."""
        while True:
            self.flush()
            now = now_ns(self._loop)
            if self._leading is not None and self._leading.over:
                self._leading = None
                self._member.leads_no_more(now)
            if self._leading is None and self._member.wants_to_lead(now):
                self._member.tries_to_lead(now)
                self._leading = LeaderTask(
                    self._client, self.pattern, self.group, self._settings, self._start, self._dead, self._member.epoch
                )
                self._spawn(self._leading.run())
            await asyncio.sleep(self._settings.beat_ns / 4e9)

    # The end

    def _finish_all(self, error: Exception) -> None:
        super()._finish_all(error)
        for confirmation in self._unconfirmed:
            confirmation.settle(error)
        self._unconfirmed.clear()
        if self.stirred is not None:
            self.stirred(self)

    async def abandon(self) -> None:
        """End without a word, as in a crash."""
        self._finish_all(ConnectError("the client is closed"))
        await self._stop_tasks()

    async def close(self) -> None:
        """Leave the group: what is not done goes to others at once."""
        if self._end is None:
            self._member.leave(at_once=True)
            self.flush()
        self._finish_all(InboxEnded(f"the membership in {self.group} has ended"))
        if self._leading is not None:
            await self._leading.stop(self._member.member)
        await self._stop_tasks()
