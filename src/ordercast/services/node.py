"""A replica on a bus: takes deliveries in order, applies them, answers those who asked, gives state to newcomers."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.ids import Topic
from ordercast.core.messages import Guarantee
from ordercast.pubsub.cuts import closed_in
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector
from ordercast.services.bus import Bus, BusSessionLost
from ordercast.services.dispatcher import Dispatcher
from ordercast.services.frontend import Frontend
from ordercast.services.operations import OperationRefused
from ordercast.services.payloads import PayloadStore
from ordercast.services.replica import Applied, Replica, ReplicaSnapshot
from ordercast.services.snapshot_exchange import SnapshotExchange, control_topic, data_topic
from ordercast.services.stores.port import Store, StoreError
from ordercast.services.wire import Call, Elsewhere, Unit, decode_body, encode_body
from ordercast.trace.schema import INFO_DIGEST

T = TypeVar("T")
Note = Callable[[str, Mapping[str, str]], None]
INLINE_BYTES = 64 * 1024
"""Larger bodies travel apart, where there is a payload store."""
FOLD_S = 1.0
"""So often at most a replica looks which sessions are closed."""
_RETRY_S = (0.02, 2.0)


class ReplicaNode:
    """`async with ReplicaNode(bus, store, dispatcher, topics=[...]) as node:` and then `node.frontend()`."""

    def __init__(
        self, bus: Bus, store: Store, dispatcher: Dispatcher, *, topics: Sequence[str],
        payloads: PayloadStore | None = None, inline_bytes: int = INLINE_BYTES, ask_again_s: float = 5.0,
        observe: Callable[[Applied], None] | None = None, restored: Callable[[Replica], None] | None = None,
        note: Note | None = None, nonce: bytes | None = None,
    ) -> None:  # fmt: skip
        self.bus = bus
        self.replica = Replica(store, dispatcher, retry=self._wait_for_the_store)
        self.topics = tuple(sorted(Topic(topic) for topic in topics))
        self._payloads = payloads
        self._inline_bytes = inline_bytes
        self._ask_again_s = ask_again_s
        self._observe = observe
        self._restored = restored
        self._note = note
        # Tokens tell own echoes apart; an earlier life of the same session must not have used them.
        self._nonce = secrets.token_bytes(8) if nonce is None else nonce
        self._numbers = itertools.count(1)
        self._waiting: dict[bytes, asyncio.Future[tuple[Any, ...]]] = {}
        self._kept: dict[Topic, list[Publication]] = {}
        self._ready: dict[Topic, asyncio.Event] = {topic: asyncio.Event() for topic in self.topics}
        self._exchange = SnapshotExchange(bus.origin, self.replica, self._say, self._token)
        self._store_lock = asyncio.Lock()
        self._stopping = threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._fold_at = 0.0
        self._outgoing: asyncio.Queue[tuple[Topic, Unit, tuple[str, ...], Guarantee]] = asyncio.Queue()
        self._loop: asyncio.AbstractEventLoop
        self.lost: BusSessionLost | None = None
        self.over = asyncio.Event()
        """Set when there will be no more deliveries; `lost` says why."""

    async def __aenter__(self) -> ReplicaNode:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def frontend(self, *, publish_reads: bool = True) -> Frontend:
        return Frontend(self, publish_reads=publish_reads)

    # Life

    async def start(self, *, own_state: bool = False) -> None:
        """Join all topics; done when the state of each is usable.

        It goes on from its own state if that reaches up to the base of its membership, and otherwise from a snapshot.
        `own_state`: never take a snapshot, for a replica that is the only one left.
        """
        self._loop = asyncio.get_running_loop()
        try:
            for topic in self.topics:
                await self._join(topic, own_state=own_state)
            self._spawn(self._take_deliveries())  # Only now: until then it is open which of them count.
            if self._payloads is not None:
                self._spawn(self._publish_bodies())
            for topic in self.topics:
                await self._usable(topic)
        except BusSessionLost as lost:
            await self._session_over(lost)
            await self.stop()
            raise
        except BaseException:
            await self.stop()
            raise

    async def _join(self, topic: Topic, *, own_state: bool) -> None:
        have = await self._with_store(self.replica.received, topic)
        start_over = await self._with_store(self.replica.must_start_over, topic)
        await self.bus.subscribe(control_topic(topic), {})
        base = await self.bus.subscribe(topic, have)
        if own_state or (
            not start_over and await self._with_store(self.replica.starts_from, topic, base, self.bus.origin)
        ):
            await self._go_on(topic, base)
        else:
            self._kept[topic] = []
            self._spawn(self._keep_asking(topic, base, may_found=not start_over))

    async def _go_on(self, topic: Topic, base: Vector) -> None:
        """From its own state, which counts as having everything of the sessions that are closed."""
        await self._with_store(self.replica.fold, topic, closed_in(base), self.bus.origin)
        self._ready[topic].set()

    async def stop(self) -> None:
        """Leave the bus and close the store. What was delivered and not applied comes again next time."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._fail(BusSessionLost("the replica was stopped"))
        await self.bus.close()
        async with self._store_lock:
            self.replica.close()

    async def digest(self, topic: str) -> str:
        """Of the present state; recorded in the trace where there is one."""
        value = await self._with_store(self.replica.digest, Topic(topic))
        if self._note is not None:
            self._note("subscribe", {"topic": topic, INFO_DIGEST: value})
        return value

    async def look(self, action: Callable[[Replica], T]) -> T:
        """Ask the replica something between two deliveries; it may be busy in a thread at any other moment."""
        return await self._with_store(action, self.replica)

    # What front ends ask for

    def ask(
        self, topic: Topic, calls: tuple[Call, ...], keys: tuple[str, ...], level: Guarantee
    ) -> Awaitable[tuple[Any, ...]]:
        self._check(topic)
        answer: asyncio.Future[tuple[Any, ...]] = asyncio.get_running_loop().create_future()
        token = self._token()
        self._waiting[token] = answer
        try:
            self._publish(topic, Unit(token, calls), keys, level)
        except BaseException:
            del self._waiting[token]
            raise
        return answer

    def tell(self, topic: Topic, calls: tuple[Call, ...], keys: tuple[str, ...], level: Guarantee) -> None:
        self._check(topic)
        self._publish(topic, Unit(b"", calls), keys, level)

    async def drain(self) -> None:
        """After much that nobody awaits: let the broker tree catch up."""
        await self.bus.drain()

    async def read(self, topic: Topic, call: Call) -> Any:
        self._check(topic)
        await self._usable(topic)
        return await self._with_store(self.replica.read, topic, call)

    def _check(self, topic: Topic) -> None:
        if self.lost is not None:
            raise self.lost
        if topic not in self._ready:
            raise UsageError(f"topic {topic!r}: this replica has only {', '.join(self.topics)}")

    def _publish(self, topic: Topic, unit: Unit, keys: tuple[str, ...], level: Guarantee) -> None:
        if self._payloads is not None:
            self._outgoing.put_nowait((topic, unit, keys, level))  # In order, also behind a large body.
        else:
            self._publish_now(topic, encode_body(unit), keys, level, unit.token)

    def _publish_now(
        self, topic: Topic, payload: bytes, keys: tuple[str, ...], level: Guarantee, token: bytes
    ) -> None:  # fmt: skip
        taken = self.bus.publish(topic, payload, keys, level)
        if taken is not None:
            taken.add_done_callback(lambda done: self._was_taken(token, done))

    def _was_taken(self, token: bytes, done: asyncio.Future[None]) -> None:
        """A publication that the broker tree will never take has no echo to wait for."""
        error = None if done.cancelled() else done.exception()
        answer = self._waiting.pop(token, None) if error is not None else None
        if answer is not None and not answer.done() and error is not None:
            answer.set_exception(error)

    async def _publish_bodies(self) -> None:
        assert self._payloads is not None
        while True:
            topic, unit, keys, level = await self._outgoing.get()
            payload = encode_body(unit)
            if len(payload) > self._inline_bytes:
                payload = encode_body(await self._payloads.put(payload))
            self._publish_now(topic, payload, keys, level, unit.token)

    # Deliveries

    async def _take_deliveries(self) -> None:
        try:
            while True:
                await self._take(await self.bus.deliveries())
        except BusSessionLost as lost:
            await self._session_over(lost)
        except Exception as error:
            self._fail(BusSessionLost(f"the replica stopped: {type(error).__name__}: {error}"))
            raise

    async def _take(self, batch: Sequence[Publication]) -> None:
        """In order, as many at a time as need no waiting: a missing body stops everything behind it."""
        run: list[Publication] = []
        for publication in batch:
            if data_topic(publication.topic) is not None:
                await self._apply(run)
                run = []
                await self._hear(publication)
            elif publication.topic in self._kept:
                self._kept[publication.topic].append(publication)
            else:
                body = decode_body(publication.payload)
                if isinstance(body, Elsewhere) and self._payloads is not None:
                    await self._apply(run)
                    payload = await self._payloads.get(body)
                    run = [msgspec.structs.replace(publication, payload=payload)]
                else:
                    run.append(publication)
        await self._apply(run)

    async def _apply(self, publications: list[Publication]) -> None:
        if not publications:
            return
        await _to_its_end(self._apply_and_answer(publications))

    async def _apply_and_answer(self, publications: list[Publication]) -> None:
        applied = await self._with_store(self.replica.apply, publications, self.bus.origin)
        self.bus.consumed(publications)
        for done in applied:
            if self._observe is not None:
                self._observe(done)
            if done.unit is not None and done.unit.token:
                self._answer(done)
        if self._loop.time() >= self._fold_at:
            self._fold_at = self._loop.time() + FOLD_S
            for topic in {publication.topic for publication in publications}:
                await self._fold(topic)

    async def _fold(self, topic: Topic) -> None:
        """A member with a state has everything of a session that is closed: nothing is closed without it (BRK-F6)."""
        if topic in self._ready and self._ready[topic].is_set() and topic not in self._kept:
            await self._with_store(self.replica.fold, topic, self.bus.closed())

    def _answer(self, done: Applied) -> None:
        answer = self._waiting.pop(done.unit.token, None) if done.unit is not None else None
        if answer is None or answer.done():
            return
        if done.outcome.refused is not None:
            answer.set_exception(OperationRefused(done.outcome.refused))
        else:
            answer.set_result(done.outcome.values)

    # Snapshots

    async def _hear(self, publication: Publication) -> None:
        topic = data_topic(publication.topic)
        if topic is not None:
            await self._fold(topic)  # Whoever asks has heard which sessions are closed.
        snapshot = await self._with_store(self._exchange.hear, publication)
        self.bus.consumed([publication])
        if snapshot is not None:
            await self._restore(snapshot)

    async def _restore(self, snapshot: ReplicaSnapshot) -> None:
        """Take over the state, then what was delivered meanwhile; `apply` drops what the state contains."""
        await self._with_store(self._replace_state, snapshot)
        await self._take(self._kept.pop(snapshot.topic))
        self._ready[snapshot.topic].set()

    def _replace_state(self, snapshot: ReplicaSnapshot) -> None:
        self.replica.restore(snapshot, self.bus.origin)
        if self._restored is not None:
            self._restored(self.replica)

    async def _keep_asking(self, topic: Topic, base: Vector, *, may_found: bool) -> None:
        """Ask for the state again until it is here: whoever was picked may have died.

        Where only closed sessions are in doubt, and nobody else has a state, the own one is the service's.
        """
        counted = await self._with_store(self.replica.knows(topic).contains_counted, base)
        while not self._ready[topic].is_set():
            await self._with_store(self._exchange.ask, topic, base)
            try:
                async with asyncio.timeout(self._ask_again_s):
                    if may_found and counted and await self._nobody_answers(topic):
                        await self._found(topic, base)
                    await self._ready[topic].wait()
            except TimeoutError:
                continue

    async def _nobody_answers(self, topic: Topic) -> bool:
        """Whoever has taken the second word has answered what came before the first."""
        for _ in range(2):
            await self.bus.heard(control_topic(topic))
        return self._exchange.alone(topic)

    async def _found(self, topic: Topic, base: Vector) -> None:
        del self._exchange.wishes[topic]
        await self._with_store(self.replica.fold, topic, closed_in(base), self.bus.origin)
        await self._take(self._kept.pop(topic))
        self._ready[topic].set()

    def _say(self, topic: Topic, payload: bytes) -> None:
        """From any thread: a snapshot is read where the store is."""
        self._loop.call_soon_threadsafe(self._publish_now, topic, payload, ("",), Guarantee.FIFO, b"")

    # Helpers

    async def _session_over(self, lost: BusSessionLost) -> None:
        if lost.fenced:
            for topic in self.topics:
                await self._with_store(self.replica.start_over, topic)
        self._fail(lost)

    def _fail(self, lost: BusSessionLost) -> None:
        self.lost = self.lost or lost
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(lost)
        self.over.set()
        for ready in self._ready.values():
            ready.set()

    async def _with_store(self, action: Callable[..., T], *args: Any) -> T:
        """One at a time, and away from the event loop where the store may wait for something."""
        async with self._store_lock:
            if self.replica.store.waits:
                return await _to_its_end(asyncio.to_thread(action, *args))
            return action(*args)

    def _wait_for_the_store(self, error: StoreError, attempt: int) -> None:
        """The same entry again, after a pause; never the next one."""
        first, longest = _RETRY_S
        if self._stopping.wait(min(first * 2**attempt, longest)):
            raise error

    async def _usable(self, topic: Topic) -> None:
        """Wait for the state of the topic, but not beyond the end of the session."""
        await self._ready[topic].wait()
        if self.lost is not None:
            raise self.lost

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.ensure_future(work))

    def _token(self) -> bytes:
        return self._nonce + next(self._numbers).to_bytes(6)


async def _to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Wait for a thread even when cancelled: one that uses the store cannot be called back."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()
        raise
