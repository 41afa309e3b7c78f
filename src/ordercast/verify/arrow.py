"""Helpers for Arrow columns, kept in one place because its type stubs are incomplete."""

from __future__ import annotations

import errno
import os
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def whole(column: Any) -> Any:
    """A column in one piece."""
    combined = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def coded(column: Any) -> tuple[Any, np.ndarray[Any, np.dtype[np.int32]]]:
    """The words of a dictionary column and its codes, -1 for null."""
    if isinstance(column, pa.ChunkedArray) and column.num_chunks == 0:
        return pa.array([], pa.string()), np.empty(0, np.int32)
    unified = column.unify_dictionaries() if isinstance(column, pa.ChunkedArray) else column
    one: Any = whole(unified)
    codes = one.indices.fill_null(-1) if one.null_count else one.indices
    return one.dictionary, np.array(codes, dtype=np.int32)


def taken(column: Any, indices: np.ndarray[Any, Any]) -> Any:
    """The values at `indices`, in their order."""
    numbers: Any = pa.array(indices, pa.int64())
    return column.take(numbers)


def filled(column: Any, missing: int) -> Any:
    """A column of numbers in one piece, with `missing` for null."""
    return whole(column.fill_null(missing))


def where_equal(column: Any, value: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The places of `value` in a column."""
    scalar: Any = pa.scalar(value, pa.string())
    return np.flatnonzero(np.asarray(pc.equal(column, scalar).fill_null(False)))


def first_null(column: Any) -> int:
    """The place of the first null; -1 if there is none."""
    return first_false(column.is_valid())


def first_false(column: Any) -> int:
    false: Any = pa.scalar(False)
    return int(pc.index(column, false).as_py())


def list_lengths(column: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The length of each list of a column; 0 for null."""
    return np.asarray(column.value_lengths().fill_null(0), dtype=np.int64)


def first_line(error: Exception) -> str:
    """The first line of Arrow's complaint. That memory gave out is no fault of the file's."""
    if isinstance(error, MemoryError):
        raise error
    if isinstance(error, OSError) and (error.errno == errno.ENOMEM or os.strerror(errno.ENOMEM) in str(error)):
        raise MemoryError from None  # Of a mapping that failed, Arrow tells the reason in words alone.
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
