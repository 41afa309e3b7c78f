"""The studies in pictures: latency against throughput, visits and fast hops, bytes. Same results, same bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ordercast.experiments.atomic_multicast.results import Figure as Measured
from ordercast.experiments.atomic_multicast.results import Results, few_servers
from ordercast.experiments.atomic_multicast.runs import (
    CONTIGUOUS,
    COVER,
    DCC,
    DCC_RV,
    DF,
    FEW,
    GROUPS,
    LITE,
    RANDOM,
    SKEEN,
    STRIDED,
    TPCC,
)
from ordercast.experiments.atomic_multicast.scales import (
    CLOCKS,
    COMPARED,
    MOST_CLIENTS,
    RULES,
    SHARES,
    SIZES,
    SOME_CLIENTS,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLE = {
    SKEEN: ("#4d4d4d", "s"),
    DF: ("#e69f00", "v"),
    DCC: ("#d55e00", "^"),
    DCC_RV: ("#0072b2", "o"),
    LITE: ("#009e73", "D"),
    COVER: ("#cc79a7", "P"),
}
"""Colours that the colour-blind tell apart, and shapes for print without colour."""
_LABELS = {DCC: "daisy chain (strict), whole clocks", DCC_RV: "daisy chain (strict)", LITE: "daisy chain (lite)",
           COVER: "daisy chain (cover)"}  # fmt: skip
_PANEL_INCHES = (3.4, 3.3)
_PANELS_A_ROW = 3
_SATURATED = f"{MOST_CLIENTS} clients"

Draw = Callable[[Results], "Figure"]
Panels = Mapping[str, tuple[str, str]]
"""Title to workload and layout."""


def random_figures(table: pa.Table, directory: Path) -> list[Path]:
    """Curves, visits and packets of random destinations."""
    panels = {workload: (workload, "") for workload in RANDOM}
    return _drawn(
        Results(table),
        directory,
        {
            "latency-throughput": lambda results: _curves(results, panels),
            "visits": lambda results: _visits(results, panels),
            "packets": lambda results: _packets(results, panels),
        },
    )


def tpcc_figures(table: pa.Table, directory: Path) -> list[Path]:
    """Curves, visits and packets of TPC-C."""
    panels = {"TPC-C": (TPCC, "")}
    return _drawn(
        Results(table),
        directory,
        {
            "latency-throughput": lambda results: _curves(results, panels, wide=True),
            "visits": lambda results: _visits(results, panels),
            "packets": lambda results: _packets(results, panels),
        },
    )


def groups_figures(table: pa.Table, directory: Path) -> list[Path]:
    """Curves of strided groups; throughput, fast hops and visits against the share of messages that leave."""
    panels = {f"{group}, strided": (group, STRIDED) for group in GROUPS}
    return _drawn(
        Results(table),
        directory,
        {
            "latency-throughput": lambda results: _curves(results, panels),
            "leaving-throughput": lambda results: _leaving(results, "throughput_per_s", "1000 multicasts/s", 1e-3),
            "leaving-fast-hops": lambda results: _leaving(results, "fast_share", "fast hops over gaps (%)", 100.0),
            "leaving-visits": lambda results: _leaving(results, "visits_per_message", "visits per multicast", 1.0),
        },
    )


def clocks_figures(table: pa.Table, directory: Path) -> list[Path]:
    """Header bytes and latency, with whole and with reduced clocks, against the number of servers."""
    return _drawn(Results(table), directory, {"clocks": _clocks})


def tcp_figures(table: pa.Table, directory: Path) -> list[Path]:
    """Throughput and latency of real processes."""
    return _drawn(few_servers(table), directory, {"throughput-latency": _real})


def _drawn(results: Results, directory: Path, pictures: Mapping[str, Draw]) -> list[Path]:
    import matplotlib as mpl

    drawn = []
    with mpl.rc_context({"svg.hashsalt": "ordercast", "font.size": 9, "axes.spines.top": False,
                         "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3}):  # fmt: skip
        for name, draw in pictures.items():
            path = directory / f"{name}.svg"
            draw(results).savefig(path, metadata={"Date": None})
            drawn.append(path)
    return drawn


def _panels(count: int, width: float = _PANEL_INCHES[0]) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    rows = 1 if count <= _PANELS_A_ROW else 2  # More side by side would be too small to read on a page.
    columns = -(-count // rows)
    figure = Figure(figsize=(width * columns, _PANEL_INCHES[1] * rows), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)[:count]


def _curves(results: Results, panels: Panels, *, wide: bool = False) -> Figure:
    """Each point is a number of clients: to the right and down is better."""
    figure, all_axes = _panels(len(panels), 7.0 if wide else _PANEL_INCHES[0])
    for axes, (title, (workload, layout)) in zip(all_axes, panels.items(), strict=True):
        for system in COMPARED:
            points = [
                (results.average("throughput_per_s", system, workload, clients=clients, layout=layout),
                 results.average("latency_ms_mean", system, workload, clients=clients, layout=layout))
                for clients in results.clients()
            ]  # fmt: skip
            _line(axes, points, system, scale=1e-3)
        _logarithmic(axes)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("1000 multicasts/s")
    all_axes[0].set_ylabel("mean latency (ms)")
    shown = ", ".join(map(str, results.clients()))
    _legend(figure, all_axes[0], f"{shown} clients, left to right")
    return figure


def _logarithmic(axes: Axes) -> None:
    """Both axes, with plain numbers at 1, 2, 5 of every decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(NullLocator())


