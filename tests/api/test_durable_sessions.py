"""A client with a data directory is the same session after a restart: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import ordercast
from ordercast.core.errors import UsageError
from ordercast.testing import cluster
from tests.support.loop import run_async
from tests.support.toy_broker import ToyBroker, toy_broker


def test_what_came_while_it_was_away_is_delivered_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(brokers=1) as brokers, brokers.connect("bob") as bob:
            client = await ordercast.connect(brokers.address, "ann", data=tmp_path)
            inbox = await client.subscribe("t")
            await bob.publish("t", b"1")
            await bob.publish("t", b"2")
            assert [(await inbox.get(5)).payload for _ in range(2)] == [b"1", b"2"]
            waiting = asyncio.ensure_future(inbox.get())
            await asyncio.sleep(0.05)
            session = client.session
            waiting.cancel()
            await client.abandon()

            await bob.publish("t", b"3")
            async with ordercast.connect(brokers.address, data=tmp_path) as again:
                assert again.session == session
                inbox = await again.subscribe("t")
                assert (await inbox.get(5)).payload == b"3"
                await again.publish("t", b"mine")
                assert (await inbox.get(5)).payload == b"mine"

    run_async(main)


def test_deliveries_that_were_not_read_come_first_after_the_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(brokers=1) as brokers, brokers.connect("bob") as bob:
            async with ordercast.connect(brokers.address, "ann", data=tmp_path) as ann:
                inbox = await ann.subscribe("t")
                for i in range(3):
                    await bob.publish("t", b"%d" % i)
                assert (await inbox.get(5)).payload == b"0"
                assert (await inbox.get(5)).payload == b"1"
            async with ordercast.connect(brokers.address, data=tmp_path) as ann:
                inbox = await ann.subscribe("t")
                assert (await inbox.get(5)).payload == b"2"

    run_async(main)


def test_what_was_published_without_any_broker_is_sent_by_the_next_life(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(brokers=1) as brokers:
            client = await ordercast.connect(brokers.address, "ann", data=tmp_path)
            client.publish_soon("t", b"before")
            await client.flush(timeout=5)
        client.publish_soon("t", b"alone")
        await asyncio.sleep(0.05)
        await client.abandon()
        async with cluster(brokers=1) as brokers, brokers.connect("bob") as bob:
            inbox = await bob.subscribe("t")
            async with ordercast.connect(brokers.address, data=tmp_path) as again:
                await again.flush(timeout=10)
                got = [(await inbox.get(5)).payload]
                if got == [b"before"]:  # It was safe, not stable: the new brokers never heard of it.
                    got.append((await inbox.get(5)).payload)
                assert got[-1] == b"alone"

    run_async(main)


def test_a_session_that_the_overlay_gave_up_is_followed_by_a_new_one(tmp_path: Path) -> None:
    """BRK-C9, BRK-FM5: the program is told, and decides what becomes of what it published and was never answered."""

    async def main() -> None:
        host = await toy_broker()
        machine = host.machine
        assert isinstance(machine, ToyBroker)
        client = await ordercast.connect(host.me.address, "ann", data=tmp_path)
        inbox = await client.subscribe("t")
        machine.fenced.add("ann")
        machine.topics["t"].members.clear()
        client.publish_soon("t", b"kept")
        with pytest.raises(ordercast.SessionLost, match=r"given up ann~\S*: it was absent .*; close this") as lost:
            await asyncio.gather(client.publish("u", b""), inbox.get())
        assert {entry.payload for entry in lost.value.unanswered} == {b"kept", b""}
        with pytest.raises(ordercast.SessionLost):
            client.publish_soon("t", b"")
        with pytest.raises(ordercast.SessionLost):
            await anext(inbox)
        await client.close()

        machine.fenced.clear()
        async with ordercast.connect(host.me.address, data=tmp_path) as again:
            assert again.client_id == "ann"
            assert again.session != client.session
            inbox = await again.subscribe("t")
            await again.publish("t", b"new")
            assert (await inbox.get(5)).payload == b"new", "nothing is published behind the application's back"
            assert {entry.payload for entry in again.unanswered} == {b"kept", b""}
            again.forget_unanswered()
        async with ordercast.connect(host.me.address, data=tmp_path) as again:
            assert again.unanswered == ()
        await host.stop()

    run_async(main)


@pytest.mark.parametrize("subscription", ["t", "t.>"])
def test_subscribing_in_a_session_that_was_given_up_says_so_at_once(tmp_path: Path, subscription: str) -> None:
    async def main() -> None:
        host = await toy_broker()
        machine = host.machine
        assert isinstance(machine, ToyBroker)
        async with ordercast.connect(host.me.address, "ann", data=tmp_path) as client:
            await client.subscribe("t.x")
            await client.subscribe(subscription)
        machine.fenced.add("ann")
        client = await ordercast.connect(host.me.address, data=tmp_path)
        with pytest.raises((ordercast.SessionLost, ordercast.HistoryLost)):  # It is renewed, and given up again.
            await client.subscribe(subscription, timeout=5)
        with pytest.raises(ordercast.SessionLost):
            await client.publish("t.x", b"", timeout=5)
        await client.close()
        await host.stop()

    run_async(main)


def test_what_comes_for_a_filter_before_it_is_opened_again_waits_for_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(brokers=1) as brokers, brokers.connect("bob") as bob:
            async with ordercast.connect(brokers.address, "ann", data=tmp_path) as ann:
                await ann.subscribe("t.>")
            async with ordercast.connect(brokers.address, data=tmp_path) as ann:
                await asyncio.sleep(0.1)
                await bob.publish("t.new", b"first")
                await asyncio.sleep(0.2)
                inbox = await ann.subscribe("t.>")
                assert (await inbox.get(5)).payload == b"first"

    run_async(main)

    run_async(main)


def test_a_directory_belongs_to_the_client_that_began_it(tmp_path: Path) -> None:
    async def main() -> None:
        host = await toy_broker()
        async with ordercast.connect(host.me.address, "ann", data=tmp_path):
            with pytest.raises(UsageError, match="in use"):
                await ordercast.connect(host.me.address, "ann", data=tmp_path)
        with pytest.raises(UsageError, match="belongs to client 'ann', not 'bob'"):
            await ordercast.connect(host.me.address, "bob", data=tmp_path)
        await host.stop()

    run_async(main)


def test_a_disk_that_keeps_nothing_ends_the_client_with_a_word(tmp_path: Path) -> None:
    async def main() -> None:
        host = await toy_broker()
        client = await ordercast.connect(host.me.address, "ann", data=tmp_path)
        inbox = await client.subscribe("t")
        assert client._ledger is not None
        client._ledger._db.execute("PRAGMA max_page_count = 1")
        with pytest.raises(ordercast.ConnectError, match=r"ann has failed: data: .*full"):
            await asyncio.gather(client.publish("t", b"x" * 100_000), inbox.get())
        with pytest.raises(ordercast.ConnectError, match="has failed"):
            await client.flush()
        await client.close()
        await host.stop()

    run_async(main)
