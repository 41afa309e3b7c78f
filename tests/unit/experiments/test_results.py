"""Claims rest on these few numbers."""

from __future__ import annotations

import pytest

from ordercast.experiments.kit.results import Estimate, Point, curve, estimate, fit_line, listed, rises
from ordercast.experiments.kit.study import Row

ROWS: list[Row] = [
    {"n": 2, "p": "a", "y": 4.0},
    {"n": 1, "p": "a", "y": 1.0},
    {"n": 1, "p": "a", "y": 3.0},
    {"n": 1, "p": "b", "y": 100.0},
    {"n": 3, "p": "a", "y": None},
]


def test_a_curve_is_the_mean_over_the_seeds_with_its_confidence() -> None:
    assert curve(ROWS, "y", along="n", p="a") == [Point(1.0, 2.0, pytest.approx(12.706)), Point(2.0, 4.0)]


def test_equal_values_of_all_seeds_of_a_point_are_one_observation() -> None:
    """Six repairs that take the same under five seeds are six numbers, not thirty."""
    repairs = [[times] * 5 for times in (90.0, 100.0, 110.0, 90.0, 100.0, 110.0)]
    found = estimate(*repairs)
    assert found is not None
    assert (found.mean, found.n) == (100.0, 6)
    assert found == estimate(*([times[0]] for times in repairs))
    assert estimate([7.0, 7.0, 7.0]) == Estimate(7.0, 0.0, 1)
    assert str(estimate([7.0, 7.0, 7.0])) == "7"


def test_values_that_differ_all_count_even_if_some_are_equal() -> None:
    found = estimate([1.0, 1.0, 4.0])
    assert found is not None
    assert (found.mean, found.n) == (2.0, 3)


def test_a_line_is_found_with_its_share_of_the_variance() -> None:
    exact = fit_line([Point(x, 3 + 2 * x, 0) for x in (1, 2, 4, 8)])
    assert exact is not None
    assert (exact.slope, exact.intercept, exact.r2) == pytest.approx((2, 3, 1))
    bent = fit_line([Point(1, 0, 0), Point(2, 1, 0), Point(3, 0, 0)])
    assert bent is not None
    assert bent.r2 == pytest.approx(0, abs=1e-12)


def test_two_points_fit_any_line_and_so_decide_nothing() -> None:
    assert fit_line([Point(1, 1, 0), Point(2, 2, 0)]) is None


@pytest.mark.parametrize(("means", "expected"), [((1, 2, 3), True), ((1, 3, 2), False), ((1, 1), False), ((1,), None)])
def test_a_curve_rises_if_every_point_is_above_the_one_before(means: tuple[float, ...], expected: bool | None) -> None:
    assert rises(means) is expected


def test_a_curve_is_readable() -> None:
    assert listed([Point(8, 0.125, 0), Point(16, 0.5, 0)], 1, "%", scale=100) == "8: 12.5 %, 16: 50.0 %"
    assert listed([], 1, "%") == "nothing measured"
