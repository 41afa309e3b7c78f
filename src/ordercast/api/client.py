"""A connected client, for asyncio programs."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, overload

from ordercast.api.bridge import Bridge, ConnectionEvent
from ordercast.api.errors import ConnectError
from ordercast.api.history import History
from ordercast.api.inbox import Inbox
from ordercast.api.ledger import SqliteLedger
from ordercast.api.messages import HandedView
from ordercast.api.outbox import OutboxRoom
from ordercast.api.position import Position
from ordercast.api.publishing import PublishingClient
from ordercast.api.reading import Reading, checked
from ordercast.api.requests import Requests
from ordercast.api.sharing.filter_work import FilterWork
from ordercast.api.sharing.looking import KeptLooks, Looker
from ordercast.api.subscribing import Subscribing
from ordercast.api.work import TopicWork, WorkInbox
from ordercast.client.machine import ClientMachine
from ordercast.client.work.leader import WorkSettings
from ordercast.core.ids import Topic
from ordercast.core.messages import Guarantee
from ordercast.net.host import ProcessHost
from ordercast.pubsub.closed import Closed
from ordercast.pubsub.filters import check_filter, is_filter
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector


class Client(PublishingClient):
    """One client of a broker tree. Made by `ordercast.connect`; all methods belong to the loop that made it."""

    def __init__(
        self, host: ProcessHost, machine: ClientMachine, bridge: Bridge, *, room: OutboxRoom,
        ledger: SqliteLedger | None,
    ) -> None:  # fmt: skip
        super().__init__(host, machine, bridge, room)
        self._ledger = ledger
        self._durable = ledger is not None
        self._subscribing = Subscribing(host, machine, bridge, self._life)
        self._reading = Reading(host, machine, bridge, self._life)
        self._requests = Requests(self)
        self._looks = bridge.looks = KeptLooks(host, machine, self._life)
        self._groups: list[WorkInbox] = []
        self.make_other: Callable[[str, int], Awaitable[Client]] = _nobody
        bridge.subscriptions.view = HandedView(self._requests.reply)
        bridge.tell_taken = self._subscribing.tell_taken
        bridge.subscriptions.heard = self._subscribing.tell_heard
        bridge.now_ns = lambda: host.now_ns
        self._watch = self._loop.create_task(self._watch_host())

    # Who and where

    @property
    def client_id(self) -> str:
        """The name by which others know it as `publisher`."""
        return self._machine.name

    @property
    def session(self) -> str:
        """Client id and session, as they begin the ids of its messages."""
        return self._machine.origin

    @property
    def broker(self) -> str | None:
        """The edge broker of the moment; None while another one is sought."""
        return self._bridge.broker

    @property
    def ended(self) -> bool:
        """It is closed, or its session was given up: only a new connection goes on."""
        return self._life.ended

    @property
    def unanswered(self) -> tuple[Publication, ...]:
        """Publications of the data directory's last session, given up by the broker tree, that were never called safe.

        Others may have got it or not, nobody knows. It is not published again: that is for the application to decide,
        which then calls `forget_unanswered`.
        """
        return self._ledger.unanswered() if self._ledger is not None else ()

    def forget_unanswered(self) -> None:
        """The application has decided what to do with `unanswered`."""
        self._life.check()
        if self._ledger is not None:
            self._host.turn(self._ledger.forget_unanswered)

    def on_event(self, callback: Callable[[ConnectionEvent], None]) -> None:
        """Call back when the edge is lost or found, or a pause is asked for. Nobody has to do anything then."""
        self._bridge.watchers.append(callback)

    def note(self, kind: str, info: Mapping[str, str]) -> None:
        """Record an event of the application in the trace, if this client keeps one."""
        if self._bridge.journal is not None:
            self._bridge.journal.event(kind, self._host.now_ns, info)

    # Requests

    async def request(
        self, topic: str, payload: bytes, timeout: float | None = 30.0, *, key: str | None = None,
        keys: Iterable[str] = (), guarantee: str | Guarantee = "causal",
        headers: Mapping[bytes, bytes] | None = None, expires_after: float | None = None, dedup: str = "",
    ) -> Publication:  # fmt: skip
        """Publish a request and wait for the first answer, which somebody gives by `message.reply(...)`.

        A TimeoutError says that none came in time: the request may have been acted on or not. Answers come on the
        topic `replies.CLIENT_ID`, which this client reads from its first request on.
        """
        options = {"key": key, "keys": keys, "guarantee": guarantee, "headers": headers}
        return await self._requests.send(
            topic, payload, timeout, {**options, "expires_after": expires_after, "dedup": dedup}
        )

    async def reply(self, request: Publication, payload: bytes, **options: Any) -> str:
        """Answer a request, as `request.reply` does; options as of `publish`."""
        return await self._requests.reply(request, payload, **options)

    def answer_by(self, reply: Callable[..., Any]) -> None:
        """Set the function behind `message.reply`, for inboxes that are opened from now on."""
        self._bridge.subscriptions.view = HandedView(reply)

    # Subscribing

    @overload
    async def subscribe(
        self, topic: str, *, start: str | Position | dt.datetime = ..., timeout: float | None = ..., group: None = ...,
        raw: bool = ...,
    ) -> Inbox: ...  # fmt: skip

    @overload
    async def subscribe(
        self, topic: str, *, start: str | Position | dt.datetime = ..., timeout: float | None = ..., group: str,
        work: WorkSettings | None = ..., dead_letter: str | None = ...,
    ) -> WorkInbox: ...  # fmt: skip

    async def subscribe(
        self, topic: str, *, start: str | Position | dt.datetime = "now", timeout: float | None = 30.0,
        group: str | None = None, work: WorkSettings | None = None, dead_letter: str | None = None, raw: bool = False,
    ) -> Inbox | WorkInbox:  # fmt: skip
        """Read a topic, or all topics of a filter (`accounts.*`, `accounts.>`), from now on.

        Returns when the broker tree has confirmed it: what anybody publishes after that will be delivered here.

        Args:
            topic: a topic or a filter.
            start: of a kept topic the past can be had first: `earliest`; behind a position; what was kept at a
                `datetime` or later; or `last-of-each-key`. What is live follows it without a gap, and nothing comes
                twice. Of a filter it is that of all its topics that are kept, also of those that nobody subscribes to
                now. A client with a data directory that subscribed before goes on from where it was instead.
            timeout: seconds to wait for the confirmation.
            group: share the work: each message of the topic, which must be kept, is handed to one member of the group,
                those of one key in order and one at a time. Then `start` says where a new group begins. Of a filter it
                is the work of all kept topics that it takes in, from its beginning for a topic that begins later;
                a key is one of a topic.
            work: how the group works; the same for all its members.
            dead_letter: the topic of what the group gives up; `dead.TOPIC.GROUP` if none is named.
            raw: hand over everything that is delivered, also what has expired, repeats an id, or is a whole batch.

        Raises:
            HistoryLost: the topic is not kept, or a part of what was asked for is not there any more.
        """
        self._life.check()
        check_filter(topic)
        if group is not None:
            kind = FilterWork if is_filter(topic) else TopicWork
            return await self._share(kind(self, topic, group, work or WorkSettings(), start, dead_letter), timeout)
        return await self._subscribing.open(topic, start, timeout, raw=raw)

    async def unsubscribe(self, subscription: str | Inbox | WorkInbox, *, timeout: float | None = 30.0) -> None:
        """End one inbox, or all of a topic or filter; what was not read of it is dropped.

        Of shared work nothing is dropped: it goes to the other members of the group.
        """
        self._life.check()
        if isinstance(subscription, WorkInbox):
            self._groups.remove(subscription)
            await subscription.close()
        else:
            await self._subscribing.end(subscription, timeout)

    async def _share(self, inbox: WorkInbox, timeout: float | None) -> WorkInbox:
        self._groups.append(inbox)
        return await inbox.open(timeout)

    def look(self, pattern: str, looker: Looker) -> None:
        """Tell somebody of the kept topics of a filter, now and later; it subscribes to none of them."""
        self._looks.begin(pattern, looker)

    def look_no_more(self, pattern: str, looker: Looker) -> None:
        self._looks.end(pattern, looker)

    def spawn(self, name: str, above: int) -> Awaitable[Client]:
        """Another client with the same options under another name, in a session whose number is above this one."""
        return self.make_other(name, above)

    # Reading the past

    def read(
        self, topics: str | Iterable[str], start: str | Position | dt.datetime = "earliest",
        end: Position | None = None, *, over_gaps: bool = False,
    ) -> History:  # fmt: skip
        """The past of kept topics between two positions, without a subscription: `async for message in client.read(t)`.

        Without an `end` up to what is kept now: what every subscriber that is there has taken; of several topics up to
        a `position_across` them. `History.end` is the position behind it, from which a later read or subscription goes
        on. Brokers remember nothing about a reader, and nobody waits for one. With `over_gaps` all that is left is
        read, also what lies before a part that is gone for good; `History.gaps` says afterwards that there was one.
        """
        self._life.check()
        named = checked([topics] if isinstance(topics, str) else topics)
        return self._reading.history(named, start, end, over_gaps=over_gaps)

    def taken_up_to(self, topic: str) -> Vector:
        """Up to where, per publisher, the topic is not sent (again): taken already, or older than the membership."""
        return self._machine.taken_up_to(Topic(topic))

    def closed_sessions(self) -> Closed:
        """Sessions that have ended for good, in intervals of tickets; every member has taken all of them (BRK-F7)."""
        return self._machine.session.closed.summary()

    async def position(self, *topics: str, timeout: float | None = 30.0) -> Position:
        """How far this client has taken the topics it subscribes to; of kept topics it does not, where they end now.

        Each for itself: `position_across` is closed across topics.
        """
        return await self._reading.position(topics, timeout)

    async def position_across(self, topics: Iterable[str], *, timeout: float | None = 30.0) -> Position:
        """A position that is closed across topics, all of it kept already: the end of a consistent read.

        If somebody had been delivered a message, or told that its own is safe, before it published another one on any
        of these topics, and that other one is in the position, so is the first. Whatever this client was delivered, or
        told to be safe, before it asks is in it too. A filter stands for all kept topics that it takes in and that this
        client may read, also those that have begun a moment ago: it needs no subscription, and leaves none behind.

        Raises:
            TimeoutError: the tree did not stand still, a broker is away, or one that keeps a topic is behind; it says
                which.
            HistoryLost: one of the topics is not kept.
        """
        return await self._reading.position_across(topics, timeout=timeout)

    # The end

    async def close(self, *, stay: bool = True, timeout: float | None = 10.0) -> None:
        """Wait until what was published is safe, and disconnect.

        A client with a data directory does not wait: it keeps its subscriptions and what is not safe yet, and goes on
        from here when it connects again. One without takes leave of the broker tree, so that nobody waits for it.

        Args:
            stay: what a trace of this client says about its end. It stayed to the end of its run, and is owed
                everything that was published before; or, with False, it gave up its subscriptions of its own accord,
                and what was on its way to it may be missing. With False, subscriptions in a data directory end too.
            timeout: seconds to wait for what was published.
        """
        if self._life.closed:
            return
        await self._leave_groups()
        try:
            if not self._machine.ended and self._host.failure is None and not (self._durable and stay):
                await self.flush(timeout=timeout)
        finally:
            await self._end(stay=stay)

    async def _leave_groups(self) -> None:
        groups, self._groups = self._groups, []
        for inbox in groups:
            await inbox.close()

    async def _end(self, *, stay: bool = True) -> None:
        await self._leave_groups()
        if self._durable:
            for inbox in self._bridge.subscriptions.inboxes:
                inbox.settle()
            self._subscribing.tell_taken()
        self._life.close()
        self._flushing = False
        try:
            if not self._machine.ended and self._host.failure is None:
                if self._durable and stay:
                    self._host.turn(self._machine.stop)
                else:
                    self._host.turn(self._machine.leave, stays=stay)
        finally:
            self._bridge.end(self._bridge.lost)
            self._watch.cancel()
            await self._requests.close()
            await self._host.stop("the client closes")

    async def abandon(self) -> None:
        """Disconnect without taking leave: to the broker tree it looks like a crash."""
        for inbox in self._groups:
            await inbox.abandon()
        self._life.close()
        self._flushing = False
        self._bridge.end(None)
        self._watch.cancel()
        self._host.abandon()
        await self._requests.close()
        await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        elif not self._life.closed:
            await self._end()  # The error is what the caller has to hear of.

    async def _watch_host(self) -> None:
        """A client whose disk or code fails keeps nobody waiting."""
        await self._host.ended_event.wait()
        if self._host.failure is not None:
            self._bridge.end(ConnectError(f"client {self.client_id} has failed: {self._host.failure}"))


async def _nobody(name: str, above: int) -> Client:
    raise ConnectError(f"client {name} cannot be made here, above {above}")
