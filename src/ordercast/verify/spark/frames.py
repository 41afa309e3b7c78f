"""Measurements as pure functions from DataFrames to DataFrames. Every frame has the column `run`; times are in ns."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from ordercast.trace.schema import INFO_DIGEST
from ordercast.verify.metrics.compose import FAULT_KINDS, PACKET_CLASS, PLACE_KINDS
from ordercast.verify.metrics.values import QUANTILES

# Ranks are off by at most one in ten thousand: exact, and so the same every time, up to that many values, and bounded
# memory above.
_ACCURACY = 10_000


def totals(events: DataFrame) -> DataFrame:
    """One row per run: counts by kind, the span of time, and bytes."""
    kind, time_ns = sql.col("kind"), sql.col("time_ns")
    sent, of_message = kind == "send", sql.col("msg").isNotNull()
    return events.groupBy("run").agg(
        sql.min(time_ns).alias("first_ns"),
        sql.max(time_ns).alias("last_ns"),
        sql.min(sql.when(kind == "publish", time_ns)).alias("first_publish_ns"),
        sql.max(sql.when(kind == "deliver", time_ns)).alias("last_deliver_ns"),
        sql.count_if(kind == "publish").alias("published"),
        sql.count_if(kind == "deliver").alias("delivered"),
        sql.count_if(sent & of_message).alias("message_sends"),
        sql.count_if(sent & ~of_message).alias("control_sends"),
        sql.count_if(kind == "drop").alias("drops"),
        sql.sum(sql.when(sent, sql.col("header_bytes"))).alias("header_total"),
        sql.sum(sql.when(sent, sql.col("payload_bytes"))).alias("payload_total"),
    )


def message_headers(events: DataFrame) -> DataFrame:
    """Header sizes of the copies of messages that were put on a link."""
    return summary(events.where("kind = 'send' and msg is not null"), "header_bytes")


def packet_headers(events: DataFrame) -> DataFrame:
    """Header sizes of all sent packets by their class, where the rows name one."""
    return (
        events.where("kind = 'send'")
        .withColumn("packet", sql.col("info").getItem(PACKET_CLASS))
        .where("packet is not null")
        .groupBy("run", "packet")
        .agg(distribution(sql.col("header_bytes")).alias("headers"))
    )


def deliveries_by_node(events: DataFrame) -> DataFrame:
    """How many messages each node delivered; nodes that delivered nothing have no row."""
    return events.where("kind = 'deliver'").groupBy("run", "node").count()


def latencies(events: DataFrame) -> DataFrame:
    """One row per delivery: its time, its message's guarantee, and the time since the publication if that is known."""
    publications = (
        events.where("kind = 'publish'")
        .groupBy("run", "msg")
        .agg(sql.min("time_ns").alias("published_ns"), sql.first("guarantee", ignorenulls=True).alias("published_as"))
    )
    deliveries = events.where("kind = 'deliver'").select("run", "node", "msg", "guarantee", "time_ns")
    return deliveries.join(publications, ["run", "msg"], "left").select(
        "run",
        "node",
        "time_ns",
        sql.coalesce("published_as", "guarantee", sql.lit("unstated")).alias("guarantee"),
        (sql.col("time_ns") - sql.col("published_ns")).alias("latency_ns"),
    )


def latency_by_guarantee(latencies: DataFrame) -> DataFrame:
    """The distribution of latency per guarantee, and with a null guarantee over all of them."""
    by_guarantee = latencies.groupingSets([["run", "guarantee"], ["run"]], "run", "guarantee")
    return by_guarantee.agg(distribution(sql.col("latency_ns")).alias("latency"))


def timeline(latencies: DataFrame, spans: DataFrame, buckets: int) -> DataFrame:
    """Deliveries and their p99 latency in equal slices of each run's span (`run`, `first_ns`, `last_ns`)."""
    slice_ns = sql.greatest((sql.col("last_ns") - sql.col("first_ns")) / buckets, sql.lit(1.0))
    bucket = sql.least(sql.floor((sql.col("time_ns") - sql.col("first_ns")) / slice_ns), sql.lit(buckets - 1))
    return (
        latencies.join(sql.broadcast(spans), "run")
        .groupBy("run", bucket.cast("int").alias("bucket"))
        .agg(sql.count("*").alias("deliveries"), sql.percentile_approx("latency_ns", 0.99, _ACCURACY).alias("p99_ns"))
    )


def hold_backs(events: DataFrame) -> DataFrame:
    """How long each node that received a message kept it before delivering it.

    Both times are of one node's clock. A node's own message, delivered without being received, does not count.
    """

    def first(kind: str, column: str) -> Column:
        return sql.min(sql.when(sql.col("kind") == kind, sql.col(column)))

    return (
        events.where("kind in ('receive', 'deliver') and msg is not null")
        .groupBy("run", "node", "msg")
        .agg(
            first("receive", "seq").alias("received_at"),
            first("deliver", "seq").alias("delivered_at"),
            first("receive", "time_ns").alias("received_ns"),
            first("deliver", "time_ns").alias("delivered_ns"),
        )
        .where("received_at < delivered_at")
        .select("run", "node", "msg", (sql.col("delivered_ns") - sql.col("received_ns")).alias("held_ns"))
    )


