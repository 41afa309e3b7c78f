"""Header, memory and speed against the size of the system, in one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from ordercast.experiments.kit.curves import Point
from ordercast.experiments.kit.study import Row
from ordercast.experiments.locamu.style import LOOKS, REFERENCE
from ordercast.experiments.locamu_scale.drawing import double, drawn, label, line, panels
from ordercast.experiments.locamu_scale.large import MESSAGES, ONE, PUBLISHERS, SUBTREES
from ordercast.experiments.locamu_scale.large_claims import by_size, micros_per_hop

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN = ((ONE, "one group", "-"), (SUBTREES, "subtree groups", "--"))


def figures(results: pa.Table, directory: Path) -> list[Path]:
    return drawn(results, directory, {"locamu-scale": _scale})


def _scale(rows: Sequence[Row]) -> Figure:
    figure, (headers, memory, speed) = panels(
        1, 3, f"Binary trees, f = 1, {MESSAGES} messages of 32 bytes from {PUBLISHERS} publishers to everyone, or each "
        "to a group of its publisher's. Hops: copies of messages that a simulation handles in a second of processor "
        "time, acknowledgements included in the time. Memory of the process: with links, hosts and what is free again.",
        width=4.2,
    )  # fmt: skip
    look, plain = LOOKS["locamu"], REFERENCE
    for groups, name, style in _SHOWN:
        line(
            headers,
            by_size(rows, "model_mean", groups=groups),
            f"source's count, {name}",
            look.colour,
            "s",
            style=style,
        )
        line(headers, by_size(rows, "wire_mean", groups=groups), f"on the wire, {name}", look.colour, "o", style=style)
    headers.set_ylim(bottom=0)
    line(memory, by_size(rows, "resident_bytes_per_node"), "process, LoCaMu", look.colour, "s", scale=1e-3)
    line(memory, by_size(rows, "own_bytes_per_node"), "machine, LoCaMu", look.colour, "o", scale=1e-3)
    memory.set_ylim(bottom=0)
    for groups, name, style in _SHOWN:
        rates = [Point(p.x, 1e3 / p.mean, 0.0) for p in micros_per_hop(rows, groups=groups)]
        line(speed, rates, f"LoCaMu, {name}", look.colour, "o", style=style)
    flood = [Point(p.x, 1e3 / p.mean, 0.0) for p in micros_per_hop(rows, protocol="flood")]
    line(speed, flood, "flood", plain, "^")
    speed.set_yscale("log")
    sizes = [point.x for point in by_size(rows, "wire_mean")]
    for axes in (headers, memory, speed):
        double(axes, sizes)
        axes.tick_params(axis="x", labelrotation=30)
    label(headers, "Mean header of a copy", "nodes", "bytes")
    label(memory, "Memory per node", "nodes", "kB")
    label(speed, "Speed of the simulation", "nodes", "thousand hops per second")
    return figure
