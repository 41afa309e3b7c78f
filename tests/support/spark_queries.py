"""Streaming queries of tests, on machines that may be busy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_TRIES = 10


def ended(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query and wait for its end.

    Spark gives the Python process of a source ten seconds to start, which cannot be changed; a query that fails for
    that has done nothing yet, and is started again.
    """
    for left in reversed(range(_TRIES)):
        query = start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if not left or "failed to connect back" not in str(error):
                raise
        else:
            break
    return query
