"""Figure 5.4, and the largest headers of simulated runs beside their worst cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from msgspec.structs import replace

from ordercast.experiments.kit.figures import doubling, drawn, label, legend, line, panels
from ordercast.experiments.kit.results import Curve
from ordercast.experiments.kit.study import Picture, Row
from ordercast.experiments.locamu.style import LOOKS
from ordercast.experiments.locamu_scale.worst_case_claims import (
    STATED,
    STATED_BARRIERS,
    STATED_CBCAST,
    by_degree,
    by_redundancy,
    by_size,
)
from ordercast.experiments.locamu_scale.worst_cases import (
    DEGREE,
    DEGREES,
    LARGE,
    ONE_GROUP_NODES,
    REDUNDANCIES,
    RUN,
    SIZES,
    WHOLE,
    ZIPF,
    completed,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEADERS = (
    ("locamu", "locamu_formula", "LoCaMu, formula", "-"),
    ("locamu", "locamu_published", "LoCaMu, largest (published radii)", ":"),
    ("locamu", "locamu_corrected", "LoCaMu, largest (corrected)", "--"),
    ("cbcast", "cbcast", "CBCAST", "-"),
    ("causal-barriers", "barriers", "Causal Barriers", "-"),
)
_MEMORY = (
    ("locamu", "locamu_memory", "LoCaMu, memory", "-"),
    ("cbcast", "cbcast_memory", "CBCAST", "-"),
    ("causal-barriers", "barriers_memory", "Causal Barriers", "-"),
)
_SAME_AT_ONE = "locamu_published"
"""With f = 1 the published radii are the corrected ones."""

_CROSSES = "stated by the source"

_Along = Callable[[Sequence[Row], str], Curve]


def figures(results: pa.Table, directory: Path) -> list[Picture]:
    return drawn(results.to_pylist(), directory, {"figure-5.4": _worst_cases, "largest-headers": _largest})


def _worst_cases(rows: Sequence[Row]) -> Figure:
    rows = completed(rows)
    figure, (a, b, c, d) = panels(
        2, 2, "Worst cases against the number of nodes, f and the degree, as in figure 5.4 of the source: closed "
        "forms, 1,500 Zipf groups. Formula: what gives the 540 bytes that the source states. Largest: every stream of "
        "the neighbourhood and the longest vectors. The source has no formula for memory; here: clocks or past, what "
        "was last sent on every link, and what is delivered or processed. Crosses: what the source states, with one "
        "group of all nodes.", width=4.8,
    )  # fmt: skip
    _curves(a, rows, by_size, [header for header in _HEADERS if header[1] != _SAME_AT_ONE])
    stated = [STATED, STATED_CBCAST, STATED_BARRIERS]
    a.plot([ONE_GROUP_NODES] * len(stated), stated, "x", color="black", markersize=9, zorder=5, label=_CROSSES)
    doubling(a, SIZES)
    label(a, f"a. Largest header (degree {DEGREE}, f = 1)", "nodes", "bytes")
    _curves(b, rows, by_size, _MEMORY)
    doubling(b, SIZES)
    label(b, f"b. Local memory (degree {DEGREE}, f = 1)", "nodes", "bytes")
    _curves(c, rows, by_redundancy, _HEADERS)
    c.set_xticks(REDUNDANCIES)
    label(c, f"c. Largest header ({LARGE:,} nodes, degree {DEGREE})", "f", "bytes")
    _curves(d, rows, by_degree, [header for header in _HEADERS if header[1] != _SAME_AT_ONE])
    d.set_xticks(DEGREES)
    label(d, f"d. Largest header ({LARGE:,} nodes, f = 1)", "degree", "bytes")
    legend(figure, c, b, a, last=(_CROSSES,))
    return figure


def _curves(axes: Axes, rows: Sequence[Row], along: _Along, shown: Sequence[tuple[str, str, str, str]]) -> None:
    axes.set_yscale("log")
    for protocol, column, name, style in shown:
        line(axes, along(rows, column), replace(LOOKS[protocol], label=name, style=style, hollow=style != "-"))


def _largest(rows: Sequence[Row]) -> Figure:
    runs = sorted(
        (row for row in rows if row["part"] == RUN),
        key=lambda row: (row["protocol"], row["f"], row["groups"], row["headers"]),
        reverse=True,
    )
    figure, (axes,) = panels(
        1, 1, "Largest header of each simulated run beside its worst case. Whole: with all of a header in every copy; "
        "changes: with what has changed since the last copy on the link. Hollow: the worst case by closed form. "
        "Filled: the largest header in the run by the source's count. Line: the largest on the wire, with everything "
        "but the payload.", width=8.8, height=0.28 * len(runs) + 0.9,
    )  # fmt: skip
    names = []
    for place, row in enumerate(runs):
        look = LOOKS[str(row["protocol"])]
        bound, most, wire = (cast("int", row[name]) for name in ("bound", "model_most", "wire_most"))
        axes.plot([bound], [place], look.marker, color=look.colour, markerfacecolor="white", markersize=8)
        axes.plot([most], [place], look.marker, color=look.colour, markersize=5)
        axes.plot([wire], [place], "|", color=look.colour, markersize=12, markeredgewidth=2)
        names.append(_name(row))
    axes.set_xscale("log")
    axes.set_yticks(range(len(runs)), names)
    axes.set_ylim(-0.7, len(runs) - 0.3)
    label(axes, "Largest headers of simulated runs", "bytes", "")
    return figure


def _name(row: Row) -> str:
    protocol = LOOKS[str(row["protocol"])].label + (f" f = {row['f']}" if row["protocol"] == "locamu" else "")
    groups = "Zipf groups" if row["groups"] == ZIPF else "one group"
    headers = "whole" if row["headers"] == WHOLE else "changes"
    return f"{protocol}, {row['nodes']:,} nodes, {groups}, {headers}"
