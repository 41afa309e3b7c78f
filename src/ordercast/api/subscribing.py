"""Opening and ending subscriptions: what the client machine is asked for, and what is waited for until it is so."""

from __future__ import annotations

import asyncio
import datetime as dt

from ordercast.api.bridge import Bridge
from ordercast.api.inbox import Inbox
from ordercast.api.lifetime import Lifetime
from ordercast.api.position import LATEST, Position, start_of
from ordercast.api.waiting import within
from ordercast.client.history import PastStart
from ordercast.client.machine import ClientMachine
from ordercast.core.errors import UsageError
from ordercast.core.ids import Topic
from ordercast.net.host import ProcessHost
from ordercast.pubsub.filters import is_filter


class Subscribing:
    """The subscriptions of a client. An inbox whose subscription is not confirmed is given back."""

    def __init__(self, host: ProcessHost, machine: ClientMachine, bridge: Bridge, life: Lifetime) -> None:
        self._host = host
        self._machine = machine
        self._bridge = bridge
        self._subscriptions = bridge.subscriptions
        self._life = life

    async def open(
        self, topic: str, start: str | Position | dt.datetime, timeout: float | None, *, raw: bool
    ) -> Inbox:  # fmt: skip
        past = self._past(topic, start)
        inbox = self._subscriptions.open(topic, raw=raw)
        try:
            self._ask(topic, past)
            confirmed = self._subscriptions.until_found if is_filter(topic) else self._subscriptions.until_live
            await within(confirmed(Topic(topic)), timeout, f"the subscription to {topic} is not confirmed")
            self._life.check()
        except BaseException:
            self._give_back(inbox)
            raise
        return inbox

    def _ask(self, topic: str, past: PastStart | None) -> None:
        if is_filter(topic):
            self._host.turn(self._machine.watch, topic, past)
        elif past is not None:
            self._host.turn(self._machine.subscribe_from, Topic(topic), past.start, latest_only=past.latest_only)
        else:
            self._host.turn(self._machine.subscribe, Topic(topic))

    def _past(self, topic: str, start: str | Position | dt.datetime) -> PastStart | None:
        """The place where the subscription begins; None: now, or where an earlier life of this client was."""
        begin, subscriptions = start_of(start, Topic(topic)), self._subscriptions
        if begin is None or Topic(topic) in subscriptions.expected or topic in subscriptions.expected_filters:
            return None
        if any(inbox.pattern == topic for inbox in subscriptions.inboxes) or subscriptions.needed(Topic(topic)):
            raise UsageError(f"start: this client reads {topic!r} already; read its past with client.read")
        cuts = {Topic(name): start.of(name) for name in start.topics} if isinstance(start, Position) else {}
        return PastStart(begin, cuts, start == LATEST)

    async def end(self, subscription: str | Inbox, timeout: float | None) -> None:
        """End one inbox, or all of a topic or filter, and wait until the broker tree knows."""
        pattern = subscription.pattern if isinstance(subscription, Inbox) else subscription
        inboxes = [inbox for inbox in self._subscriptions.inboxes if subscription in (inbox, inbox.pattern)]
        if not inboxes:
            raise UsageError(f"unsubscribe: there is no subscription to {pattern!r}")
        leaving = [topic for inbox in inboxes for topic in self._give_back(inbox)]
        waits = [self._subscriptions.until_left(topic) for topic in leaving]
        if waits:
            await within(asyncio.gather(*waits), timeout, f"the end of the subscription to {pattern} is not confirmed")

    def _give_back(self, inbox: Inbox) -> list[Topic]:
        """Close the inbox; the topics that nobody reads any more."""
        subscriptions = self._subscriptions
        subscriptions.close(inbox)
        self.tell_taken()  # Before the machine forgets about it.
        if self._life.ended:
            return []
        if is_filter(inbox.pattern) and all(other.pattern != inbox.pattern for other in subscriptions.inboxes):
            self._host.turn(self._machine.unwatch, inbox.pattern)
            subscriptions.found.pop(inbox.pattern, None)
        unread = self._unread(inbox)
        for topic in unread:
            subscriptions.live.discard(topic)
            self._host.turn(self._machine.unsubscribe, topic)
        return unread

    def _unread(self, inbox: Inbox) -> list[Topic]:
        """Topics that only this inbox reads."""
        wanted = [topic for topic, membership in self._machine.topics.items() if membership.wants]
        return [
            topic
            for topic in dict.fromkeys([*wanted, *self._machine.replays.topics])
            if inbox.takes(topic) and not self._subscriptions.needed(topic)
        ]

    def tell_taken(self) -> None:
        """Only what the application has read is reported to the broker tree as stable."""
        counts = self._bridge.taken()
        if counts and self._life.works:
            self._host.turn(self._take_note, counts)

    def tell_heard(self, topic: Topic) -> None:
        """The application has been told that something of the topic is gone: its next life is not told again."""
        if self._life.works:
            self._host.turn(self._machine.heard_of_gap, topic)

    def _take_note(self, counts: dict[Topic, int]) -> None:
        for topic, count in counts.items():
            self._machine.consumed(topic, count)
