"""Leads a group from within the process of one of its members, as a session of the group's own client name."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Awaitable, Coroutine, Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, cast

from msgspec.structs import replace

from ordercast.api.errors import HistoryLost, SessionLost
from ordercast.api.inbox import Inbox
from ordercast.api.messages import Duplicates
from ordercast.api.position import Position
from ordercast.api.sharing.ports import WorkClient
from ordercast.api.sharing.records import last_written, records_of, words_in
from ordercast.client.work.leader import WorkLeader, WorkSettings
from ordercast.client.work.words import (
    GroupProgress,
    Orders,
    encode,
    group_topic,
    member_topic,
    report_in,
    report_topic,
)
from ordercast.core.errors import UsageError
from ordercast.core.ids import Topic, publisher_of
from ordercast.pubsub.cuts import closed_in, grow
from ordercast.pubsub.extras import MOST_HEADER_BYTES, MOST_HEADERS
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Received, Vector

LOG = logging.getLogger("ordercast.work")
_TURN_S = 0.003
"""How long what happens is gathered before members are told."""
_RECORD_S = 0.02
_LEAVE_S = 1.0
_MOST_WAITING = 50_000
"""Work that a leader has in memory; beyond it the topic is read later, from its archive."""
_ORDERS_BYTES = 1 << 18
_BESIDES = 200


class TopicNotKept(UsageError):  # noqa: N818 - What is so, not whose error it is.
    """The work is on a topic that is not kept, or not any more."""


def now_ns(loop: asyncio.AbstractEventLoop) -> int:
    """The loop's clock, by which members and leaders tell who has been silent."""
    return round(loop.time() * 1e9)


def leader_name(topic: str, group: str) -> str:
    """The client name under which a group is led: whoever has it last leads."""
    return f"group.{group}.{blake2b(f'{topic} {group}'.encode(), digest_size=6).hexdigest()}"


