"""The studies in pictures: latency against throughput, visits and fast hops, bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from ordercast.experiments.atomic_multicast.results import AtomicResults, few_servers
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
from ordercast.experiments.kit.figures import CONFIDENCE, Look, bars, drawn, label, legend, line, panels
from ordercast.experiments.kit.results import Point, numbers
from ordercast.experiments.kit.study import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOKS = {
    SKEEN: Look("Skeen", "#4d4d4d", "s"),
    DF: Look("Delporte-Fauconnier", "#e69f00", "v"),
    DCC: Look("daisy chain (strict), whole clocks", "#d55e00", "^", "--", hollow=True),
    DCC_RV: Look("daisy chain (strict)", "#0072b2", "o"),
    LITE: Look("daisy chain (lite)", "#009e73", "D", "-.", hollow=True),
    COVER: Look("daisy chain (cover)", "#cc79a7", "P", ":"),
}
_COLOURS = {look.label: look.colour for look in _LOOKS.values()}
_DASHES = {DCC_RV: "-", LITE: "-.", COVER: ":"}
_SATURATED = f"{MOST_CLIENTS} clients"
_MEAN = (
    "The mean is that of all messages after the warm-up: nothing is trimmed. (The article leaves out the highest and "
    "the lowest twentieth; that mean is in the results as latency_ms_trimmed.)"
)

Workloads = Mapping[str, tuple[str, str]]
"""Title to workload and layout."""


def random_figures(table: pa.Table, directory: Path) -> list[Picture]:
    """Curves, visits and packets of random destinations."""
    return _three(table, directory, {workload: (workload, "") for workload in RANDOM})


def tpcc_figures(table: pa.Table, directory: Path) -> list[Picture]:
    """Curves, visits and packets of TPC-C."""
    return _three(table, directory, {"TPC-C": (TPCC, "")})


def _three(table: pa.Table, directory: Path, workloads: Workloads) -> list[Picture]:
    pictures = {
        "latency-throughput": lambda results: _curves(results, workloads),
        "visits": lambda results: _visits(results, workloads),
        "packets": lambda results: _packets(results, workloads),
    }
    return drawn(AtomicResults(table), directory, pictures)


def groups_figures(table: pa.Table, directory: Path) -> list[Picture]:
    """Curves of strided groups; throughput, fast hops and visits against the share of messages that leave."""
    workloads = {f"{group}, strided": (group, STRIDED) for group in GROUPS}
    pictures = {
        "latency-throughput": lambda results: _curves(results, workloads),
        "leaving-throughput": lambda results: _leaving(
            results, "throughput_per_s", "Throughput", "1000 multicasts/s", 1e-3
        ),
        "leaving-fast-hops": lambda results: _leaving(
            results,
            "fast_share",
            "Hops over gaps that are fast, where there are gaps,",
            "fast hops over gaps (%)",
            100.0,
        ),
        "leaving-visits": lambda results: _leaving(
            results, "visits_per_message", "Visits of servers that are no destinations", "visits per multicast", 1.0
        ),
    }
    return drawn(AtomicResults(table), directory, pictures)


def clocks_figures(table: pa.Table, directory: Path) -> list[Picture]:
    """Header bytes and latency, with whole and with reduced clocks, against the number of servers."""
    return drawn(AtomicResults(table), directory, {"clocks": _clocks})


def tcp_figures(table: pa.Table, directory: Path) -> list[Picture]:
    """Throughput and latency of real processes."""
    return drawn(few_servers(table), directory, {"throughput-latency": _real})


def _curves(results: AtomicResults, workloads: Workloads) -> Figure:
    """Each point is a number of clients: to the right and down is better."""
    columns = min(len(workloads), 2) if len(workloads) != 3 else 3
    shown = ", ".join(map(str, results.clients()))
    figure, all_axes = panels(
        -(-len(workloads) // columns), columns, f"Mean latency that clients see against throughput, for {shown} "
        f"clients from left to right on every curve; to the right and down is better. {_MEAN} {CONFIDENCE}",
        width=max(7.2 / columns, 3.6),
    )  # fmt: skip
    for axes, (title, (workload, layout)) in zip(all_axes, workloads.items(), strict=True):
        for system, look in _LOOKS.items():
            rates, latencies = (
                [results.find(column, system, workload, clients=n, layout=layout) for n in results.clients()]
                for column in ("throughput_per_s", "latency_ms_mean")
            )
            pairs = zip(rates, latencies, strict=True)
            line(
                axes, [Point(rate.mean / 1e3, found.mean, found.half) for rate, found in pairs if rate and found], look
            )
        _logarithmic(axes)
        label(axes, title, "1000 multicasts/s", "mean latency (ms)")
    legend(figure, all_axes[0])
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


def _visits(results: AtomicResults, workloads: Workloads) -> Figure:
    figure, (left, right) = panels(
        1, 2, f"The daisy chain under each of its rules, by workload, with {_SATURATED}. Left: how many of the hops "
        "over servers that are no destinations skip them. Right: how many such servers a message visits. "
        f"{CONFIDENCE}",
        width=4.2,
    )  # fmt: skip
    _bars(left, results, workloads, RULES, "fast_share", 100.0)
    label(left, "Hops over gaps that are fast", "", "share (%)")
    _bars(right, results, workloads, RULES, "visits_per_message", 1.0)
    label(right, "Servers visited that are no destinations", "", "visits per multicast")
    legend(figure, left)
    return figure


def _packets(results: AtomicResults, workloads: Workloads) -> Figure:
    figure, (left, right) = panels(
        1, 2, f"Packets that a multicast takes, answers to clients not counted, and the mean header of a packet "
        f"between servers, by workload, with {_SATURATED}. {CONFIDENCE}", width=4.2,
    )  # fmt: skip
    _bars(left, results, workloads, COMPARED, "packets_per_message", 1.0)
    label(left, "Packets", "", "packets per multicast")
    _bars(right, results, workloads, COMPARED, "header_bytes_per_hop", 1.0)
    label(right, "Header of a packet between servers", "", "mean header (bytes)")
    legend(figure, left)
    return figure


def _real(results: AtomicResults) -> Figure:
    figure, (left, right) = panels(
        1, 2, f"Throughput and mean latency of real processes over TCP on this machine, {results.most_clients} "
        f"clients, by number of destinations: medians over the runs of a point, and each of them as a dot. {_MEAN}",
        width=4.2,
    )  # fmt: skip
    workloads = {workload: (workload, "") for workload in FEW}
    measured = [system for system in COMPARED if results.where(system=system)]
    _bars(left, results, workloads, measured, "throughput_per_s", 1e-3)
    label(left, "Throughput", "", "1000 multicasts/s")
    _bars(right, results, workloads, measured, "latency_ms_mean", 1.0)
    label(right, "Latency", "", "mean latency (ms)")
    _dots(left, results, measured, "throughput_per_s", 1e-3)
    _dots(right, results, measured, "latency_ms_mean", 1.0)
    legend(figure, left)
    return figure


def _dots(axes: Axes, results: AtomicResults, systems: Sequence[str], column: str, scale: float) -> None:
    """Every run on its bar: a median alone does not say how far apart they are."""
    for bar, (system, workload) in zip(axes.patches, product(systems, FEW), strict=True):
        runs = numbers(row[column] for row in results.where(system=system, workload=workload))
        place = bar.get_x() + bar.get_width() / 2  # type: ignore[attr-defined]
        axes.plot([place] * len(runs), [run * scale for run in runs], ".", color="black", markersize=4)


def _bars(
    axes: Axes, results: AtomicResults, workloads: Workloads, systems: Sequence[str], column: str, scale: float
) -> None:
    series = {
        _LOOKS[system].label: [
            results.find(column, system, workload, layout=layout) for workload, layout in workloads.values()
        ]
        for system in systems
    }
    bars(axes, list(workloads), series, _COLOURS, scale=scale)


def _leaving(results: AtomicResults, column: str, what: str, unit: str, scale: float) -> Figure:
    figure, all_axes = panels(
        1, len(GROUPS), f"{what} of the daisy chain under each of its rules, against the share "
        f"of messages that leave their group for random servers, with {_SATURATED}, by size and number of groups. "
        f"Strided groups have other groups' servers between their members; contiguous ones, drawn hollow, do not. "
        f"{CONFIDENCE}",
    )  # fmt: skip
    for axes, group in zip(all_axes, GROUPS, strict=True):
        for layout in (STRIDED, CONTIGUOUS):
            for rule in RULES:
                look = _variant(rule, f"{_LOOKS[rule].label}, {layout}", hollow=layout == CONTIGUOUS)
                found = {share: results.find(column, rule, group, layout=layout, random=share) for share in SHARES}
                points = [Point(100 * share, value.mean, value.half) for share, value in found.items() if value]
                line(axes, points, look, scale=scale)
        label(axes, group, "messages to random servers (%)", unit)
        axes.set_ylim(bottom=0)
    legend(figure, all_axes[0])
    return figure


def _variant(rule: str, name: str, *, hollow: bool) -> Look:
    """A rule twice in one panel: the second time hollow and dashed; rules that coincide differ in their dashes."""
    return msgspec.structs.replace(_LOOKS[rule], label=name, style="--" if hollow else _DASHES[rule], hollow=hollow)


def _clocks(results: AtomicResults) -> Figure:
    figure, all_axes = panels(
        1, 3, "The daisy chain under each of its rules with whole clocks (hollow) and with reduced ones, against the "
        f"number of servers: header of a packet between servers ({_SATURATED}), mean and 99th percentile of the "
        f"latency ({SOME_CLIENTS} clients). {_MEAN} {CONFIDENCE}",
    )  # fmt: skip
    columns = (
        ("header_bytes_per_hop", MOST_CLIENTS, "Header between servers", "bytes per packet"),
        ("latency_ms_mean", SOME_CLIENTS, "Latency, mean", "ms"),
        ("latency_ms_p99", SOME_CLIENTS, "Latency, 99th percentile", "ms"),
    )
    for axes, (column, clients, title, words) in zip(all_axes, columns, strict=True):
        for rule, whole in CLOCKS.items():
            for system, kind in ((rule, "reduced"), (whole, "whole")):
                look = _variant(rule, f"{_LOOKS[rule].label}, {kind} clocks", hollow=kind == "whole")
                found = {n: results.find(column, system, TPCC, clients=clients, servers=n) for n in SIZES}
                line(axes, [Point(n, value.mean, value.half) for n, value in found.items() if value], look)
        label(axes, title, "servers", words)
        axes.set_xticks(SIZES)
        axes.set_ylim(bottom=0)
    legend(figure, all_axes[0], columns=2)
    return figure
