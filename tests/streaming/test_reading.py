"""Where micro-batches end, and that what lies between two of them is read once, whatever happens to copies."""

from __future__ import annotations

import datetime as dt
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ordercast.api import HistoryLost, Position
from ordercast.core.ids import Origin, Topic
from ordercast.pubsub.received import Vector
from ordercast.streaming import columns, connections, cuts, reading
from ordercast.streaming.ladder import MOST_STEPS, Ladder, topic_by_topic
from ordercast.streaming.options import Options, ReadOptions
from ordercast.streaming.reading import TopicRange
from ordercast.streaming.source import BatchReader, StreamReader
from tests.support.kept_thread import PATIENCE_S, KeptCluster, kept_cluster, published

ANN, BOB = Origin("ann~1"), Origin("bob~1")
A, B = Topic("kept.a"), Topic("kept.b")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptCluster]:
    with kept_cluster(tmp_path_factory.mktemp("kept")) as running:
        yield running


def options(brokers: KeptCluster, topics: str, **more: str) -> ReadOptions:
    return Options({"brokers": brokers.addresses, "subscribe": topics, **more}).reading(stream=True)


def numbers(options: ReadOptions, start: Position, end: Position) -> list[int]:
    """Everything between two positions, as the tasks of a micro-batch read it."""
    found = [batch for wanted in reading.ranges(options, start, end) for batch in reading.messages(options, wanted)]
    return [int(message.payload) for batch in found for message in batch]


def test_micro_batches_of_one_topic_keep_to_the_limit_and_lose_nothing(brokers: KeptCluster) -> None:
    with brokers.connect("ann") as ann, brokers.connect("bob") as bob:
        published(ann, "kept.limit", 1, 150)
        published(bob, "kept.limit", 151, 250)
    wanted = options(brokers, "kept.limit", startingOffsets="earliest")
    position, end = reading.starting(wanted), reading.latest(wanted)
    seen: list[list[int]] = []
    while position < end:
        following = topic_by_topic(wanted, position, end, 60)
        seen.append(numbers(wanted, position, following))
        position = following

    assert [len(batch) for batch in seen] == [60, 60, 60, 60, 10]
    assert sorted(number for batch in seen for number in batch) == list(range(1, 251))


def test_several_tasks_read_what_one_would(brokers: KeptCluster) -> None:
    with brokers.connect("ann") as ann, brokers.connect("bob") as bob:
        published(ann, "kept.parts", 1, 100)
        published(bob, "kept.parts", 101, 140)
    wanted = options(brokers, "kept.parts", startingOffsets="earliest", minPartitions="7")
    start, end = reading.starting(wanted), reading.latest(wanted)

    assert len(reading.ranges(wanted, start, end)) == 7
    assert sorted(numbers(wanted, start, end)) == list(range(1, 141))


def test_a_batch_across_topics_ends_at_a_closed_position_and_a_time_is_a_start(brokers: KeptCluster) -> None:
    with brokers.connect("ann") as ann:
        published(ann, "kept.x", 1, 20)
        published(ann, "kept.y", 1, 30)
    wanted = options(brokers, "kept.x,kept.y", startingTimestamp="0")
    end = reading.latest(wanted)

    assert len(numbers(wanted, reading.starting(wanted), end)) == 50
    assert numbers(wanted, end, end) == []
    assert reading.starting(options(brokers, "kept.x,kept.y")) >= end


def test_topics_of_a_filter_that_begin_meanwhile_are_read_from_their_beginning(brokers: KeptCluster) -> None:
    """Offsets of a stream, one after the other: what begins in between is in the next, nothing is left out or twice."""
    given = {"brokers": brokers.addresses, "subscribePattern": "kept.sort.>", "maxOffsetsPerTrigger": "25"}
    reader = StreamReader(Options({**given, "startingOffsets": "latest"}).reading(stream=True))
    with brokers.connect("ann") as ann:
        published(ann, "kept.sort.a", 1, 10)
        offset, seen = reader.initialOffset(), list[int]()
        published(ann, "kept.sort.a", 11, 20)
        for first, topic in ((21, "b"), (41, "c.d"), (61, "a")):
            published(ann, f"kept.sort.{topic}", first, first + 19)
            following = reader.latestOffset(offset, reader.getDefaultReadLimit())
            for partition in reader.partitions(offset, following):
                seen += [int(value) for batch in reader.read(partition) for value in batch["value"].to_pylist()]
            offset = following

    assert sorted(seen) == list(range(11, 81))
    assert set(cuts.position_of(offset).topics) == {"kept.sort.a", "kept.sort.b", "kept.sort.c.d"}
    assert offset["closed"] == "all topics"
    assert reader.reportLatestOffset() == offset
    assert reader.latestOffset(offset, reader.getDefaultReadLimit()) == offset


