"""Kept topics as tables of Spark: a source, a sink, and a monitor of live deliveries.

Spark finds the source by itself (`spark.readStream.format("ordercast")`): see `pyspark_ordercast`.
"""
