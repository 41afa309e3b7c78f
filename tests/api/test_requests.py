"""Requests and answers, batches that are seen together, and messages that count once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import ordercast
from ordercast import blocking
from ordercast.api import Client, Inbox, messages
from ordercast.api.messages import DEDUP_NS, MOST_DEDUPS, Duplicates
from ordercast.pubsub.extras import Extras
from ordercast.pubsub.keeping import KeepTable
from ordercast.pubsub.publications import Publication
from ordercast.testing import cluster
from tests.support.loop import run_async


async def answer_all(inbox: Inbox) -> None:
    async for message in inbox:
        await message.reply(b"to " + message.payload, headers={b"by": b"bob"})


async def take(inbox: Inbox, count: int) -> list[bytes]:
    return [(await inbox.get(10)).payload for _ in range(count)]


def test_every_request_gets_its_own_answer_through_a_broker_crash() -> None:
    async def main() -> None:
        async with cluster(3) as brokers, brokers.connect("bob", broker="b2") as bob:
            inbox = await bob.subscribe("prices.EU")
            answering = asyncio.create_task(answer_all(inbox))
            async with brokers.connect("ann", broker="b1") as ann:
                asked = [ann.request("prices.EU", b"%d" % i, timeout=20) for i in range(20)]
                first = await asyncio.gather(*asked[:10])
                await brokers.kill("b1")
                last = await asyncio.gather(*asked[10:])
            answering.cancel()

            assert [answer.payload for answer in (*first, *last)] == [b"to %d" % i for i in range(20)]
            assert first[0].headers == {b"by": b"bob"}
            assert (first[0].publisher, first[0].topic) == ("bob", "replies.ann")

    run_async(main)


def test_a_request_that_nobody_answers_times_out_and_a_late_answer_is_dropped() -> None:
    async def main() -> None:
        async with cluster(1) as brokers, brokers.connect("ann") as ann, brokers.connect("bob") as bob:
            inbox = await bob.subscribe("t")
            with pytest.raises(TimeoutError, match="no answer to a request on t within"):
                await ann.request("t", b"?", timeout=0.1)
            await (await inbox.get(10)).reply(b"late")
            again = asyncio.create_task(ann.request("t", b"again", timeout=10))
            await (await inbox.get(10)).reply(b"in time")

            assert (await again).payload == b"in time"

    run_async(main)


def test_whoever_waits_for_an_answer_is_told_when_the_client_ends() -> None:
    async def main() -> None:
        async with cluster(1) as brokers, brokers.connect("ann") as ann:
            inbox = await ann.subscribe("t")
            waiting = asyncio.create_task(ann.request("t", b"?", timeout=60))
            await inbox.get(10)
            await ann.close()
            with pytest.raises(ConnectionError):
                await waiting

    run_async(main)


def test_a_plain_message_cannot_be_answered() -> None:
    async def main() -> None:
        async with cluster(1) as brokers, brokers.connect("ann") as ann:
            inbox = await ann.subscribe("t")
            await ann.publish("t", b"x")
            with pytest.raises(ordercast.UsageError, match="nobody waits for an answer"):
                await (await inbox.get(10)).reply(b"y")

    run_async(main)


def test_a_batch_is_handed_over_together_and_from_the_history_too(tmp_path: Path) -> None:
    async def main() -> None:
        keep = (KeepTable(filter="kept.>"),)
        async with (
            cluster(2, data=tmp_path, keep=keep, fsync="never") as brokers,
            brokers.connect("ann") as ann,
            brokers.connect("bob", broker="b1") as bob,
        ):
            inbox = await bob.subscribe("kept.t")
            ids = await ann.publish_many("kept.t", [b"1", b"2", b"3"], key="k", guarantee="total")
            batch = await inbox.get_batch(10)
            await ann.publish("kept.t", b"4")

            assert [(part.id, part.payload, part.key) for part in batch] == [
                (ids[0], b"1", "k"), (ids[1], b"2", "k"), (ids[2], b"3", "k")
            ]  # fmt: skip
            assert await take(inbox, 1) == [b"4"]
            inbox_task = asyncio.create_task(inbox.get())  # What was read counts as taken.
            await ann.flush("delivered", timeout=10)
            inbox_task.cancel()
            while len(found := [message.payload async for message in ann.read("kept.t")]) < 4:
                await asyncio.sleep(0.01)
            assert found == [b"1", b"2", b"3", b"4"]

    run_async(main)


def test_a_batch_that_is_none_is_refused_and_one_that_lies_is_handed_over_as_it_is() -> None:
    async def main() -> None:
        async with cluster(1) as brokers, brokers.connect("eve") as eve:
            inbox = await eve.subscribe("t")
            with pytest.raises(ordercast.UsageError, match="payloads: none"):
                await eve.publish_many("t", [])
            with pytest.raises(ordercast.UsageError, match="over the limit"):
                await eve.publish_many("t", [bytes(1 << 19)] * 3)
            await eve.publish("t", b"\xc1", extras=Extras(parts=3))
            await eve.publish("t", b"\x91\xc4\x01x", extras=Extras(parts=3))

            assert await take(inbox, 2) == [b"\xc1", b"\x91\xc4\x01x"]

    run_async(main)


def test_what_is_published_twice_with_one_id_is_handed_over_once() -> None:
    async def main() -> None:
        async with cluster(2) as brokers, brokers.connect("bob") as bob:
            inbox = await bob.subscribe("t")
            async with brokers.connect("ann") as ann:
                await ann.publish("t", b"1", dedup="order-17")
                await ann.publish("t", b"1", dedup="order-17")
            async with brokers.connect("ann", broker="b1") as ann:  # A new session, at another broker.
                await ann.publish("t", b"1", dedup="order-17")
                await ann.publish("u", b"x", dedup="order-17")
                await ann.publish("t", b"2", dedup="order-18")

            assert await take(inbox, 2) == [b"1", b"2"]

    run_async(main)


def test_a_durable_subscriber_remembers_ids_and_is_given_again_what_it_had_not_read(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(1) as brokers, brokers.connect("ann") as ann:
            bob: Client
            async with brokers.connect("bob", data=tmp_path) as bob:
                inbox = await bob.subscribe("t")
                await ann.publish("t", b"1", dedup="one")
                await ann.publish("t", b"2", dedup="two")
                assert await take(inbox, 1) == [b"1"]
            await ann.publish("t", b"1 again", dedup="one")
            await ann.publish("t", b"2 again", dedup="two")
            await ann.publish("t", b"3", dedup="three")
            async with brokers.connect("bob", data=tmp_path) as bob:
                inbox = await bob.subscribe("t")
                assert await take(inbox, 2) == [b"2", b"3"]

    run_async(main)


def entry(number: int, dedup: str, published_ns: int = 0) -> Publication:
    return Publication("ann", number, "t", b"", published_ns=published_ns, extras=Extras(dedup=dedup))  # type: ignore[arg-type]


def test_an_id_is_remembered_for_an_hour_of_publication_and_no_memory_is_boundless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = Duplicates()
    assert len(known.without([entry(1, "a", 5), entry(2, "a", 5 + DEDUP_NS)])) == 1
    assert len(known.without([entry(3, "a", 6 + DEDUP_NS)])) == 1
    assert known.without([entry(3, "a", 6 + DEDUP_NS)])  # Delivered again, it is no repetition of itself.
    monkeypatch.setattr(messages, "MOST_DEDUPS", 2)
    known.without([entry(10 + i, f"id{i}") for i in range(4)])
    assert [len(known.without([entry(20 + i, f"id{i}")])) for i in (3, 2)] == [0, 0]
    assert len(known.without([entry(30, "id0")])) == 1
    assert MOST_DEDUPS == 100_000


def test_the_blocking_client_asks_and_answers() -> None:
    async def main() -> None:
        async with cluster(1) as brokers, brokers.connect("bob") as bob:
            answering = asyncio.create_task(answer_all(await bob.subscribe("t")))
            await asyncio.to_thread(ask, brokers.address)
            answering.cancel()
            threaded = asyncio.create_task(asyncio.to_thread(answer, brokers.address))
            asked = bob.request("v", b"?", timeout=1)
            while (said := (await asyncio.gather(asked, return_exceptions=True))[0]) and isinstance(said, TimeoutError):
                asked = bob.request("v", b"?", timeout=1)
            await threaded
            assert isinstance(said, ordercast.Message)
            assert said.payload == b"from a thread"

    def ask(address: str) -> None:
        with blocking.connect(address, client_id="ann") as ann:
            inbox = ann.subscribe("u")
            assert ann.request("t", b"x", timeout=10).payload == b"to x"
            assert len(ann.publish_many("u", [b"1", b"2"])) == 2
            assert [inbox.get(10).payload for _ in range(2)] == [b"1", b"2"]

    def answer(address: str) -> None:
        with blocking.connect(address, client_id="cho") as cho:
            for message in cho.subscribe("v"):
                message.reply(b"from a thread")
                return

    run_async(main)
