"""A column of the results along one parameter, the others fixed: what claims are judged by and figures draw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean, stdev

import msgspec
import numpy as np

from ordercast.experiments.kit.study import Row, Value


class Point(msgspec.Struct, frozen=True):
    """The mean over the seeds and its standard error, which is 0 where there was only one."""

    x: float
    mean: float
    error: float


Curve = list[Point]


class Line(msgspec.Struct, frozen=True):
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
    return [Point(x, fmean(ys), _standard_error(ys)) for x, ys in sorted(values.items())]


def fit_line(points: Curve) -> Line | None:
    """The line through the means; None where fewer than three points would make any line fit."""
    if len(points) < 3:
        return None
    x, y = np.array([point.x for point in points]), np.array([point.mean for point in points])
    slope, intercept = (float(c) for c in np.polynomial.polynomial.polyfit(x, y, 1)[::-1])
    spread = float(((y - y.mean()) ** 2).sum())
    left = float(((y - slope * x - intercept) ** 2).sum())
    return Line(slope, intercept, 1 - left / spread if spread else 1.0)


def measured_at(points: Curve, wanted: Iterable[float]) -> bool | None:
    """True if there is a point wherever one is wanted; else None: what is missing might say something else."""
    places = set(wanted)
    return True if places and places <= {point.x for point in points} else None


def rises(points: Curve) -> bool | None:
    """Whether every mean is above the one before; None where there is nothing to compare."""
    return all(a.mean < b.mean for a, b in pairwise(points)) if len(points) > 1 else None


def _standard_error(values: Sequence[float]) -> float:
    return float(stdev(values) / len(values) ** 0.5) if len(values) > 1 else 0.0


def listed(points: Curve, digits: int, unit: str, *, scale: float = 1.0) -> str:
    """The curve as text: `8: 12.5 %, 16: 17.1 %`."""
    return ", ".join(f"{point.x:g}: {point.mean * scale:.{digits}f} {unit}" for point in points) or "nothing measured"
