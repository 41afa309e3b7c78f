"""Where Spark looks for sources: it imports what begins with `pyspark_` and registers the `DefaultSource` in it."""

from ordercast.streaming.source import OrdercastSource as DefaultSource

__all__ = ["DefaultSource"]
