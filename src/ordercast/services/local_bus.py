"""A bus inside one process, for tests and single-machine programs: every order that the guarantees allow may happen.

What a publication must come after is known the moment it is published: what its publisher had delivered, what the
publisher published before (always on a common key; whatever the key from `fifo` upward with `order_scope` session),
and, where one of two is `total`, everything earlier on a common key, and every earlier `total`. Each member then gets
its own order among those that respect this, drawn from the seed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Origin, Topic, origin_of
from ordercast.core.messages import Guarantee
from ordercast.pubsub.closed import Closed
from ordercast.pubsub.publications import Publication, PublicationId
from ordercast.pubsub.received import Received, Summary, Vector
from ordercast.services.bus import BusSessionLost


class _TopicSession:
    """One session's view of one topic."""

    def __init__(self, delivered: Received, seed: str) -> None:
        self.delivered = delivered
        self.consumed = Received(delivered.summary())
        self.waiting: list[Publication] = []
        self.chance = random.Random(seed)  # noqa: S311 - chooses among allowed orders, keeps no secret


class _TopicLog:
    """Publications on a topic that are not stable, in their order."""

    def __init__(self) -> None:
        self.entries: list[Publication] = []
        self.after: dict[PublicationId, tuple[PublicationId, ...]] = {}
        self.base: Vector = {}
        self.members: dict[Origin, _TopicSession] = {}
        self.next_number: dict[Origin, int] = {}


class LocalHub:
    """The broker tree: `connect` gives every replica a bus. `interleave` false: all get the order of publication."""

    def __init__(self, *, seed: int = 0, interleave: bool = True, order_scope: str = "session", batch: int = 8) -> None:
        self.seed = seed
        self.interleave = interleave
        self.order_scope = order_scope
        self.batch = batch
        self._topics: dict[Topic, _TopicLog] = {}
        self._buses: dict[Origin, LocalBus] = {}

    def connect(self, name: str, session: int = 0) -> LocalBus:
        """A session; one that is known and not fenced goes on where it was."""
        origin = origin_of(NodeId(name), session)
        if origin in self._buses and self._buses[origin].open:
            raise UsageError(f"client {origin}: is connected already")
        bus = self._buses[origin] = LocalBus(self, origin)
        return bus

    def fence(self, origin: Origin) -> None:
        """FM5: the session never counts again."""
        for log in self._topics.values():
            log.members.pop(origin, None)
        self._buses[origin].end(BusSessionLost(f"{origin}: fenced", fenced=True))

    def stabilise(self) -> None:
        """Forget what every member has consumed, as the broker tree does when it is stable."""
        for log in self._topics.values():
            if not log.members:
                continue
            vectors = [member.consumed.vector() for member in log.members.values()]
            for origin in sorted({publication.origin for publication in log.entries}):
                low = min(vector.get(origin, 0) for vector in vectors)
                log.base[origin] = max(low, log.base.get(origin, 0))
            log.entries = [p for p in log.entries if p.number > log.base.get(p.origin, 0)]

    def idle(self) -> bool:
        """Everything was delivered to and consumed by everybody."""
        members = [member for log in self._topics.values() for member in log.members.values()]
        return all(not member.waiting and member.consumed == member.delivered for member in members)

    def join(self, bus: LocalBus, topic: Topic, have: Summary) -> Vector:
        log = self._topics.setdefault(topic, _TopicLog())
        known = log.members.get(bus.origin)
        start: Vector = {} if known is not None else dict(log.base)
        delivered = Received(have)
        delivered.raise_to(log.base)
        member = log.members[bus.origin] = _TopicSession(delivered, f"{self.seed}/{topic}/{bus.origin}")
        member.waiting = [p for p in log.entries if (p.origin, p.number) not in delivered]
        bus.wake()
        return start

    def publish(
        self, origin: Origin, topic: Topic, payload: bytes, keys: tuple[str, ...], guarantee: Guarantee
    ) -> None:  # fmt: skip
        log = self._topics.setdefault(topic, _TopicLog())
        number = log.next_number.get(origin, 0) + 1
        log.next_number[origin] = number
        publication = Publication(origin, number, topic, payload, guarantee, keys)
        if self.interleave:
            log.after[origin, number] = tuple(
                (p.origin, p.number) for p in log.entries if self._comes_before(p, publication, log.members.get(origin))
            )
        log.entries.append(publication)
        for name, member in log.members.items():
            member.waiting.append(publication)
            self._buses[name].wake()

    def _comes_before(self, earlier: Publication, new: Publication, publisher: _TopicSession | None) -> bool:
        if publisher is not None and (earlier.origin, earlier.number) in publisher.delivered:
            return True
        shared = not set(earlier.keys).isdisjoint(new.keys)
        if earlier.origin == new.origin:
            both = min(earlier.guarantee, new.guarantee) >= Guarantee.FIFO
            return shared or (both and self.order_scope == "session")
        totals = (earlier.guarantee == Guarantee.TOTAL) + (new.guarantee == Guarantee.TOTAL)
        return totals == 2 or (totals == 1 and shared)

    def next_batch(self, origin: Origin) -> list[Publication]:
        """Some deliveries, topic by topic."""
        batch: list[Publication] = []
        for _, log in sorted(self._topics.items()):
            member = log.members.get(origin)
            if member is not None:
                batch += self._draw(log, member) if self.interleave else self._all(member)
        return batch

    def _all(self, member: _TopicSession) -> list[Publication]:
        batch, member.waiting = member.waiting, []
        member.delivered.update((p.origin, p.number) for p in batch)
        return batch

    def _draw(self, log: _TopicLog, member: _TopicSession) -> list[Publication]:
        batch: list[Publication] = []
        for _ in range(member.chance.randint(1, self.batch)):
            free = [
                i
                for i, p in enumerate(member.waiting)
                if all(before in member.delivered for before in log.after[p.origin, p.number])
            ]
            if not free:
                break
            publication = member.waiting.pop(member.chance.choice(free))
            member.delivered.add(publication.origin, publication.number)
            batch.append(publication)
        return batch

    def consumed(self, origin: Origin, publications: Sequence[Publication]) -> None:
        for publication in publications:
            member = self._topics[publication.topic].members.get(origin)
            if member is not None:
                member.consumed.add(publication.origin, publication.number)