class LeaderTask:
    """From taking over to being replaced."""

    def __init__(
        self, client: WorkClient, topic: str, group: str, settings: WorkSettings,
        start: str | Position | dt.datetime, dead: str, epoch: int,
    ) -> None:  # fmt: skip
        self._member = client
        self._loop = asyncio.get_running_loop()
        self._topic, self._group, self._dead = topic, group, dead
        self._settings = settings
        self._start = start
        self._above = epoch
        self._client: WorkClient = client
        self._leader: WorkLeader | None = None
        self._stirred = asyncio.Event()
        self._stopping = False
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._failure: BaseException | None = None
        self._duplicates = Duplicates()
        self._recording = False
        self._recorded_at = 0.0
        self._state = group_topic(topic, group)
        self.over = False

    @property
    def leads(self) -> bool:
        return self._leader is not None and not self.over

    async def run(self) -> None:
        """Until another one leads, or `stop`. What is wrong with the group itself is raised."""
        try:
            await self._take_over()
            await self._lead()
        except (ConnectionError, TimeoutError):
            pass  # Replaced, or out of reach: the members look for another leader.
        finally:
            self.over = True
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self._client is not self._member:
                await _quietly(self._client.close(stay=False, timeout=1.0))

    async def stop(self, leaving: str) -> None:
        """End; but first write down that the member of this process has left, or its successor would wait for it."""
        end = self._loop.time() + _LEAVE_S
        while self.leads and self._owes(leaving) and self._loop.time() < end:
            self._stirred.set()
            await asyncio.sleep(_TURN_S)
        self._stopping = True
        self._stirred.set()

    def _owes(self, leaving: str) -> bool:
        leader = self._leader
        return leader is not None and (leaving in leader.members or leader.dirty or self._recording)

    # Taking over

    async def _take_over(self) -> None:
        """SHW-1: join the group's topic under its name, which fences whoever led; then learn what that wrote down."""
        while True:
            self._client = await self._member.spawn(leader_name(self._topic, self._group), self._above)
            epoch = _number_of(self._client.session)
            state: Inbox = await self._client.subscribe(self._state)
            delivered = words_in(await self._settled(state, epoch))
            _stop_for_a_rival(epoch, delivered)
            written, gap = await self._written()
            words = [*written, *delivered]
            self._above = max(word.epoch for word in (*words, GroupProgress(epoch, {})))
            if self._above == epoch:
                break
            await self._client.close(stay=False)
        last = last_written(words)
        gap = gap and last_written(delivered) is None
        if gap:
            LOG.warning(
                "group %s: the end of what it wrote down on %s is lost; what was done then may be done again",
                self._group, self._state,
            )  # fmt: skip
        reports: Inbox = await self._client.subscribe(report_topic(self._topic, self._group))
        leader = self._leader = WorkLeader(epoch, last, self._settings, now_ns(self._loop), gap=gap)
        if last is None:
            leader.begin_behind({} if gap and self._start == "now" else await self._beginning())
        self._spawn(self._read_state(state, epoch))
        self._spawn(self._read_reports(reports, leader))
        self._spawn(self._read_work(leader))

    async def _settled(self, state: Inbox, epoch: int) -> list[Publication]:
        """SHW-1: what came meanwhile on the group's topic, and nothing more will come of former leaders.

        That a member is granted does not mean that the session before is fenced already. But a word that everybody on
        the topic has taken was taken by that session too, which then stops; or it is fenced by now. Either way its
        last words have come before the news of that.
        """
        found: list[Publication] = []
        word = encode(GroupProgress(epoch, {}, begins=True))
        told = self._loop.create_task(self._client.publish(self._state, word, key="leader", ack="delivered"))
        try:
            while not told.done() or state.waiting:
                with suppress(TimeoutError):
                    found += await state.get_batch(timeout=_RECORD_S)
            await told
        finally:
            told.cancel()
        return found

    async def _written(self) -> tuple[list[GroupProgress], bool]:
        try:
            return await records_of(self._client, self._state)
        except HistoryLost as lost:
            if lost.earliest is None:
                raise UsageError(
                    f"group {self._group!r}: the topic {self._state} is not kept; see [[keep]] of the cluster"
                ) from None
            raise

    async def _beginning(self) -> Vector:
        """The place where a new group begins: what is before it is nobody's work."""
        if self._start == "earliest":
            return {}
        if isinstance(self._start, Position):
            return self._start.of(self._topic)
        if self._start == "now":
            try:
                return (await self._client.position(self._topic)).of(self._topic)
            except HistoryLost as lost:
                raise UsageError(f"group {self._group!r}: {lost}") from None
        raise UsageError("start: a group begins at 'now', at 'earliest' or at a Position")

    # Listening

    async def _read_state(self, state: Inbox, epoch: int) -> None:
        async for batch in state.batches():
            _stop_for_a_rival(epoch, words_in(batch))

    async def _read_reports(self, reports: Inbox, leader: WorkLeader) -> None:
        async for batch in reports.batches():
            for message in batch:
                report = report_in(message.payload)
                if report is not None:
                    leader.report(report)
            self._stirred.set()

    async def _read_work(self, leader: WorkLeader) -> None:
        """SHW-2: the topic from what is done on, and later from its archive if it is too much at once."""
        cut = leader.done.vector()
        whole_from: Position | None = None
        while True:
            try:
                if whole_from is not None:
                    await self._read_over(leader, cut, whole_from)
                    whole_from = None
                inbox: Inbox = await self._client.subscribe(
                    self._topic, start=Position({Topic(self._topic): dict(cut)}), raw=True
                )
                try:
                    await self._read_until_full(leader, inbox, cut)
                except HistoryLost:  # What became stable while it joined is gone.
                    await self._client.unsubscribe(inbox)
                    raise
            except HistoryLost as lost:
                if lost.earliest is None:
                    raise TopicNotKept(f"group {self._group!r}: {lost}") from None
                whole_from = lost.earliest
                continue
            inbox.settle()
            await asyncio.sleep(0)
            cut = self._client.taken_up_to(self._topic)
            await self._client.unsubscribe(inbox)
            while leader.waiting > _MOST_WAITING // 2:
                await asyncio.sleep(_RECORD_S)

    async def _read_over(self, leader: WorkLeader, cut: Vector, whole_from: Position) -> None:
        """SHW-13: where a part of the topic is gone for good, that is nobody's work; what is left before it is."""
        end, here = whole_from.of(self._topic), Received()
        start = Position({Topic(self._topic): dict(cut)})
        history = self._client.read([self._topic], start, whole_from, over_gaps=True)
        async for batch in history.batches(raw=True):
            here.update((entry.origin, entry.number) for entry in batch)
            self._arrive(leader, batch)
            while leader.ready and leader.waiting > _MOST_WAITING:
                await asyncio.sleep(_RECORD_S)
        gone = leader.pass_over(cut, end, here)
        LOG.warning("group %s: %d units of %s are gone: no broker has them", self._group, gone, self._topic)
        grow(cut, end)

    async def _read_until_full(self, leader: WorkLeader, inbox: Inbox, cut: Vector) -> None:
        """`cut` grows with what has arrived."""
        async for batch in inbox.batches():
            self._arrive(leader, batch)
            grow(cut, {entry.origin: entry.number for entry in batch})
            if leader.waiting > _MOST_WAITING:
                return

    def _arrive(self, leader: WorkLeader, batch: Sequence[Publication]) -> None:
        fresh = self._duplicates.without(batch)
        if len(fresh) < len(batch):
            shown = {(entry.origin, entry.number) for entry in fresh}
            leader.skip(pair for entry in batch if (pair := (entry.origin, entry.number)) not in shown)
        leader.arrive(fresh)
        self._stirred.set()

    # Speaking

    async def _lead(self) -> None:
        assert self._leader is not None
        leader, beat_s = self._leader, self._settings.beat_ns / 4e9
        while not self._stopping:
            leader.tick(now_ns(self._loop))
            for unit, reason in _emptied(leader.buried):
                self._spawn(self._bury(leader, unit, reason))
            for orders in leader.orders():
                self._tell(orders)
            self._record(leader)
            await self._client.drain()
            self._raise_failure()
            self._stirred.clear()
            try:
                async with asyncio.timeout(beat_s):
                    await self._stirred.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(_TURN_S)  # More of it comes soon.
            self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _tell(self, orders: Orders) -> None:
        to = publisher_of(cast("Any", orders.member.rpartition("/")[0]))
        for part in _in_pieces(orders):
            self._client.publish_soon(member_topic(self._topic, self._group, to), encode(part), guarantee="fifo")

    def _record(self, leader: WorkLeader) -> None:
        """SHW-7: one at a time, so that many things that are done are written down together."""
        now = self._loop.time()
        if self._recording or now - self._recorded_at < _RECORD_S:
            if leader.dirty and not self._recording:
                self._loop.call_later(_RECORD_S, self._stirred.set)
            return
        if leader.dirty:
            leader.fold(closed_in(self._client.taken_up_to(self._topic)))
        progress = leader.progress()
        if progress is not None:
            self._recording, self._recorded_at = True, now
            self._spawn(self._write_down(leader, progress, leader.version))

    async def _write_down(self, leader: WorkLeader, progress: GroupProgress, version: int) -> None:
        try:
            await self._client.publish(self._state, encode(progress), key="progress")
        finally:
            self._recording = False
        leader.recorded(version)
        self._stirred.set()

    async def _bury(self, leader: WorkLeader, unit: Any, reason: str) -> None:
        await bury(self._client, self._dead, unit.entry, unit.attempts, reason)
        leader.bury(unit)
        self._stirred.set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        error = task.exception() if not task.cancelled() else None
        if error is not None and self._failure is None:
            self._failure = error
            self._stirred.set()


