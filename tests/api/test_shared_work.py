"""Shared work over real connections: each message to one member, each key in order, through crashes of everybody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import ordercast
from ordercast.api import Client
from ordercast.api.sharing.records import last_written
from ordercast.api.work import Work, WorkInbox, WorkLost
from ordercast.api.work_leader import LeaderTask
from ordercast.client.work.leader import WorkSettings
from ordercast.client.work.words import GroupProgress, encode
from ordercast.core.ids import Origin, Topic
from ordercast.pubsub.keeping import KeepTable
from ordercast.pubsub.publications import Publication
from ordercast.testing import EmbeddedCluster, cluster
from tests.support.loop import run_async, until

KEEP = (KeepTable(filter="orders"), KeepTable(filter="groups.>", compact="key"))
QUICK_WORK = WorkSettings(silent_ms=800, window=32, max_attempts=3)


@asynccontextmanager
async def kept_cluster(directory: Path, brokers: int = 1) -> AsyncIterator[EmbeddedCluster]:
    async with cluster(brokers, data=directory, keep=KEEP, fsync="never") as running:
        yield running


class Crew:
    """Members of a group that do what they are handed, and what they did, in order."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str, bytes]] = []
        self.inboxes: dict[str, WorkInbox] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def join(self, client: Client, start: str = "earliest", work: WorkSettings = QUICK_WORK) -> WorkInbox:
        inbox = await client.subscribe("orders", group="workers", start=start, work=work)
        self.inboxes[client.client_id] = inbox
        self.tasks.append(asyncio.create_task(self._work(client.client_id, inbox)))
        return inbox

    async def _work(self, name: str, inbox: WorkInbox) -> None:
        async for message in inbox:
            self.done.append((name, message.key, message.payload))
            await asyncio.sleep(0)
            message.done()

    async def settle(self) -> None:
        """Everybody has joined."""
        await until(lambda: all(inbox.joined for inbox in self.inboxes.values()))

    async def finish(self, count: int) -> None:
        await until(lambda: len({payload for _, _, payload in self.done}) >= count)

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def of_key(self, key: str) -> list[int]:
        """In the order in which they were first done."""
        return list(dict.fromkeys(int(payload) for _, k, payload in self.done if k == key))


async def publish(client: Client, first: int, last: int, keys: int = 5) -> None:
    for number in range(first, last + 1):
        client.publish_soon("orders", b"%d" % number, key=f"k{number % keys}")
    await client.flush()


def test_each_message_goes_to_one_member_and_each_key_stays_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        crew = Crew()
        async with kept_cluster(tmp_path) as brokers, brokers.connect("ann") as ann:
            await publish(ann, 1, 50)  # Before there is anybody.
            async with brokers.connect("bob") as bob, brokers.connect("cho") as cho:
                await crew.join(bob)
                await crew.join(cho)
                await crew.finish(50)
                await crew.settle()
                await publish(ann, 51, 200)
                await crew.finish(200)
                await crew.stop()

        assert sorted(int(payload) for _, _, payload in crew.done) == list(range(1, 201))
        assert {name for name, _, _ in crew.done} == {"bob", "cho"}
        for key in range(5):
            assert crew.of_key(f"k{key}") == [i for i in range(1, 201) if i % 5 == key]

    run_async(main)


@pytest.mark.parametrize("victim", ["member", "leader", "broker"])
def test_work_goes_on_when_somebody_dies(tmp_path: Path, victim: str) -> None:
    async def main() -> None:
        crew = Crew()
        async with kept_cluster(tmp_path, 3) as brokers, brokers.connect("ann") as ann:
            clients = [await brokers.connect(f"m{i}", broker=f"b{i}").__aenter__() for i in range(3)]
            for client in clients:
                await crew.join(client)
            await crew.settle()
            await publish(ann, 1, 100)
            await crew.finish(30)
            await publish(ann, 101, 200)
            leads = next(i for i, client in enumerate(clients) if crew.inboxes[client.client_id].leads)
            if victim == "broker":
                await brokers.kill("b2")
            else:
                await clients.pop(leads if victim == "leader" else leads - 1).abandon()
            await publish(ann, 201, 300)
            await crew.finish(300)
            await crew.stop()
            for client in clients:
                await client.close()

        done = [int(payload) for _, _, payload in crew.done]
        assert set(done) == set(range(1, 301))
        if victim == "broker":
            assert len(done) == 300
        for key in range(5):
            assert crew.of_key(f"k{key}") == [i for i in range(1, 301) if i % 5 == key]

    run_async(main)


