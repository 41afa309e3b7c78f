"""The study in three pictures. The same results give the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from ordercast.experiments.kit.curves import Curve, fit_line
from ordercast.experiments.kit.study import Row
from ordercast.experiments.vector_overhead.claims import by_rate, by_size, entry_bytes_by_duration
from ordercast.experiments.vector_overhead.runs import HISTORY_NODES, LOAD_NODES, PROTOCOLS, RATE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLE = {"flood": ("#4d4d4d", "s", 8.0), "fifo": ("#d55e00", "^", 5.0), "vector": ("#0072b2", "o", 5.0)}
"""Colours that the colour-blind tell apart, shapes for print without colour, sizes that show behind one another."""
_SEEDS = "Bars: standard error over the seeds."


def figures(results: pa.Table, directory: Path) -> list[Path]:
    """Draw into `directory`: header bytes, the share that waits, how long it waits."""
    import matplotlib as mpl

    rows: list[Row] = results.to_pylist()
    drawn = []
    with mpl.rc_context({"svg.hashsalt": "ordercast", "font.size": 10, "axes.spines.top": False,
                         "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3}):  # fmt: skip
        for name, draw in (("header-bytes", _headers), ("held-share", _shares), ("hold-back", _times)):
            path = directory / f"{name}.svg"
            draw(rows).savefig(path, metadata={"Date": None})
            drawn.append(path)
    return drawn


def _headers(rows: Sequence[Row]) -> Figure:
    figure, (left, right) = _panels()
    for protocol in PROTOCOLS:
        _plot(left, by_size(rows, "header_bytes_mean", protocol), protocol)
    line = fit_line(by_size(rows, "header_bytes_mean", "vector"))
    if line is not None:
        sizes = [point.x for point in by_size(rows, "header_bytes_mean", "vector")]
        fitted = [line.intercept + line.slope * size for size in sizes]
        left.plot(sizes, fitted, "--", color="#999999", label=f"{line.intercept:.1f} + {line.slope:.2f} · nodes")
    _label(left, "Header per message copy", "nodes", "mean header (bytes)")
    _plot(right, entry_bytes_by_duration(rows), "vector")
    _label(right, f"One entry of the vector ({HISTORY_NODES} nodes)", "length of the run (s)", "bytes per entry")
    return figure


def _shares(rows: Sequence[Row]) -> Figure:
    figure, (left, right) = _panels()
    for protocol in PROTOCOLS:
        _plot(left, by_size(rows, "held_share", protocol), protocol, scale=100)
    _double(left, by_size(rows, "held_share", "vector"))
    _label(left, f"Deliveries that wait ({RATE:g}/s per node)", "nodes", "share of deliveries (%)")
    _plot(right, by_rate(rows, "held_share"), "vector", scale=100)
    _double(right, by_rate(rows, "held_share"))
    _label(
        right,
        f"Deliveries that wait ({LOAD_NODES} nodes)",
        "publications per second and node",
        "share of deliveries (%)",
    )
    return figure


def _times(rows: Sequence[Row]) -> Figure:
    figure, (left, right) = _panels()
    for protocol in PROTOCOLS:
        _plot(left, by_size(rows, "hold_ms_mean", protocol), protocol)
        _plot(right, by_size(rows, "hold_ms_p99", protocol), protocol)
    for axes in (left, right):
        _double(axes, by_size(rows, "hold_ms_mean", "vector"))
    _label(left, "Hold-back, mean over all deliveries", "nodes", "hold-back (ms)")
    _label(right, "Hold-back, 99th percentile", "nodes", "hold-back (ms)")
    return figure


def _panels() -> tuple[Figure, tuple[Axes, Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    figure.supxlabel(_SEEDS, x=0.995, ha="right", fontsize=8, color="#555555")
    left, right = figure.subplots(1, 2)
    return figure, (left, right)


def _plot(axes: Axes, points: Curve, protocol: str, *, scale: float = 1.0) -> None:
    colour, marker, size = _STYLE[protocol]
    means = [point.mean * scale for point in points]
    errors = [point.error * scale for point in points]
    axes.errorbar(
        [point.x for point in points],
        means,
        yerr=errors,
        color=colour,
        marker=marker,
        markersize=size,
        markerfacecolor="white" if size > 5 else colour,
        linewidth=1.5,
        capsize=3,
        label=protocol,
    )


def _double(axes: Axes, points: Curve) -> None:
    """Steps on the horizontal axis are doublings, as in the sweep, with a tick at each value."""
    values = [point.x for point in points]
    axes.set_xscale("log", base=2)
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.minorticks_off()


def _label(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
