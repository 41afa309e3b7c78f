"""The client for programs without asyncio: the same surface, with calls that block.

The connection lives in a thread of its own, which runs an event loop; every call hands its work over and waits.
Any thread may use the client.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import datetime as dt
import queue
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, overload

import uvloop

from ordercast.api import Client as AsyncClient
from ordercast.api import ConnectError, Position
from ordercast.api import History as AsyncHistory
from ordercast.api import Inbox as AsyncInbox
from ordercast.api import connect as connect_async
from ordercast.api.blocking_work import BlockingWorkInbox
from ordercast.api.inbox import InboxEnded
from ordercast.client.work.leader import WorkSettings
from ordercast.core.messages import Guarantee
from ordercast.pubsub.publications import Publication

T = TypeVar("T")
_HANDED_OVER = 10_000
"""Messages that `publish_soon` may be ahead of the loop's thread."""
_LAST_WORDS_S = 1.0
"""How long calls of other threads may take to end when the client has been closed."""


class _Thread:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        self._closing: set[asyncio.Task[None]] = set()
        """Readers that are being closed."""
        self._stopping = False
        """Nothing is handed over from now on."""
        self._handing_over = threading.RLock()
        """A reader that was dropped may be collected, and hand over its end, while this thread hands something over."""
        self._thread = threading.Thread(target=self._run, name="ordercast", daemon=True)
        self._thread.start()

    @property
    def stopped(self) -> bool:
        """Nobody answers there any more; in a child of a process that has the client, nobody ever did."""
        return self._stopping or not self._thread.is_alive()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(_all_answered())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it there, wait here. Interrupted here (Ctrl-C), it is cancelled there."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a blocking call in the client's own thread would wait for itself")
        with self._handing_over:
            if self.stopped:
                work.close()
            self.check()
            running = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return running.result()
        except concurrent.futures.CancelledError:
            raise ConnectError("the client is closed") from None
        except BaseException:
            running.cancel()
            raise

    def soon(self, act: Callable[..., object], *arguments: object) -> None:
        """Do it there, do not wait."""
        with self._handing_over:
            self.check()
            self.loop.call_soon_threadsafe(act, *arguments)

    def end(self, batches: AsyncGenerator[Any]) -> None:
        """Close it there, without waiting: a reader that was dropped is collected in any thread, that one included."""
        with self._handing_over:
            if not self.stopped:
                self.loop.call_soon_threadsafe(self._close, batches)

    def _close(self, batches: AsyncGenerator[Any]) -> None:
        closing = self.loop.create_task(batches.aclose())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def check(self) -> None:
        if self.stopped:
            raise ConnectError("the client is closed")

    def stop(self) -> None:
        """Answer what was handed over, and end the thread."""
        with self._handing_over:
            if not self.stopped:
                self._stopping = True
                self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


async def _all_answered() -> None:
    """Let every call that was handed over before the end come to its own end, or to this one: nobody waits for ever."""
    await asyncio.sleep(0)  # A call may have been handed over, and not begun yet.
    calls = asyncio.all_tasks() - {asyncio.current_task()}
    if calls:
        _, waiting = await asyncio.wait(calls, timeout=_LAST_WORDS_S)
        for call in waiting:
            call.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


class Inbox:
    """The deliveries of one subscription: `for message in inbox`."""

    def __init__(self, thread: _Thread, inbox: AsyncInbox) -> None:
        self._thread = thread
        self.inner = inbox
        self._rest: Iterator[Publication] = iter(())

    @property
    def pattern(self) -> str:
        return self.inner.pattern

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Publication:
        try:
            return self._take(None)
        except InboxEnded:
            raise StopIteration from None

    def get(self, timeout: float | None = None) -> Publication:
        """The next message; a TimeoutError if none comes within so many seconds."""
        return self._take(timeout)

    def batches(self) -> Iterator[Sequence[Publication]]:
        """Messages at hand, several of one topic at a time."""
        rest = list(self._rest)
        if rest:
            yield rest
        while True:
            try:
                yield self._thread.call(self.inner.get_batch())
            except InboxEnded:
                return

    def _take(self, timeout: float | None) -> Publication:
        for message in self._rest:
            return message
        self._rest = iter(self._thread.call(self.inner.get_batch(timeout)))
        return next(self._rest)