def test_what_is_done_is_never_handed_out_again_though_nobody_stays(tmp_path: Path) -> None:
    async def main() -> None:
        async with kept_cluster(tmp_path) as brokers, brokers.connect("ann") as ann:
            await publish(ann, 1, 4, keys=1)
            async with brokers.connect("bob") as bob:
                inbox = await bob.subscribe("orders", group="workers", start="earliest", work=QUICK_WORK)
                for expected in (b"1", b"2"):
                    message = await inbox.get(20)
                    assert message.payload == expected
                    await message.done()
                assert (await inbox.get(20)).payload == b"3"  # And is gone with it.
            await brokers.restart("b0")
            await brokers.settle()
            async with brokers.connect("cho") as cho:
                inbox = await cho.subscribe("orders", group="workers", work=QUICK_WORK)
                again = [await inbox.get(20)]
                assert again[0].payload == b"3"
                await again[0].done()
                assert (await inbox.get(20)).payload == b"4"

    run_async(main)


def test_work_that_fails_is_tried_again_in_order_and_then_given_up_with_the_reason(tmp_path: Path) -> None:
    async def main() -> None:
        async with kept_cluster(tmp_path) as brokers, brokers.connect("ann") as ann, brokers.connect("bob") as bob:
            dead = await ann.subscribe("dead.orders.workers")
            inbox = await bob.subscribe("orders", group="workers", start="earliest", work=QUICK_WORK)
            await ann.publish("orders", b"poison", key="k", headers={b"by": b"ann"})
            await ann.publish("orders", b"next", key="k")
            tried = []
            for _ in range(3):
                message = await inbox.get(20)
                tried.append((message.payload, message.attempt))
                message.retry(after=0.01, reason="no such customer")

            assert tried == [(b"poison", 1), (b"poison", 2), (b"poison", 3)]
            assert (await inbox.get(20)).payload == b"next"
            buried = await dead.get(20)
            assert (buried.payload, buried.key) == (b"poison", "k")
            assert buried.headers[b"reason"] == b"no such customer"
            assert (buried.headers[b"by"], buried.headers[b"attempts"]) == (b"ann", b"3")

    run_async(main)


def test_a_member_that_was_silent_is_told_that_its_work_is_not_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with kept_cluster(tmp_path) as brokers, brokers.connect("ann") as ann, brokers.connect("bob") as bob:
            inbox = await bob.subscribe("orders", group="workers", start="earliest", work=QUICK_WORK)
            await ann.publish("orders", b"1", key="k")
            mine = await inbox.get(20)
            async with brokers.connect("cho") as cho:
                other = await cho.subscribe("orders", group="workers", work=QUICK_WORK)
                await until(lambda: other.joined)
                monkeypatch.setattr(inbox, "flush", lambda: None)
                taken = await other.get(20)
                assert (taken.payload, taken.attempt) == (b"1", 2)
                await taken.done()
                monkeypatch.undo()
                await until(lambda: mine.over)
                with pytest.raises(WorkLost):
                    await mine.done()
                await ann.publish("orders", b"2", key="k")
                last = [asyncio.create_task(one.get(20)) for one in (inbox, other)]
                done, waiting = await asyncio.wait(last, return_when=asyncio.FIRST_COMPLETED)
                assert [task.result().payload for task in done] == [b"2"]
                for task in waiting:
                    task.cancel()

    run_async(main)


PATIENT = WorkSettings(silent_ms=800, window=32, max_attempts=5, in_hand_ms=1000)


@asynccontextmanager
async def two_members(directory: Path, work: WorkSettings, payloads: int) -> AsyncIterator[tuple[WorkInbox, Crew]]:
    """The inbox of one that has been sent all the work and takes none of it yet; and a diligent one."""
    crew = Crew()
    async with kept_cluster(directory) as brokers, brokers.connect("ann") as ann, brokers.connect("bob") as bob:
        inbox = await ann.subscribe("orders", group="workers", start="earliest", work=work)
        await until(lambda: inbox.joined)
        for number in range(payloads):
            await bob.publish("orders", b"%d" % number, key="k")
        await crew.join(bob, work=work)
        await crew.settle()
        try:
            yield inbox, crew
        finally:
            await crew.stop()