def _stop_for_a_rival(epoch: int, words: Iterable[GroupProgress]) -> None:
    """SHW-1: who has taken a word of a later leader, if only that it begins, says nothing more itself."""
    later = max((word.epoch for word in words), default=0)
    if later > epoch:
        raise SessionLost(f"a leader with the later epoch {later} has the group")


async def bury(client: WorkClient, topic: str, entry: Publication, attempt: int, reason: str) -> None:
    """Put a message that nobody could deal with where somebody may look at it, with the reason in its headers."""
    why = {
        b"reason": reason.encode()[:1000], b"message": entry.id.encode()[:600], b"topic": entry.topic.encode(),
        b"attempts": b"%d" % attempt,
    }  # fmt: skip
    options: dict[str, Any] = {"keys": [key for key in entry.keys if key], "dedup": entry.id[-255:]}
    headers = {**entry.headers, **why}
    fits = len(headers) <= MOST_HEADERS and sum(map(len, (*headers, *headers.values()))) <= MOST_HEADER_BYTES
    await client.publish(topic, entry.payload, headers=headers if fits else why, **options)


def _in_pieces(orders: Orders) -> Sequence[Orders]:
    """Orders that fit a packet each."""
    size = sum(len(one.entry.payload) + _BESIDES for one in orders.assigned)
    if size <= _ORDERS_BYTES or len(orders.assigned) == 1:
        return (orders,)
    half = len(orders.assigned) // 2
    first, second = orders.assigned[:half], orders.assigned[half:]
    return (*_in_pieces(replace(orders, assigned=first)), *_in_pieces(replace(orders, assigned=second)))


def _emptied(things: list[Any]) -> list[Any]:
    found = list(things)
    things.clear()
    return found


def _number_of(session: str) -> int:
    """Of a session whose client name has none of its own: the later, the higher."""
    return int(session.rpartition("~")[2])


async def _quietly(ending: Awaitable[None]) -> None:
    """The end of a client that may have been replaced."""
    try:
        await ending
    except (ConnectionError, TimeoutError):
        return
