"""Deliveries at the children of crashed nodes, and bytes by what they are for, over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from ordercast.experiments.kit.figures import REFERENCE, drawn, label, own_legend, panels
from ordercast.experiments.kit.study import Picture, Row
from ordercast.experiments.locamu.style import LOOKS
from ordercast.experiments.locamu_scale.storm import DETECTOR_MS, DOWN_MS
from ordercast.experiments.locamu_scale.storm_claims import name, setting_name
from ordercast.experiments.locamu_scale.storm_runs import BEFORE_MS, SETTINGS, STEP_MS, series
from ordercast.experiments.locamu_scale.storm_watch import BIN_MS, KINDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {"first": "#0072b2", "resend": "#d55e00", "proxy": "#e69f00", "alias": "#cc79a7", "ack": "#999999"}
_STEPS = {"o": "-", "s": "--", "^": "-.", "D": ":"}
"""Dashes by the marker that a protocol has elsewhere."""
_NAMES = {
    "first": "first copies",
    "resend": "resends",
    "proxy": "proxies",
    "alias": "aliases",
    "ack": "acknowledgements",
}


def figures(results: pa.Table, directory: Path) -> list[Picture]:
    return drawn(results.to_pylist(), directory, {"children": _children, "bytes": _bytes})


def _children(rows: Sequence[Row]) -> Figure:
    figure, found = panels(
        -(-len(SETTINGS) // 2), 2, "Deliveries at the children of a crashed node of messages from beyond it, over "
        "time, mean over all crashes and children. Grey: the node is down. Dashed: its neighbours notice. Dotted: what "
        "was published.",
        width=4.2,
    )  # fmt: skip
    for axes, (together, load) in zip(found, SETTINGS, strict=True):
        axes.axvspan(0, DOWN_MS, color="#eeeeee", zorder=0)
        axes.axvline(DETECTOR_MS, linestyle="--", color=REFERENCE, linewidth=1)
        for row in _smallest(rows, together, load):
            values = series(row["around"])
            look = LOOKS[str(row["protocol"])]
            times = [STEP_MS * i - BEFORE_MS for i in range(len(values))]
            axes.step(times, values, where="post", color=look.colour, linestyle=_STEPS[look.marker], linewidth=1.3,
                      label=look.label)  # fmt: skip
            axes.axhline(float(cast("float", row["rate_per_s"])), linestyle=":", color=REFERENCE, linewidth=1)
        label(axes, setting_name(together, load).capitalize(), "ms since the crash", "deliveries per second and child")
        own_legend(axes)
    return figure


def _smallest(rows: Sequence[Row], together: str, load: float) -> list[Row]:
    """The runs in the smallest system, where every protocol was run."""
    found = [row for row in rows if row["load"] == load and row["together"] == together]
    nodes = min((cast("int", row["nodes"]) for row in found), default=0)
    return sorted((row for row in found if row["nodes"] == nodes), key=lambda row: str(row["protocol"]), reverse=True)


def _bytes(rows: Sequence[Row]) -> Figure:
    runs = sorted(
        (row for row in rows if row["protocol"] == "locamu"),
        key=lambda row: (cast("int", row["nodes"]), SETTINGS.index((str(row["together"]), cast("float", row["load"])))),
    )
    figure, found = panels(
        len(runs), 1, "Bytes that LoCaMu puts on the links, by what they are for, over time; all nodes together, in "
        "steps of 20 ms. Crashes begin at 400 ms; publishers end a second before the figure does.",
        width=9.0, height=2.6,
    )  # fmt: skip
    for axes, row in zip(found, runs, strict=True):
        _stack(axes, row)
        label(axes, f"LoCaMu, {name(row)}", "s", "MB/s")
        own_legend(axes, ncols=5, loc="upper right")
    return figure


def _stack(axes: Axes, row: Row) -> None:
    curves = [[value / BIN_MS / 1e3 for value in series(row[f"{kind}_over_time"])] for kind in KINDS]
    times = [BIN_MS * i / 1e3 for i in range(len(curves[0]))]
    axes.stackplot(times, *curves, colors=[_COLOURS[kind] for kind in KINDS], labels=[_NAMES[kind] for kind in KINDS])
    axes.set_xlim(0, times[-1])
    top = max(sum(values) for values in zip(*curves, strict=True))
    axes.set_ylim(0, 1.25 * top)
