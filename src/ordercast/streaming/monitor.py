"""The online monitor: a streaming query over the journals of running processes that raises violations of order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ordercast.streaming.journals import JournalsSource
from ordercast.verify.online import Alarm, OnlineRow, OrderWatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start_monitor(
    spark: SparkSession, run: Path, watch: OrderWatch, on_alarm: Callable[[Alarm], None], *, every_s: float | None,
    remove: bool = False,
) -> StreamingQuery:  # fmt: skip
    """Begin to watch the journals of a run, from their beginning. `every_s` None: what is there now, and then end.

    `remove`: the journals are nobody else's, and those that were read are removed.
    """
    spark.dataSource.register(JournalsSource)
    rows = spark.readStream.format(JournalsSource.name()).option("remove", str(remove).lower()).load(str(run))
    chosen = rows.where("kind IN ('publish', 'deliver', 'subscribe', 'unsubscribe', 'join', 'recover', 'leave')")

    def look(frame: DataFrame, _: int) -> None:
        for alarm in watch.feed(by_node(frame.toArrow())):
            on_alarm(alarm)

    # What the watch knows is in this process: a monitor that is started again reads the journals again.
    spark.conf.set("spark.sql.streaming.forceDeleteTempCheckpointLocation", "true")
    writer = chosen.writeStream.foreachBatch(look)
    trigger = (
        writer.trigger(availableNow=True) if every_s is None else writer.trigger(processingTime=f"{every_s} seconds")
    )
    return trigger.start()


def by_node(table: pa.Table) -> Mapping[str, list[OnlineRow]]:
    """The rows of each node in their order."""
    table = table.sort_by([("node", "ascending"), ("life", "ascending"), ("at", "ascending")])
    names = ("node", "kind", "time_ns", "msg", "topic", "keys", "guarantee", "info")
    columns = [table.column(name).to_pylist() for name in names]
    found: dict[str, list[OnlineRow]] = {}
    for node, kind, time_ns, msg, topic, keys, guarantee, info in zip(*columns, strict=True):
        row = OnlineRow(kind, time_ns, msg, topic, tuple(keys or ()), guarantee, dict(info or ()))
        found.setdefault(node, []).append(row)
    return found


def summary(watch: OrderWatch) -> dict[str, Any]:
    """A summary of what was watched, and what could not be."""
    return {**watch.counts, "waiting": watch.waiting}
