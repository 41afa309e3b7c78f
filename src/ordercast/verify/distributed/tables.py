"""Rows as measuring reads them, in the columns of the trace format: from the bytes of files, or as Spark read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ordercast.verify.distributed.files import row_groups
from ordercast.verify.metrics.local import NEEDED, REPEATING
from ordercast.verify.metrics.sources import in_our_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WORDS = (*REPEATING, "msg")
_AT_ONCE = 500_000


def tables_in_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Columns: path, content."""
    for group in row_groups(batches, WORDS):
        yield in_our_columns(group.read(NEEDED), words=WORDS)


def tables_of_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Columns: NEEDED."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= _AT_ONCE:
            yield in_our_columns(pa.Table.from_batches(waiting))
            waiting = []
    if any(batch.num_rows for batch in waiting):
        yield in_our_columns(pa.Table.from_batches(waiting))
