"""Numbers that travel shortened arrive as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numbers

from ordercast.verify.distributed.scan import NO_TIME
from ordercast.verify.distributed.wire import runs, shortened, steps


def _back(data: bytes, dtype: Any) -> np.ndarray[Any, Any]:
    (found,) = shortened(pa.table({"column": pa.array([data], pa.binary())}), "column", dtype)
    return found


_KINDS = st.sampled_from([(runs, np.int8), (runs, np.int32), (steps, np.int32), (steps, np.int64)])


@given(_KINDS, st.data())
def test_numbers_of_any_kind_and_order_arrive_as_they_were(kind: tuple[Any, Any], data: st.DataObject) -> None:
    shorten, dtype = kind
    values = data.draw(numbers.arrays(dtype, st.integers(0, 40)))
    repeats = data.draw(numbers.arrays(np.int64, values.size, elements=st.integers(1, 50)))
    for given_ in (values, np.repeat(values, repeats), np.sort(np.repeat(values, repeats))):
        found = _back(shorten(given_), dtype)
        assert found.dtype == dtype
        assert np.array_equal(found, given_)


@pytest.mark.parametrize(
    ("shorten", "values", "bytes_each"),
    [
        (runs, np.repeat(np.arange(3, dtype=np.int32), 1000), 0.1),
        (steps, np.arange(0, 9000, 3, dtype=np.int32), 1.1),
        (steps, np.arange(3000, dtype=np.int64) * 1_000_000, 4.1),
    ],
)
def test_the_logs_of_nodes_take_few_bytes_a_row(shorten: Any, values: Any, bytes_each: float) -> None:
    assert len(shorten(values)) < bytes_each * values.size
    assert np.array_equal(_back(shorten(values), values.dtype), values)


def test_a_row_without_a_time_among_others_is_still_without() -> None:
    times = np.arange(1000, dtype=np.int64) * 1000
    times[[0, 500, 999]] = NO_TIME
    assert np.array_equal(_back(steps(times), np.int64), times)
