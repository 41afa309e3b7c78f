"""Results of a sweep, for claims and figures: means over the seeds, curves along a parameter, and comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean, stdev

import msgspec
import numpy as np
import pyarrow as pa

from ordercast.experiments.kit.study import Row, Value

_T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t for 95 % with 1, 2, ... degrees of freedom."""
_NORMAL = 1.96

Number = float | None
"""A measurement; None: it was not made."""
Verdict = bool | None
"""None: what was measured cannot decide it."""


class Estimate(msgspec.Struct, frozen=True):
    """A mean of `n` observations; `half` is half of its 95 % confidence interval, 0 with one of them."""

    mean: float
    half: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.0f} ± {self.half:.0f}" if self.n > 1 else f"{self.mean:.0f}"


def estimate(*points: Iterable[float]) -> Estimate | None:
    """The mean over all values, given point by point: those that differ in the seed alone belong to one point.

    If all values of a point are the same the seed decides nothing, and they are one observation, not several.
    """
    values = [value for point in points for value in _observations(list(point))]
    if not values:
        return None
    count = len(values)
    quantile = _T_975[count - 2] if count - 2 < len(_T_975) else _NORMAL
    return Estimate(fmean(values), quantile * stdev(values) / count**0.5 if count > 1 else 0.0, count)


def _observations(values: Sequence[float]) -> Sequence[float]:
    return values[:1] if len(set(values)) == 1 else values


class Results:
    """The rows of a study, looked up by what was run."""

    def __init__(self, table: pa.Table) -> None:
        self.rows: list[Row] = table.to_pylist()

    def where(self, **fixed: Value) -> list[Row]:
        return [row for row in self.rows if fixed.items() <= row.items()]

    def get(self, column: str, **fixed: Value) -> Estimate | None:
        """A column over the runs that have the `fixed` parameters."""
        return estimate(numbers(row.get(column) for row in self.where(**fixed)))

    def mean(self, column: str, **fixed: Value) -> Number:
        found = self.get(column, **fixed)
        return None if found is None else found.mean


class Point(msgspec.Struct, frozen=True):
    """The mean over the seeds and half of its 95 % confidence interval, which is 0 where there was one observation."""

    x: float
    mean: float
    error: float = 0.0


Curve = list[Point]


class CurveLine(msgspec.Struct, frozen=True):
    """A least-squares line; `r2` is the share of the variance that it explains."""

    slope: float
    intercept: float
    r2: float


def curve(rows: Sequence[Row], column: str, *, along: str, **fixed: Value) -> Curve:
    """`column` over the parameter `along`, from the rows where the `fixed` parameters have these values."""
    values: dict[float, list[float]] = {}
    for row in rows:
        x, y = row[along], row[column]
        if isinstance(x, int | float) and isinstance(y, int | float) and fixed.items() <= row.items():
            values.setdefault(float(x), []).append(float(y))
    found = [(x, estimate(ys)) for x, ys in sorted(values.items())]
    return [Point(x, known.mean, known.half) for x, known in found if known is not None]


def fit_line(points: Curve) -> CurveLine | None:
    """The line through the means; None where fewer than three points would make any line fit."""
    if len(points) < 3:
        return None
    x, y = np.array([point.x for point in points]), np.array([point.mean for point in points])
    slope, intercept = (float(c) for c in np.polynomial.polynomial.polyfit(x, y, 1)[::-1])
    spread = float(((y - y.mean()) ** 2).sum())
    left = float(((y - slope * x - intercept) ** 2).sum())
    return CurveLine(slope, intercept, 1 - left / spread if spread else 1.0)


def numbers(values: Iterable[Value]) -> list[float]:
    """The values that are numbers."""
    return [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]


def means(points: Curve) -> dict[float, float]:
    return {point.x: point.mean for point in points}


# Comparisons that know when something is missing


def measured_at(points: Curve, wanted: Iterable[float]) -> Verdict:
    """True if there is a point wherever one is wanted; else None: what is missing might say something else."""
    places = set(wanted)
    return True if places and places <= means(points).keys() else None


def falls(figures: Sequence[Number]) -> Verdict:
    """Whether each is below the one before; None where one is missing or there is nothing to compare."""
    known = [figure for figure in figures if figure is not None]
    return all(a > b for a, b in pairwise(known)) if len(known) == len(figures) > 1 else None


def rises(figures: Sequence[Number]) -> Verdict:
    return falls([None if figure is None else -figure for figure in figures])


def above(one: Number, other: Number, factor: float = 1.0) -> Verdict:
    """Whether `one` is more than `factor` times `other`."""
    return None if one is None or other is None else one > factor * other


def within(found: Number, expected: Number, share: float) -> Verdict:
    """Whether a figure differs from what is expected by no more than that share of it."""
    return None if found is None or expected is None else abs(found - expected) <= share * expected


def ratio(over: Number, under: Number) -> Number:
    return over / under if over is not None and under else None


# Text


def listed(points: Curve, digits: int = 0, unit: str = "", *, scale: float = 1.0) -> str:
    """The curve as text: `8: 12.5 %, 1,023: 17.1 %`."""
    parts = [f"{point.x:,g}: {point.mean * scale:,.{digits}f} {unit}".rstrip() for point in points]
    return ", ".join(parts) or "nothing measured"


def shown(found: Estimate | None) -> str:
    return "?" if found is None else str(found)