def test_an_application_that_hangs_with_a_unit_gives_its_keys_to_others_if_the_group_says_how_long_it_may(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SHW-14. Its word comes too late."""

    async def main() -> None:
        async with two_members(tmp_path, PATIENT, 3) as (inbox, crew):
            mine = await inbox.get(20)
            await crew.finish(3)
            assert crew.of_key("k") == [0, 1, 2]
            await until(lambda: mine.over)
            with pytest.raises(WorkLost):
                await mine.done()
            await until(lambda: inbox.joined)

    run_async(main)
    assert "in_hand_ms" in caplog.text


def test_an_application_that_takes_nothing_stays_out_of_the_group_until_it_does(tmp_path: Path) -> None:
    async def main() -> None:
        async with two_members(tmp_path, PATIENT, 2) as (inbox, crew):
            await crew.finish(2)
            assert not inbox.joined
            with pytest.raises(TimeoutError):
                await inbox.get(0.1)  # What waited for it is others' work now.
            await until(lambda: inbox.joined)

    run_async(main)


def test_an_application_that_is_only_slow_keeps_what_waits_for_it(tmp_path: Path) -> None:
    """All of it takes longer than a unit may."""

    async def main() -> None:
        async with two_members(tmp_path, PATIENT, 6) as (inbox, crew):
            for number in range(6):
                message = await inbox.get(20)
                assert (message.payload, message.attempt) == (b"%d" % number, 1)
                await asyncio.sleep(0.4)
                await message.done()
            assert not crew.done

    run_async(main)


def test_work_that_waits_to_be_tried_again_is_in_nobodys_hand(tmp_path: Path) -> None:
    async def main() -> None:
        async with two_members(tmp_path, PATIENT, 1) as (inbox, crew):
            (await inbox.get(20)).retry(after=2.5)
            again = await inbox.get(20)
            assert again.attempt == 2
            await again.done()
            assert not crew.done

    run_async(main)


def test_a_group_of_a_topic_that_is_not_kept_is_refused_by_name(tmp_path: Path) -> None:
    async def main() -> None:
        async with kept_cluster(tmp_path) as brokers, brokers.connect("bob") as bob:
            inbox = await bob.subscribe("news", group="workers", work=QUICK_WORK)
            with pytest.raises(ordercast.UsageError, match=r"news.* is not kept"):
                await inbox.get(20)

    run_async(main)


def test_a_batch_is_one_piece_of_work_and_what_has_expired_is_none(tmp_path: Path) -> None:
    async def main() -> None:
        async with kept_cluster(tmp_path) as brokers, brokers.connect("ann") as ann, brokers.connect("bob") as bob:
            await ann.publish("orders", b"old", expires_after=1e-9)
            await ann.publish_many("orders", [b"1", b"2"], key="k")
            await ann.publish("orders", b"3", dedup="three")
            await ann.publish("orders", b"3", dedup="three")
            await ann.publish("orders", b"4")
            inbox = await bob.subscribe("orders", group="workers", start="earliest", work=QUICK_WORK)
            handed: list[Work] = [await inbox.get(20) for _ in range(3)]

            assert [list(message.payloads) for message in handed] == [[b"1", b"2"], [b"3"], [b"4"]]

    run_async(main)


class SlowTopic:
    """The topic of a group on which the word of a new leader is not stable yet: client and inbox in one."""

    session = "group~7"

    def __init__(self) -> None:
        self.stable = asyncio.Event()
        self.words: list[Publication] = []

    @property
    def waiting(self) -> int:
        return len(self.words)

    async def get_batch(self, timeout: float) -> list[Publication]:
        if not self.words:
            await asyncio.sleep(timeout)
            raise TimeoutError
        words, self.words = self.words, []
        return words

    async def publish(self, topic: str, payload: bytes, *, key: str, ack: str) -> str:
        assert ack == "delivered"
        await self.stable.wait()
        return "word"

    async def spawn(self, name: str, above: int) -> SlowTopic:
        return self

    async def subscribe(self, topic: str) -> SlowTopic:
        return self

    def read(self, topics: list[str]) -> None:
        raise AssertionError(f"{topics} are read although another one leads")


def test_a_new_leader_waits_for_the_last_words_of_the_one_before() -> None:
    """SHW-1: being granted does not mean that the session before is fenced."""

    async def main() -> None:
        topic: Any = SlowTopic()
        task = LeaderTask(topic, "orders", "workers", QUICK_WORK, "now", "dead", 0)
        settled = asyncio.create_task(task._settled(topic, 7))
        last_words = Publication(Origin("group~6"), 1, Topic("groups.orders.workers"), b"")
        topic.words.append(last_words)
        await until(lambda: not topic.words)
        assert not settled.done()
        topic.stable.set()

        assert await settled == [last_words]

    run_async(main)


def test_a_new_leader_that_hears_of_a_later_one_while_it_waits_does_not_lead() -> None:
    """SHW-1: the later one believes that whoever has taken its first word says nothing more."""

    async def main() -> None:
        topic: Any = SlowTopic()
        begins = GroupProgress(8, {}, begins=True)
        topic.words.append(Publication(Origin("group~8"), 1, Topic("groups.orders.workers"), encode(begins)))
        topic.stable.set()
        task = LeaderTask(topic, "orders", "workers", QUICK_WORK, "now", "dead", 0)

        await task.run()

        assert not topic.words
        assert task.over
        assert not task.leads

    run_async(main)


def test_what_the_latest_leader_wrote_last_counts_whatever_order_a_copy_has() -> None:
    begins = GroupProgress(9, {}, begins=True)
    old, first, last = GroupProgress(6, {}), GroupProgress(8, {}), GroupProgress(8, {Origin("ann"): (1, ())})

    assert last_written([first, last, old, begins]) == last
    assert last_written([begins]) is None
