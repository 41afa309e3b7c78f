"""What brokers and clients promise, said once and kept twice: under virtual time, and over TCP.

Every promise ends with the judge's word on the whole run: exactly once, fifo, causal, the barrier, one order of totals,
real time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ordercast.pubsub.publications import Publication
from ordercast.testing import QUICK
from tests.support.loop import run_async
from tests.support.pubsub_stage import NEW, Cast, Stage
from tests.support.sim_stage import SimStage
from tests.support.tcp_stage import TcpStage

Promise = Callable[[Stage], Awaitable[None]]
THREE = {"ann": Cast("b0", ("t", "u")), "bob": Cast("b1", ("t", "u")), "cho": Cast("b2", ("t",))}
SETTINGS = msgspec.structs.replace(QUICK, member_timeout_ms=6000)
both_runtimes = pytest.mark.parametrize("runtime", ["simulator", "tcp"])
both_scopes = pytest.mark.parametrize("scope", ["session", "key"])


@asynccontextmanager
async def staged(
    runtime: str, directory: Path, brokers: int, cast: dict[str, Cast], *, durable: bool = False, **settings: Any
) -> AsyncIterator[Stage]:
    chosen = msgspec.structs.replace(SETTINGS, **settings)
    stage: SimStage | TcpStage
    if runtime == "simulator":
        stage = SimStage(brokers, cast, chosen, durable=durable)
    else:
        stage = TcpStage(brokers, cast, chosen, durable=durable, directory=directory)
    async with stage:
        yield stage
    stage.check()


def keep(
    runtime: str,
    directory: Path,
    promise: Promise,
    brokers: int = 3,
    cast: dict[str, Cast] | None = None,
    **options: Any,
) -> None:  # fmt: skip
    async def main() -> None:
        async with staged(runtime, directory, brokers, cast or THREE, **options) as stage:
            await promise(stage)

    if runtime == "simulator":
        asyncio.run(main())
    else:
        run_async(main, timeout_s=120)


def publish_all(stage: Stage, count: int, guarantee: str, *names: str, topic: str = "t", keys: int = 2) -> list[str]:
    return [stage.publish(name, topic, f"k{i % keys}", guarantee=guarantee) for i in range(count) for name in names]


# Order


@both_scopes
@both_runtimes
def test_everything_comes_exactly_once_in_the_order_of_its_publisher(runtime: str, scope: str, tmp_path: Path) -> None:
    async def promise(stage: Stage) -> None:
        await stage.join("ann", "bob", "cho")
        sent = publish_all(stage, 40, "fifo", "ann", "bob", keys=1)
        await stage.all_have(sent, "ann", "bob", "cho")
        for got in stage.got.values():
            for publisher in ("ann", "bob"):
                assert [m for m in got if m.startswith(publisher)] == [m for m in sent if m.startswith(publisher)]

    keep(runtime, tmp_path, promise, order_scope=scope)


@both_scopes
@both_runtimes
def test_an_answer_comes_after_its_question(runtime: str, scope: str, tmp_path: Path) -> None:
    async def promise(stage: Stage) -> None:
        await stage.join("ann", "bob", "cho")
        answers: dict[str, str] = {}

        def answer(name: str, message: Publication) -> None:
            if name == "bob" and message.publisher == "ann":
                answers[stage.publish("bob", "t", "other", guarantee="causal")] = message.id

        stage.on_delivery = answer
        questions = publish_all(stage, 30, "eventual", "ann")
        await stage.until(lambda: len(answers) == 30, "everything is answered")
        await stage.all_have([*questions, *answers], "ann", "bob", "cho")
        for got in stage.got.values():
            assert all(got.index(question) < got.index(reply) for reply, question in answers.items())

    keep(runtime, tmp_path, promise, order_scope=scope)


@both_scopes
@both_runtimes
def test_a_total_parts_the_messages_of_its_key_alike_everywhere(runtime: str, scope: str, tmp_path: Path) -> None:
    async def promise(stage: Stage) -> None:
        await stage.join("ann", "bob", "cho")
        sent: list[str] = []
        totals: list[str] = []
        for i in range(12):
            for name in ("ann", "bob", "cho"):
                sent.append(stage.publish(name, "t", "k", guarantee=("eventual", "causal")[i % 2]))
                if i % 3 == 0:
                    totals.append(stage.publish(name, "t", "k", "l", guarantee="total"))
            await stage.wait(0.01)
        await stage.all_have([*sent, *totals], "ann", "bob", "cho")
        orders = [[message for message in got if message in totals] for got in stage.got.values()]
        assert orders[0] == orders[1] == orders[2]
        for total in totals:
            before = [set(got[: got.index(total)]) for got in stage.got.values()]
            assert before[0] == before[1] == before[2]

    keep(runtime, tmp_path, promise, order_scope=scope)


# Who gets what


@both_runtimes
def test_a_filter_takes_in_topics_that_are_there_and_topics_that_come(runtime: str, tmp_path: Path) -> None:
    cast = {"ann": Cast("b1", ("a.>",)), "bob": Cast("b2", ("a.x",), ("a.y.z", "b.x"))}

    async def promise(stage: Stage) -> None:
        await stage.join("bob", "ann")
        wanted = [stage.publish("bob", "a.x"), stage.publish("bob", "a.y.z")]
        other = stage.publish("bob", "b.x")
        await stage.acknowledged("bob", other, "safe")
        await stage.all_have(wanted, "ann")
        assert other not in stage.got["ann"]
        assert stage.got["bob"] == wanted[:1]

    keep(runtime, tmp_path, promise, cast=cast)


@both_runtimes
def test_who_follows_a_filter_and_publishes_on_a_new_topic_misses_nothing_there(runtime: str, tmp_path: Path) -> None:
    """Its own publication makes it a member far earlier than it hears of the topic, which it has asked to receive."""
    cast = {
        "ann": Cast("b1", ("a.>",), link_ms=100),
        "bob": Cast("b2", ("a.>",)),
        "cho": Cast("b0", ("b.>",), tuple(f"a.{i}" for i in range(4))),
    }

    async def promise(stage: Stage) -> None:
        await stage.join("ann", "bob", "cho")
        sent: list[str] = []
        for i in range(4):
            for _ in range(30):  # Before, while and after the topic becomes known to all.
                sent.append(stage.publish("bob", f"a.{i}"))
                sent.append(stage.publish("cho", f"a.{i}"))
                if len(sent) % 60 == 2:
                    sent.append(stage.publish("ann", f"a.{i}"))
                await stage.wait(0.02)
        await stage.all_have(sent, "ann", "bob")
        assert not stage.got["cho"]

    keep(runtime, tmp_path, promise, cast=cast, stability_ms=20)


@both_runtimes
def test_a_filter_counts_for_a_topic_that_begins_while_its_follower_is_cut_off(runtime: str, tmp_path: Path) -> None:
    cast = {"ann": Cast("b1", ("a.>",)), "bob": Cast("b2", ("b.x",), ("a.x",))}

    async def promise(stage: Stage) -> None:
        await stage.join("ann", "bob")
        await stage.part("ann")
        sent = publish_on(stage, "bob", "a.x", 5)
        await stage.acknowledged("bob", sent[-1], "safe")
        await stage.wait(0.5)
        await stage.heal()
        sent += publish_on(stage, "bob", "a.x", 5)
        await stage.all_have(sent, "ann")
        await stage.acknowledged("bob", sent[-1], "delivered")

    keep(runtime, tmp_path, promise, cast=cast, stability_ms=20, partitions="primary")


def publish_on(stage: Stage, name: str, topic: str, count: int) -> list[str]:
    return [stage.publish(name, topic) for _ in range(count)]


@both_runtimes
def test_who_only_publishes_gets_nothing_and_reaches_everybody(runtime: str, tmp_path: Path) -> None:
    cast = {**THREE, "pub": Cast("b2", (), ("t",))}

    async def promise(stage: Stage) -> None:
        await stage.join("ann", "bob", "cho", "pub")
        sent = publish_all(stage, 10, "total", "pub") + publish_all(stage, 10, "fifo", "pub")
        await stage.all_have(sent, "ann", "bob", "cho")
        await stage.acknowledged("pub", sent[-1], "delivered")
        assert not stage.got["pub"]

    keep(runtime, tmp_path, promise, cast=cast)


@both_runtimes
def test_who_joins_late_gets_all_that_is_published_from_then_on(runtime: str, tmp_path: Path) -> None:
    async def promise(stage: Stage) -> None:
        await stage.join("ann", "bob")
        early = publish_all(stage, 10, "causal", "ann")
        await stage.acknowledged("ann", early[-1], "delivered")
        await stage.join("cho")
        late = publish_all(stage, 10, "total", "ann", "bob")
        await stage.all_have(late, "ann", "bob", "cho")
        assert not set(early) & set(stage.got["cho"])

    keep(runtime, tmp_path, promise)


@both_runtimes
def test_who_leaves_holds_nobody_up(runtime: str, tmp_path: Path) -> None:
    async def promise(stage: Stage) -> None:
        await stage.join("ann", "bob", "cho")
        before = publish_all(stage, 5, "total", "ann")
        await stage.all_have(before, "ann", "bob", "cho")
        await stage.leave("cho")
        after = publish_all(stage, 5, "total", "ann")
        await stage.acknowledged("ann", after[-1], "delivered")
        await stage.all_have(after, "ann", "bob")
        assert stage.got["cho"] == before

    keep(runtime, tmp_path, promise)


# Faults


@both_scopes
@both_runtimes
def test_losing_the_own_broker_loses_nothing(runtime: str, scope: str, tmp_path: Path) -> None:
    cast = {"ann": Cast("b3", ("t",)), "bob": Cast("b4", ("t",)), "cho": Cast("b2", ("t",))}

    async def promise(stage: Stage) -> None:
        await stage.join("ann", "bob", "cho")
        sent: list[str] = []
        for i in range(30):
            for name in cast:
                guarantee = ("eventual", "fifo", "causal", "total")[i % 4]
                sent.append(stage.publish(name, "t", f"k{i % 3}", guarantee=guarantee))
            await stage.wait(0.02)
            if i == 8:
                await stage.kill("b3")
            if i == 18:
                await stage.kill("b4")
        await stage.all_have(sent, "ann", "bob", "cho")
        assert stage.edge_of("ann") not in ("b3", "b4")

    keep(runtime, tmp_path, promise, 5, cast, order_scope=scope)


@both_runtimes
def test_losing_the_root_loses_nothing(runtime: str, tmp_path: Path) -> None:
    cast = {"ann": Cast("b0", ("t",)), "bob": Cast("b1", ("t",)), "cho": Cast("b2", ("t",))}

    async def promise(stage: Stage) -> None:
        await stage.join("ann", "bob", "cho")
        sent: list[str] = []
        for i in range(20):
            guarantee = "total" if i % 2 else "causal"
            sent += [stage.publish(name, "t", "k", guarantee=guarantee) for name in cast]
            await stage.wait(0.02)
            if i == 8:
                await stage.kill("b0")
        await stage.all_have(sent, "ann", "bob", "cho")

    keep(runtime, tmp_path, promise, 3, cast)


@pytest.mark.parametrize("durable", [False, True], ids=["soft", "durable"])
@both_runtimes
def test_a_broker_that_is_restarted_takes_part_again(runtime: str, durable: bool, tmp_path: Path) -> None:
    async def promise(stage: Stage) -> None:
        await stage.join("ann", "bob", "cho")
        sent: list[str] = []
        for i in range(4):
            sent += publish_all(stage, 4, "total" if i % 2 else "fifo", "ann", "bob", "cho")
            await stage.kill(f"b{i % 3}")
            sent += publish_all(stage, 4, "causal", "ann", "bob", "cho")
            await stage.wait(0.2)
            await stage.restart(f"b{i % 3}")
            await stage.settle()
            await stage.all_have(sent, "ann", "bob", "cho")

    keep(runtime, tmp_path, promise, durable=durable)


@both_runtimes
def test_every_level_of_acknowledgement_is_reached(runtime: str, tmp_path: Path) -> None:
    async def promise(stage: Stage) -> None:
        await stage.join("ann", "bob", "cho")
        for guarantee in ("eventual", "total"):
            message = stage.publish("ann", "t", guarantee=guarantee)
            for level in ("edge", "safe", "delivered"):
                await stage.acknowledged("ann", message, level)
            assert all(message in got for got in stage.got.values())

    keep(runtime, tmp_path, promise)


@pytest.mark.parametrize("victims", list(combinations(["b0", "b1", "b2", "b3", "b4"], 2)), ids="-".join)
def test_what_is_safe_survives_any_f_brokers_and_its_publisher_under_virtual_time(
    victims: tuple[str, str], tmp_path: Path
) -> None:
    """Over TCP: tests/chaos, with real processes."""
    cast = {"ann": Cast("b3", ("t",)), "bob": Cast("b4", ("t",)), "cho": Cast("b2", ("t",))}

    async def promise(stage: Stage) -> None:
        await stage.join("ann", "bob", "cho")
        message = stage.publish("ann", "t", "k", guarantee="total" if "b0" in victims else "causal")
        await stage.acknowledged("ann", message, "safe")
        for name in ("ann", *victims):
            await stage.kill(name)
        await stage.all_have([message], "bob", "cho")

    keep("simulator", tmp_path, promise, 5, cast, safe_copies=3)


@both_runtimes
def test_a_reader_that_takes_nothing_makes_the_publishers_pause_and_loses_nothing(runtime: str, tmp_path: Path) -> None:
    async def promise(stage: Stage) -> None:
        await stage.join("ann", "bob", "cho")
        stage.stand_still("cho")
        sent: list[str] = []
        for _ in range(40):
            sent += publish_all(stage, 10, "causal", "ann")
            await stage.wait(0.02)
        await stage.until(lambda: stage.paused("ann"), "ann is asked to pause")
        stage.go_on("cho")
        await stage.all_have(sent, "ann", "bob", "cho")
        await stage.until(lambda: not stage.paused("ann"), "ann may go on")

    keep(runtime, tmp_path, promise, buffer_soft_limit=100, member_timeout_ms=20_000)


@both_runtimes
def test_who_is_out_of_reach_for_too_long_is_told_that_its_session_is_over(runtime: str, tmp_path: Path) -> None:
    async def promise(stage: Stage) -> None:
        await stage.join("ann", "bob", "cho")
        await stage.part("cho")
        await stage.wait(3)  # The silence that its broker bears, and the time for which it is waited.
        sent = publish_all(stage, 3, "total", "ann", "bob")
        await stage.all_have(sent, "ann", "bob")
        await stage.heal()
        await stage.until(lambda: stage.session_lost("cho"), "cho knows")

    async def main() -> None:
        async with staged(runtime, tmp_path, 3, THREE, member_timeout_ms=1500) as stage:
            await promise(stage)
            stage.check = lambda: None  # type: ignore[method-assign]

    asyncio.run(main()) if runtime == "simulator" else run_async(main)


@both_runtimes
def test_nobody_waits_for_a_subscriber_that_was_killed(runtime: str, tmp_path: Path) -> None:
    """BRK-M14: its broker answers for it, also when the root has died since."""

    async def promise(stage: Stage) -> None:
        await stage.join("ann", "bob", "cho")
        await stage.kill("cho")
        sent = publish_all(stage, 5, "total", "ann", "bob")
        await stage.all_have(sent, "ann", "bob")
        await stage.kill("b0")
        sent += publish_all(stage, 5, "total", "ann", "bob")
        await stage.all_have(sent, "ann", "bob")

    keep(runtime, tmp_path, promise, member_timeout_ms=600_000)


@both_runtimes
def test_whoever_waits_until_the_first_is_delivered_is_not_overtaken_on_another_topic(
    runtime: str, tmp_path: Path
) -> None:
    """BRK-X2: through the death of the publisher's broker, too."""

    async def promise(stage: Stage) -> None:
        await stage.join("ann", "bob", "cho")
        pairs = []
        for i in range(6):
            first = stage.publish("bob", "t", "k", guarantee="total" if i % 2 else "causal")
            await stage.acknowledged("bob", first, "delivered")
            pairs.append((first, stage.publish("bob", "u", "k")))
            if i == 2:
                await stage.kill("b1")
        await stage.all_have([message for pair in pairs for message in pair], "ann", "bob")
        for name in ("ann", "bob"):
            got = stage.got[name]
            assert all(got.index(first) < got.index(second) for first, second in pairs)

    keep(runtime, tmp_path, promise)


