"""`spark.readStream.format("ordercast")`, `spark.read` and `writeStream`: kept topics as a source and sink of Spark.

Offsets are positions (docs/spark-streaming.md): every micro-batch lies between two cuts that mean the same at every
copy, so that a query that is started again goes on where its checkpoint says, at whichever broker.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ordercast.api import Position
from ordercast.streaming import columns, cuts, reading
from ordercast.streaming.ladder import Ladder, topic_by_topic
from ordercast.streaming.options import Options, ReadOptions
from ordercast.streaming.sink import BatchSink, StreamSink


class OrdercastSource(DataSource):
    """The source behind `format("ordercast")`. Options are checked here, where Spark says what is wrong with them."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = Options(options)
        self._options.connection()

    @classmethod
    def name(cls) -> str:
        return "ordercast"

    def schema(self) -> str:
        return columns.schema(headers=self._options.flag("includeHeaders", default=False))

    def reader(self, schema: StructType) -> BatchReader:  # noqa: ARG002 - Spark's names and numbers of arguments.
        return BatchReader(self._options.reading(stream=False))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802, ARG002
        return StreamReader(self._options.reading(stream=True))

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        return BatchSink(self._options.writing(), schema.fieldNames(), overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:  # noqa: N802, ARG002
        return StreamSink(self._options.writing(), schema.fieldNames())


class RangePartition(InputPartition):
    """The range that one task reads."""

    def __init__(self, wanted: reading.TopicRange) -> None:
        super().__init__(None)
        self.wanted = wanted


def _read(options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if isinstance(partition, RangePartition):
        for batch in reading.messages(options, partition.wanted):
            if batch:
                yield columns.rows(batch, headers=options.headers)


class BatchReader(DataSourceReader):
    """Everything between two positions, once."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        options = self._options
        start = reading.starting(options)
        end = options.end if isinstance(options.end, Position) else reading.latest(options)
        return [RangePartition(wanted) for wanted in reading.ranges(options, start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One micro-batch after the other. Only what plans them has a state, and it can be lost."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._ladder = Ladder()
        self._latest: Position | None = None
        self._target: Position | None = None
        self._stalled = ""

    def initialOffset(self) -> dict[str, str]:  # noqa: N802
        return self._offset(reading.starting(self._options))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.most_offsets
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = reading.latest(self._options)

    def reportLatestOffset(self) -> dict[str, str] | None:  # noqa: N802
        return self._offset(self._latest) if self._latest is not None else None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next micro-batch; `start` where nothing is new, or where there is no closed position now."""
        begin = cuts.position_of(start)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        ahead = self._ahead()
        if ahead is None:
            return start
        self._latest = ahead = cuts.joined(begin, ahead)
        if not reading.is_anything(self._options, begin, ahead):
            return start
        return self._offset(self._next(begin, ahead, most))

    def _next(self, begin: Position, ahead: Position, most: int) -> Position:
        if self._options.across and len(ahead.topics) > 1:
            self._ladder.add(ahead)
            return cuts.joined(begin, self._ladder.next(begin, most))
        return topic_by_topic(self._options, begin, ahead, most)

    def _ahead(self) -> Position | None:
        """The end of the topics; None while nobody can say. A query waits for that, and says so once."""
        if self._target is not None:
            return self._target
        try:
            found = reading.latest(self._options)
        except (TimeoutError, ConnectionError) as error:
            self._tell(f"ordercast: the query waits: {error}")
            return None
        self._tell("")
        return found

    def _tell(self, line: str) -> None:
        if line and not self._stalled:
            print(line, file=sys.stderr, flush=True)
        self._stalled = line

    def _offset(self, position: Position) -> dict[str, str]:
        return cuts.offset_of(position, across=self._options.across or len(position.topics) < 2)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        between = cuts.position_of(start), cuts.position_of(end)
        return [RangePartition(wanted) for wanted in reading.ranges(self._options, *between)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: brokers remember nothing about a reader."""

    def stop(self) -> None:
        """Nothing: the connection of this process ends with it, or when nobody uses it."""
