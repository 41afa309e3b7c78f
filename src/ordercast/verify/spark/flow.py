"""Spark as what moves tables between the stages of the distributed judge."""

from __future__ import annotations

import mmap
import tempfile
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.storagelevel import StorageLevel

from ordercast.verify.arrow import taken
from ordercast.verify.spark.progress import run_action

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

    Stage = Callable[..., Iterator[pa.RecordBatch]]

_SIDE = "_side"


class SparkFlow:
    """Frames are DataFrames. Every group is a task of its own, which Spark starts anew where its host was lost."""

    def __init__(self, spark: SparkSession, label: str) -> None:
        self._spark = spark
        self._label = label
        self._kept: list[DataFrame] = []

    def mapped(self, frame: DataFrame, stage: Stage, schema: pa.Schema) -> DataFrame:
        return frame.mapInArrow(stage, from_arrow_schema(schema))

    def grouped(self, frame: DataFrame, by: str, stage: Stage, schema: pa.Schema, *, values: range) -> DataFrame:
        dealt = frame.repartitionById(len(values), sql.col(by) - values.start)
        return dealt.mapInArrow(_OneGroup(stage, by, values, _columns(frame)), from_arrow_schema(schema))

    def beside(
        self,
        frame: DataFrame,
        by: str,
        everywhere: DataFrame,
        stage: Stage,
        schema: pa.Schema,
        *,
        values: range,
    ) -> DataFrame:
        numbers = sql.sequence(sql.lit(values.start), sql.lit(values.stop - 1))
        copies = everywhere.select(
            *(sql.col(name).alias(f"_{name}") for name in everywhere.columns),
            sql.explode(numbers).alias(by),
            sql.lit(1).alias(_SIDE),
        )
        both = frame.withColumn(_SIDE, sql.lit(0)).unionByName(copies, allowMissingColumns=True)
        dealt = both.repartitionById(len(values), sql.col(by) - values.start)
        two = _TwoSides(stage, by, values, _columns(frame), list(everywhere.columns))
        return dealt.mapInArrow(two, from_arrow_schema(schema))

    def where(self, frame: DataFrame, column: str, least: int, most: int) -> DataFrame:
        return frame.where(sql.col(column).between(least, most))

    def kept(self, frame: DataFrame) -> DataFrame:
        self._kept.append(frame.persist(StorageLevel.DISK_ONLY))
        return self._kept[-1]

    def collected(self, frame: DataFrame) -> pa.Table:
        table: pa.Table = run_action(self._spark, self._label, frame.toArrow)
        return table

    def close(self) -> None:
        """Give back the room of what was kept."""
        for frame in self._kept:
            frame.unpersist()


def _columns(frame: DataFrame) -> pa.Schema:
    columns: pa.Schema = to_arrow_schema(frame.schema)
    return columns


class _OneGroup:
    """All rows of a partition are one group: each value of `by` has a partition of its own."""

    def __init__(self, stage: Stage, by: str, values: range, columns: pa.Schema) -> None:
        self.stage = stage
        self.by = by
        self.values = values
        self.columns = columns

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = _table(batches)
        if table is not None:
            yield from self.stage(self.value(table), table.select(self.columns.names))
        elif len(self.values) == 1:
            yield from self.stage(self.values.start, self.columns.empty_table())

    def value(self, table: pa.Table | pa.RecordBatch) -> int:
        number: Any = table.column(self.by)[0].as_py()
        return int(number)


class _TwoSides(_OneGroup):
    """The rows of a group, and those that every group gets; without any of these there is nothing to do.

    The latter may be many: they are put into a file and read from there, so that memory holds what is looked at.
    """

    def __init__(self, stage: Stage, by: str, values: range, columns: pa.Schema, others: list[str]) -> None:
        super().__init__(stage, by, values, columns)
        self.others = others

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        value, rows = None, []
        with tempfile.TemporaryFile() as file:
            writer = None
            for batch in batches:
                if not batch.num_rows:
                    continue
                value = self.value(batch)
                sides: Any = np.asarray(batch.column(_SIDE))
                rows.append(taken(batch, np.flatnonzero(sides == 0)).select(self.columns.names))
                theirs = taken(batch, np.flatnonzero(sides == 1)).select([f"_{name}" for name in self.others])
                theirs = theirs.rename_columns(self.others)
                writer = writer or pa.ipc.new_file(file, theirs.schema)
                writer.write_batch(theirs)
            if value is None or writer is None:
                return
            writer.close()
            yield from self.stage(value, pa.Table.from_batches(rows), _mapped(file))


def _mapped(file: IO[bytes]) -> pa.Table:
    """The rows in a file, which stay there."""
    file.flush()
    return pa.ipc.open_file(pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))).read_all()


def _table(batches: Iterable[pa.RecordBatch]) -> pa.Table | None:
    found = [batch for batch in batches if batch.num_rows]
    return pa.Table.from_batches(found) if found else None