@both_runtimes
def test_brokers_join_and_leave_a_running_tree(runtime: str, tmp_path: Path) -> None:
    async def promise(stage: Stage) -> None:
        await stage.join("ann", "bob", "cho")
        sent = publish_all(stage, 5, "total", "ann", "bob")
        await stage.add_broker()
        sent += publish_all(stage, 5, "total", "ann", "bob")
        await stage.dismiss("b1")
        sent += publish_all(stage, 5, "causal", "bob", "cho")
        await stage.all_have(sent, "ann", "bob", "cho")
        assert stage.edge_of("bob") in ("b0", "b2", NEW)

    keep(runtime, tmp_path, promise)


@both_runtimes
def test_the_majority_goes_on_and_the_minority_catches_up(runtime: str, tmp_path: Path) -> None:
    cast = {"ann": Cast("b1", ("t",)), "bob": Cast("b2", ("t",)), "cho": Cast("b0", ("t",))}

    async def promise(stage: Stage) -> None:
        await stage.join("ann", "bob", "cho")
        await stage.part("b0", "cho")  # The root, and its client.
        sent = publish_all(stage, 3, "causal", "ann", "bob", "cho")
        totals = publish_all(stage, 2, "total", "ann", "cho")
        await stage.wait(3)
        assert not set(totals) & {*stage.got["ann"], *stage.got["cho"]}, "a total without every member"
        await stage.all_have([m for m in sent if not m.startswith("cho")], "ann", "bob")
        await stage.heal()
        await stage.all_have([*sent, *totals], "ann", "bob", "cho")

    keep(runtime, tmp_path, promise, 3, cast, member_timeout_ms=30_000)