class History:
    """The publications of kept topics between two positions: `for message in client.read(...)`."""

    def __init__(self, thread: _Thread, history: AsyncHistory) -> None:
        self._thread = thread
        self._history = history

    @property
    def end(self) -> Position:
        """Behind everything that was read; complete when the reading is."""
        return self._history.end

    def __iter__(self) -> Iterator[Publication]:
        for batch in self.batches():
            yield from batch

    def batches(self, timeout: float | None = None) -> Iterator[Sequence[Publication]]:
        """Many messages of one topic at a time: the fastest way to read. `timeout`: seconds to wait for the next."""
        batches = self._history.batches()
        try:
            while (batch := self._thread.call(_next_of(batches, timeout))) is not None:
                yield batch
        finally:
            self._thread.end(batches)

    def bounds(self, timeout: float | None = 30.0) -> tuple[Position, Position]:
        """The positions between which it lies, without reading what does."""
        return self._thread.call(self._history.bounds(timeout))


class Client:
    """One client of a broker tree, for any thread."""

    def __init__(self, thread: _Thread, client: AsyncClient) -> None:
        self._thread = thread
        self._client = client
        self._soon: queue.SimpleQueue[tuple[str, bytes, dict[str, Any]]]
        self._soon = queue.SimpleQueue()
        self._waking = False
        self._failure: Exception | None = None
        self._ending = threading.Lock()
        client.answer_by(self.reply)

    @property
    def client_id(self) -> str:
        return self._client.client_id

    @property
    def broker(self) -> str | None:
        """The edge broker of the moment; None while another one is sought."""
        return self._client.broker

    @property
    def ended(self) -> bool:
        """It is closed, or its session was given up: only a new connection goes on."""
        return self._client.ended

    def publish(
        self, topic: str, payload: bytes, *, key: str | None = None, keys: Iterable[str] = (),
        guarantee: str | Guarantee = "causal", ack: str = "safe", timeout: float | None = None,
        headers: Mapping[bytes, bytes] | None = None, expires_after: float | None = None, dedup: str = "",
    ) -> str:  # fmt: skip
        """Publish and wait until the message has come as far as `ack` says; its id. Options as of the other client."""
        return self._thread.call(
            self._publish(
                topic, payload, key=key, keys=keys, guarantee=guarantee, ack=ack, timeout=timeout, headers=headers,
                expires_after=expires_after, dedup=dedup,
            )
        )  # fmt: skip

    async def _publish(self, topic: str, payload: bytes, **options: Any) -> str:
        self._hand_over()
        return await self._client.publish(topic, payload, **options)

    def publish_soon(
        self, topic: str, payload: bytes, *, key: str | None = None, keys: Iterable[str] = (),
        guarantee: str | Guarantee = "causal", headers: Mapping[bytes, bytes] | None = None,
        expires_after: float | None = None, dedup: str = "",
    ) -> None:  # fmt: skip
        """Publish without waiting, unless the outbox is full. What is wrong with it is said by `flush`."""
        self._thread.check()
        options: dict[str, Any] = {"key": key, "keys": tuple(keys), "guarantee": guarantee}
        if headers is not None or expires_after is not None or dedup:
            carried = dict(headers) if headers is not None else None
            options |= {"headers": carried, "expires_after": expires_after, "dedup": dedup}
        self._soon.put((topic, payload, options))
        if not self._waking:
            self._waking = True
            self._thread.soon(self._hand_over)
        if self._soon.qsize() > _HANDED_OVER:
            self.drain()

    def _hand_over(self) -> None:
        """In the loop's thread, in the order of the calls."""
        self._waking = False  # Before the queue is emptied: what is put in later wakes the loop again.
        while not self._soon.empty():
            topic, payload, options = self._soon.get()
            try:
                self._client.publish_soon(topic, payload, **options)
            except Exception as error:  # noqa: BLE001 - Whoever flushes is told.
                self._failure = self._failure or error

    def publish_many(self, topic: str, payloads: Iterable[bytes], **options: Any) -> list[str]:
        """Publish several messages that become visible together; their ids. Options as of `publish`."""
        return self._thread.call(self._publish_many(topic, list(payloads), **options))

    async def _publish_many(self, topic: str, payloads: list[bytes], **options: Any) -> list[str]:
        self._hand_over()
        return await self._client.publish_many(topic, payloads, **options)

    def request(self, topic: str, payload: bytes, timeout: float | None = 30.0, **options: Any) -> Publication:
        """Publish a request and wait for the first answer. Options as of `publish`, but for `ack`."""
        return self._thread.call(self._request(topic, payload, timeout, **options))

    async def _request(self, topic: str, payload: bytes, timeout: float | None, **options: Any) -> Publication:
        self._hand_over()
        return await self._client.request(topic, payload, timeout, **options)

    def reply(self, request: Publication, payload: bytes, **options: Any) -> str:
        """Answer a request that this client was handed; options as of `publish`."""
        return self._thread.call(self._client.reply(request, payload, **options))

    def drain(self, timeout: float | None = None) -> None:
        """Wait while the outbox is full or the broker tree asks for a pause."""
        self._thread.call(self._drain(timeout))

    async def _drain(self, timeout: float | None) -> None:
        self._hand_over()
        await self._client.drain(timeout)

    def flush(self, ack: str = "safe", timeout: float | None = None) -> None:
        """Wait until everything published so far has come as far as `ack` says."""
        self._thread.call(self._flush(ack, timeout))

    async def _flush(self, ack: str, timeout: float | None) -> None:
        self._hand_over()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        await self._client.flush(ack, timeout)

    @overload
    def subscribe(
        self, topic: str, *, start: str | Position | dt.datetime = ..., timeout: float | None = ..., group: None = ...
    ) -> Inbox: ...

    @overload
    def subscribe(
        self, topic: str, *, start: str | Position | dt.datetime = ..., timeout: float | None = ..., group: str,
        work: WorkSettings | None = ..., dead_letter: str | None = ...,
    ) -> BlockingWorkInbox: ...  # fmt: skip

    def subscribe(
        self, topic: str, *, start: str | Position | dt.datetime = "now", timeout: float | None = 30.0,
        group: str | None = None, work: WorkSettings | None = None, dead_letter: str | None = None,
    ) -> Inbox | BlockingWorkInbox:  # fmt: skip
        """Read a topic, or all topics of a filter, from now on; of a kept topic, from `start` on.

        With a `group`, share the work of a kept topic: each message is handed to one member of the group.
        """
        if group is None:
            return Inbox(self._thread, self._thread.call(self._client.subscribe(topic, start=start, timeout=timeout)))
        shared = self._client.subscribe(
            topic, start=start, timeout=timeout, group=group, work=work, dead_letter=dead_letter
        )
        return BlockingWorkInbox(self._thread, self._thread.call(shared))

    def read(
        self, topics: str | Iterable[str], start: str | Position | dt.datetime = "earliest",
        end: Position | None = None,
    ) -> History:  # fmt: skip
        """The past of kept topics between two positions, without a subscription: `for message in client.read(t)`."""
        return History(self._thread, self._client.read(topics, start, end))

    def position(self, *topics: str, timeout: float | None = 30.0) -> Position:
        """How far this client has taken the topics; of kept topics that it does not read, where they end now."""
        return self._thread.call(self._client.position(*topics, timeout=timeout))

    def position_across(self, topics: Iterable[str], *, timeout: float | None = 30.0) -> Position:
        """A position that is closed across topics: no answer on one of them without its question on another."""
        return self._thread.call(self._client.position_across(topics, timeout=timeout))

    def unsubscribe(self, subscription: str | Inbox | BlockingWorkInbox, *, timeout: float | None = 30.0) -> None:
        """End one inbox, or all of a topic or filter; what was not read of it is dropped, or goes to others."""
        inner = subscription if isinstance(subscription, str) else subscription.inner
        self._thread.call(self._client.unsubscribe(inner, timeout=timeout))

    def close(self, *, stay: bool = True, timeout: float | None = 10.0) -> None:
        """Wait until what was published is safe, and disconnect; `stay` as for the other client.

        A client that is closed stays so: closing it once more does nothing, from whichever thread.
        """
        self._end_with(self._close(timeout, stay=stay))

    def _end_with(self, ending: Coroutine[Any, Any, None]) -> None:
        with self._ending:  # Whoever comes second waits for the first.
            if self._thread.stopped:
                ending.close()
                return
            try:
                self._thread.call(ending)
            finally:
                self._thread.stop()

    async def _close(self, timeout: float | None, *, stay: bool = True) -> None:
        self._hand_over()
        await self._client.close(stay=stay, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_with(self._client.__aexit__(kind, error, trace) if error else self._close(10.0))


async def _next_of(
    batches: AsyncIterator[Sequence[Publication]], timeout: float | None
) -> Sequence[Publication] | None:
    try:
        async with asyncio.timeout(timeout):
            return await anext(batches, None)
    except TimeoutError:
        raise TimeoutError(f"no copy of what is read has answered within {timeout:g} s") from None


def connect(address: str | Iterable[str], client_id: str | None = None, **options: Any) -> Client:
    """Like `ordercast.connect`, with the same options; the client is connected when this returns."""
    pending = connect_async(address, client_id, **options)
    thread = _Thread()

    async def connected() -> AsyncClient:
        return await pending

    try:
        return Client(thread, thread.call(connected()))
    except BaseException:
        thread.stop()
        raise
