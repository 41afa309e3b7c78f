"""Streaming queries of tests, on machines that may be busy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_TRIES = 10
_PATIENCE_S = 240


def ended(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query and wait for its end; one that does not come to it says what every thread of Java does.

    Spark gives the Python process of a source ten seconds to start, which cannot be changed; a query that fails for
    that has done nothing yet, and is started again.
    """
    deadline = time.monotonic() + _PATIENCE_S
    for left in reversed(range(_TRIES)):
        query = start()
        try:
            if not query.awaitTermination(max(1, int(deadline - time.monotonic()))):
                raise AssertionError("\n".join(_standing_still(query)))
        except StreamingQueryException as error:
            if not left or "failed to connect back" not in str(error):
                raise
        else:
            break
    return query


def _standing_still(query: StreamingQuery) -> Iterator[str]:
    """What is known of a query that does not end."""
    yield f"not ended within {_PATIENCE_S} s, try after try: {query.status}, {query.lastProgress}"
    spark: Any = SparkSession.builder.getOrCreate()
    stacks = spark._jvm.java.lang.Thread.getAllStackTraces()
    for thread in stacks.keySet():
        yield f"{thread.getName()} ({thread.getState()})"
        yield from (f"    {frame}" for frame in stacks[thread])
    query.stop()
