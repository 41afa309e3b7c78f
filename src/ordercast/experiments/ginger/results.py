"""The rows of a study by what was run: estimates over the seeds with their confidence, and comparisons of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, stdev

import msgspec
import pyarrow as pa

from ordercast.experiments.kit.study import Row, Value

_T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t for 95 % with 1, 2, ... degrees of freedom."""
_NORMAL = 1.96


class Estimate(msgspec.Struct, frozen=True):
    """A mean over the seeds; `half`: of its 95 % confidence interval, 0 with one seed."""

    mean: float
    half: float
    seeds: int

    def __str__(self) -> str:
        return f"{self.mean:.0f} ± {self.half:.0f}" if self.seeds > 1 else f"{self.mean:.0f}"


def estimate(values: Sequence[float]) -> Estimate | None:
    if not values:
        return None
    count = len(values)
    if count == 1:
        return Estimate(values[0], 0.0, 1)
    quantile = _T_975[count - 2] if count - 2 < len(_T_975) else _NORMAL
    return Estimate(fmean(values), quantile * stdev(values) / count**0.5, count)


class Results:
    """Look-ups by parameters."""

    def __init__(self, table: pa.Table) -> None:
        self.rows: list[Row] = table.to_pylist()

    def where(self, **fixed: Value) -> list[Row]:
        return [row for row in self.rows if fixed.items() <= row.items()]

    def get(self, column: str, **fixed: Value) -> Estimate | None:
        return estimate(numbers(row.get(column) for row in self.where(**fixed)))

    def mean(self, column: str, **fixed: Value) -> float | None:
        found = self.get(column, **fixed)
        return None if found is None else found.mean


def numbers(values: Iterable[Value]) -> list[float]:
    return [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]


def shown(found: Estimate | None) -> str:
    return "?" if found is None else str(found)


def above(one: float | None, other: float | None, factor: float = 1.0) -> bool | None:
    """Whether `one` is more than `factor` times `other`."""
    return None if one is None or other is None else one > factor * other


def within(one: float | None, other: float | None, share: float) -> bool | None:
    """Whether `one` differs from `other` by no more than that share of it."""
    return None if one is None or other is None else abs(one - other) <= share * other
