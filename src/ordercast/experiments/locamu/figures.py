"""The source's figures 5.1, 5.2 and 5.3, and sizes beside the prototype's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from ordercast.experiments.kit.figures import CONFIDENCE, REFERENCE, Look, drawn, label, legend, line, panels
from ordercast.experiments.kit.study import Picture
from ordercast.experiments.locamu import reference
from ordercast.experiments.locamu.claims_causal import ALL, BYTES, FAST, SLOW, by_publishers
from ordercast.experiments.locamu.claims_single import ONE, by_f
from ordercast.experiments.locamu.results import LocamuResults
from ordercast.experiments.locamu.runs import BARRIERS, CBCAST, CORRECTED, DELTA, LOCAMU, MODEL, PUBLISHED, WIRE
from ordercast.experiments.locamu.style import LOOKS, SIZES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FEW_DECADES = 300
"""A logarithmic axis that spans less has numbers at 2 and 5, too."""


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


def single_figures(table: pa.Table, directory: Path) -> list[Picture]:
    """Figure 5.1 and where the load is."""
    return drawn(LocamuResults(table), directory, {"figure-5.1": _figure_1, "loads": _loads})


def one_group_figures(table: pa.Table, directory: Path) -> list[Picture]:
    """Figure 5.2 and sizes without limits."""
    pictures: dict[str, Callable[[LocamuResults], Figure]] = {
        "figure-5.2": lambda results: _causal(results, "5.2"),
        "sizes": lambda results: _sizes(results, reference.ONE_GROUP),
    }
    return drawn(LocamuResults(table), directory, pictures)


def many_groups_figures(table: pa.Table, directory: Path) -> list[Picture]:
    """Figure 5.3 and sizes without limits."""
    pictures: dict[str, Callable[[LocamuResults], Figure]] = {
        "figure-5.3": lambda results: _causal(results, "5.3"),
        "sizes": lambda results: _sizes(results, reference.MANY_GROUPS),
    }
    return drawn(LocamuResults(table), directory, pictures)


def _figure_1(results: LocamuResults) -> Figure:
    figure, all_axes = panels(
        2, 3, "Throughput of LoCaMu and Delta-Neighbourhood against one thing at a time, as in figure 5.1 of the "
        "source. One group of all nodes, 100 Mb/s, 1 ms, 32 bytes, f = 1, three neighbours a node unless varied; a "
        "single publisher is the root, but in 5.1b, where all are chosen at random. Dotted lines without marks: "
        f"computed by the prototype. {CONFIDENCE}", height=3.0,
    )  # fmt: skip
    for axes, panel in zip(all_axes, _SINGLE, strict=True):
        if panel.figure == "e":
            line(axes, by_f(results, panel.column, CORRECTED), _look(LOCAMU, MODEL))
            published = replace(LOOKS[LOCAMU], label="LoCaMu, published radii", style=":", hollow=True)
            line(axes, by_f(results, panel.column, PUBLISHED), published)
        else:
            for sizes in (MODEL, WIRE):
                points = results.curve(panel.figure, panel.column, LOCAMU, along=panel.along, sizes=sizes)
                line(axes, points, _look(LOCAMU, sizes))
        points = results.curve(panel.figure, panel.column, DELTA, along=panel.along)
        line(axes, points, LOOKS[DELTA])
        title = panel.title if panel.along == "nodes" else f"{panel.title} ({_nodes(results, panel.figure)})"
        _finish(axes, replace(panel, title=title), [point.x for point in points])
    nodes = [int(row["nodes"] or 0) for row in results.of("b")]
    if nodes:
        capacity = reference.CAPACITY_PER_S * nodes[0]
        all_axes[1].axhline(capacity, color=REFERENCE, linewidth=1, linestyle=":", label="prototype")
    if 511 in nodes:
        all_axes[1].axvline(reference.DELTA_PASSES, color=REFERENCE, linewidth=1, linestyle=":")
    legend(figure, *all_axes)
    return figure


def _causal(results: LocamuResults, number: str) -> Figure:
    groups = "one group of all nodes" if number == "5.2" else "one group per inner node: its subtree"
    figure, all_axes = panels(
        2, 2,
        f"Deliveries a second and mean metadata of a copy against the number of publishers, as in figure {number} of "
        f"the source. {_nodes(results, FAST)}, {groups}; publishers at random, each 100 messages/s, held back while "
        f"too many of its messages are not delivered by all. Hollow: with the bytes of our encoding. {CONFIDENCE}",
        height=3.0,
    )  # fmt: skip
    shown = [
        Panel(f"{number}{letter}  {mbps} Mb/s", tag, column, "publishers", "publishers", y, 10)
        for letter, mbps, tag, column, y in (
            ("a", 100, FAST, ALL, "deliveries/s of all nodes"), ("b", 100, FAST, BYTES, "metadata (bytes)"),
            ("c", 10, SLOW, ALL, "deliveries/s of all nodes"), ("d", 10, SLOW, BYTES, "metadata (bytes)"),
        )
    ]  # fmt: skip
    for axes, panel in zip(all_axes, shown, strict=True):
        for protocol, sizes in ((LOCAMU, MODEL), (LOCAMU, WIRE), (CBCAST, MODEL), (CBCAST, WIRE), (BARRIERS, MODEL)):
            points = by_publishers(results, panel.figure, panel.column, protocol, sizes)
            line(axes, points, _look(protocol, sizes))
        _finish(axes, panel, [])
    legend(figure, *all_axes)
    return figure


def _sizes(results: LocamuResults, expected: Mapping[str, Mapping[int, float]]) -> Figure:
    """Draws sizes measured without limits of bandwidth over what the prototype found."""
    figure, (axes,) = panels(
        1, 1, "Mean metadata of a copy by the source's count, against the number of publishers, beside what the "
        "prototype found (crosses); 511 nodes, no limits of bandwidth.", width=6.4, height=3.5,
    )  # fmt: skip
    for protocol in (LOCAMU, CBCAST, BARRIERS):
        line(axes, by_publishers(results, "reference", BYTES, protocol), LOOKS[protocol])
    for sizes in expected.values():
        axes.plot(list(sizes), list(sizes.values()), "x", color="black", markersize=8, zorder=5, label="prototype")
    panel = Panel("Sizes beside the prototype's", "", BYTES, "publishers", "publishers", "metadata (bytes)", 10)
    _finish(axes, panel, [])
    legend(figure, axes)
    return figure


def _loads(results: LocamuResults) -> Figure:
    """Draws the load offered to the root, to its child and to a leaf, by publishers."""
    figure, (axes,) = panels(
        1, 1,
        "LoCaMu, the source's sizes: bytes offered to a node, both directions, as a share of what it can carry. More "
        "than 100 % piles up. In a binary tree the root has two neighbours, so others are busier.",
        width=6.4, height=3.5,
    )  # fmt: skip
    places = {
        "busiest_share": Look("busiest node", "#d55e00", "s", hollow=True),
        "child_share": Look("child of the root", "#0072b2", "o", "--"),
        "root_share": Look("root", "#4d4d4d", "^"),
        "last_share": Look("last leaf", "#009e73", "D", ":"),
    }
    for column, look in places.items():
        line(axes, results.curve("b", column, LOCAMU, along="publishers"), look, scale=100)
    panel = Panel(
        "Where the load is", "b", "", "publishers", "publishers", "share of the bandwidth (%)", 10, y_log=False
    )
    _finish(axes, panel, [])
    legend(figure, axes)
    return figure


def _nodes(results: LocamuResults, figure: str) -> str:
    """How large the trees of a figure are, where that is not what it varies."""
    sizes = sorted({int(row["nodes"] or 0) for row in results.of(figure)})
    return f"{' and '.join(f'{size:,}' for size in sizes) or 'no'} nodes"


def _look(protocol: str, sizes: str) -> Look:
    """Hollow and dashed with the bytes of our encoding."""
    look = LOOKS[protocol]
    if sizes == MODEL:
        return replace(look, label=f"{look.label} ({SIZES[sizes]})")
    return replace(look, label=f"{look.label} ({SIZES[sizes]})", style="--", hollow=True)


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
    label(axes, panel.title, panel.x, panel.y)
