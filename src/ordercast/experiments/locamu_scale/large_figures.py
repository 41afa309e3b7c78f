"""Header, memory and speed against the size of the system, in one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from ordercast.experiments.kit.figures import REFERENCE, Look, doubling, drawn, label, line, own_legend, panels
from ordercast.experiments.kit.results import Point
from ordercast.experiments.kit.study import Picture, Row
from ordercast.experiments.locamu.style import LOOKS
from ordercast.experiments.locamu_scale.large import MESSAGES, ONE, PUBLISHERS, SUBTREES
from ordercast.experiments.locamu_scale.large_claims import by_size, micros_per_hop

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN = ((ONE, "one group", "-"), (SUBTREES, "subtree groups", "--"))


def figures(results: pa.Table, directory: Path) -> list[Picture]:
    return drawn(results.to_pylist(), directory, {"locamu-scale": _scale})


def _scale(rows: Sequence[Row]) -> Figure:
    figure, (headers, memory, speed, unused) = panels(
        2, 2, f"Header, memory and speed against the number of nodes. Binary trees, f = 1, {MESSAGES} messages of 32 "
        f"bytes from {PUBLISHERS} publishers to everyone, or each to a group of its publisher's. Hops: copies of "
        "messages that a simulation handles in a second of processor time, acknowledgements included in the time. "
        "Memory, with one group: of the process, with links, hosts and what is free again; of the machine, which is "
        "what the protocol itself keeps.", width=4.4,
    )  # fmt: skip
    unused.remove()
    colour = LOOKS["locamu"].colour
    for groups, name, style in _SHOWN:
        hollow = groups != ONE
        counted = Look(f"source's count, {name}", colour, "s", style, hollow)
        line(headers, by_size(rows, "model_mean", groups=groups), counted)
        encoded = Look(f"on the wire, {name}", colour, "o", style, hollow)
        line(headers, by_size(rows, "wire_mean", groups=groups), encoded)
        rates = [Point(p.x, 1e3 / p.mean) for p in micros_per_hop(rows, groups=groups)]
        line(speed, rates, Look(f"LoCaMu, {name}", colour, "o", style, hollow))
    flood = [Point(p.x, 1e3 / p.mean) for p in micros_per_hop(rows, protocol="flood")]
    line(speed, flood, Look("flood", REFERENCE, "^"))
    line(memory, by_size(rows, "resident_bytes_per_node"), Look("process, LoCaMu", colour, "s"), scale=1e-3)
    line(memory, by_size(rows, "own_bytes_per_node"), Look("machine, LoCaMu", colour, "o", "--"), scale=1e-3)
    headers.set_ylim(bottom=0)
    memory.set_ylim(bottom=0)
    speed.set_yscale("log")
    sizes = [point.x for point in by_size(rows, "wire_mean")]
    for axes in (headers, memory, speed):
        doubling(axes, sizes)
        own_legend(axes)
    label(headers, "Mean header of a copy", "nodes", "bytes")
    label(memory, "Memory per node", "nodes", "kB")
    label(speed, "Speed of the simulation", "nodes", "thousand hops per second")
    return figure
