"""Publishing what a query computes, with a guarantee of its choice, each row once however often a batch is tried.

Every message carries an idempotence id made from the query, the batch, the partition and what the row says, so that of
two attempts at a batch each subscriber is handed one message per row (docs/spark-streaming.md says how far that goes).
The id does not count rows by their place: in two attempts at a batch Spark may hand over rows in different orders.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ordercast.api import UsageError
from ordercast.blocking import Client
from ordercast.streaming.connections import client_of
from ordercast.streaming.options import WriteOptions

COLUMNS = ("value", "key", "keys", "topic", "headers", "guarantee")
_DRAIN_EVERY = 1000
_encode = msgspec.msgpack.Encoder().encode


class RowsPublished(WriterCommitMessage):
    """The publications of one task, all of them safe."""

    def __init__(self, count: int) -> None:
        self.count = count


class StreamSink(DataSourceStreamArrowWriter):
    """The sink of a stream: one attempt at a batch publishes the same ids as the next."""

    def __init__(self, options: WriteOptions, names: Sequence[str]) -> None:
        self._options = options
        _check(options, names)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsPublished:  # type: ignore[override]
        context = TaskContext.get()
        assert context is not None
        query, batch = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
        return RowsPublished(publish_rows(self._options, iterator, f"{query}/{batch}/{context.partitionId()}"))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing is left to do: what a task has published is safe when it ends."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing can be taken back; the next attempt publishes the same ids."""


class BatchSink(DataSourceArrowWriter):
    """The sink of a batch: what is tried again is a task, never the whole."""

    def __init__(self, options: WriteOptions, names: Sequence[str], *, overwrite: bool) -> None:
        self._options = options
        _check(options, names)
        if overwrite:
            raise UsageError("mode overwrite: nobody can take back what was published; use mode append")
        self._job = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsPublished:  # type: ignore[override]
        context = TaskContext.get()
        assert context is not None
        return RowsPublished(publish_rows(self._options, iterator, f"{self._job}/{context.partitionId()}"))


def _check(options: WriteOptions, names: Sequence[str]) -> None:
    for name in names:
        if name not in COLUMNS:
            raise UsageError(f"column {name}: there is no place for it in a message; there are {', '.join(COLUMNS)}")
    if "value" not in names:
        raise UsageError("column value: it is missing, and without it there is nothing to publish")
    if not options.topic and "topic" not in names:
        raise UsageError("option topic: it is not given, and there is no column topic either")


def publish_rows(options: WriteOptions, batches: Iterator[pa.RecordBatch], attempt: str) -> int:
    """Publish the rows and wait until all are safe; how many. Rows of one `attempt` that say the same count apart."""
    count, seen = 0, Counter[bytes]()
    with client_of(options.connection, "write") as client:
        for batch in batches:
            for row in batch.to_pylist():
                _publish_row(client, options, row, attempt, seen)
                count += 1
                if count % _DRAIN_EVERY == 0:
                    client.drain()
        client.flush("safe", timeout=options.connection.timeout_s)
    return count


def _publish_row(
    client: Client, options: WriteOptions, row: dict[str, Any], attempt: str, seen: Counter[bytes]
) -> None:
    topic = row.get("topic") or options.topic
    headers = {_bytes("headers", pair["key"]): _bytes("headers", pair["value"]) for pair in row.get("headers") or ()}
    keys = [key for key in (_text(row.get("key")), *map(_text, row.get("keys") or ())) if key]
    keys = list(dict.fromkeys(keys))
    value, guarantee = _bytes("value", row["value"]), row.get("guarantee") or options.guarantee
    said = hashlib.blake2b(_encode((topic, keys, value, headers, guarantee)), digest_size=16).digest()
    seen[said] += 1
    client.publish_soon(
        topic, value, keys=keys, guarantee=guarantee, headers=headers or None,
        dedup=f"{attempt}/{said.hex()}/{seen[said]}",
    )  # fmt: skip


def _bytes(name: str, value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes):
        raise UsageError(f"column {name}: a text or bytes are needed, not {value!r}"[:200])
    return value


def _text(value: object) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else "" if value is None else str(value)
