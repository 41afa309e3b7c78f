"""Shared work over a filter: the group of each kept topic that it takes in, in one inbox."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

import ordercast
from ordercast.api import Client
from ordercast.api.work import Work, WorkInbox
from ordercast.client.work.leader import WorkSettings
from ordercast.net.wire.credentials import User
from ordercast.pubsub.keeping import KeepTable
from ordercast.testing import EmbeddedCluster, cluster
from tests.api.test_blocking import running
from tests.support.loop import run_async, until

KEEP = (
    KeepTable(filter="orders.>"), KeepTable(filter="bills.>"), KeepTable(filter="groups.>", compact="key"),
)  # fmt: skip
QUICK_WORK = WorkSettings(silent_ms=800, window=16, max_attempts=3)
TOPICS = ("orders.PT", "orders.ES", "orders.FR")


@asynccontextmanager
async def kept_cluster(directory: Path, brokers: int = 1) -> AsyncIterator[EmbeddedCluster]:
    async with cluster(brokers, data=directory, keep=KEEP, fsync="never") as running:
        yield running


async def join(client: Client, topic: str = "orders.>", start: str = "earliest") -> WorkInbox:
    return await client.subscribe(topic, group="workers", start=start, work=QUICK_WORK)


class Diary:
    """What members were handed, in order: who, topic, key and payload."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, str, int]] = []
        self._tasks: list[asyncio.Task[None]] = []

    def work(self, name: str, inbox: WorkInbox) -> None:
        self._tasks.append(asyncio.create_task(self._work(name, inbox)))

    async def _work(self, name: str, inbox: WorkInbox) -> None:
        async for message in inbox:
            self.lines.append((name, message.topic, message.key, int(message.payload)))
            await asyncio.sleep(0.001)
            message.done()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def handed(self, topic: str, key: str | None = None) -> list[int]:
        return [number for _, where, which, number in self.lines if where == topic and key in (None, which)]

    def of(self, topic: str, key: str) -> list[int]:
        """In the order in which they were first handed out."""
        return list(dict.fromkeys(self.handed(topic, key)))


async def publish(client: Client, topics: tuple[str, ...], first: int, last: int) -> None:
    for number in range(first, last + 1):
        for topic in topics:
            client.publish_soon(topic, b"%d" % number, key=f"k{number % 4}")
    await client.flush()


FIRST = {"orders.FR": 21}
"""The number of its first message, of the topic that begins later."""


def test_two_members_share_a_filter_while_a_topic_begins_and_one_of_them_dies(tmp_path: Path) -> None:
    """Each message is handled, one that nobody died with once; each key of each topic in order."""

    async def main() -> None:
        diary = Diary()
        async with kept_cluster(tmp_path, 3) as brokers, brokers.connect("ann") as ann:
            clients = {name: await brokers.connect(name, broker=f"b{i}").__aenter__() for i, name in enumerate("xyz")}
            await publish(ann, TOPICS[:2], 1, 20)  # Before there is anybody.
            inboxes = {name: await join(clients[name]) for name in "xy"}
            inboxes["z"] = await join(clients["z"], "orders.PT")
            for name, inbox in inboxes.items():
                diary.work(name, inbox)
            await until(lambda: all(inbox.joined for inbox in inboxes.values()))
            await publish(ann, TOPICS, 21, 60)  # One of them begins now.
            await until(lambda: len(set(diary.handed("orders.FR"))) == 40)
            once = {topic: diary.handed(topic) for topic in TOPICS}
            await until(lambda: all(len(inboxes[name].topics) == 3 and inboxes[name].joined for name in "xy"))
            await publish(ann, TOPICS, 61, 100)
            await clients.pop("x").abandon()
            await publish(ann, TOPICS, 101, 140)
            await until(lambda: all(140 in diary.of(topic, "k0") for topic in TOPICS))
            await until(lambda: all(len(set(diary.handed(topic))) == 141 - FIRST.get(topic, 1) for topic in TOPICS))
            await diary.stop()
            for client in clients.values():
                await client.close()

        for topic in TOPICS:
            first = FIRST.get(topic, 1)
            assert len(once[topic]) == len(set(once[topic])), "nobody had died yet"
            for key in range(4):
                expected = [i for i in range(first, 141) if i % 4 == key]
                assert diary.of(topic, f"k{key}") == expected
        assert {topic for name, topic, _, _ in diary.lines if name == "z"} <= {"orders.PT"}
        assert {name for name, _, _, _ in diary.lines} == {"x", "y", "z"}

    run_async(main)


