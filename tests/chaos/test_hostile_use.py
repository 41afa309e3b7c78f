"""Clients that ask for too much of a real broker: it stays up, says why, and nobody else loses anything."""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest

from ordercast import testing
from ordercast.broker.node import BROKER_CODEC
from ordercast.client.settings import ClientSettings
from ordercast.core.ids import Origin, Topic
from ordercast.core.messages import Guarantee
from ordercast.net.wire.credentials import Credentials
from ordercast.net.wire.frames import packet_frame
from ordercast.pubsub.client_packets import Attach, Entries, Ping, Resume, Subscribe
from ordercast.pubsub.publications import Publication
from tests.support.loop import run_async, until
from tests.support.wires import Stranger

TOPICS = 1_000


async def _rogue(address: str, topic: str) -> Stranger:
    """A member of the topic, as a program that does not use the library."""
    rogue = await Stranger.connect(address)
    await rogue.introduce("mallory", credentials=Credentials(), life=1)
    for packet in (Attach(1), Subscribe(Topic(topic)), Resume(Topic(topic), 1, {}, {})):
        rogue.send(packet_frame(BROKER_CODEC.encode(packet)))
    await asyncio.sleep(0.3)
    return rogue


def _none_has_failed(cluster: testing.EmbeddedCluster) -> None:
    assert isinstance(cluster, testing.InProcessCluster)
    for name, process in cluster.processes.items():
        assert process.host.failure is None, f"{name}: {process.host.failure}"


@pytest.mark.parametrize("guarantee", [Guarantee.CAUSAL, Guarantee.TOTAL], ids=["causal", "total"])
@pytest.mark.parametrize("spare", [0, 40, 400, 60_000])
def test_a_publication_as_large_as_a_frame_can_be_harms_nobody(guarantee: Guarantee, spare: int) -> None:
    """The library refuses a payload above the limit; another program may send what just fits into a frame."""

    async def main() -> None:
        async with (
            testing.cluster(3, shape="line") as cluster,
            cluster.connect("ann", broker="b2") as ann,
            cluster.connect("bob", broker="b1") as bob,
        ):
            inbox, other = await ann.subscribe("t"), await bob.subscribe("quiet")
            rogue = await _rogue(cluster.address, "t")
            empty = Publication(Origin("mallory~1"), 1, Topic("t"), b"", guarantee, ("k",), 1)
            room = testing.QUICK_LIMITS.max_frame_bytes - len(BROKER_CODEC.encode(Entries(Topic("t"), (empty,))))
            large = msgspec.structs.replace(empty, payload=bytes(room - 8 - spare))
            rogue.send(packet_frame(BROKER_CODEC.encode(Entries(Topic("t"), (large,)))))
            await asyncio.sleep(1)
            await rogue.close()
            _none_has_failed(cluster)
            await cluster.settle()
            await ann.publish("quiet", b"still here", guarantee="total", timeout=20)
            assert (await other.get(timeout=10)).payload == b"still here"
            await bob.publish("t", b"and here", timeout=20)
            while (await inbox.get(timeout=20)).payload != b"and here":
                pass
            _none_has_failed(cluster)

    run_async(main)


def test_a_thousand_topics_of_one_client_come_through_and_others_are_served_meanwhile() -> None:
    async def main() -> None:
        async with (
            testing.cluster(2) as cluster,
            cluster.connect("many", broker="b1") as many,
            cluster.connect("ann", broker="b0") as ann,
            cluster.connect("bob", broker="b1") as bob,
        ):
            inbox = await bob.subscribe("news")
            for i in range(TOPICS):
                many.publish_soon(f"m.{i}", b"x")
            for i in range(20):
                await ann.publish("news", b"%d" % i, timeout=30)
            assert [(await inbox.get(timeout=30)).payload for _ in range(20)] == [b"%d" % i for i in range(20)]
            await many.flush(timeout=60)
            _none_has_failed(cluster)

    run_async(main, timeout_s=150)