def hold_back_summary(hold_backs: DataFrame) -> DataFrame:
    """The distribution of hold-back times, and how many of them were not zero."""
    held = sql.col("held_ns")
    return hold_backs.groupBy("run").agg(distribution(held).alias("held"), sql.count_if(held > 0).alias("waited"))


def repairs(events: DataFrame) -> DataFrame:
    """Time from a node's repair_start to its repair_end, per peer it repairs around.

    Starting again before the end is the same repair. A crash of the node itself abandons what it had begun. What
    clients do when they lose their edge broker is no repair, but a failover.
    """
    history = Window.partitionBy("run", "node").orderBy("seq")
    of_node = Window.partitionBy("run", "node")
    told = events.where("kind in ('repair_start', 'repair_end', 'crash', 'subscribe')")
    brokers = told.withColumn("edges", sql.count(names_an_edge()).over(of_node)).where("edges = 0")
    rows = brokers.where(f"kind != 'subscribe' and (info.{INFO_DIGEST} is null or info.parent is not null)").withColumn(
        "life", sql.count_if(sql.col("kind") == "crash").over(history)
    )
    of_one_peer = Window.partitionBy("run", "node", "life", "peer").orderBy("seq")
    ended_before = sql.count_if(sql.col("kind") == "repair_end").over(
        of_one_peer.rowsBetween(Window.unboundedPreceding, -1)
    )
    return (
        rows.where("kind != 'crash'")
        .withColumn("nth", ended_before)
        .groupBy("run", "node", "life", "peer", "nth")
        .agg(
            sql.min(sql.when(sql.col("kind") == "repair_start", sql.col("time_ns"))).alias("start_ns"),
            sql.max(sql.when(sql.col("kind") == "repair_end", sql.col("time_ns"))).alias("end_ns"),
        )
        .where("end_ns is not null and start_ns is not null")
        .select("run", "node", "peer", (sql.col("end_ns") - sql.col("start_ns")).alias("repair_ns"))
    )


def names_an_edge() -> Column:
    """Not null on the rows by which a client tells its edge broker."""
    return sql.coalesce(sql.col("info").getItem("broker"), sql.col("info").getItem("edge"))


def told(events: DataFrame, limit: int) -> DataFrame:
    """The rows that tell of places and repairs, the first `limit` of a run, and of each replica its last digest."""
    in_time = Window.partitionBy("run").orderBy("time_ns", "node", "seq")
    columns = "run", "node", "seq", "kind", "time_ns", "topic", "peer", "info"
    placed = (
        events.where(sql.col("kind").isin(*PLACE_KINDS) & sql.col("time_ns").isNotNull())
        .withColumn("rank", sql.row_number().over(in_time))
        .where(sql.col("rank") <= limit)
        .select(*columns)
    )
    of_replica = Window.partitionBy("run", "node", "topic").orderBy(sql.col("seq").desc())
    digests = (
        events.where(sql.col("info").getItem(INFO_DIGEST).isNotNull())
        .withColumn("rank", sql.row_number().over(of_replica))
        .where("rank = 1")
        .select(*columns)
    )
    return placed.unionByName(digests).dropDuplicates(["run", "node", "seq"])


def detections(events: DataFrame) -> DataFrame:
    """Time from each crash to the first suspicion of that node, if one comes before it is back."""
    history = Window.partitionBy("run", "node").orderBy("seq")
    crashes = (
        events.where("kind in ('crash', 'recover')")
        .withColumn("back_ns", sql.lead("time_ns").over(history))
        .where("kind = 'crash'")
        .select("run", sql.col("node").alias("crashed"), sql.col("time_ns").alias("crash_ns"), "back_ns")
    )
    suspicions = events.where("kind = 'suspect'").select("run", sql.col("peer").alias("crashed"), "time_ns")
    in_time = "time_ns >= crash_ns and (back_ns is null or time_ns < back_ns)"
    return (
        crashes.join(suspicions, ["run", "crashed"])
        .where(in_time)
        .groupBy("run", "crashed", "crash_ns")
        .agg((sql.min("time_ns") - sql.col("crash_ns")).alias("detection_ns"))
    )


def summary(frame: DataFrame, column: str) -> DataFrame:
    """The distribution of one column, per run."""
    return frame.groupBy("run").agg(distribution(sql.col(column)).alias("values"))


def faults(events: DataFrame, limit: int) -> DataFrame:
    """The first `limit` fault events of each run in time order."""
    in_time = Window.partitionBy("run").orderBy("time_ns", "node", "seq")
    return (
        events.where(sql.col("kind").isin(*FAULT_KINDS) & sql.col("time_ns").isNotNull())
        .select("run", "node", "seq", "kind", "time_ns", "peer")
        .withColumn("rank", sql.row_number().over(in_time))
        .where(sql.col("rank") <= limit)
    )


def distribution(values: Column) -> Column:
    """Count, mean and the curve at QUANTILES of a column, as one struct to aggregate by."""
    curve = sql.percentile_approx(values, list(QUANTILES), _ACCURACY)
    return sql.struct(sql.count(values).alias("count"), sql.avg(values).alias("mean"), curve.alias("curve"))