def test_a_filter_without_any_topic_waits_for_the_first(tmp_path: Path) -> None:
    async def main() -> None:
        async with kept_cluster(tmp_path) as brokers, brokers.connect("ann") as ann, brokers.connect("bob") as bob:
            inbox = await join(bob, "bills.*.new", "now")
            assert (inbox.topics, inbox.pattern, inbox.group) == ((), "bills.*.new", "workers")
            await ann.publish("bills.PT.old", b"no")
            await ann.publish("bills.PT.new", b"yes")
            message = await inbox.get(20)
            await message.done()

            assert (message.topic, message.payload) == ("bills.PT.new", b"yes")
            assert inbox.topics == ("bills.PT.new",)

    run_async(main)


def test_a_topic_that_began_while_nobody_was_there_is_worked_from_its_beginning(tmp_path: Path) -> None:
    """Also if whoever comes back says `now`, which is where the group began long ago."""

    async def main() -> None:
        async with kept_cluster(tmp_path) as brokers, brokers.connect("ann") as ann:
            await ann.publish("orders.PT", b"before the group")
            async with brokers.connect("bob") as bob:
                inbox = await join(bob, start="now")
                await until(lambda: inbox.joined)
                await ann.publish("orders.PT", b"first")
                message = await inbox.get(20)
                assert message.payload == b"first"
                await message.done()
            await ann.publish("orders.PT", b"second")
            await ann.publish("orders.ES", b"third")
            async with brokers.connect("cho") as cho:
                inbox = await join(cho, start="now")
                found = {(message := await inbox.get(20)).topic: message.payload for _ in range(2)}

            assert found == {"orders.PT": b"second", "orders.ES": b"third"}

    run_async(main)


def test_what_is_given_up_goes_to_the_dead_letters_of_its_topic_and_not_back_into_the_work(tmp_path: Path) -> None:
    async def main() -> None:
        async with kept_cluster(tmp_path) as brokers, brokers.connect("ann") as ann, brokers.connect("bob") as bob:
            dead = await ann.subscribe("dead.>")
            inbox = await bob.subscribe(">", group="workers", start="earliest", work=QUICK_WORK)
            await ann.publish("orders.PT", b"poison", key="k")
            await ann.publish("orders.ES", b"fine", key="k")
            tried: list[tuple[bytes, int]] = []
            while len(tried) < 4:
                message = await inbox.get(20)
                tried.append((message.payload, message.attempt))
                if message.payload == b"poison":
                    message.retry(reason="bad")
                else:
                    await message.done()
            buried = await dead.get(20)

            assert sorted(tried) == [(b"fine", 1), (b"poison", 1), (b"poison", 2), (b"poison", 3)]
            assert (buried.topic, buried.payload) == ("dead.orders.PT.workers", b"poison")
            assert set(inbox.topics) == {"orders.PT", "orders.ES"}

    run_async(main)


def test_a_filter_that_nothing_of_can_be_kept_is_refused_by_name(tmp_path: Path) -> None:
    async def main() -> None:
        async with kept_cluster(tmp_path) as brokers, brokers.connect("bob") as bob:
            with pytest.raises(ordercast.UsageError, match=r"'workers' on news\.>: no topic that it takes in is kept"):
                await join(bob, "news.>")
            with pytest.raises(ordercast.UsageError, match="start: a group begins at"):
                await join(bob, start="last-of-each-key")
        alone = cluster(1, data=tmp_path / "other", keep=KEEP[:1], fsync="never")
        async with alone as brokers, brokers.connect("bob") as bob:
            with pytest.raises(ordercast.UsageError, match=r"groups\.orders\.\(rest\)\.workers is not kept"):
                await join(bob)

    run_async(main)


def test_one_window_is_shared_by_all_topics_and_goes_where_the_work_is(tmp_path: Path) -> None:
    """SHW-9: 12 busy topics are not 12 windows; one busy topic gets more than its twelfth."""

    async def main() -> None:
        topics = tuple(f"orders.t{i}" for i in range(12))
        async with kept_cluster(tmp_path) as brokers, brokers.connect("ann") as ann, brokers.connect("bob") as bob:
            for topic in topics:
                for number in range(8):
                    ann.publish_soon(topic, b"%d" % number)
            await ann.flush()
            inbox = await join(bob)
            held: list[Work] = []
            while {message.topic for message in held} != set(topics):
                held.append(await inbox.get(20))
            await asyncio.sleep(1)  # Nothing is done: what is handed out until now is all that bob is sent.
            with suppress(TimeoutError):
                while len(held) < 12 * 8:
                    held.append(await inbox.get(0.2))
            assert len(held) <= QUICK_WORK.window
            for message in held:
                message.done()
            done = len(held)
            while done < 12 * 8:
                (await inbox.get(20)).done()
                done += 1
            for number in range(200):
                ann.publish_soon("orders.t0", b"%d" % number)
            await ann.flush()
            most = [await inbox.get(20) for _ in range(4)]

            assert {message.topic for message in most} == {"orders.t0"}

    run_async(main)


