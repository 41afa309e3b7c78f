"""BRK-M13: a client that is started again under its name takes the place of its former self at once."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

import ordercast
from ordercast.api import connecting
from ordercast.testing import QUICK, cluster
from tests.support.loop import run_async

PATIENT = msgspec.structs.replace(QUICK, member_timeout_ms=60_000, absent_member="wait")


def test_totals_do_not_wait_for_a_dead_session_whose_client_is_back() -> None:
    async def main() -> None:
        async with cluster(3, settings=PATIENT) as brokers, brokers.connect("ann") as ann:
            dead = await ordercast.connect(brokers.address_of("b1"), "bob")
            await dead.subscribe("t")
            inbox = await ann.subscribe("t")
            await dead.abandon()
            begun = time.monotonic()
            async with brokers.connect("bob", broker="b2") as bob:
                back = await bob.subscribe("t")
                await ann.publish("t", b"now", guarantee="total", timeout=20)
                assert (await inbox.get(20)).payload == b"now"
                assert (await back.get(20)).payload == b"now"
            assert time.monotonic() - begun < 30, "half of what an absent member is waited for"

    run_async(main)


@pytest.mark.parametrize("edge", ["b0", "b1"])
def test_of_two_live_clients_with_one_name_the_older_is_told_why_it_was_cut_off(edge: str) -> None:
    async def main() -> None:
        async with cluster(2, settings=PATIENT) as brokers:
            older = await ordercast.connect(brokers.address_of("b0"), "bob")
            inbox = await older.subscribe("t")
            await asyncio.sleep(0.002)  # Of two that begin in one millisecond either may count as the later one.
            async with brokers.connect("bob", broker=edge) as newer:
                await newer.subscribe("t")
                told = r"bob~\S*: a newer session of its name has taken its place;"
                with pytest.raises(ordercast.SessionLost, match=told):
                    await inbox.get(20)
            await older.close()

    run_async(main)


def test_two_clients_of_one_name_that_begin_in_the_same_millisecond_are_two_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with cluster(1, settings=PATIENT) as brokers:
            monkeypatch.setattr(connecting.time, "time_ns", lambda: 1_800_000_000_000_000_000)
            sessions = []
            for _ in range(2):
                client = await ordercast.connect(brokers.address, "bob")
                sessions.append(client.session)
                await client.abandon()

        assert len(set(sessions)) == 2

    run_async(main)
