"""The study in three pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from ordercast.experiments.kit.figures import (
    CONFIDENCE,
    REFERENCE,
    Look,
    doubling,
    drawn,
    label,
    line,
    own_legend,
    panels,
)
from ordercast.experiments.kit.results import fit_line
from ordercast.experiments.kit.study import Picture, Row
from ordercast.experiments.vector_overhead.claims import by_rate, by_size, entry_bytes_by_duration
from ordercast.experiments.vector_overhead.runs import HISTORY_NODES, LOAD_NODES, RATE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_VECTOR = Look("vector", "#0072b2")
_LOOKS = {
    "flood": Look("flood", "#4d4d4d", "s", ":", hollow=True),
    "fifo": Look("fifo", "#d55e00", "^", "--"),
    "vector": _VECTOR,
}
_WIDTH = 4.5


def figures(results: pa.Table, directory: Path) -> list[Picture]:
    """Header bytes, the share of deliveries that waits, and how long it waits."""
    rows: list[Row] = results.to_pylist()
    return drawn(rows, directory, {"header-bytes": _headers, "held-share": _shares, "hold-back": _times})


def _headers(rows: Sequence[Row]) -> Figure:
    figure, (left, right) = panels(
        1, 2, "Left: mean header of a copy of a message, payload not counted, by protocol and number of nodes, with "
        "the line that fits vector. Right: what one entry of the vector takes, by the length of the run: longer "
        f"counters need more bytes. {CONFIDENCE}", width=_WIDTH,
    )  # fmt: skip
    for protocol, look in _LOOKS.items():
        line(left, by_size(rows, "header_bytes_mean", protocol), look)
    points = by_size(rows, "header_bytes_mean", "vector")
    fitted = fit_line(points)
    if fitted is not None:
        name = f"{fitted.intercept:.1f} + {fitted.slope:.2f} · nodes"
        heights = [fitted.intercept + fitted.slope * point.x for point in points]
        left.plot([point.x for point in points], heights, "--", color=REFERENCE, linewidth=1, label=name)
    _finish(left, "Header per message copy", "nodes", "mean header (bytes)")
    line(right, entry_bytes_by_duration(rows), _VECTOR)
    _finish(right, f"One entry of the vector ({HISTORY_NODES} nodes)", "length of the run (s)", "bytes per entry")
    return figure


def _shares(rows: Sequence[Row]) -> Figure:
    figure, (left, right) = panels(
        1, 2, "Share of the deliveries of others' messages that had to wait for an earlier one, by the number of nodes "
        f"(every node publishes {RATE:g} a second) and, for vector, by the rate. Flood keeps no order, so that nothing "
        f"waits. {CONFIDENCE}", width=_WIDTH,
    )  # fmt: skip
    for protocol, look in _LOOKS.items():
        line(left, by_size(rows, "held_share", protocol), look, scale=100)
    doubling(left, [point.x for point in by_size(rows, "held_share", "vector")])
    share = "share of deliveries (%)"
    _finish(left, f"Deliveries that wait ({RATE:g}/s per node)", "nodes", share)
    by_load = by_rate(rows, "held_share")
    line(right, by_load, _VECTOR, scale=100)
    doubling(right, [point.x for point in by_load])
    _finish(right, f"Deliveries that wait ({LOAD_NODES} nodes)", "publications per second and node", share)
    return figure


def _times(rows: Sequence[Row]) -> Figure:
    figure, both = panels(
        1, 2, "From the first receipt of another node's message to its delivery there, deliveries that did not wait "
        f"included: mean and 99th percentile by the number of nodes. {CONFIDENCE}", width=_WIDTH,
    )  # fmt: skip
    titles = {"hold_ms_mean": "Hold-back, mean over all deliveries", "hold_ms_p99": "Hold-back, 99th percentile"}
    for axes, (column, title) in zip(both, titles.items(), strict=True):
        for protocol, look in _LOOKS.items():
            line(axes, by_size(rows, column, protocol), look)
        doubling(axes, [point.x for point in by_size(rows, column, "vector")])
        _finish(axes, title, "nodes", "hold-back (ms)")
    return figure


def _finish(axes: Axes, title: str, x: str, y: str) -> None:
    label(axes, title, x, y)
    axes.set_ylim(bottom=0)
    own_legend(axes)
