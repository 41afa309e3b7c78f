"""The library against real brokers over loopback: what the documentation shows works, and says what goes wrong."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import Any, cast

import msgspec
import pytest

import ordercast
from ordercast.core.errors import UsageError
from ordercast.core.ids import Topic
from ordercast.net.wire.credentials import User
from ordercast.testing import QUICK, cluster
from tests.support.loop import run_async, until


def test_the_example_of_the_documentation_runs() -> None:
    async def main() -> None:
        async with (
            cluster(brokers=1) as brokers,
            ordercast.connect(brokers.address, client_id="alice") as client,
        ):
            inbox = await client.subscribe("accounts.PT")
            await client.publish("accounts.PT", b"deposit 10", key="162550483", guarantee="causal")
            async for message in inbox:
                assert (message.topic, message.key, message.payload) == ("accounts.PT", "162550483", b"deposit 10")
                assert message.publisher == "alice"
                assert message.guarantee.label == "causal"
                assert message.id == f"{client.session}/accounts.PT#1"
                break

    run_async(main)


def test_a_client_may_also_be_awaited_and_closed() -> None:
    async def main() -> None:
        async with cluster(brokers=1) as brokers:
            client = await ordercast.connect([brokers.address])
            assert client.client_id.startswith("client-")
            assert client.broker == "b0"
            await client.close()
            await client.close()
            with pytest.raises(ordercast.ConnectError, match="is closed"):
                await client.publish("t", b"")
            with pytest.raises(ordercast.ConnectError, match="is closed"):
                client.publish_soon("t", b"")

    run_async(main)


def test_every_subscriber_gets_everything_in_order() -> None:
    async def main() -> None:
        async with (
            cluster(brokers=3) as brokers,
            brokers.connect("ann", broker="b0") as ann,
            brokers.connect("bob", broker="b1") as bob,
            brokers.connect("cho", broker="b2") as cho,
        ):
            inboxes = [await client.subscribe("t") for client in (ann, bob, cho)]
            for i in range(50):
                bob.publish_soon("t", str(i).encode(), guarantee="fifo")
            for inbox in inboxes:
                assert [int((await inbox.get(10)).payload) for _ in range(50)] == list(range(50))

    run_async(main)


def test_totals_come_in_one_order_everywhere() -> None:
    async def main() -> None:
        async with (
            cluster(brokers=2) as brokers,
            brokers.connect("ann", broker="b0") as ann,
            brokers.connect("bob", broker="b1") as bob,
        ):
            inboxes = [await client.subscribe("t") for client in (ann, bob)]
            for i in range(20):
                ann.publish_soon("t", b"a%d" % i, key="k", guarantee="total")
                bob.publish_soon("t", b"b%d" % i, key="k", guarantee="total")
            orders = [[(await inbox.get(10)).payload for _ in range(40)] for inbox in inboxes]
            assert orders[0] == orders[1]

    run_async(main)


def test_a_filter_takes_in_topics_of_now_and_of_later() -> None:
    async def main() -> None:
        async with (
            cluster(brokers=2) as brokers,
            brokers.connect("ann", broker="b0") as ann,
            brokers.connect("bob", broker="b1") as bob,
        ):
            await bob.publish("accounts.PT", b"early")
            inbox = await ann.subscribe("accounts.*")
            await bob.publish("accounts.PT", b"one")
            await bob.publish("accounts.ES", b"first of a new topic")
            await bob.publish("rates.EUR", b"not for ann")
            got = {(await inbox.get(10)).payload for _ in range(2)}
            assert got - {b"early"} <= {b"one", b"first of a new topic"}
            if b"early" in got:  # It was not stable when ann came.
                got |= {(await inbox.get(10)).payload}
            assert {b"one", b"first of a new topic"} <= got

    run_async(main)


@pytest.mark.parametrize("ack", ["edge", "safe", "delivered"])
def test_a_publisher_may_wait_for_each_level(ack: str) -> None:
    async def main() -> None:
        async with (
            cluster(brokers=3) as brokers,
            brokers.connect("ann", broker="b1") as ann,
            brokers.connect("bob", broker="b2") as bob,
        ):
            inbox = await bob.subscribe("t")
            publishing = asyncio.ensure_future(ann.publish("t", b"x", ack=ack, timeout=10))
            message = await inbox.get(10)
            reading = asyncio.ensure_future(inbox.get())  # Taken, when the next one is asked for.
            assert await publishing == message.id
            reading.cancel()

    run_async(main)


def test_delivered_means_that_the_application_has_taken_it() -> None:
    async def main() -> None:
        async with cluster(brokers=1) as brokers, brokers.connect("ann") as ann, brokers.connect("bob") as bob:
            inbox = await bob.subscribe("t")
            with pytest.raises(TimeoutError, match=r"is not delivered within 0\.3 s"):
                await ann.publish("t", b"x", ack="delivered", timeout=0.3)
            assert (await inbox.get(5)).payload == b"x"

    run_async(main)


def test_flush_waits_for_everything_published() -> None:
    async def main() -> None:
        async with (
            cluster(brokers=2) as brokers,
            brokers.connect("ann") as ann,
            brokers.connect("bob", broker="b1") as bob,
        ):
            inboxes = [await bob.subscribe(topic) for topic in ("t", "u")]
            for i in range(500):
                ann.publish_soon("t" if i % 2 else "u", b"%d" % i)
            await ann.flush(timeout=10)
            for inbox in inboxes:
                for _ in range(250):
                    await inbox.get(10)

    run_async(main)


def test_two_inboxes_of_one_topic_each_get_everything() -> None:
    async def main() -> None:
        async with cluster(brokers=1) as brokers, brokers.connect("ann") as ann:
            first, second = await ann.subscribe("a.b"), await ann.subscribe("a.*")
            for i in range(10):
                ann.publish_soon("a.b", b"%d" % i)
            for inbox in (first, second):
                assert [(await inbox.get(5)).payload for _ in range(10)] == [b"%d" % i for i in range(10)]
            await ann.unsubscribe(first)
            ann.publish_soon("a.b", b"more")
            assert (await second.get(5)).payload == b"more"
            with pytest.raises(ordercast.ConnectError, match=r"a\.b has ended"):
                await first.get(1)

    run_async(main)


def test_unsubscribing_stops_the_reader_and_frees_the_topic() -> None:
    async def main() -> None:
        async with cluster(brokers=1) as brokers, brokers.connect("ann") as ann, brokers.connect("bob") as bob:
            inbox = await ann.subscribe("t")
            reading = asyncio.ensure_future(_read_all(inbox))
            await bob.publish("t", b"one")
            await ann.unsubscribe("t")
            assert [message.payload for message in await reading] in ([b"one"], [])
            await bob.publish("t", b"two", ack="delivered", timeout=10)
            with pytest.raises(UsageError, match="no subscription to 't'"):
                await ann.unsubscribe("t")

    run_async(main)


async def _read_all(inbox: ordercast.Inbox) -> list[object]:
    return [message async for message in inbox]


def test_batches_are_the_same_messages() -> None:
    async def main() -> None:
        async with cluster(brokers=1) as brokers, brokers.connect("ann") as ann:
            inbox = await ann.subscribe("t")
            for i in range(1000):
                ann.publish_soon("t", b"%d" % i)
            got: list[bytes] = [(await inbox.get(5)).payload]
            async for batch in inbox.batches():
                got += [message.payload for message in batch]
                if len(got) == 1000:
                    break
            assert got == [b"%d" % i for i in range(1000)]

    run_async(main)


def test_a_hundred_thousand_messages_arrive_once_and_in_order() -> None:
    count = 100_000

    async def main() -> None:
        async with cluster(brokers=1) as brokers, brokers.connect("ann") as ann, brokers.connect("bob") as bob:
            inbox = await bob.subscribe("t")
            publishing = asyncio.ensure_future(_pour(ann, count))
            expected = 0
            async for message in inbox:
                assert message.number == expected + 1
                expected += 1
                if expected == count:
                    break
            await publishing

    run_async(main)


async def _pour(client: ordercast.Client, count: int) -> None:
    for i in range(count):
        client.publish_soon("t", b"x" * 64)
        if i % 256 == 0:
            await client.drain()
    await client.flush()


def test_losing_the_edge_is_invisible_to_reader_and_publisher() -> None:
    async def main() -> None:
        async with (
            cluster(brokers=5) as brokers,
            brokers.connect("ann", broker="b1") as ann,
            brokers.connect("bob", broker="b2") as bob,
        ):
            events: list[str] = []
            bob.on_event(lambda event: events.append(event.kind))
            inbox = await bob.subscribe("t")
            publishing = asyncio.ensure_future(_trickle(ann, 200))
            got = [(await inbox.get(10)).payload for _ in range(50)]
            await brokers.kill("b2")
            got += [(await inbox.get(20)).payload for _ in range(50)]
            await brokers.kill("b1")
            got += [(await inbox.get(20)).payload for _ in range(100)]
            assert got == [b"%d" % i for i in range(200)]
            await publishing
            assert events == ["disconnected", "connected"]

    run_async(main)


async def _trickle(client: ordercast.Client, count: int) -> None:
    for i in range(count):
        client.publish_soon("t", b"%d" % i)
        await asyncio.sleep(0.005)
    await client.flush(timeout=20)


def test_a_wrong_token_is_said_at_once() -> None:
    async def main() -> None:
        async with cluster(brokers=1, client_token="right", peer_token="p") as brokers:
            with pytest.raises(ordercast.ConnectError, match=rf"cannot connect to {brokers.address}: .*token"):
                await ordercast.connect(brokers.address, token="wrong", timeout=20)
            async with ordercast.connect(brokers.address, token="right"):
                pass

    run_async(main)


def test_an_address_where_nobody_is_is_named() -> None:
    async def main() -> None:
        with pytest.raises(ordercast.ConnectError, match=r"127\.0\.0\.1:1: .*gave up after 0\.3 s"):
            await ordercast.connect("127.0.0.1:1", timeout=0.3)

    run_async(main)


def test_rights_are_enforced_with_a_word() -> None:
    async def main() -> None:
        eve_may = User(name="eve", token="t", publish=("open.>",), subscribe=("open.>",))
        async with (
            cluster(brokers=1, user=(eve_may,), peer_token="p") as brokers,
            ordercast.connect(brokers.address, "eve", token="t") as eve,
        ):
            with pytest.raises(ordercast.SubscribeDenied, match=r"secret: .*no right"):
                await eve.subscribe("secret")
            with pytest.raises(ordercast.PublishRefused, match="no right"):
                await eve.publish("secret", b"x", timeout=10)
            inbox = await eve.subscribe("open.a")
            await eve.publish("open.a", b"x", timeout=10)
            assert (await inbox.get(5)).payload == b"x"

    run_async(main)


def test_a_filter_wider_than_the_right_to_receive_does_not_keep_anybody_from_publishing() -> None:
    async def main() -> None:
        eve_may = User(name="eve", token="t", publish=("open.>", "tips"), subscribe=("open.>",))
        async with (
            cluster(brokers=1, user=(eve_may,), peer_token="p") as brokers,
            ordercast.connect(brokers.address, "eve", token="t") as eve,
        ):
            inbox = await eve.subscribe(">")
            await eve.publish("tips", b"x", timeout=10)
            await eve.publish("open.a", b"y", timeout=10)
            assert (await inbox.get(5)).payload == b"y"
            with pytest.raises(ordercast.PublishRefused, match="no right to publish"):
                await eve.publish("secret", b"x", timeout=10)

    run_async(main)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda c: c.publish("a b", b""), "topic 'a b'"),
        (lambda c: c.publish("a.*", b""), "for filters"),
        (lambda c: c.publish("t", "text"), "payload: bytes are needed, not str"),
        (lambda c: c.publish("t", b"x" * (1 << 20) + b"x"), "payload: 1048577 bytes are over the limit"),
        (lambda c: c.publish("t", b"", guarantee="casual"), "did you mean 'causal'"),
        (lambda c: c.publish("t", b"", ack="saf"), "did you mean 'safe'"),
        (lambda c: c.publish("t", b"", keys=["a", "a"]), "'a' is named twice"),
        (lambda c: c.publish("t", b"", keys="ab"), "a list of keys is needed"),
        (lambda c: c.publish("t", b"", key=7), "7 is not a string"),
        (lambda c: c.publish("t", b"", key="k" * 256), "has 256 characters"),
        (lambda c: c.publish("t", b"", keys=[str(i) for i in range(33)]), "33 are named"),
        (lambda c: c.subscribe("a.>.b"), "'>' stands only at the end"),
    ],
)
def test_nonsense_is_refused_before_anything_is_sent(call, complaint: str) -> None:  # type: ignore[no-untyped-def]
    async def main() -> None:
        async with cluster(brokers=1) as brokers, brokers.connect("ann") as ann:
            with pytest.raises(UsageError, match=complaint):
                await call(ann)

    run_async(main)


@pytest.mark.parametrize("address", ["", "nowhere", "host:port", []])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="address"):
        ordercast.connect(address)


def test_a_slow_reader_slows_the_publisher_down_instead_of_filling_memory() -> None:
    async def main() -> None:
        async with (
            cluster(brokers=1, settings=msgspec.structs.replace(QUICK, buffer_soft_limit=1000)) as brokers,
            brokers.connect("ann") as ann,
            brokers.connect("bob") as bob,
        ):
            inbox = await bob.subscribe("t")
            publishing = asyncio.ensure_future(_pour(ann, 50_000))
            await asyncio.sleep(1.0)
            assert inbox.waiting < 20_000
            assert not publishing.done()
            for _ in range(50_000):
                await inbox.get(10)
            await until(lambda: inbox.waiting == 0)
            reading = asyncio.ensure_future(inbox.get())
            await publishing
            reading.cancel()

    run_async(main)


def test_a_publication_that_waits_because_its_topic_is_full_says_so() -> None:
    async def main() -> None:
        async with (
            cluster(brokers=1, settings=msgspec.structs.replace(QUICK, buffer_soft_limit=20)) as brokers,
            brokers.connect("ann") as ann,
            brokers.connect("bob") as bob,
        ):
            await bob.subscribe("t")  # And reads nothing.
            for _ in range(60):
                ann.publish_soon("t", b"x")
            await until(lambda: not ann._machine.topics[Topic("t")].open)
            with pytest.raises(TimeoutError, match=r"told the topic's publishers to wait \(buffer_soft_limit"):
                await ann.publish("t", b"x", timeout=0.05)

    run_async(main)


def test_publishing_without_ever_waiting_ends_before_memory_does() -> None:
    async def main() -> None:
        async with cluster(brokers=1) as brokers, brokers.connect("ann", outbox_limit=10) as ann:
            for _ in range(80):
                ann.publish_soon("t", b"x")
            with pytest.raises(ordercast.OutboxFull, match=r"await client\.drain\(\)"):
                ann.publish_soon("t", b"x")
            await ann.drain(timeout=10)
            ann.publish_soon("t", b"x")

    run_async(main)


def test_a_run_of_payloads_is_published_as_far_as_the_outbox_has_room() -> None:
    async def main() -> None:
        async with cluster(brokers=1) as brokers, brokers.connect("ann", outbox_limit=10) as ann:
            inbox = await ann.subscribe("t")
            assert ann.publish_run("t", [b"%d" % number for number in range(100)], keys=["k"], guarantee="fifo") == 80
            assert ann.publish_run("t", [b"none"]) == 0
            came = [await inbox.get(20) for _ in range(80)]
            assert [(one.number, one.payload) for one in came] == [(n, b"%d" % (n - 1)) for n in range(1, 81)]
            assert {(one.keys, one.guarantee.label) for one in came} == {(("k",), "fifo")}
            async with brokers.connect("bob", outbox_bytes=200_000) as bob:
                assert bob.publish_run("u", [bytes(50_000)] * 40) == 32  # Eight times the bytes that may wait.

    run_async(main)


@pytest.mark.parametrize("limit", ["outbox_limit", "outbox_bytes"])
def test_an_outbox_without_room_for_anything_is_refused(limit: str) -> None:
    with pytest.raises(ordercast.UsageError, match=f"{limit}: 0 is less than 1"):
        ordercast.connect("127.0.0.1:1", **{limit: 0})


def test_large_payloads_fill_the_outbox_by_their_bytes() -> None:
    large = bytes(50_000)

    async def main() -> None:
        async with cluster(brokers=1) as brokers, brokers.connect("ann", outbox_bytes=200_000) as ann:
            for _ in range(32):
                ann.publish_soon("t", large)
            with pytest.raises(ordercast.OutboxFull, match=r"1600000 bytes wait"):
                ann.publish_soon("t", large)
            await ann.drain(timeout=10)
            assert ann.unsettled < 4
            most = 0

            async def publish() -> None:
                nonlocal most
                await ann.publish("t", large, timeout=20)
                most = max(most, ann.unsettled)

            await asyncio.gather(*(publish() for _ in range(60)))
            assert most <= 5

    run_async(main)


class DeadSocket:
    """A transport whose other end has reset the connection, of which the loop has not told yet."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.tried = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write_eof(self) -> None:
        self.tried = True
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))


def test_a_client_whose_socket_has_died_unheard_of_closes_all_the_same() -> None:
    async def main() -> None:
        async with cluster(brokers=1) as brokers:
            client = await ordercast.connect(brokers.address, "ann")
            (connection,) = client._host.connections.values()
            dead = DeadSocket(connection._transport)
            connection._transport = cast("asyncio.Transport", dead)
            await client.close(stay=False)
            assert dead.tried

    run_async(main)
