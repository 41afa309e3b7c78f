"""Figures: what is drawn from the marks of a run."""

from __future__ import annotations

from ordercast.report.figures import cumulative, over_time, repair_spans
from ordercast.verify.metrics.values import TimelineMark
from tests.unit.report.builders import full_metrics, spread


def test_overlapping_repairs_are_one_span_and_unfinished_ones_none() -> None:
    marks = [
        TimelineMark(1.0, "repair_start", "a", "x"),
        TimelineMark(1.5, "repair_start", "b", "x"),
        TimelineMark(1.6, "repair_start", "a", "x"),
        TimelineMark(2.0, "repair_end", "a", "x"),
        TimelineMark(3.0, "repair_end", "b", "x"),
        TimelineMark(3.5, "repair_end", "b", "x"),
        TimelineMark(4.0, "repair_start", "c", None),
    ]
    assert repair_spans(marks) == [(1.0, 3.0)]


def test_a_long_tail_is_drawn_on_a_logarithmic_axis() -> None:
    short = cumulative("f", {"x": spread(100)}, "ms", "words")
    curve = (*spread(100).curve[:-1], 5_000.0)
    long = cumulative("f", {"x": type(spread(1))(100, 60, 50, 90, 99, 100, 5_000, curve)}, "ms", "words")

    assert ">80</text>" in short
    assert ">1000</text>" in long
    assert ">4000</text>" not in long
    assert "$" not in long, "ticks are numbers, not formulas"


def test_each_kind_of_fault_is_named_once() -> None:
    svg = over_time("f", full_metrics(), "words")
    for name in ("crash", "suspicion", "recovery", "repair"):
        assert svg.count(f">{name}</text>") == 1


def test_a_run_without_faults_has_no_legend() -> None:
    assert "legend" not in over_time("f", full_metrics(marks=[]), "words")
