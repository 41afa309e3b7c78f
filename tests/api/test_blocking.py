"""The client for programs without asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

import ordercast
from ordercast.client.work.leader import WorkSettings
from ordercast.core.errors import UsageError
from ordercast.pubsub.keeping import KeepTable
from ordercast.testing import EmbeddedCluster, cluster

T = TypeVar("T")


@contextmanager
def running(**options: Any) -> Iterator[EmbeddedCluster]:
    """One broker in a thread of its own, as if it were elsewhere."""
    started: list[EmbeddedCluster] = []
    ready, over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with cluster(brokers=1, **options) as embedded:
            started.append(embedded)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(10)
    try:
        yield started[0]
    finally:
        over.set()
        thread.join()


@pytest.fixture
def brokers() -> Iterator[EmbeddedCluster]:
    with running() as started:
        yield started


def test_a_program_without_asyncio_publishes_and_reads(brokers: EmbeddedCluster) -> None:
    with ordercast.blocking.connect(brokers.address, client_id="alice") as client:
        inbox = client.subscribe("accounts.PT")
        sent = client.publish("accounts.PT", b"deposit 10", key="162550483", guarantee="causal")
        for message in inbox:
            assert (message.id, message.payload, message.key) == (sent, b"deposit 10", "162550483")
            break
        with pytest.raises(TimeoutError, match=r"no message of accounts\.PT within 0\.05 s"):
            inbox.get(timeout=0.05)


def test_many_messages_keep_their_order(brokers: EmbeddedCluster) -> None:
    with ordercast.blocking.connect(brokers.address) as client, ordercast.blocking.connect(brokers.address) as other:
        inbox = other.subscribe("t")
        for i in range(30_000):
            client.publish_soon("t", b"%d" % i)
        client.flush()
        got: list[bytes] = []
        for batch in inbox.batches():
            got += [message.payload for message in batch]
            if len(got) == 30_000:
                break
        assert got == [b"%d" % i for i in range(30_000)]


def test_several_threads_share_a_client(brokers: EmbeddedCluster) -> None:
    with ordercast.blocking.connect(brokers.address) as client:
        inbox = client.subscribe("t")
        threads = [threading.Thread(target=_publish, args=(client, name)) for name in (b"a", b"b", b"c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        got = [inbox.get(5).payload for _ in range(150)]
        for name in (b"a", b"b", b"c"):
            assert [payload for payload in got if payload.startswith(name)] == [name + b"%d" % i for i in range(50)]


def _publish(client: ordercast.blocking.Client, name: bytes) -> None:
    for i in range(50):
        if i % 10:
            client.publish_soon("t", name + b"%d" % i)
        else:
            client.publish("t", name + b"%d" % i)


def test_what_is_wrong_with_a_message_published_without_waiting_is_said_by_flush(brokers: EmbeddedCluster) -> None:
    with ordercast.blocking.connect(brokers.address) as client:
        client.publish_soon("t", b"", guarantee="casual")
        with pytest.raises(UsageError, match="casual"):
            client.flush()
        client.flush()


def test_reading_stops_when_the_subscription_ends(brokers: EmbeddedCluster) -> None:
    with ordercast.blocking.connect(brokers.address) as client:
        inbox = client.subscribe("t")
        stop = threading.Timer(0.1, client.unsubscribe, (inbox,))
        stop.start()
        assert list(inbox) == []
        stop.join()


def test_a_closed_client_says_so_and_leaves_no_thread(brokers: EmbeddedCluster) -> None:
    before = threading.active_count()
    client = ordercast.blocking.connect(brokers.address)
    client.close()
    assert threading.active_count() == before
    with pytest.raises(ordercast.ConnectError, match="closed"):
        client.publish("t", b"")
    with pytest.raises(ordercast.ConnectError, match="closed"):
        client.publish_soon("t", b"")


def test_a_client_is_closed_once_however_many_close_it(brokers: EmbeddedCluster) -> None:
    with ordercast.blocking.connect(brokers.address) as client:
        client.publish_soon("t", b"")
        with ThreadPoolExecutor() as pool:
            closing = [pool.submit(client.close) for _ in range(4)]
        for one in closing:
            one.result()
        client.close()
    assert client.ended


def test_a_call_that_comes_while_the_client_is_closed_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is handed over between the end of the client and the end of its thread."""
    thread = ordercast.blocking._Thread()
    blocked, go_on, handed_over = threading.Event(), threading.Event(), threading.Semaphore(0)
    hand_over = asyncio.run_coroutine_threadsafe

    def counted(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> Future[T]:
        future = hand_over(work, loop)
        handed_over.release()
        return future

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", counted)

    def block() -> None:
        blocked.set()
        go_on.wait(10)

    async def never() -> None:
        await asyncio.get_running_loop().create_future()

    async def at_once() -> str:
        return "done"

    thread.soon(block)
    assert blocked.wait(10)
    thread.loop.call_soon_threadsafe(thread.loop.stop)  # As `stop` does, before the calls below.
    with ThreadPoolExecutor() as pool:
        waits, ends = pool.submit(thread.call, never()), pool.submit(thread.call, at_once())
        for _ in range(2):
            assert handed_over.acquire(timeout=10)
        stopping = pool.submit(thread.stop)
        go_on.set()
        stopping.result(10)
        assert ends.result(10) == "done"
        with pytest.raises(ordercast.ConnectError, match="the client is closed"):
            waits.result(10)
    with pytest.raises(ordercast.ConnectError, match="the client is closed"):
        thread.call(at_once())


def test_who_waits_when_the_client_is_closed_is_told_that_it_is(brokers: EmbeddedCluster) -> None:
    client = ordercast.blocking.connect(brokers.address)
    with ThreadPoolExecutor() as pool:
        asking = pool.submit(client.request, "nobody.answers", b"?")
        client.close()
        with pytest.raises(ordercast.ConnectError, match="closed"):
            asking.result(10)


def test_a_connection_that_fails_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(ordercast.ConnectError, match=r"127\.0\.0\.1:1"):
        ordercast.blocking.connect("127.0.0.1:1", timeout=0.1)
    assert threading.active_count() == before


def test_a_program_without_asyncio_shares_work_and_answers_requests(tmp_path: Path) -> None:
    """Its `done` returns when that is written down."""
    keep = (KeepTable(filter="orders"), KeepTable(filter="groups.>", compact="key"))
    with (
        running(data=tmp_path, keep=keep, fsync="never") as brokers,
        ordercast.blocking.connect(brokers.address, "ann") as ann,
        ordercast.blocking.connect(brokers.address, "bob") as bob,
    ):
        inbox = bob.subscribe("orders", group="workers", start="earliest", work=WorkSettings(silent_ms=500))
        ann.publish("orders", b"1", key="k")
        ann.publish("orders", b"2", key="k")
        first = inbox.get(20)
        first.retry()
        again = inbox.get(20)
        again.done()
        second = inbox.get(20)
        second.done_soon()
        with ThreadPoolExecutor() as pool:
            asked = pool.submit(ann.request, "orders", b"price?", 20)
            inbox.get(20).reply(b"1.09")
            assert asked.result().payload == b"1.09"
        bob.unsubscribe(inbox)

        assert [(work.payload, work.attempt) for work in (again, second)] == [(b"1", 2), (b"2", 1)]