@pytest.mark.parametrize("start", [{}, {"startingTimestamp": "0"}])
def test_a_batch_of_a_filter_reads_all_its_topics(brokers: KeptCluster, start: dict[str, str]) -> None:
    sort = f"kept.{'time' if start else 'all'}"
    with brokers.connect("ann") as ann:
        for topic in (f"{sort}.a", f"{sort}.b", "kept.else"):
            published(ann, topic, 1, 15)
    wanted = Options({"brokers": brokers.addresses, "subscribePattern": f"{sort}.*", **start}).reading(stream=False)
    reader = BatchReader(wanted)
    found = [value for part in reader.partitions() for batch in reader.read(part) for value in batch["topic"]]
    assert Counter(map(str, found)) == {f"{sort}.a": 15, f"{sort}.b": 15}


def test_a_batch_lies_between_the_offsets_and_times_that_it_is_given(brokers: KeptCluster) -> None:
    with brokers.connect("ann") as ann:
        published(ann, "kept.between", 1, 10)
        start = reading.latest(options(brokers, "kept.between"))
        before = dt.datetime.now(dt.UTC)
        published(ann, "kept.between", 11, 20)
        end = reading.latest(options(brokers, "kept.between"))
        published(ann, "kept.between", 21, 30)

    def numbers_and_times(**given: str) -> tuple[list[int], list[dt.datetime]]:
        where = {"brokers": brokers.addresses, "subscribe": "kept.between", **given}
        reader = BatchReader(Options(where).reading(stream=False))
        found = pa.Table.from_batches([batch for part in reader.partitions() for batch in reader.read(part)])
        return [int(value) for value in found["value"].to_pylist()], found["timestamp"].to_pylist()

    within, times = numbers_and_times(startingOffsets=str(start), endingOffsets=str(end))
    assert within == list(range(11, 21))
    assert all(before <= at <= dt.datetime.now(dt.UTC) for at in times)
    since, _ = numbers_and_times(startingTimestamp=str(int(before.timestamp() * 1000)))
    assert since[-20:] == list(range(11, 31)), "what was kept in the same millisecond may come before it"
    assert numbers_and_times(endingOffsets=str(end))[0] == list(range(1, 21))


