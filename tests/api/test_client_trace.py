"""What a client records can be judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.testing import cluster
from ordercast.trace.journal import read_journal
from ordercast.verify.judge import judge_path
from tests.support.loop import run_async


def test_a_client_records_what_it_publishes_and_receives(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            cluster(brokers=1) as brokers,
            brokers.connect("ann", trace=tmp_path) as ann,
            brokers.connect("bob", trace=tmp_path) as bob,
        ):
            inbox = await bob.subscribe("t")
            await ann.publish("t", b"xyz", key="k", guarantee="total")
            ann.publish_soon("t", b"")
            assert [(await inbox.get(5)).number for _ in range(2)] == [1, 2]
            await bob.unsubscribe("t")

    run_async(main)
    (ann,) = (tmp_path / "journals").glob("ann.*.jsonl")
    (bob,) = (tmp_path / "journals").glob("bob.*.jsonl")
    published = [row for row in read_journal(ann) if row.kind == "publish"]
    assert [(row.topic, row.keys, row.guarantee, row.payload_bytes) for row in published] == [
        ("t", ("k",), "total", 3),
        ("t", ("",), "causal", 0),
    ]
    kinds = [(row.kind, row.topic) for row in read_journal(bob) if row.kind in ("subscribe", "deliver", "unsubscribe")]
    assert kinds == [("subscribe", "t"), ("deliver", "t"), ("deliver", "t"), ("unsubscribe", "t")]
    delivered = [row.msg for row in read_journal(bob) if row.kind == "deliver"]
    assert delivered == [row.msg for row in published]


async def _ann_tells_bob(trace: Path, *, stay: bool) -> None:
    async with cluster(brokers=1) as brokers, brokers.connect("ann", trace=trace) as ann:
        bob = await brokers.connect("bob", trace=trace)
        inbox = await bob.subscribe("t")
        for _ in range(3):
            await ann.publish("t", b"")
        for _ in range(3):
            await inbox.get(5)
        await bob.close(stay=stay)


def _without_delivery(trace: Path, number: int) -> None:
    (journal,) = (trace / "journals").glob("bob.*.jsonl")
    lines = journal.read_text().splitlines(keepends=True)
    deliveries = [line for line in lines if '"deliver"' in line]
    journal.write_text("".join(line for line in lines if line != deliveries[number]))


@pytest.mark.parametrize(("stay", "vouched"), [(True, 1), (False, 0)])
def test_a_delivery_that_is_missing_from_an_ordinary_run_is_missed(tmp_path: Path, stay: bool, vouched: int) -> None:
    run_async(lambda: _ann_tells_bob(tmp_path, stay=stay))
    (whole,) = judge_path(tmp_path, complete=True)
    assert (whole.exit_code(), whole.facts["owed"], whole.facts["made"]) == (0, 3, 3)
    _without_delivery(tmp_path, -1)
    (at_the_end,) = judge_path(tmp_path)
    assert at_the_end.exit_code() == (4 if stay else 0)
    assert at_the_end.facts["missing" if stay else "excused"] == 1
    assert judge_path(tmp_path, complete=True)[0].exit_code() == vouched
    _without_delivery(tmp_path, 0)
    assert judge_path(tmp_path)[0].exit_code() == 1, "a gap is one however the client went"


def test_later_lives_say_whether_they_kept_their_state(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(brokers=1) as brokers:
            for _ in range(2):
                async with brokers.connect("ann", trace=tmp_path, data=tmp_path / "data"):
                    pass
                async with brokers.connect("bob", trace=tmp_path):
                    pass

    run_async(main)
    for name, state in (("ann", "kept"), ("bob", "lost")):
        first, second = sorted((tmp_path / "journals").glob(f"{name}.*.jsonl"))
        assert next(read_journal(first)).kind == "join"
        again = next(read_journal(second))
        assert (again.kind, (again.info or {})["state"]) == ("recover", state)


def test_what_a_killed_life_did_and_could_not_record_is_recorded_by_the_next(tmp_path: Path) -> None:
    """It was killed when its disk had the last turn, and its journal had not."""
    data, trace = tmp_path / "data", tmp_path / "run"

    async def main() -> None:
        async with cluster(brokers=1) as brokers, brokers.connect("bob", trace=trace) as bob:
            ann = await brokers.connect("ann", trace=trace, data=data)
            inbox = await ann.subscribe("t")
            await bob.publish("t", b"1")
            await ann.publish("t", b"mine")
            for _ in range(2):
                await inbox.get(5)
            await ann.abandon()
            (journal,) = (trace / "journals").glob("ann.*.jsonl")
            kept = [line for line in journal.read_text().splitlines() if '"join"' in line]
            journal.write_text("".join(f"{line}\n" for line in kept))
            async with brokers.connect("ann", trace=trace, data=data) as again:
                inbox = await again.subscribe("t")
                await bob.publish("t", b"2")
                while (await inbox.get(5)).payload != b"2":
                    pass

    run_async(main)
    _, second = sorted((trace / "journals").glob("ann.*.jsonl"))
    rows = [(row.kind, row.topic) for row in read_journal(second) if row.kind in ("recover", "subscribe", "deliver")]
    assert rows == [("recover", None), ("subscribe", "t"), *[("deliver", "t")] * 3]


def test_what_an_earlier_session_recorded_says_nothing_of_a_later_one(tmp_path: Path) -> None:
    """The second session was killed before its journal had what it subscribed to; the first had subscribed too."""
    data, trace = tmp_path / "data", tmp_path / "run"

    async def main() -> None:
        async with cluster(brokers=1) as brokers:
            ann = await brokers.connect("ann", trace=trace, data=data)
            await ann.subscribe("t")
            await ann.subscribe("u.>")
            await ann.close(stay=False)
            ann = await brokers.connect("ann", trace=trace, data=data)
            await ann.subscribe("t")
            await ann.subscribe("u.>")
            await ann.abandon()
            *_, second = sorted((trace / "journals").glob("ann.*.jsonl"))
            kept = [line for line in second.read_text().splitlines() if '"subscribe"' not in line]
            second.write_text("".join(f"{line}\n" for line in kept))
            async with brokers.connect("ann", trace=trace, data=data):
                pass

    run_async(main)
    *_, third = sorted((trace / "journals").glob("ann.*.jsonl"))
    assert sorted(row.topic for row in read_journal(third) if row.kind == "subscribe") == ["t", "u.>"]
