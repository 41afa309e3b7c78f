"""A SUB of a client of NATS: reads an inbox of the client of the broker, and writes what comes as MSG or HMSG."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from ordercast.api.client import Client
from ordercast.api.errors import HistoryLost, SessionLost
from ordercast.api.inbox import Inbox
from ordercast.doors.nats import wire
from ordercast.doors.nats.naming import Questions, answer_subject, pattern_of, takes
from ordercast.doors.nats.publishing import NatsPublisher, facts_of
from ordercast.doors.nats.queues import QueueGroups, drawn, group_topic
from ordercast.pubsub.publications import Publication, any_extras


class SubscriptionOwner(Protocol):
    """Port to the connection that a subscription belongs to."""

    said: wire.Connect
    questions: Questions
    spares_headers: bool
    """Messages that say nothing unusual of themselves come without headers."""

    queues: QueueGroups

    def sharers(self, subject: str, queue: str) -> list[str]:
        """The subscriptions of this client in the same group."""

    async def send(self, data: bytes) -> None:
        """Write, and wait for room; a ConnectionAbortedError if there will be none."""

    def finished(self, sid: str) -> None:
        """The subscription has ended."""

    def refuse(self, says: str, detail: str) -> None:
        """End the connection, and say why."""


class NatsSubscription:
    """One SUB, from its confirmation to UNSUB or the end of its connection."""

    def __init__(self, sub: wire.Sub, client: Client, publisher: NatsPublisher, reader: SubscriptionOwner) -> None:
        self._publisher = publisher
        self.sid = sub.sid
        self.subject = sub.subject
        self._pattern = pattern_of(sub.subject)
        self.queue = sub.queue
        self._client = client
        self._reader = reader
        self._group = group_topic(sub.subject, sub.queue) if sub.queue else ""
        self._inbox: Inbox | None = None
        self._membership: Inbox | None = None
        self._reading: asyncio.Task[None] | None = None
        self._sent = 0
        self._stop_after = 0

    def takes(self, subject: str) -> bool:
        return takes(self.subject, subject)

    async def begin(self) -> None:
        """Subscribe; returns when the tree of brokers has confirmed it."""
        self._inbox = await self._client.subscribe(self._pattern)
        if self._group:  # Only who gets all messages of the subject may be drawn for one.
            self._membership = await self._client.subscribe(self._group)
        self._reading = asyncio.get_running_loop().create_task(self._read(self._inbox))

    def stop_after(self, messages: int) -> None:
        """UNSUB: at once, or after so many messages in all."""
        self._stop_after = messages
        if not messages or self._sent >= messages:
            self.end()

    def end(self) -> None:
        """The client no longer wants it: leave the topic."""
        self.stop_reading()
        self._reader.finished(self.sid)
        for inbox in filter(None, (self._membership, self._inbox)):
            leaving = asyncio.get_running_loop().create_task(self._leave(inbox))
            leaving.add_done_callback(_looked_at)

    def stop_reading(self) -> None:
        if self._reading is not None and self._reading is not asyncio.current_task():
            self._reading.cancel()

    async def _leave(self, inbox: Inbox) -> None:
        with suppress(ConnectionError, TimeoutError):
            await self._client.unsubscribe(inbox)

    async def _read(self, inbox: Inbox) -> None:
        try:
            async for batch in inbox.batches():
                wanted = self._wanted(batch)
                if wanted:
                    await self._reader.send(self._encoded(wanted))
                if self._stop_after and self._sent >= self._stop_after:
                    self.end()
                    return
        except ConnectionAbortedError:
            return
        except (SessionLost, HistoryLost) as error:
            self._reader.refuse("Subscription Lost", str(error))

    def _wanted(self, batch: Sequence[Publication]) -> Sequence[Publication]:
        """Messages of a batch that this subscription takes, and no more than was asked for."""
        if not self._reader.said.echo:
            mine = self._client.client_id
            batch = [entry for entry in batch if entry.publisher != mine]
        if self.subject != self._pattern:
            batch = [entry for entry in batch if self.takes(self._reader.questions.subject_of(entry))]
        if self._group:
            batch = [entry for entry in batch if self._is_drawn(entry.id)]
        if self._stop_after:
            batch = batch[: self._stop_after - self._sent]
        self._sent += len(batch)
        return batch

    def _is_drawn(self, message: str) -> bool:
        """Whether this one of its group gets the message; of several of one client, one does."""
        reader = self._reader
        if reader.queues.owner(self._group, message) != self._client.client_id:
            return False
        return drawn(message, reader.sharers(self.subject, self.queue)) == self.sid

    def _encoded(self, batch: Sequence[Publication]) -> bytes:
        """A batch, which is of one topic, in one piece."""
        line = self._plain_line(batch[0]) if _are_alike(batch) else b""
        if not line:
            return b"".join([self._message(entry) for entry in batch])
        payloads = [entry.payload for entry in batch]
        sizes = {len(payload) for payload in payloads}
        if len(sizes) == 1:  # The lines are the same, too: what stands between the payloads is written once.
            between = b"%b%d\r\n" % (line, sizes.pop())
            return b"%b%b\r\n" % (between, (b"\r\n" + between).join(payloads))
        return b"".join([b"%b%d\r\n%b\r\n" % (line, len(payload), payload) for payload in payloads])

    def _plain_line(self, entry: Publication) -> bytes:
        """The line of a message without extras, up to its size; empty if it comes with headers."""
        reader = self._reader
        if reader.said.headers and not (reader.spares_headers and self._publisher.is_plain(entry)):
            return b""
        return wire.line_of(entry.topic, self.sid)

    def _message(self, entry: Publication) -> bytes:
        reader = self._reader
        subject, reply = reader.questions.subject_of(entry), answer_subject(entry)
        if reader.said.headers and not (reader.spares_headers and self._publisher.is_plain(entry)):
            return wire.message(subject, self.sid, reply, wire.header_block(facts_of(entry)), entry.payload)
        return wire.message(subject, self.sid, reply, b"", entry.payload)


def _are_alike(batch: Sequence[Publication]) -> bool:
    """Whether messages of one topic differ in their payloads alone."""
    return (
        not any_extras(batch)
        and len({entry.guarantee for entry in batch}) == 1
        and len({entry.keys for entry in batch}) == 1
    )


def _looked_at(task: asyncio.Task[None]) -> None:
    """A task that was cancelled with its loop is nobody's concern."""
    if not task.cancelled():
        task.exception()