def test_a_flood_of_connections_costs_the_clients_that_are_there_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    async def main() -> None:
        async with (
            testing.cluster(1) as cluster,
            cluster.connect("ann") as ann,
            cluster.connect("bob") as bob,
        ):
            inbox = await bob.subscribe("t")
            strangers: list[Stranger] = []

            async def flood() -> None:
                for i in range(400):
                    stranger = await Stranger.connect(cluster.address)
                    strangers.append(stranger)
                    if i % 2:
                        stranger.send(b"GET / HTTP/1.1\r\n\r\n")
                    if i % 20 == 0:
                        await asyncio.sleep(0.01)

            flooding = asyncio.create_task(flood())
            for i in range(100):
                await ann.publish("t", b"%d" % i, timeout=20)
            await flooding
            assert [(await inbox.get(timeout=20)).payload for _ in range(100)] == [b"%d" % i for i in range(100)]
            for stranger in strangers:
                await stranger.close()
            _none_has_failed(cluster)
            async with cluster.connect("cho"):  # And there is room for friends again.
                pass

    run_async(main)
    assert caplog.records, "nobody said why those connections were closed"


def test_a_member_that_never_reads_is_given_up_and_everybody_else_has_everything() -> None:
    limits = msgspec.structs.replace(testing.QUICK_LIMITS, slow_consumer_bytes=1 << 18, slow_consumer_ms=200)
    settings = msgspec.structs.replace(testing.QUICK, member_timeout_ms=1500, buffer_soft_limit=500)

    async def main() -> None:
        async with (
            testing.cluster(2, settings=settings, limits=limits) as cluster,
            cluster.connect("ann", broker="b1") as ann,
            cluster.connect("bob", broker="b1") as bob,
        ):
            inbox = await bob.subscribe("t")
            deaf = await _rogue(cluster.address, "t")
            deaf.reader._transport.pause_reading()  # type: ignore[attr-defined]

            async def pour() -> None:
                for i in range(3000):
                    ann.publish_soon("t", b"%04d" % i + bytes(5000))
                    await ann.drain(timeout=60)

            pouring = asyncio.create_task(pour())
            got = [int((await inbox.get(timeout=60)).payload[:4]) for _ in range(3000)]
            await pouring
            assert got == list(range(3000))
            assert isinstance(cluster, testing.InProcessCluster)
            await until(lambda: "mallory" not in str(cluster.processes["b0"].broker.tree.status()["clients"]))
            _none_has_failed(cluster)
            await deaf.close()

    run_async(main, timeout_s=120)


def test_a_member_that_never_reads_and_large_publications_take_no_more_memory_than_the_budget() -> None:
    """The publisher is the library, which waits when it is told to."""
    limits = msgspec.structs.replace(testing.QUICK_LIMITS, slow_consumer_ms=60_000)
    budget = 1 << 24
    settings = msgspec.structs.replace(testing.QUICK, buffer_soft_bytes=budget, slow_member_ms=3000)

    async def main() -> None:
        async with (
            testing.cluster(1, settings=settings, limits=limits) as cluster,
            cluster.connect("ann") as ann,
            cluster.connect("bob") as bob,
        ):
            assert isinstance(cluster, testing.InProcessCluster)
            process = cluster.processes["b0"]
            inbox = await bob.subscribe("t")
            deaf = await _rogue(cluster.address, "t")
            deaf.reader._transport.pause_reading()  # type: ignore[attr-defined]
            held: list[int] = []

            async def watch() -> None:
                while True:
                    queued = sum(connection.queued_bytes for connection in process.host.connections.values())
                    held.append(process.broker.topics.totals()["bytes"] + queued)
                    deaf.send(packet_frame(BROKER_CODEC.encode(Ping(1))))  # It lives.
                    await asyncio.sleep(0.02)

            watching = asyncio.create_task(watch())

            async def pour() -> None:
                payload = bytes(1 << 20)
                for _ in range(80):
                    ann.publish_soon("t", payload)
                    await ann.drain(timeout=60)

            pouring = asyncio.create_task(pour())
            for _ in range(80):
                await inbox.get(timeout=60)
            await pouring
            watching.cancel()
            window = ClientSettings().window_bytes
            assert max(held) > budget, "nothing had to be waited for"
            assert max(held) < 3 * (budget + 2 * window), f"{max(held) >> 20} MiB"
            assert process.host.counters["slow_members_fenced"] >= 1
            _none_has_failed(cluster)
            await deaf.close()

    run_async(main, timeout_s=120)
