"""Results by figure: curves along a parameter, means over the seeds, verdicts that know when something is missing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa

from ordercast.experiments.kit.curves import Curve, curve
from ordercast.experiments.kit.study import Row, Value
from ordercast.experiments.locamu.runs import MODEL

Figure = float | None
"""A measurement; None: it was not made."""
Verdict = bool | None


class Results:
    """The rows of a study, looked up by what they are drawn in."""

    def __init__(self, table: pa.Table) -> None:
        self.rows: list[Row] = table.to_pylist()

    def of(self, figure: str) -> list[Row]:
        """The rows of one figure whose windows were filled: the others measured something else."""
        return [row for row in self.planned(figure) if row["full"]]

    def planned(self, figure: str) -> list[Row]:
        """The rows of one figure, whatever came of them."""
        return [row for row in self.rows if figure in str(row["figures"]).split()]

    def publishers(self, figure: str, sizes: str = MODEL) -> set[float]:
        """How many publishers were run for a figure, by any protocol: all that are compared should have them."""
        return {float(row["publishers"] or 0) for row in self.planned(figure) if row["sizes"] == sizes}

    def curve(
        self, figure: str, column: str, protocol: str, *, along: str, sizes: str = MODEL, **fixed: Value
    ) -> Curve:
        """A column of one protocol, by the source's sizes unless it says otherwise."""
        return curve(self.of(figure), column, along=along, protocol=protocol, sizes=sizes, **fixed)

    def value(self, figure: str, column: str, protocol: str, *, sizes: str = MODEL, **fixed: Value) -> Figure:
        """The mean over the seeds of the one configuration that fits."""
        points = self.curve(figure, column, protocol, along="nodes", sizes=sizes, **fixed)
        return points[0].mean if len(points) == 1 else None


def means(points: Curve) -> dict[float, float]:
    return {point.x: point.mean for point in points}


def ratio(over: Figure, under: Figure) -> Figure:
    return over / under if over is not None and under else None


def ratios(over: Curve, under: Curve) -> dict[float, float]:
    """Where both were measured."""
    below = means(under)
    return {point.x: point.mean / below[point.x] for point in over if below.get(point.x)}


def within(found: Figure, expected: float, share: float) -> Verdict:
    """Whether a figure is that near to what is expected."""
    return None if found is None else abs(found / expected - 1) <= share


def flat(points: Curve, share: float) -> Verdict:
    """Whether all are that near to the first."""
    return all(abs(point.mean / points[0].mean - 1) <= share for point in points) if len(points) > 1 else None


def falls(figures: Sequence[float]) -> Verdict:
    return all(a > b for a, b in pairwise(figures)) if len(figures) > 1 else None


def rises(figures: Sequence[float]) -> Verdict:
    return falls([-figure for figure in figures])


def crossing(over: Curve, under: Curve) -> Figure:
    """Where, between two measured points, a curve that begins below another one passes it."""
    pairs = [(point.x, point.mean - means(under)[point.x]) for point in over if point.x in means(under)]
    for (x, below), (further, above) in pairwise(pairs):
        if below <= 0 < above:
            return x + (further - x) * below / (below - above)
    return None


def listed(points: Curve, digits: int = 0) -> str:
    """The curve as text: `15: 23,200, 31: 17,800`."""
    return ", ".join(f"{point.x:g}: {point.mean:,.{digits}f}" for point in points) or "nothing measured"


def shown(figure: Figure, digits: int = 0) -> str:
    return "not measured" if figure is None else f"{figure:,.{digits}f}"
