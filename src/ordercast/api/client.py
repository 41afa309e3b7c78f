"""A connected client, for asyncio programs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Self

from ordercast.api.bridge import Bridge, Event
from ordercast.api.errors import ConnectError, OutboxFull
from ordercast.api.inbox import Inbox
from ordercast.api.ledger import SqliteLedger
from ordercast.api.waiting import check_ack
from ordercast.client.machine import ClientMachine
from ordercast.client.membership import NO_KEY
from ordercast.client.ports import SAFE
from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.ids import Topic
from ordercast.core.messages import GUARANTEES, Guarantee
from ordercast.net.host import ProcessHost
from ordercast.pubsub.filters import check_filter, check_topic, is_filter
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector

_LEVELS: dict[str | Guarantee, Guarantee] = {
    name: GUARANTEES[name] for name in ("eventual", "fifo", "causal", "total")
}  # fmt: skip
_LEVELS.update({level: level for level in tuple(_LEVELS.values())})
_LONGEST_KEY = 255
_MOST_KEYS = 32
_HARD_LIMIT = 8
"""So many times the outbox's limit may be published without ever waiting for room."""


class Client:
    """One client of a broker tree. Made by `ordercast.connect`; all methods belong to the loop that made it."""

    def __init__(
        self, host: ProcessHost, machine: ClientMachine, bridge: Bridge, *, outbox_limit: int,
        ledger: SqliteLedger | None,
    ) -> None:  # fmt: skip
        self._host = host
        self._machine = machine
        self._bridge = bridge
        self._ledger = ledger
        self._durable = ledger is not None
        self._outbox_limit = outbox_limit
        self._max_payload = host.settings.max_payload_bytes
        self._prefixes: dict[str, str] = {}
        """Per topic published on, the beginning of its message ids."""
        self._flushing = False
        """Something was published, and the end of the turn will send it."""
        self._budget = 0
        """How many more may be published in this turn."""
        self._closed = False
        self._loop = asyncio.get_running_loop()
        bridge.tell_taken = self._tell_taken
        bridge.now_ns = lambda: host.now_ns
        self._watch = self._loop.create_task(self._watch_host())

    # Who and where

    @property
    def client_id(self) -> str:
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
    def unsettled(self) -> int:
        """Publications that this client still answers for: not echoed, or not stable."""
        return sum(len(membership.outbox) for membership in self._machine.topics.values())

    @property
    def unanswered(self) -> tuple[Publication, ...]:
        """What the last session of this data directory, which the broker tree gave up, was never told to be safe.

        Others may have got it or not, nobody knows. It is not published again: that is for the application to decide,
        which then calls `forget_unanswered`.
        """
        return self._ledger.unanswered() if self._ledger is not None else ()

    def forget_unanswered(self) -> None:
        """The application has decided what to do with `unanswered`."""
        self._check_open()
        if self._ledger is not None:
            self._host.turn(self._ledger.forget_unanswered)

    def on_event(self, callback: Callable[[Event], None]) -> None:
        """Call back when the edge is lost or found, or a pause is asked for. Nobody has to do anything then."""
        self._bridge.watchers.append(callback)

    def taken_up_to(self, topic: str) -> Vector:
        """Up to where, per publisher, the topic is not sent (again): taken already, or older than the membership."""
        membership = self._machine.topics.get(Topic(topic))
        return membership.consumed_vector() if membership is not None else {}

    def note(self, kind: str, info: Mapping[str, str]) -> None:
        """Record an event of the application in the trace, if this client keeps one."""
        if self._bridge.journal is not None:
            self._bridge.journal.event(kind, self._host.now_ns, info)

    # Publishing

    async def publish(
        self, topic: str, payload: bytes, *, key: str | None = None, keys: Iterable[str] = (),
        guarantee: str | Guarantee = "causal", ack: str = SAFE, timeout: float | None = None,
    ) -> str:  # fmt: skip
        """Publish and wait until the message has come as far as `ack` says; its id.

        `edge`: the edge broker has it. `safe`: it survives as many broker crashes as the tree is set up to survive.
        `delivered`: the application of every subscriber has taken it.
        """
        check_ack(ack)
        if self.unsettled >= self._outbox_limit:
            await self.drain()
        message_id = self.publish_soon(topic, payload, key=key, keys=keys, guarantee=guarantee)
        number = self._machine.topics[Topic(topic)].counter
        done = self._bridge.waiting_of(Topic(topic)).wait(ack, number)
        if done is not None:
            await _within(done, timeout, f"{message_id} is not {ack}")
        return message_id

    def publish_soon(
        self, topic: str, payload: bytes, *, key: str | None = None, keys: Iterable[str] = (),
        guarantee: str | Guarantee = "causal",
    ) -> str:  # fmt: skip
        """Publish without waiting; the id of the message. `drain` now and then, and `flush` in the end."""
        level = _LEVELS.get(guarantee)
        prefix = self._prefixes.get(topic)
        if level is None or prefix is None or not self._flushing or payload.__class__ is not bytes:
            level, prefix = self._begin(topic, payload, guarantee)
        if len(payload) > self._max_payload:
            raise UsageError(f"payload: {len(payload)} bytes are over the limit of {self._max_payload}")
        named = NO_KEY if key is None and not keys else _keys(key, keys)
        self._budget -= 1
        if self._budget < 0:
            raise OutboxFull(f"outbox: {self.unsettled} publications wait for the broker tree; await client.drain()")
        number = self._machine.publish(topic, payload, named, level)  # type: ignore[arg-type]
        if self._bridge.journal is not None:
            self._record(Topic(topic), number)
        return f"{prefix}{number}"

    def _begin(self, topic: str, payload: bytes, guarantee: str | Guarantee) -> tuple[Guarantee, str]:
        """What is looked at once a turn, or when something is unusual."""
        self._check_open()
        if not isinstance(payload, bytes):
            raise UsageError(f"payload: bytes are needed, not {type(payload).__name__}")
        level = _LEVELS.get(guarantee)
        if level is None:
            raise unknown_name("guarantee", str(guarantee), [name for name in _LEVELS if isinstance(name, str)])
        prefix = self._prefixes.get(topic)
        if prefix is None:
            check_topic(topic)
            prefix = self._prefixes[topic] = f"{self._machine.origin}/{topic}#"
        if not self._flushing:
            self._flushing = True
            self._budget = self._outbox_limit * _HARD_LIMIT - self.unsettled
            self._host.turn(_nothing)  # Sets the clock of this turn.
            self._loop.call_soon(self._flush_turn)
        return level, prefix

    def _flush_turn(self) -> None:
        """All that was published since the loop last came by leaves together."""
        self._flushing = False
        if self._machine.session.unsent and not self._closed and self._host.failure is None:
            self._host.turn(_nothing)

    def _record(self, topic: Topic, number: int) -> None:
        journal = self._bridge.journal
        if journal is not None:
            journal.publish(self._host.now_ns, self._machine.topics[topic].outbox[number])

    async def drain(self, timeout: float | None = None) -> None:
        """Let the loop work, and wait while the outbox is full or the broker tree asks for a pause."""
        await asyncio.sleep(0)
        self._check_open()
        if self.unsettled >= self._outbox_limit or self._bridge.closed_flows:
            await _within(self._room(), timeout, f"{self.unsettled} publications wait for the broker tree")

    async def _room(self) -> None:
        while self.unsettled >= self._outbox_limit // 2 or self._bridge.closed_flows:
            await self._bridge.change()
            self._check_open()

    async def flush(self, ack: str = SAFE, timeout: float | None = None) -> None:
        """Wait until everything published so far has come as far as `ack` says.

        Raises:
            PublishRefused: a publication was refused, and no `publish` was waiting to be told.
        """
        check_ack(ack)
        self._check_open()
        waits = []
        for topic, membership in self._machine.topics.items():
            done = self._bridge.waiting_of(topic).wait_for_all(ack, membership.counter)
            if done is not None:
                waits.append(done)
        if waits:
            await _within(asyncio.gather(*waits), timeout, f"{self.unsettled} publications are not {ack}")
        if self._bridge.refusals:
            refusal = self._bridge.refusals[0]
            self._bridge.refusals.clear()
            raise refusal

    # Subscribing

    async def subscribe(self, topic: str, *, timeout: float | None = 30.0) -> Inbox:
        """Read a topic, or all topics of a filter (`accounts.*`, `accounts.>`), from now on.

        Returns when the broker tree has confirmed it: what anybody publishes after that will be delivered here.
        """
        self._check_open()
        check_filter(topic)
        subscriptions = self._bridge.subscriptions
        inbox = subscriptions.open(topic)
        try:
            if is_filter(topic):
                self._host.turn(self._machine.watch, topic)
                confirmed = subscriptions.until_found(topic)
            else:
                self._host.turn(self._machine.subscribe, Topic(topic))
                confirmed = subscriptions.until_live(Topic(topic))
            await _within(confirmed, timeout, f"the subscription to {topic} is not confirmed")
            self._check_open()
        except BaseException:
            self._give_back(inbox)
            raise
        return inbox

    async def unsubscribe(self, subscription: str | Inbox, *, timeout: float | None = 30.0) -> None:
        """End one inbox, or all of a topic or filter; what was not read of it is dropped."""
        self._check_open()
        pattern = subscription.pattern if isinstance(subscription, Inbox) else subscription
        inboxes = [inbox for inbox in self._bridge.subscriptions.inboxes if subscription in (inbox, inbox.pattern)]
        if not inboxes:
            raise UsageError(f"unsubscribe: there is no subscription to {pattern!r}")
        leaving = [topic for inbox in inboxes for topic in self._give_back(inbox)]
        waits = [self._bridge.subscriptions.until_left(topic) for topic in leaving]
        if waits:
            await _within(asyncio.gather(*waits), timeout, f"the end of the subscription to {pattern} is not confirmed")

    def _give_back(self, inbox: Inbox) -> list[Topic]:
        """Close the inbox; the topics that nobody reads any more."""
        subscriptions = self._bridge.subscriptions
        subscriptions.close(inbox)
        self._tell_taken()  # Before the machine forgets about it.
        if self._closed or self._machine.ended:
            return []
        if is_filter(inbox.pattern) and all(other.pattern != inbox.pattern for other in subscriptions.inboxes):
            self._host.turn(self._machine.unwatch, inbox.pattern)
            subscriptions.found.pop(inbox.pattern, None)
        unread = [
            topic
            for topic, membership in self._machine.topics.items()
            if membership.wants and inbox.takes(topic) and not subscriptions.needed(topic)
        ]
        for topic in unread:
            subscriptions.live.discard(topic)
            self._host.turn(self._machine.unsubscribe, topic)
        return unread

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
        if self._closed:
            return
        try:
            if not self._machine.ended and self._host.failure is None and not (self._durable and stay):
                await self.flush(timeout=timeout)
        finally:
            await self._end(stay=stay)

    async def _end(self, *, stay: bool = True) -> None:
        if self._durable:
            for inbox in self._bridge.subscriptions.inboxes:
                inbox.settle()
            self._tell_taken()
        self._closed = True
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
            await self._host.stop("the client closes")

    async def abandon(self) -> None:
        """Disconnect without taking leave: to the broker tree it looks like a crash."""
        self._closed = True
        self._flushing = False
        self._bridge.end(None)
        self._watch.cancel()
        self._host.abandon()
        await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        elif not self._closed:
            await self._end()  # The error is what the caller has to hear of.

    def _tell_taken(self) -> None:
        """Only what the application has read is reported to the broker tree as stable."""
        counts = self._bridge.taken()
        if counts and not self._closed and not self._machine.ended and self._host.failure is None:
            self._host.turn(self._take_note, counts)

    def _take_note(self, counts: dict[Topic, int]) -> None:
        for topic, count in counts.items():
            self._machine.consumed(topic, count)

    async def _watch_host(self) -> None:
        """A client whose disk or code fails keeps nobody waiting."""
        await self._host.ended_event.wait()
        if self._host.failure is not None:
            self._bridge.end(ConnectError(f"client {self.client_id} has failed: {self._host.failure}"))

    def _check_open(self) -> None:
        if self._bridge.lost is not None:
            raise self._bridge.lost
        if self._closed:
            raise ConnectError(f"client {self.client_id} is closed")
        if self._host.failure is not None:
            raise ConnectError(f"client {self.client_id} has failed: {self._host.failure}")


def _nothing() -> None:
    """An input that only begins a turn."""


def _keys(key: str | None, keys: Iterable[str]) -> tuple[str, ...]:
    if not keys and key.__class__ is str and len(key) <= _LONGEST_KEY:
        return (key,)
    if isinstance(keys, str):
        raise UsageError(f"keys: a list of keys is needed, not {keys!r}")
    named = (*((key,) if key is not None else ()), *keys)
    for i, name in enumerate(named):
        if not isinstance(name, str):
            raise UsageError(f"keys: {name!r} is not a string")
        if len(name) > _LONGEST_KEY:
            raise UsageError(f"keys: {name[:20]!r}... has {len(name)} characters; at most {_LONGEST_KEY} are allowed")
        if name in named[:i]:
            raise UsageError(f"keys: {name!r} is named twice")
    if len(named) > _MOST_KEYS:
        raise UsageError(f"keys: {len(named)} are named; at most {_MOST_KEYS} are allowed")
    return named


async def _within(wait: Awaitable[object], timeout: float | None, unless: str) -> None:
    try:
        async with asyncio.timeout(timeout):
            await wait
    except TimeoutError:
        raise TimeoutError(f"{unless} within {timeout:g} s") from None