class LocalBus:
    """One session on a LocalHub."""

    def __init__(self, hub: LocalHub, origin: Origin) -> None:
        self.origin = origin
        self.open = True
        self._hub = hub
        self._news = asyncio.Event()
        self._over: BusSessionLost | None = None

    async def subscribe(self, topic: Topic, have: Summary) -> Vector:
        return self._hub.join(self, topic, have)

    def publish(self, topic: Topic, payload: bytes, keys: tuple[str, ...], guarantee: Guarantee) -> None:
        if self._over is not None:
            raise self._over
        self._hub.publish(self.origin, topic, payload, keys, guarantee)

    def closed(self) -> Closed:
        return {}

    async def heard(self, topic: Topic) -> None:  # noqa: ARG002
        while not self._hub.idle():
            await asyncio.sleep(0)

    async def drain(self) -> None:
        await asyncio.sleep(0)

    async def deliveries(self) -> Sequence[Publication]:
        while True:
            if self._over is not None:
                raise self._over
            batch = self._hub.next_batch(self.origin)
            if batch:
                await asyncio.sleep(0)  # Let others run: the order between replicas is not the order of their starts.
                return batch
            self._news.clear()
            await self._news.wait()

    def consumed(self, publications: Sequence[Publication]) -> None:
        self._hub.consumed(self.origin, publications)

    async def close(self) -> None:
        self.end(BusSessionLost(f"{self.origin}: closed"))

    def end(self, why: BusSessionLost) -> None:
        self.open = False
        self._over = self._over or why
        self.wake()

    def wake(self) -> None:
        self._news.set()
