"""The source's figures 5.1, 5.2 and 5.3, and sizes beside the prototype's. The same results give the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from ordercast.experiments.kit.curves import Curve
from ordercast.experiments.locamu import reference
from ordercast.experiments.locamu.claims_causal import ALL, BYTES, FAST, SLOW, by_publishers
from ordercast.experiments.locamu.claims_single import ONE, by_f
from ordercast.experiments.locamu.results import Results
from ordercast.experiments.locamu.runs import BARRIERS, CBCAST, CORRECTED, DELTA, LOCAMU, MODEL, PUBLISHED, WIRE
from ordercast.experiments.locamu.style import FIGURE_SETTINGS, LOOKS, REFERENCE

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL_INCHES = (3.7, 3.0)
_COUNTED, _ENCODED = "source's sizes", "our encoding"
_FEW_DECADES = 300
"""A logarithmic axis that spans less has numbers at 2 and 5, too."""
_LINES = {MODEL: "-", WIRE: "--"}

Draw = Callable[[Results], "Figure"]


class Panel(msgspec.Struct, frozen=True):
    """One sub-figure."""

    title: str
    figure: str
    column: str
    along: str
    x: str
    y: str
    x_log: int = 0
    """Base of the horizontal axis; 0: linear."""
    y_log: bool = True


_SINGLE = (
    Panel("5.1a  system size", "a", ONE, "nodes", "nodes", "messages/s of a publisher", 2),
    Panel("5.1b  publishers", "b", ALL, "publishers", "publishers", "deliveries/s of all nodes", 0, y_log=False),
    Panel("5.1c  bandwidth", "c", ONE, "mbps", "Mb/s a node", "messages/s of a publisher", 10),
    Panel("5.1d  payload", "d", ONE, "payload", "bytes", "messages/s of a publisher", 10),
    Panel("5.1e  failures", "e", ONE, "f", "f", "messages/s of a publisher"),
    Panel("5.1f  degree", "f", ONE, "degree", "neighbours of a node", "messages/s of a publisher"),
)


def single_figures(table: pa.Table, directory: Path) -> list[Path]:
    """Figure 5.1 and where the load is."""
    return _drawn(table, directory, {"figure-5.1": _figure_1, "loads": _loads})


def one_group_figures(table: pa.Table, directory: Path) -> list[Path]:
    """Figure 5.2 and sizes without limits."""
    pictures: dict[str, Draw] = {
        "figure-5.2": lambda results: _causal(results, "5.2"),
        "sizes": lambda results: _sizes(results, reference.ONE_GROUP),
    }
    return _drawn(table, directory, pictures)


def many_groups_figures(table: pa.Table, directory: Path) -> list[Path]:
    """Figure 5.3 and sizes without limits."""
    pictures: dict[str, Draw] = {
        "figure-5.3": lambda results: _causal(results, "5.3"),
        "sizes": lambda results: _sizes(results, reference.MANY_GROUPS),
    }
    return _drawn(table, directory, pictures)


def _drawn(table: pa.Table, directory: Path, pictures: Mapping[str, Draw]) -> list[Path]:
    import matplotlib as mpl

    results, paths = Results(table), []
    with mpl.rc_context(FIGURE_SETTINGS):
        for name, draw in pictures.items():
            path = directory / f"{name}.svg"
            draw(results).savefig(path, metadata={"Date": None})
            paths.append(path)
    return paths


def _panels(count: int, columns: int, note: str) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    rows = -(-count // columns)
    figure = Figure(figsize=(_PANEL_INCHES[0] * columns, _PANEL_INCHES[1] * rows + 0.8), layout="constrained")
    figure.supxlabel(fill(note, int(_PANEL_INCHES[0] * columns * 16)), fontsize=8, color="#444444")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)[:count]


def _figure_1(results: Results) -> Figure:
    figure, all_axes = _panels(
        len(_SINGLE), 3,
        "One group of all nodes, 100 Mb/s, 1 ms, 32 bytes, f = 1, three neighbours a node unless varied; a single "
        "publisher is the root, but in 5.1b, where all are chosen at random. Bars: standard error over the seeds.",
    )  # fmt: skip
    for axes, panel in zip(all_axes, _SINGLE, strict=True):
        if panel.figure == "e":
            _plot(axes, by_f(results, panel.column, CORRECTED), LOCAMU, MODEL, f"LoCaMu ({_COUNTED})")
            _plot(axes, by_f(results, panel.column, PUBLISHED), LOCAMU, MODEL, "LoCaMu, published radii", hollow=True)
        else:
            for sizes, name in ((MODEL, _COUNTED), (WIRE, _ENCODED)):
                points = results.curve(panel.figure, panel.column, LOCAMU, along=panel.along, sizes=sizes)
                _plot(axes, points, LOCAMU, sizes, f"LoCaMu ({name})")
        points = results.curve(panel.figure, panel.column, DELTA, along=panel.along)
        _plot(axes, points, DELTA, MODEL, LOOKS[DELTA].label)
        _finish(axes, panel, [point.x for point in points])
    nodes = [int(row["nodes"] or 0) for row in results.of("b")]
    if nodes:
        capacity = reference.CAPACITY_PER_S * nodes[0]
        all_axes[1].axhline(capacity, color=REFERENCE, linewidth=1, linestyle=":", label="prototype")
    if 511 in nodes:
        all_axes[1].axvline(reference.DELTA_PASSES, color=REFERENCE, linewidth=1, linestyle=":")
    _legend(figure, all_axes)
    return figure


def _causal(results: Results, number: str) -> Figure:
    groups = "one group of all nodes" if number == "5.2" else "one group per inner node: its subtree"
    figure, all_axes = _panels(
        4, 2,
        f"{groups[0].upper()}{groups[1:]}; publishers at random, each 100 messages/s, held back while too many of its "
        "messages are not delivered by all. Bars: standard error over the seeds.",
    )  # fmt: skip
    panels = [
        Panel(f"{number}{letter}  {mbps} Mb/s", tag, column, "publishers", "publishers", y, 10)
        for letter, mbps, tag, column, y in (
            ("a", 100, FAST, ALL, "deliveries/s of all nodes"), ("b", 100, FAST, BYTES, "metadata (bytes)"),
            ("c", 10, SLOW, ALL, "deliveries/s of all nodes"), ("d", 10, SLOW, BYTES, "metadata (bytes)"),
        )
    ]  # fmt: skip
    for axes, panel in zip(all_axes, panels, strict=True):
        for protocol, sizes in ((LOCAMU, MODEL), (LOCAMU, WIRE), (CBCAST, MODEL), (CBCAST, WIRE), (BARRIERS, MODEL)):
            points = by_publishers(results, panel.figure, panel.column, protocol, sizes)
            name = _COUNTED if sizes == MODEL else _ENCODED
            _plot(axes, points, protocol, sizes, f"{LOOKS[protocol].label} ({name})")
        _finish(axes, panel, [])
    _legend(figure, all_axes)
    return figure


def _sizes(results: Results, expected: Mapping[str, Mapping[int, float]]) -> Figure:
    """What was measured without limits of bandwidth, over what the prototype found."""
    figure, (axes,) = _panels(
        1, 1, "Metadata on average over all transmissions, by the source's count; 511 nodes, no limits of bandwidth."
    )
    figure.set_size_inches(6.4, 4.0)
    for protocol in (LOCAMU, CBCAST, BARRIERS):
        _plot(axes, by_publishers(results, "reference", BYTES, protocol), protocol, MODEL, LOOKS[protocol].label)
    for sizes in expected.values():
        axes.plot(list(sizes), list(sizes.values()), "x", color=REFERENCE, markersize=8, label="prototype")
    panel = Panel("Sizes beside the prototype's", "", BYTES, "publishers", "publishers", "metadata (bytes)", 10)
    _finish(axes, panel, [])
    _legend(figure, [axes])
    return figure


def _loads(results: Results) -> Figure:
    """How much is offered to the root, to its child and to a leaf, by publishers."""
    figure, (axes,) = _panels(
        1, 1,
        "LoCaMu, the source's sizes: bytes offered to a node, both directions, as a share of what it can carry. More "
        "than 100 % piles up. In a binary tree the root has two neighbours, so others are busier.",
    )  # fmt: skip
    figure.set_size_inches(6.4, 4.0)
    places = {"busiest_share": "busiest node", "child_share": "child of the root", "root_share": "root",
              "last_share": "last leaf"}  # fmt: skip
    colours = ("#d55e00", "#0072b2", "#4d4d4d", "#009e73")
    for (column, name), colour in zip(places.items(), colours, strict=True):
        points = results.curve("b", column, LOCAMU, along="publishers")
        axes.plot([p.x for p in points], [100 * p.mean for p in points], color=colour, marker="o", label=name)
    panel = Panel(
        "Where the load is", "b", "", "publishers", "publishers", "share of the bandwidth (%)", 10, y_log=False
    )
    _finish(axes, panel, [])
    _legend(figure, [axes])
    return figure


def _plot(axes: Axes, points: Curve, protocol: str, sizes: str, label: str, *, hollow: bool = False) -> None:
    if not points:
        return
    look = LOOKS[protocol]
    axes.errorbar(
        [point.x for point in points],
        [point.mean for point in points],
        yerr=[point.error for point in points],
        color=look.colour,
        marker=look.marker,
        markersize=5,
        markerfacecolor="white" if hollow or sizes == WIRE else look.colour,
        linestyle=":" if hollow else _LINES[sizes],
        linewidth=1.4,
        capsize=2,
        label=label,
    )


def _finish(axes: Axes, panel: Panel, ticks: Sequence[float]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if panel.x_log:
        axes.set_xscale("log", base=panel.x_log)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    if ticks and panel.x_log != 10 and panel.along != "publishers":
        axes.set_xticks(list(ticks), [f"{tick:,.0f}" for tick in ticks])
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.minorticks_off()
    if panel.y_log:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        if high < _FEW_DECADES * low:
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
    axes.set_title(panel.title, fontsize=10)
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)


def _legend(figure: Figure, all_axes: Sequence[Axes]) -> None:
    """One legend above everything, each name once."""
    found: dict[str, Artist] = {}
    for axes in all_axes:
        handles, labels = axes.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    figure.legend(list(found.values()), list(found), loc="outside upper center", ncols=3, frameon=False)