def _line(axes: Axes, points: Sequence[tuple[Measured, Measured]], system: str, scale: float = 1.0) -> None:
    known = [(x * scale, y) for x, y in points if x is not None and y is not None]
    if known:
        colour, marker = _STYLE[system]
        axes.plot(
            [x for x, _ in known],
            [y for _, y in known],
            color=colour,
            marker=marker,
            markersize=4.5,
            linewidth=1.3,
            label=_LABELS.get(system, system),
        )


def _legend(figure: Figure, axes: Axes, note: str) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, title=note, title_fontsize=8)


def _visits(results: Results, panels: Panels) -> Figure:
    figure, (left, right) = _panels(2, 4.2)
    _bars(left, results, panels, RULES, "fast_share", 100.0)
    left.set_title(f"Hops over gaps that are fast ({_SATURATED})", fontsize=10)
    left.set_ylabel("share (%)")
    _bars(right, results, panels, RULES, "visits_per_message", 1.0)
    right.set_title("Servers visited that are no destinations", fontsize=10)
    right.set_ylabel("visits per multicast")
    _legend(figure, left, "")
    return figure


def _packets(results: Results, panels: Panels) -> Figure:
    figure, (left, right) = _panels(2, 4.2)
    _bars(left, results, panels, COMPARED, "packets_per_message", 1.0)
    left.set_title(f"Packets, answers not counted ({_SATURATED})", fontsize=10)
    left.set_ylabel("packets per multicast")
    _bars(right, results, panels, COMPARED, "header_bytes_per_hop", 1.0)
    right.set_title("Header of a packet between servers", fontsize=10)
    right.set_ylabel("mean header (bytes)")
    _legend(figure, left, "")
    return figure


def _real(results: Results) -> Figure:
    figure, (left, right) = _panels(2, 4.2)
    panels = {workload: (workload, "") for workload in FEW}
    measured = [system for system in COMPARED if any(row["system"] == system for row in results.rows)]
    _bars(left, results, panels, measured, "throughput_per_s", 1e-3)
    left.set_title(f"Throughput ({results.most_clients} clients)", fontsize=10)
    left.set_ylabel("1000 multicasts/s")
    _bars(right, results, panels, measured, "latency_ms_mean", 1.0)
    right.set_title("Latency", fontsize=10)
    right.set_ylabel("mean latency (ms)")
    _legend(figure, left, "medians over the runs")
    return figure


def _bars(
    axes: Axes,
    results: Results,
    panels: Panels,
    systems: Sequence[str],
    column: str,
    scale: float,
) -> None:
    width = 0.8 / len(systems)
    for i, system in enumerate(systems):
        figures = [results.average(column, system, workload, layout=layout) for workload, layout in panels.values()]
        heights = [(figure or 0.0) * scale for figure in figures]
        places = [place + (i - (len(systems) - 1) / 2) * width for place in range(len(panels))]
        axes.bar(places, heights, width, color=_STYLE[system][0], label=_LABELS.get(system, system))
    axes.set_xticks(range(len(panels)), list(panels))
    axes.grid(visible=False, axis="x")


def _leaving(results: Results, column: str, label: str, scale: float) -> Figure:
    figure, all_axes = _panels(len(GROUPS))
    for axes, group in zip(all_axes, GROUPS, strict=True):
        for layout, style in ((STRIDED, "-"), (CONTIGUOUS, ":")):
            for rule in RULES:
                points = [
                    (100 * share, value * scale)
                    for share in SHARES
                    if (value := results.average(column, rule, group, layout=layout, random=share)) is not None
                ]
                _styled(axes, points, rule, style, f"{_LABELS[rule]}, {layout}")
        axes.set_title(f"{group} ({_SATURATED})", fontsize=10)
        axes.set_xlabel("messages to random servers (%)")
        axes.set_ylim(bottom=0)
    all_axes[0].set_ylabel(label)
    _legend(figure, all_axes[0], "")
    return figure


def _styled(axes: Axes, points: Sequence[tuple[float, float]], system: str, style: Any, label: str) -> None:
    if points:
        colour, marker = _STYLE[system]
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, ys, style, color=colour, marker=marker, markersize=4.5, linewidth=1.3, label=label)


def _clocks(results: Results) -> Figure:
    figure, all_axes = _panels(3)
    columns = (
        ("header_bytes_per_hop", MOST_CLIENTS, "Header between servers", "bytes per packet"),
        ("latency_ms_mean", SOME_CLIENTS, f"Latency, mean ({SOME_CLIENTS} clients)", "ms"),
        ("latency_ms_p99", SOME_CLIENTS, f"Latency, 99th percentile ({SOME_CLIENTS} clients)", "ms"),
    )
    for axes, (column, clients, title, label) in zip(all_axes, columns, strict=True):
        for rule, whole in CLOCKS.items():
            for system, style, kind in ((rule, "-", "reduced"), (whole, ":", "whole")):
                points = [
                    (float(servers), value)
                    for servers in SIZES
                    if (value := results.average(column, system, TPCC, clients=clients, servers=servers)) is not None
                ]
                _styled(axes, points, rule, style, f"{_LABELS[rule]}, {kind} clocks")
        axes.set_title(title, fontsize=10)
        axes.set_xticks(SIZES)
        axes.set_xlabel("servers")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
    _legend(figure, all_axes[0], "")
    return figure