def test_what_is_lost_is_told_or_left_out_as_asked(brokers: KeptCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that has cleaned the first 30 of 50 is what a reader from an old checkpoint meets."""
    with brokers.connect("ann") as ann:
        published(ann, "kept.gone", 1, 50)
    strict = options(brokers, "kept.gone", startingOffsets="earliest")
    end = reading.latest(strict)
    (origin,) = end.of("kept.gone")
    left = Position({Topic("kept.gone"): {origin: 30}})
    _clean_up_to(monkeypatch, left)

    with pytest.raises(HistoryLost, match=r"kept\.gone: was cleaned"):
        numbers(strict, Position({Topic("kept.gone"): {}}), end)
    lenient = options(brokers, "kept.gone", startingOffsets="earliest", failOnDataLoss="false")
    assert numbers(lenient, Position({Topic("kept.gone"): {}}), end) == list(range(31, 51))


def _clean_up_to(monkeypatch: pytest.MonkeyPatch, left: Position) -> None:
    from ordercast.blocking import Client

    whole = Client.read

    def read(self: Client, topics: str, start: Any = "earliest", end: Position | None = None) -> Any:
        if isinstance(start, Position) and not left <= start:
            raise HistoryLost(topics, "was cleaned up to a later position", left)
        return whole(self, topics, start, end)

    monkeypatch.setattr(Client, "read", read)


def test_the_last_known_closed_position_within_the_limit_ends_a_micro_batch() -> None:
    ladder = Ladder()
    steps = [Position({A: {ANN: n}, B: {BOB: n}}) for n in (10, 20, 30, 80)]
    for step in steps:
        ladder.add(step)
    start = Position({A: {}, B: {}})

    assert ladder.next(start, 45) == steps[1]
    assert ladder.next(steps[1], 45) == steps[2]
    assert ladder.next(steps[2], 45) == steps[3], "no closed position is known within the limit: the first beyond it"
    assert ladder.next(steps[3], 45) == steps[3]
    assert ladder.next(start, 0) == start, "what lies behind the query is forgotten"


def test_a_long_way_behind_takes_bounded_memory_and_reaches_the_end() -> None:
    ladder = Ladder()
    for number in range(1, 5 * MOST_STEPS):
        ladder.add(Position({A: {ANN: number}}))
    assert len(ladder._steps) <= MOST_STEPS + 1
    assert ladder.next(Position({}), 0) == Position({A: {ANN: 5 * MOST_STEPS - 1}})


@pytest.mark.parametrize("seed", range(20))
def test_parts_of_a_range_are_the_range(seed: int) -> None:
    chance = random.Random(seed)
    start: Vector = {Origin(f"p{i}"): chance.randrange(20) for i in range(chance.randrange(4))}
    end = {o: n + chance.randrange(20) for o, n in start.items()} | {Origin("new"): chance.randrange(1, 9)}
    parts = cuts.parts_of(start, end, chance.randrange(1, 8))

    taken = [(o, n) for low, high in parts for o in high for n in range(low.get(o, 0) + 1, high[o] + 1)]
    assert len(taken) == len(set(taken))
    assert set(taken) == {(o, n) for o in end for n in range(start.get(o, 0) + 1, end[o] + 1)}


def test_rows_say_what_a_message_says(brokers: KeptCluster) -> None:
    with brokers.connect("ann") as ann:
        ann.publish("kept.rows", b"one", keys=["k", "l"], guarantee="total", headers={b"h": b"\xff"}, dedup="d")
        ann.publish_many("kept.rows", [b"two", b"three"], key="k")
        published(ann, "kept.rows", 4, 4)
    wanted = options(brokers, "kept.rows", startingOffsets="earliest", includeHeaders="true")
    whole = TopicRange("kept.rows", None, reading.latest(wanted).of("kept.rows"))
    rows = [row for b in reading.messages(wanted, whole) for row in columns.rows(b, headers=True).to_pylist()]

    assert [row["value"] for row in rows] == [b"one", b"two", b"three", b"4"]
    assert [row["number"] for row in rows] == [1, 2, 2, 3]
    assert [row["part"] for row in rows] == [None, 1, 2, None]
    assert [row["key"] for row in rows] == ["k", "k", "k", None]
    assert rows[0]["keys"] == ["k", "l"]
    assert (rows[0]["guarantee"], rows[0]["dedup"]) == ("total", "d")
    assert rows[0]["headers"] == [{"key": "h", "value": b"\xff"}]
    assert {row["publisher"] for row in rows} == {"ann"}
    assert rows[3]["headers"] is None


def test_a_copy_that_dies_does_not_end_the_reading(tmp_path: Path) -> None:
    with kept_cluster(tmp_path) as brokers:
        with brokers.connect("ann") as ann:
            published(ann, "kept.t", 1, 300)
        wanted = options(brokers, "kept.t", startingOffsets="earliest")
        start, end = reading.starting(wanted), reading.latest(wanted)
        brokers.kill(brokers.copies_of("kept.t")[0])

        assert sorted(numbers(wanted, start, end)) == list(range(1, 301))
        assert reading.latest(wanted) >= end


def test_a_reader_that_is_dropped_may_be_collected_in_any_thread_at_any_moment(brokers: KeptCluster) -> None:
    """In the client's own thread, or while this one looks for a connection: nobody waits for itself."""
    with brokers.connect("ann") as ann:
        published(ann, "kept.dropped", 1, 50)
    wanted = options(brokers, "kept.dropped", startingOffsets="earliest")
    whole = TopicRange("kept.dropped", None, reading.latest(wanted).of("kept.dropped"))
    in_the_loop, while_connecting = (reading.messages(wanted, whole) for _ in range(2))
    assert next(in_the_loop)
    assert next(while_connecting)

    ends: list[Vector] = []

    def collect() -> None:
        with connections.client_of(wanted.connection) as client:
            client._thread.soon(in_the_loop.close)
        with connections._lock:
            while_connecting.close()
        ends.append(reading.latest(wanted).of("kept.dropped"))

    beside = threading.Thread(target=collect, daemon=True)
    beside.start()
    beside.join(PATIENCE_S)
    assert ends == [whole.end]
