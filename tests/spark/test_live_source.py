"""Kept topics as a stream of Spark: nothing is lost or read twice when a query fails and a copy dies.

What is wrong with an option is said before anything is dialed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from tests.support.kept_thread import KeptCluster, kept_cluster, published
from tests.support.spark_queries import ended

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def run(frame: DataFrame, checkpoint: Path, take: Callable[[DataFrame, int], None]) -> Any:
    """Everything there is now, in as many micro-batches as the limit asks for."""
    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    return ended(writer.trigger(availableNow=True).start)


def source(spark: SparkSession, brokers: KeptCluster, topics: str, **options: str) -> DataFrame:
    where = {"brokers": brokers.addresses, "subscribe": topics, "startingOffsets": "earliest", **options}
    return spark.readStream.format("ordercast").options(**where).load()


def test_what_is_wrong_with_an_option_is_what_spark_says_last(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="option brokers: HOST:PORT of one broker or several"):
        spark.readStream.format("ordercast").option("subscribe", "kept.t").load()


def test_a_query_that_failed_goes_on_without_loss_or_duplicate_though_a_copy_is_dead(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches: dict[int, list[int]] = {}

    def fail_in_the_second(frame: DataFrame, batch: int) -> None:
        batches[batch] = [int(row["value"]) for row in frame.select("value").collect()]
        if batch == 1:
            raise RuntimeError("this is where it dies")

    def take(frame: DataFrame, batch: int) -> None:
        batches[batch] = [int(row["value"]) for row in frame.select("value").collect()]

    with kept_cluster(tmp_path / "brokers") as brokers, brokers.connect("ann") as ann:
        published(ann, "kept.t", 1, 180)
        frame = source(spark, brokers, "kept.t", maxOffsetsPerTrigger="100")
        with pytest.raises(StreamingQueryException, match="this is where it dies"):
            run(frame, tmp_path / "checkpoint", fail_in_the_second)
        assert sorted(batches) == [0, 1]

        brokers.kill(next(copy for copy in brokers.copies_of("kept.t") if copy != ann.broker))
        published(ann, "kept.t", 181, 220)
        query = run(frame, tmp_path / "checkpoint", take)
        where = {"brokers": brokers.addresses, "subscribe": "kept.t", "includeHeaders": "true"}
        once = spark.read.format("ordercast").options(**where).load().selectExpr("int(string(value)) AS number")
        assert sorted(row["number"] for row in once.collect()) == list(range(1, 221))

    assert Counter(number for batch in batches.values() for number in batch) == Counter(range(1, 221))
    assert [len(batches[batch]) for batch in sorted(batches)] == [100, 80, 40]
    assert json.loads(query.lastProgress["sources"][0]["endOffset"])["closed"] == "all topics"
