"""The bus of a replica over a broker tree: one client of `ordercast.connect`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ordercast.api import Client
from ordercast.api.bridge import ConnectionEvent
from ordercast.api.errors import PublishRefused
from ordercast.api.errors import SessionLost as ClientLost
from ordercast.api.inbox import Inbox
from ordercast.core.ids import Origin, Topic, plain_origin
from ordercast.core.messages import Guarantee
from ordercast.pubsub.closed import Closed
from ordercast.pubsub.cuts import folded, intervals
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Summary, Vector
from ordercast.services.bus import BusSessionLost


class ClientBus:
    """Deliveries of a topic are handed over a batch at a time: the next one when the store has the last.

    So the broker tree counts as received exactly what is safe in the store, whatever happens to this process.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.origin = Origin(client.session)
        self._arrived: asyncio.Queue[Sequence[Publication]] = asyncio.Queue()
        self._in_hand: dict[Topic, int] = {}
        self._done: dict[Topic, asyncio.Event] = {}
        self._inboxes: dict[Topic, Inbox] = {}
        self._untaken: dict[str, asyncio.Future[None]] = {}
        self._pumps: set[asyncio.Task[None]] = set()
        self._over: BusSessionLost | None = None
        client.on_event(self._event)

    async def subscribe(self, topic: Topic, have: Summary) -> Vector:  # noqa: ARG002
        """The client remembers what it has; what only the store remembers, the replica recognises."""
        try:
            inbox = await self.client.subscribe(topic)
        except ClientLost as lost:
            raise BusSessionLost(f"{self.origin}: {lost}", fenced=True) from None
        self._inboxes[topic] = inbox
        self._done[topic] = asyncio.Event()
        self._pumps.add(asyncio.ensure_future(self._pump(topic, inbox)))
        return folded(self.client.taken_up_to(topic) | intervals(self.closed()))

    def closed(self) -> Closed:
        return self.client.closed_sessions()

    async def heard(self, topic: Topic) -> None:
        await self.client.publish(topic, b"", guarantee=Guarantee.FIFO, ack="delivered")

    async def _pump(self, topic: Topic, inbox: Inbox) -> None:
        """One batch after the other."""
        try:
            while True:
                batch = await inbox.hand_out()
                self._in_hand[topic] = len(batch)
                self._done[topic].clear()
                self._arrived.put_nowait(batch)
                await self._done[topic].wait()
        except ClientLost as lost:
            self._end(BusSessionLost(f"{self.origin}: {lost}", fenced=True))
        except ConnectionError as error:
            self._end(BusSessionLost(f"{self.origin}: {error}"))

    def publish(
        self, topic: Topic, payload: bytes, keys: tuple[str, ...], guarantee: Guarantee
    ) -> asyncio.Future[None]:
        message = self.client.publish_soon(topic, payload, keys=keys, guarantee=guarantee)
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._untaken[message] = taken
        return taken

    async def drain(self) -> None:
        await self.client.drain()

    async def deliveries(self) -> Sequence[Publication]:
        if self._arrived.empty() and self._over is not None:
            raise self._over
        batch = await self._arrived.get()
        if not batch and self._over is not None:
            raise self._over
        return batch

    def consumed(self, publications: Sequence[Publication]) -> None:
        for publication in publications:
            if plain_origin(publication.origin) == self.origin:
                self._settle(publication.id)
            self._in_hand[publication.topic] -= 1
            if not self._in_hand[publication.topic]:
                self._inboxes[publication.topic].taken()
                self._done[publication.topic].set()

    def _settle(self, message: str) -> None:
        """The echo says more than any acknowledgement."""
        taken = self._untaken.pop(message, None)
        if taken is not None and not taken.done():
            taken.set_result(None)

    def _event(self, event: ConnectionEvent) -> None:
        if event.kind != "refused":
            return
        message, _, reason = event.detail.partition(": ")
        taken = self._untaken.pop(message, None)
        if taken is not None and not taken.done():
            taken.set_exception(PublishRefused(message, reason))

    def _end(self, lost: BusSessionLost) -> None:
        self._over = self._over or lost
        self._arrived.put_nowait(())  # Whoever waits has to look.

    async def close(self) -> None:
        """Take leave. A client with a data directory only goes away: it will be back."""
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        await self.client.close()
