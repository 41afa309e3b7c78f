"""Results by figure: curves along a parameter, means over the seeds, verdicts that know when something is missing."""

from __future__ import annotations

from itertools import pairwise

from ordercast.experiments.kit import results
from ordercast.experiments.kit.results import Curve, Number, Verdict, curve, means
from ordercast.experiments.kit.study import Row, Value
from ordercast.experiments.locamu.runs import MODEL


class LocamuResults(results.Results):
    """The rows of a study, looked up by what they are drawn in."""

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

    def value(self, figure: str, column: str, protocol: str, *, sizes: str = MODEL, **fixed: Value) -> Number:
        """The mean over the seeds of the one configuration that fits."""
        points = self.curve(figure, column, protocol, along="nodes", sizes=sizes, **fixed)
        return points[0].mean if len(points) == 1 else None


def ratios(over: Curve, under: Curve) -> dict[float, float]:
    """Ratios at the points where both were measured."""
    below = means(under)
    return {point.x: point.mean / below[point.x] for point in over if below.get(point.x)}


def flat(points: Curve, share: float) -> Verdict:
    """Whether all are that near to the first."""
    return all(abs(point.mean / points[0].mean - 1) <= share for point in points) if len(points) > 1 else None


def crossing(over: Curve, under: Curve) -> Number:
    """The point between two measured ones at which a curve that begins below another one passes it."""
    pairs = [(point.x, point.mean - means(under)[point.x]) for point in over if point.x in means(under)]
    for (x, below), (further, above) in pairwise(pairs):
        if below <= 0 < above:
            return x + (further - x) * below / (below - above)
    return None


def shown(figure: Number, digits: int = 0) -> str:
    return "not measured" if figure is None else f"{figure:,.{digits}f}"
