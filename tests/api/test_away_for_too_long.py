"""A client with a data directory whose session was given up goes on through the history: nothing twice, nothing lost
of what is kept, and no silence about the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from ordercast.api import Client, HistoryLost, Inbox, SessionLost
from ordercast.pubsub.keeping import KeepTable
from ordercast.testing import QUICK, InProcessCluster, cluster
from tests.support.loop import run_async, until

SHORT = msgspec.structs.replace(QUICK, member_timeout_ms=400)
KEEP = (KeepTable(filter="kept.>"),)


Test = Callable[[InProcessCluster, Client, Path], Coroutine[Any, Any, None]]


def with_a_broker(tmp_path: Path, test: Test) -> None:
    """On a loop of its own, with a broker that keeps `kept.>` and waits for nobody for long."""

    async def main() -> None:
        running = cluster(1, settings=SHORT, data=tmp_path / "brokers", keep=KEEP)
        async with running as brokers, brokers.connect("ann") as ann:
            await test(cast("InProcessCluster", brokers), ann, tmp_path / "bob")

    run_async(main)


async def given_up(brokers: InProcessCluster) -> None:
    """Wait until nobody counts on the session that has just ended."""
    (process,) = brokers.processes.values()
    before = process.host.counters["members_fenced"]
    await until(lambda: process.host.counters["members_fenced"] > before)


async def read(inbox: Inbox, last: str) -> list[str]:
    """Payloads up to the last one; what is missing on the way as `lost TOPIC`."""
    found: list[str] = []
    async with asyncio.timeout(20):
        while last not in found:
            try:
                found.append((await inbox.get()).payload.decode())
            except HistoryLost as lost:
                found.append(f"lost {lost.topic}")
    return found


async def say(client: Client, topic: str, *words: str) -> None:
    for word in words:
        await client.publish(topic, word.encode(), ack="safe")


@pytest.mark.parametrize("pattern", ["kept.t", "kept.>"])
@pytest.mark.parametrize("end", ["close", "abandon"])
def test_what_was_handed_over_and_not_read_comes_once_and_before_what_was_missed(
    tmp_path: Path, pattern: str, end: str
) -> None:
    async def test(brokers: InProcessCluster, ann: Client, data: Path) -> None:
        bob = await brokers.connect("bob", data=data)
        inbox = await bob.subscribe(pattern)
        await say(ann, "kept.t", "1", "2", "3", "4")
        assert (await inbox.get(20)).payload == b"1"
        await until(lambda: inbox.waiting == 3)
        await (bob.close() if end == "close" else bob.abandon())
        await say(ann, "kept.t", "5", "6")
        await given_up(brokers)
        async with brokers.connect("bob", data=data) as bob:
            inbox = await bob.subscribe(pattern)
            await say(ann, "kept.t", "live")
            await until(lambda: inbox.waiting >= 6)  # Nothing is read before all of it is there.
            found = await read(inbox, "live")
            assert found[found.index("2") :] == ["2", "3", "4", "5", "6", "live"]
            assert found[: found.index("2")] in ([], ["1"])

    with_a_broker(tmp_path, test)


@pytest.mark.parametrize("known", [False, True])
def test_topics_of_a_filter_that_began_meanwhile_are_read_from_their_beginning(tmp_path: Path, known: bool) -> None:
    async def test(brokers: InProcessCluster, ann: Client, data: Path) -> None:
        await say(ann, "kept.before", "of nobody's concern")
        bob = await brokers.connect("bob", data=data)
        inbox = await bob.subscribe("kept.n.>")
        if known:
            await say(ann, "kept.n.old", "0")
            assert await read(inbox, "0") == ["0"]
        await bob.close()
        await say(ann, "kept.n.new", "1", "2")
        if known:
            await say(ann, "kept.n.old", "3")
        await given_up(brokers)
        async with brokers.connect("bob", data=data) as bob:
            inbox = await bob.subscribe("kept.n.>")
            await say(ann, "kept.n.new", "live")
            found = await read(inbox, "live")
            if known and "3" not in found:
                found += await read(inbox, "3")
            assert [word for word in found if word != "3"] == ["1", "2", "live"]
            assert found.count("3") == known
            await say(ann, "kept.n.later", "later")
            assert await read(inbox, "later") == ["later"]

    with_a_broker(tmp_path, test)


@pytest.mark.parametrize("known", [False, True])
def test_who_missed_what_is_not_kept_is_told_once_and_reads_on(tmp_path: Path, known: bool) -> None:
    async def test(brokers: InProcessCluster, ann: Client, data: Path) -> None:
        bob = await brokers.connect("bob", data=data)
        inbox = await bob.subscribe("t.>")
        if known:
            await say(ann, "t.old", "0")
            assert await read(inbox, "0") == ["0"]
        first = bob.session
        await bob.close()
        await say(ann, "t.new", "gone")
        await given_up(brokers)
        async with brokers.connect("bob", data=data) as bob:
            assert bob.session != first
            inbox = await bob.subscribe("t.>")
            await say(ann, "t.new", "1")
            await say(ann, "t.old", "2")
            found = await read(inbox, "2")
            assert sorted(found) == ["1", "2", "lost t.new", *["lost t.old"][:known]]
            await say(ann, "t.old", "3")
            assert await read(inbox, "3") == ["3"]

    with_a_broker(tmp_path, test)


def test_a_follower_of_a_filter_alone_is_told_that_its_session_is_over(tmp_path: Path) -> None:
    """It keeps its connection meanwhile: only the application can begin a new one."""

    async def test(brokers: InProcessCluster, _ann: Client, data: Path) -> None:
        bob = await brokers.connect("bob", data=data)
        await bob.subscribe("kept.>")
        other = await brokers.connect("bob")  # A newer session of the same client takes its place.
        await other.subscribe("kept.>")
        await until(lambda: bob.ended)
        with pytest.raises(SessionLost, match="newer session"):
            await bob.subscribe("t")
        await bob.close()
        await other.close()

    with_a_broker(tmp_path, test)


@pytest.mark.parametrize("pattern", ["t", "*"])
def test_whoever_has_left_for_good_is_a_member_of_nothing_when_it_connects_again(tmp_path: Path, pattern: str) -> None:
    async def test(brokers: InProcessCluster, ann: Client, data: Path) -> None:
        bob = await brokers.connect("bob", data=data)
        await bob.subscribe(pattern)
        await bob.publish("t", b"mine")
        first = bob.session
        await bob.close(stay=False)
        async with brokers.connect("bob", data=data) as bob:
            assert bob.session != first
            await ann.publish("t", b"0", ack="delivered", timeout=20)
            inbox = await bob.subscribe(pattern)
            await say(ann, "t", "1")
            assert await read(inbox, "1") == ["1"]

    with_a_broker(tmp_path, test)
