"""Kept topics in Spark, for sessions that do not find the source by themselves.

    spark.dataSource.register(ordercast.spark.OrdercastSource)
    spark.readStream.format("ordercast").option("broker", "127.0.0.1:7000").option("topics", "accounts.*").load()

Options and columns: docs/spark-streaming.md.
"""

from ordercast.streaming.source import OrdercastSource

__all__ = ["OrdercastSource"]