def test_an_inbox_that_is_closed_leaves_its_work_to_others_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with kept_cluster(tmp_path) as brokers, brokers.connect("ann") as ann, brokers.connect("bob") as bob:
            await publish(ann, TOPICS, 1, 2)
            async with brokers.connect("cho") as cho:
                inbox = await join(bob)
                assert inbox.topics == tuple(sorted(TOPICS))
                mine = await inbox.get(20)
                other = await join(cho)
                await bob.unsubscribe(inbox)
                assert [message async for message in inbox] == []
                assert mine.over
                found = set()
                while len(found) < 6:
                    message = await other.get(20)
                    found.add((message.topic, message.payload))
                    message.done()

            joining = asyncio.create_task(join(bob))
            await asyncio.sleep(0)
            await bob.close()
            with pytest.raises(ConnectionError):
                await joining

    run_async(main)


def test_a_user_shares_the_topics_that_it_may_read_and_is_told_which_right_it_lacks(tmp_path: Path) -> None:
    async def main() -> None:
        users = (
            User(name="ann", token="a" * 20, publish=(">",), subscribe=(">",)),
            User(name="bob", token="b" * 20, publish=(">",), subscribe=("groups.>", "work.>", "orders.PT")),
            User(name="eve", token="e" * 20, publish=(">",), subscribe=("groups.>", "orders.>")),
        )
        known = {"user": users, "peer_token": "p" * 20}
        async with (
            cluster(1, data=tmp_path, keep=KEEP, fsync="never", **known) as brokers,
            brokers.connect("ann", token="a" * 20) as ann,
            brokers.connect("bob.1", token="b" * 20, user="bob") as bob,
            brokers.connect("eve.1", token="e" * 20, user="eve") as eve,
        ):
            await publish(ann, TOPICS, 1, 2)
            inbox = await join(bob)
            message = await inbox.get(20)

            assert inbox.topics == ("orders.PT",)
            assert (message.topic, message.payload) == ("orders.PT", b"1")
            with pytest.raises(ordercast.SubscribeDenied, match=r"^work\.orders\.ES\.workers\.to\.eve"):
                await join(eve)

    run_async(main)


def test_a_program_without_asyncio_shares_a_filter(tmp_path: Path) -> None:
    with (
        running(data=tmp_path, keep=KEEP, fsync="never") as brokers,
        ordercast.blocking.connect(brokers.address, "ann") as ann,
        ordercast.blocking.connect(brokers.address, "bob") as bob,
    ):
        ann.publish("orders.PT", b"1", key="k")
        inbox = bob.subscribe("orders.*", group="workers", start="earliest", work=QUICK_WORK)
        first = inbox.get(20)
        first.done()
        ann.publish("orders.ES", b"2", key="k")
        second = inbox.get(20)
        second.done()
        bob.unsubscribe(inbox)

        assert [(work.topic, work.payload) for work in (first, second)] == [("orders.PT", b"1"), ("orders.ES", b"2")]
        assert inbox.topics == ("orders.ES", "orders.PT")
        assert list(inbox) == []


def test_the_command_shares_a_filter_and_refuses_one_that_is_not_kept(tmp_path: Path) -> None:
    def run(address: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ordercast", "sub", *arguments, "--broker", address, "--timeout", "50"]
        return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)

    with (
        running(data=tmp_path, keep=KEEP, fsync="never") as brokers,
        ordercast.blocking.connect(brokers.address, "ann") as ann,
    ):
        for topic in TOPICS:
            ann.publish(topic, b"1", key="k")
        shared = run(brokers.address, "orders.>", "--group", "workers", "--from", "earliest", "--count", "3")
        refused = run(brokers.address, "news.>", "--group", "workers")

    assert (shared.returncode, sorted(shared.stdout.splitlines())) == (
        0,
        [f"{topic}\tk\t1" for topic in sorted(TOPICS)],
    )
    assert refused.returncode == 2
    assert refused.stderr.strip() == "ordercast: group 'workers' on news.>: no topic that it takes in is kept"
