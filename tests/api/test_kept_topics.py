"""Kept topics as a program uses them: the past, then what is live, over real connections and through crashes."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

import ordercast
from ordercast.api import Client, HistoryLost, Inbox, Position, SubscribeDenied
from ordercast.api.subscriptions import Subscriptions
from ordercast.core.errors import UsageError
from ordercast.core.ids import Topic
from ordercast.net.wire.credentials import User
from ordercast.pubsub.keeping import KeepTable
from ordercast.testing import QUICK, InProcessCluster, cluster
from tests.support.loop import run_async, until


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    """Run the test on a loop of its own."""

    @wraps(test)
    def run(tmp_path: Path) -> None:
        run_async(lambda: test(tmp_path))

    return run


KEEP = (KeepTable(filter="kept.>", copies=2),)


@asynccontextmanager
async def kept_cluster(directory: Path, brokers: int = 3, **more: Any) -> AsyncIterator[InProcessCluster]:
    options = {"keep": KEEP, "fsync": "never", **more}
    async with cluster(brokers, data=directory / "brokers", **options) as running:
        yield cast("InProcessCluster", running)


async def publish(client: Client, topic: str, first: int, last: int, ack: str = "safe", **more: Any) -> None:
    for number in range(first, last + 1):
        client.publish_soon(topic, b"%d" % number, **more)
    await client.flush(ack)


async def take(inbox: Inbox, count: int) -> list[int]:
    async with asyncio.timeout(20):
        return [int((await inbox.get()).payload) for _ in range(count)]


async def first_of(client: Client, topic: str) -> None:
    inbox = await client.subscribe(topic)
    await inbox.get(20)


async def kept(client: Client, topic: str, count: int) -> Position:
    """Wait until so many messages are in the history; the position behind them."""
    async with asyncio.timeout(20):
        while True:
            history = client.read(topic)
            if len([message async for message in history]) >= count:
                return history.end
            await asyncio.sleep(0.02)


@on_a_loop
async def test_a_late_subscriber_gets_the_past_and_then_what_is_live(tmp_path: Path) -> None:
    async with kept_cluster(tmp_path) as brokers, brokers.connect("ann") as ann:
        await publish(ann, "kept.t", 1, 300)
        async with brokers.connect("bob", broker="b2") as bob:
            inbox = await bob.subscribe("kept.t", start="earliest")
            await publish(ann, "kept.t", 301, 600, guarantee="total")

            assert await take(inbox, 600) == list(range(1, 601))


@on_a_loop
async def test_between_two_positions_every_copy_has_the_same(tmp_path: Path) -> None:
    async with kept_cluster(tmp_path) as brokers, brokers.connect("ann") as ann, brokers.connect("bob") as bob:
        await asyncio.gather(publish(ann, "kept.t", 1, 200), publish(bob, "kept.t", 201, 400))
        start = await kept(ann, "kept.t", 400)
        await asyncio.gather(publish(ann, "kept.t", 401, 450), publish(bob, "kept.t", 451, 500))
        end = await kept(ann, "kept.t", 500)
        archives = [process.broker.topics.kept.find("kept.t") for process in brokers.processes.values()]
        holders = [name for name, archive in zip(brokers.ids, archives, strict=True) if archive is not None]
        found = {}
        for left_out in holders:
            await brokers.kill(left_out)
            messages = [message.id async for message in ann.read("kept.t", start, end)]
            found[left_out] = set(messages)
            assert len(messages) == 100
            await brokers.restart(left_out)
            await brokers.settle()

        assert len(holders) == 2
        assert len(set(map(frozenset, found.values()))) == 1
        assert start < end


@on_a_loop
async def test_a_copy_that_dies_under_a_reader_is_replaced_by_another(tmp_path: Path) -> None:
    async with kept_cluster(tmp_path) as brokers, brokers.connect("ann") as ann:
        for first in range(1, 4000, 500):
            await publish(ann, "kept.t", first, first + 499)
        await kept(ann, "kept.t", 4000)
        seen: list[int] = []
        async for batch in ann.read("kept.t").batches():
            seen += [int(message.payload) for message in batch]
            if len(seen) < 2000 and len(brokers.processes) == 3:
                copies = [n for n, p in brokers.processes.items() if "kept.t" in p.broker.topics.kept.archives]
                victim = next(name for name in copies if name != ann.broker)
                await brokers.kill(victim)

        assert seen == list(range(1, 4001))


@on_a_loop
async def test_a_broker_that_was_away_fills_its_archive_from_another(tmp_path: Path) -> None:
    async with kept_cluster(tmp_path) as brokers, brokers.connect("ann") as ann:
        await publish(ann, "kept.t", 1, 100)
        await kept(ann, "kept.t", 100)
        copies = [n for n, p in brokers.processes.items() if "kept.t" in p.broker.topics.kept.archives]
        away = next(name for name in copies if name != "b0")
        await brokers.kill(away)
        await publish(ann, "kept.t", 101, 200)
        await kept(ann, "kept.t", 200)
        await brokers.restart(away)
        async with asyncio.timeout(20):
            while True:
                archive = brokers.processes[away].broker.topics.kept.find("kept.t")
                status = archive.status() if archive is not None else {}
                if status.get("messages") == 200 and not status["holes"]:
                    break
                await asyncio.sleep(0.05)


@on_a_loop
async def test_a_client_that_was_away_for_too_long_goes_on_through_the_history(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(QUICK, member_timeout_ms=400)
    async with kept_cluster(tmp_path, settings=settings) as brokers, brokers.connect("ann") as ann:
        async with brokers.connect("bob", data=tmp_path / "bob") as bob:
            inbox = await bob.subscribe("kept.t")
            await publish(ann, "kept.t", 1, 5)
            assert await take(inbox, 5) == [1, 2, 3, 4, 5]
            first = bob.session
        await publish(ann, "kept.t", 6, 50)
        await kept(ann, "kept.t", 50)
        async with brokers.connect("bob", data=tmp_path / "bob") as bob:
            inbox = await bob.subscribe("kept.t")
            await publish(ann, "kept.t", 51, 60)

            assert await take(inbox, 55) == list(range(6, 61))
            assert bob.session != first


@on_a_loop
async def test_a_reader_that_dies_in_the_middle_of_the_past_goes_on_from_there(tmp_path: Path) -> None:
    async with kept_cluster(tmp_path) as brokers, brokers.connect("ann") as ann:
        await publish(ann, "kept.t", 1, 500)
        bob = await ordercast.connect(brokers.address, "bob", data=tmp_path / "bob")
        inbox = await bob.subscribe("kept.t", start="earliest")
        before = await take(inbox, 200)
        await bob.abandon()
        async with brokers.connect("bob", data=tmp_path / "bob") as bob:
            inbox = await bob.subscribe("kept.t", start="earliest")
            await publish(ann, "kept.t", 501, 510)
            first = (await take(inbox, 1))[0]
            after = [first, *await take(inbox, 510 - first)]

        assert before == list(range(1, 201))
        assert first <= 201
        assert after == list(range(first, 511))


@on_a_loop
async def test_of_each_key_the_last_and_what_came_since_a_time(tmp_path: Path) -> None:
    async with kept_cluster(tmp_path) as brokers, brokers.connect("ann") as ann:
        for number in range(1, 101):
            ann.publish_soon("kept.t", b"%d" % number, key=f"k{number % 10}")
        await ann.flush()
        await kept(ann, "kept.t", 100)
        now = dt.datetime.now(dt.UTC)
        async with brokers.connect("bob") as bob:
            inbox = await bob.subscribe("kept.t", start="last-of-each-key")
            await publish(ann, "kept.t", 101, 105)
            assert await take(inbox, 15) == [*range(91, 101), *range(101, 106)]
        await kept(ann, "kept.t", 105)
        assert [int(message.payload) async for message in ann.read("kept.t", now)] == list(range(101, 106))


@on_a_loop
async def test_history_needs_the_right_to_subscribe_and_a_topic_that_is_kept(tmp_path: Path) -> None:
    users = (
        User(name="ann", token="a" * 20, publish=(">",), subscribe=(">",)),
        User(name="eve", token="e" * 20, publish=(">",), subscribe=("public",)),
    )
    known = {"user": users, "peer_token": "p"}
    async with kept_cluster(tmp_path, **known) as brokers, brokers.connect("ann", token="a" * 20) as ann:
        await publish(ann, "kept.t", 1, 5)
        async with brokers.connect("eve", token="e" * 20) as eve:
            with pytest.raises(SubscribeDenied):
                await eve.subscribe("kept.t", start="earliest")
            with pytest.raises(SubscribeDenied):
                [message async for message in eve.read("kept.t")]
        with pytest.raises(HistoryLost, match="not kept"):
            await ann.subscribe("other", start="earliest")


@on_a_loop
async def test_what_was_cleaned_is_told_with_the_position_from_which_on_nothing_is_missing(tmp_path: Path) -> None:
    keep = (KeepTable(filter="kept.>", max_bytes=1),)
    async with kept_cluster(tmp_path, keep=keep) as brokers, brokers.connect("ann") as ann:
        for process in brokers.processes.values():
            process._archive.segment_size = 2000  # type: ignore[union-attr, misc]
        for first in range(1, 1001, 100):
            await publish(ann, "kept.t", first, first + 99, ack="delivered")
        told: list[HistoryLost] = []
        rest: list[int] | None = None
        async with asyncio.timeout(20):
            while rest is None or not told:
                start = told[-1].earliest if told else Position({})
                try:
                    rest = [int(message.payload) async for message in ann.read("kept.t", start or Position({}))]
                except HistoryLost as error:  # More may be cleaned until the next try.
                    told.append(error)
                await asyncio.sleep(0.02)
        assert all("cleaned" in str(error) and error.earliest is not None for error in told)
        assert rest == list(range(1001 - len(rest), 1001))


@on_a_loop
async def test_topics_are_kept_from_now_on_when_an_operator_says_so(tmp_path: Path) -> None:
    async with kept_cluster(tmp_path, keep=()) as brokers, brokers.connect("ann") as ann:
        await publish(ann, "late", 1, 5)
        nodes = [process.broker.topics.nodes for process in brokers.processes.values()]
        await until(lambda: not any(topics[Topic("late")].log for topics in nodes if Topic("late") in topics))
        some = brokers.processes["b1"]
        some.host.turn(some.broker.topics.keep, KeepTable(filter="late").rule())
        await until(lambda: all(process.broker.topics.kept.rules for process in brokers.processes.values()))
        await publish(ann, "late", 6, 9)

        await kept(ann, "late", 4)
        assert [int(message.payload) async for message in ann.read("late")] == [6, 7, 8, 9]


def test_positions_are_compared_printed_and_read_back() -> None:
    small = Position({"t": {"ann~1": 3}})  # type: ignore[dict-item]
    large = Position({"t": {"ann~1": 3, "bob~1": 1}})  # type: ignore[dict-item]
    other = Position({"t": {"ann~1": 4}})  # type: ignore[dict-item]

    assert small < large
    assert large > small
    assert large.concurrent(other)
    assert not small.concurrent(large)
    assert Position.parse(str(large)) == large
    assert msgspec.json.decode(msgspec.json.encode(str(large))) == str(large)
    for wrong in ("", "cut1.", "cut1.AAAA", "cut1." + "é" * 4, "cut2.eJw", str(large)[:-3]):
        with pytest.raises(UsageError):
            Position.parse(wrong)


@on_a_loop
async def test_a_read_of_several_topics_has_no_answer_without_its_question(tmp_path: Path) -> None:
    """ARC-C1: reading them one after the other, each to its own end, would find some."""
    async with (
        kept_cluster(tmp_path) as brokers, brokers.connect("ann") as ann, brokers.connect("bob", broker="b1") as bob,
        brokers.connect("eve", broker="b2") as eve,
    ):  # fmt: skip
        questions = await bob.subscribe("kept.questions")

        async def answer() -> None:
            async for question in questions:
                bob.publish_soon("kept.answers", question.payload, guarantee="causal")

        answering = asyncio.create_task(answer())
        position, seen = Position({}), {"kept.questions": set[bytes](), "kept.answers": set[bytes]()}
        for first in range(0, 200, 20):
            for number in range(first, first + 20):
                ann.publish_soon("kept.questions", b"%d" % number, guarantee="total" if number % 3 else "causal")
            history = eve.read(["kept.questions", "kept.answers"], position)
            async for message in history:
                assert message.payload not in seen[message.topic]
                seen[message.topic].add(message.payload)
            assert seen["kept.answers"] <= seen["kept.questions"]
            assert position <= history.end
            position = history.end
        await ann.flush("delivered")
        across = await eve.position_across(["kept.answers", "kept.questions"])
        assert position <= across
        assert len(across.of("kept.questions")) == 1
        answering.cancel()


@on_a_loop
async def test_a_position_across_topics_says_who_is_missing(tmp_path: Path) -> None:
    async with kept_cluster(tmp_path) as brokers, brokers.connect("ann") as ann:
        await publish(ann, "kept.t", 1, 5)
        await brokers.kill("b2")
        with pytest.raises(TimeoutError, match="b2 is away"):
            await ann.position_across(["kept.t", "kept.u"], timeout=2)
        assert [int(message.payload) async for message in ann.read("kept.t")] == [1, 2, 3, 4, 5]


@on_a_loop
async def test_a_position_across_a_filter_has_no_answer_without_its_question_on_a_topic_that_has_just_begun(
    tmp_path: Path,
) -> None:
    """Each question is the first message of a topic of its own; who asks for positions is a member of nothing."""
    async with (
        kept_cluster(tmp_path) as brokers,
        brokers.connect("ann", broker="b1") as ann,
        brokers.connect("bob", broker="b2") as bob,
        brokers.connect("eve", broker="b0") as eve,
    ):
        questions = await bob.subscribe("kept.questions.*")

        async def answer() -> None:
            async for message in questions:
                bob.publish_soon("kept.answers", message.topic.encode())

        answering = asyncio.create_task(answer())
        await publish(ann, "other", 1, 3)
        position, answered, asked = Position({}), set[str](), set[str]()
        for number in range(30):
            ann.publish_soon(f"kept.questions.{number}", b"why?")
            following = await eve.position_across(["kept.>"])
            assert position <= following
            for topic in following.topics:
                async for message in eve.read(topic, position, following):
                    answered.update([message.payload.decode()] if topic == "kept.answers" else [])
                    asked.update([topic] if topic != "kept.answers" else [])
            assert answered <= asked
            position = following
        await ann.flush("delivered")
        answering.cancel()
        assert answered, "no answer came in time: nothing was tested"
        assert "other" not in position.topics


@on_a_loop
async def test_a_position_across_a_filter_has_topics_that_nobody_is_a_member_of_after_a_restart(tmp_path: Path) -> None:
    async with kept_cluster(tmp_path) as brokers, brokers.connect("ann") as ann:
        await publish(ann, "kept.t", 1, 20)
        before = await ann.position_across(["kept.*"])
        assert sum(before.of("kept.t").values()) == 20
    async with kept_cluster(tmp_path) as brokers, brokers.connect("bob") as bob:
        for names in (["kept.*"], ["kept.t", "kept.u"]):
            now = await bob.position_across(names)
            assert before <= now  # The session of ann has ended, and may be folded.
            assert not [message async for message in bob.read("kept.t", before, now)]
            assert len([message async for message in bob.read("kept.t", "earliest", now)]) == 20


@on_a_loop
async def test_a_position_across_a_filter_has_what_the_client_may_read_alone(tmp_path: Path) -> None:
    users = (
        User(name="ann", token="a" * 20, publish=(">",), subscribe=(">",)),
        User(name="bob", token="b" * 20, publish=(">",), subscribe=("kept.open.>",)),
    )
    async with (
        kept_cluster(tmp_path, user=users, peer_token="p" * 20) as brokers,
        brokers.connect("ann", token="a" * 20) as ann,
        brokers.connect("bob", token="b" * 20) as bob,
    ):
        await publish(ann, "kept.open.a", 1, 3)
        await publish(ann, "kept.closed.a", 1, 3)
        assert (await bob.position_across(["kept.>"])).topics == ("kept.open.a",)
        assert (await ann.position_across(["kept.>"])).topics == ("kept.closed.a", "kept.open.a")


@on_a_loop
async def test_a_filter_brings_the_past_of_all_its_topics_and_of_those_that_begin(tmp_path: Path) -> None:
    async with kept_cluster(tmp_path) as brokers:
        async with brokers.connect("gone") as gone:
            await publish(gone, "kept.a", 1, 20)
        async with brokers.connect("ann") as ann, brokers.connect("bob", broker="b2") as bob:
            await publish(ann, "kept.b", 1, 20)
            await publish(ann, "other", 1, 3, ack="delivered")  # Else they may be new to the subscription.
            middle = await kept(ann, "kept.a", 20)
            inbox = await bob.subscribe(">", start="earliest")
            await publish(bob, "kept.d", 1, 5)
            await publish(ann, "kept.a", 21, 25, guarantee="total")
            await publish(ann, "kept.c", 1, 5)
            await publish(ann, "other", 4, 5)
            found: dict[str, list[int]] = {}
            async with asyncio.timeout(20):
                while sum(map(len, found.values())) < 57:
                    message = await inbox.get()
                    found.setdefault(message.topic, []).append(int(message.payload))
            assert found.pop("other") == [4, 5]
            assert found == {
                "kept.a": list(range(1, 26)), "kept.b": list(range(1, 21)), "kept.c": [1, 2, 3, 4, 5],
                "kept.d": [1, 2, 3, 4, 5],
            }  # fmt: skip
            async with brokers.connect("eve", broker="b1") as eve:
                later = await eve.subscribe("kept.*", start=middle)
                got = [await later.get(20) for _ in range(35)]
                assert [int(m.payload) for m in got if m.topic == "kept.a"] == [21, 22, 23, 24, 25]


def _is_clean(brokers: InProcessCluster, topic: Topic, count: int) -> bool:
    """Whether every copy has come to the last of so many messages, and has nothing left to clean."""
    found = [process.broker.topics.kept.find(topic) for process in brokers.processes.values()]
    archives = [archive for archive in found if archive is not None]
    return all(sum(a.cut.values()) == count and len(a.manifest.segments) == 1 for a in archives)


@on_a_loop
async def test_a_client_that_was_away_for_too_long_is_told_if_its_past_was_cleaned_meanwhile(tmp_path: Path) -> None:
    """And begins behind the gap, if it says so."""
    settings = msgspec.structs.replace(QUICK, member_timeout_ms=400)
    keep = (KeepTable(filter="kept.>", max_bytes=1),)
    async with kept_cluster(tmp_path, settings=settings, keep=keep) as brokers, brokers.connect("ann") as ann:
        for process in brokers.processes.values():
            process._archive.segment_size = 2000  # type: ignore[union-attr, misc]
        async with brokers.connect("bob", data=tmp_path / "bob") as bob:
            inbox = await bob.subscribe("kept.t")
            await publish(ann, "kept.t", 1, 5)
            assert await take(inbox, 5) == [1, 2, 3, 4, 5]
        for first in range(6, 1006, 100):
            await publish(ann, "kept.t", first, first + 99, ack="delivered")
        await until(lambda: _is_clean(brokers, Topic("kept.t"), 1005))  # Else it could go on under a reader.
        bob = await ordercast.connect(brokers.address, "bob", data=tmp_path / "bob")
        with pytest.raises(HistoryLost, match="cleaned"):
            await first_of(bob, "kept.t")
        inbox = await bob.subscribe("kept.t", start="earliest")
        last = await take(inbox, 1)
        while last[-1] < 1005:
            last += await take(inbox, 1)
        assert last == list(range(last[0], 1006))
        await bob.close()


def test_whoever_opens_a_subscription_of_an_earlier_life_late_is_told_all_the_same() -> None:
    """The past was found to be gone before the application had asked for its inbox."""

    async def scenario() -> None:
        subscriptions = Subscriptions(lambda _topic, _count: None)
        subscriptions.expected = {Topic("kept.t"): []}
        subscriptions.refused(Topic("kept.t"), HistoryLost("kept.t", "was cleaned", Position({})))
        subscriptions.open("kept.t")
        async with asyncio.timeout(5):
            await subscriptions.until_live(Topic("kept.t"))

    with pytest.raises(HistoryLost, match="cleaned"):
        run_async(scenario)
