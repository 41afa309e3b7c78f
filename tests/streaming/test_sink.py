"""What a query publishes is handed over once, however often a batch is tried and in whatever order its rows come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ordercast.api import UsageError
from ordercast.streaming.options import Options
from ordercast.streaming.sink import BatchSink, StreamSink, publish_rows
from tests.support.kept_thread import kept_cluster

BROKERS = {"brokers": "127.0.0.1:7000", "topic": "t"}


def _batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows)


def test_two_attempts_at_a_batch_are_handed_over_as_one(tmp_path: Path) -> None:
    rows = [{"key": "k", "value": value, "topic": "kept.out"} for value in (b"same", b"same", b"other")]
    with kept_cluster(tmp_path) as brokers, brokers.connect("ann") as ann:
        options = Options({"brokers": brokers.addresses, "guarantee": "total"}).writing()
        inbox = ann.subscribe("kept.out")
        assert publish_rows(options, iter([_batch(rows[:2])]), "query/7/0") == 2  # This attempt died before its end.
        assert publish_rows(options, iter([_batch(rows[::-1])]), "query/7/0") == 3
        assert publish_rows(options, iter([_batch(rows[:1])]), "query/8/0") == 1
        ann.publish("kept.out", b"end", guarantee="total")
        found = [inbox.get(20)]
        while found[-1].payload != b"end":
            found.append(inbox.get(20))

    assert sorted(message.payload for message in found) == [b"end", b"other", b"same", b"same", b"same"]
    assert {message.guarantee.label for message in found} == {"total"}
    assert [message.key for message in found[:-1]] == ["k"] * 4


@pytest.mark.parametrize(
    ("given", "columns", "line"),
    [
        ({}, ["key"], "column value: it is missing"),
        ({"topic": ""}, ["value"], "option topic: it is not given"),
        ({}, ["value", "offset"], "column offset: there is no place for it"),
    ],
)
def test_rows_that_are_no_messages_are_refused_in_one_line(
    given: dict[str, str], columns: list[str], line: str
) -> None:
    with pytest.raises(UsageError, match=line):
        StreamSink(Options({**BROKERS, **given}).writing(), columns)


def test_what_was_published_cannot_be_overwritten() -> None:
    with pytest.raises(UsageError, match="mode overwrite"):
        BatchSink(Options(BROKERS).writing(), ["value"], overwrite=True)
