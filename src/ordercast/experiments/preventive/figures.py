"""The studies in pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from ordercast.experiments.kit.figures import CONFIDENCE, REFERENCE, Look, drawn, label, line, own_legend, panels
from ordercast.experiments.kit.results import Point
from ordercast.experiments.kit.study import Picture, Row
from ordercast.experiments.preventive.latency_claims import by_latency
from ordercast.experiments.preventive.movement_claims import by_churn, by_period, remembered
from ordercast.experiments.preventive.size_claims import by_origins, by_size, vector_header
from ordercast.experiments.preventive.sources import (
    PC18_LATENCY_S,
    PC18_LINKS_ABOUT,
    PC18_NODES,
    PC18_UNSAFE_ABOUT,
    PROTOTYPE_DEGREE,
    PROTOTYPE_PATH,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_OURS = Look("preventive", "#0072b2")
_FLOOD = Look("flood-overlay", "#d55e00", "^", "--")
_VECTOR = Look("vector (closed form)", REFERENCE, "s", ":")
_CLOCKS = Look("vector-overlay", "#009e73", "D", "-.")
_ALL = Look("all links", REFERENCE, "s", ":", hollow=True)
_PROTOTYPE = Look("a prototype", "#cc79a7", "x", "")
_PUBLISHED = Look(f"[PC18], {PC18_NODES:,} processes", "#cc79a7", "x", "")
_PUBLISHED_LINKS = Look(f"links by [PC18], {PC18_LATENCY_S:g} s a hop", "#e69f00", "+", "")
_LOOKS = (_OURS, _FLOOD, Look("", "#009e73", "D", "-."))
_WIDTH = 4.4


def size_figures(table: pa.Table, directory: Path) -> list[Picture]:
    return drawn(table.to_pylist(), directory, {"cost": _costs, "reach": _reach, "clocks": _clocks})


def _costs(rows: Sequence[Row]) -> Figure:
    published = _known({PC18_NODES: PC18_LINKS_ABOUT}, rows)
    told = f" Plus: about {PC18_LINKS_ABOUT:g} links, which [PC18] reports." if published else ""
    figure, (left, right) = panels(
        1, 2, "Left: largest header of a message, payload not counted, by the number of processes, with that of a "
        "vector clock of as many entries. Right: copies of a message that a process receives, and its links; crosses: "
        f"links in an independent prototype, one seed.{told} {CONFIDENCE}", width=_WIDTH,
    )  # fmt: skip
    headers = by_size(rows, "header_max")
    line(left, headers, _OURS)
    line(left, [Point(point.x, vector_header(int(point.x))) for point in headers], _VECTOR)
    left.set_yscale("log")
    _finish(left, "Header of a message", "processes", "bytes")
    line(right, by_size(rows, "copies"), Look("copies received", "#0072b2"))
    line(right, by_size(rows, "links"), Look("links", REFERENCE, "s", ":", hollow=True))
    line(right, _known(PROTOTYPE_DEGREE, rows), _PROTOTYPE)
    line(right, published, _PUBLISHED_LINKS)
    right.set_ylim(bottom=0)
    _finish(right, "Copies and links of a process", "processes", "number")
    for axes in (left, right):
        axes.set_xscale("log")
    return figure


def _reach(rows: Sequence[Row]) -> Figure:
    figure, (left, right) = panels(
        1, 2, "Left: from a broadcast to its last delivery, 50 ms a hop. Right: mean shortest path over safe links, "
        f"and over all links at the same moments; crosses: safe links in an independent prototype. {CONFIDENCE}",
        width=_WIDTH,
    )  # fmt: skip
    line(left, by_size(rows, "time_to_all_ms"), _OURS)
    left.set_ylim(bottom=0)
    _finish(left, "Time to all", "processes", "ms")
    line(right, by_size(rows, "path_all"), _ALL)
    line(right, by_size(rows, "path_safe"), Look("safe links", "#0072b2"))
    line(right, _known(PROTOTYPE_PATH, rows), _PROTOTYPE)
    right.set_ylim(bottom=0)
    _finish(right, "Mean path", "processes", "hops")
    for axes in (left, right):
        axes.set_xscale("log")
    return figure


def _known(reported: Mapping[int, float], rows: Sequence[Row]) -> list[Point]:
    """Draws what others report, for the sizes that were measured here."""
    sizes = {int(row["nodes"] or 0) for row in rows}
    return [Point(nodes, value) for nodes, value in sorted(reported.items()) if nodes in sizes]


def _clocks(rows: Sequence[Row]) -> Figure:
    figure, (left, right) = panels(
        1, 2, "By how many processes publish, on the same overlay. Left: largest header of a message, payload not "
        "counted. Right: entries of vector clocks that are compared for a delivery; messages wait for their past, and "
        f"the preventive broadcast looks one number up for a copy. {CONFIDENCE}", width=_WIDTH,
    )  # fmt: skip
    for look in (_OURS, _CLOCKS):
        line(left, by_origins(rows, "header_max", look.label), look)
    line(right, by_origins(rows, "comparisons", _CLOCKS.label), _CLOCKS)
    _finish(left, "Header of a message", "publishers", "bytes")
    _finish(right, "Comparisons of a delivery", "publishers", "entries")
    for axes in (left, right):
        axes.set_ylim(bottom=0)
    return figure


def latency_figures(table: pa.Table, directory: Path) -> list[Picture]:
    return drawn(table.to_pylist(), directory, {"unsafe": _unsafe})


def _unsafe(rows: Sequence[Row]) -> Figure:
    figure, (left, right) = panels(
        1, 2, "Left: links of a process that are not safe yet, by the latency of a hop; every process exchanges half "
        "of its view once a minute; the cross is the source's figure. Right: mean path over safe links (solid) and "
        "over all links (dotted). "
        f"{CONFIDENCE}", width=_WIDTH,
    )  # fmt: skip
    for look, nodes in zip(_LOOKS, sorted({int(row["nodes"] or 0) for row in rows}), strict=False):
        named = Look(f"{nodes:,} processes", look.colour, look.marker)
        line(left, _seconds(by_latency(rows, "unsafe", nodes)), named)
        line(right, _seconds(by_latency(rows, "path_safe", nodes)), named)
        line(right, _seconds(by_latency(rows, "path_all", nodes)), Look("", look.colour, look.marker, ":", hollow=True))
    line(left, [Point(PC18_LATENCY_S, PC18_UNSAFE_ABOUT)], _PUBLISHED)
    _finish(left, "Unsafe links of a process", "latency of a hop (s)", "links")
    _finish(right, "Mean path", "latency of a hop (s)", "hops")
    for axes in (left, right):
        axes.set_ylim(bottom=0)
    return figure


def _seconds(points: Sequence[Point]) -> list[Point]:
    return [Point(point.x / 1000, point.mean, point.error) for point in points]


def movement_figures(table: pa.Table, directory: Path) -> list[Picture]:
    return drawn(table.to_pylist(), directory, {"periods": _periods, "churn": _churn, "memory": _memory})


def _periods(rows: Sequence[Row]) -> Figure:
    figure, (left, right) = panels(
        1, 2, "By how often a minute a process exchanges half of its view (0: never), 500 ms a hop. Left: from a "
        f"broadcast to its last delivery. Right: links of a process that are not safe yet. {CONFIDENCE}", width=_WIDTH,
    )  # fmt: skip
    line(left, _a_minute(by_period(rows, "time_to_all_ms", "flood-overlay")), _FLOOD)
    line(left, _a_minute(by_period(rows, "time_to_all_ms")), _OURS)
    line(right, _a_minute(by_period(rows, "unsafe")), _OURS)
    _finish(left, "Time to all", "exchanges a minute", "ms")
    _finish(right, "Unsafe links of a process", "exchanges a minute", "links")
    for axes in (left, right):
        axes.set_ylim(bottom=0)
    return figure


def _a_minute(points: Sequence[Point]) -> list[Point]:
    return sorted(
        (Point(60 / point.x if point.x else 0.0, point.mean, point.error) for point in points), key=lambda p: p.x
    )


def _churn(rows: Sequence[Row]) -> Figure:
    figure, (left, right) = panels(
        1, 2, "By the share of processes that join, and as many that leave or crash, a minute; an exchange every 20 s, "
        f"100 ms a hop. Left: from a broadcast to its last delivery. Right: links made safe by a digest. {CONFIDENCE}",
        width=_WIDTH,
    )  # fmt: skip
    line(left, by_churn(rows, "time_to_all_ms"), _OURS)
    line(right, by_churn(rows, "digests"), _OURS)
    _finish(left, "Time to all", "churn (% a minute)", "ms")
    _finish(right, "Digests", "churn (% a minute)", "in the whole run")
    for axes in (left, right):
        axes.set_ylim(bottom=0)
    return figure


def _memory(rows: Sequence[Row]) -> Figure:
    figure, (left, right) = panels(
        1, 2, "Entries that a process has to tell copies from news, 10 messages a second and 100 ms a hop. Left: links "
        f"that stay as they are. Right: an exchange every 20 s. {CONFIDENCE}", width=_WIDTH,
    )  # fmt: skip
    for axes, period, kinds in ((left, 0.0, ("vector", "counting")), (right, 20.0, ("vector", "links"))):
        for look, kind in zip(_LOOKS, kinds, strict=False):
            line(axes, remembered(rows, kind, period), Look(kind, look.colour, look.marker))
        axes.set_xticks([0, 1], ["while messages travel", "after the last"])
        axes.set_xlim(-0.4, 1.4)
        axes.set_ylim(bottom=0)
        _finish(axes, "Links that stay" if not period else "Links that change", "", "entries a process")
    return figure


def _finish(axes: Axes, title: str, x: str, y: str) -> None:
    label(axes, title, x, y)
    own_legend(axes)
