"""The part of a run's page about an overlay that chooses its links: who was linked to whom, before and after."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ordercast.report.figures import DRAWING, STAND_INS, element
from ordercast.report.html import Markup, figure, tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from ordercast.verify.metrics.values import LinkGraph, RunMetrics

_MOST_NODES = 120
"""With more, a drawing could not be read."""
_NAMED = 40
_SAFE = ("safe", "open", "retiring")


def overlay_sections(name: str, metrics: RunMetrics, *, drawn: bool) -> list[Markup]:
    """The links, if the run told of any and they can be drawn."""
    graph = metrics.links
    if graph is None or not drawn or len(graph.nodes_after) > _MOST_NODES:
        return []
    safe = sum(state in _SAFE for _, _, state in graph.after)
    gone = sorted(set(graph.nodes_before) - set(graph.nodes_after))
    came = sorted(set(graph.nodes_after) - set(graph.nodes_before)) if graph.nodes_before else []
    words = f"{len(graph.nodes_after)} processes at the end, {safe} links in use, {len(graph.after) - safe} not yet"
    words += f"; came: {', '.join(came)}" if came else ""
    words += f"; gone: {', '.join(gone)}" if gone else ""
    title = "The overlay"
    drawing = _drawing(f"{name}-overlay", graph, f"{title}: {words}")
    return [tag("h3", "Overlay"), figure(drawing, title, f"{words}. Solid: used both ways; dashed: one way or not yet")]


def _drawing(name: str, graph: LinkGraph, description: str) -> Markup:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    shown = [("at the end", graph.after, graph.nodes_after)]
    if graph.nodes_before:
        shown.insert(0, ("before anybody came or went", graph.before, graph.nodes_before))
    everybody = sorted({*graph.nodes_before, *graph.nodes_after}, key=lambda node: (len(node), node))
    with mpl.rc_context(DRAWING):
        drawn = Figure(figsize=(4.1 * len(shown), 4.2), layout="constrained")
        for axes, (title, links, nodes) in zip(drawn.subplots(1, len(shown), squeeze=False).flat, shown, strict=True):
            _draw(axes, everybody, links, nodes)
            axes.set_title(title, fontsize=10)
        return element(drawn, name, description)


def _draw(axes: Axes, everybody: Sequence[str], links: Sequence[tuple[str, str, str]], nodes: Sequence[str]) -> None:
    """All on one circle, each at the same place in both drawings."""
    turn = 2 * math.pi / max(len(everybody), 1)
    at = {node: (math.sin(i * turn), math.cos(i * turn)) for i, node in enumerate(everybody)}
    used = {(a, b) for a, b, state in links if state in _SAFE}
    for a, b in sorted({(min(a, b), max(a, b)) for a, b, _ in links}):
        if a in at and b in at:
            both = (a, b) in used and (b, a) in used
            (x1, y1), (x2, y2) = at[a], at[b]
            axes.plot(
                (x1, x2), (y1, y2), "-" if both else "--", color=STAND_INS["soft" if both else "s1"], linewidth=0.9
            )
    for node, (x, y) in at.items():
        colour = STAND_INS["s0" if node in nodes else "line"]
        axes.plot([x], [y], "o", color=colour, markersize=5)
        if len(everybody) <= _NAMED:
            ink = STAND_INS["ink" if node in nodes else "soft"]
            axes.text(1.13 * x, 1.13 * y, node, ha="center", va="center", fontsize=8, color=ink)
    axes.set_xlim(-1.3, 1.3)
    axes.set_ylim(-1.3, 1.3)
    axes.set_aspect("equal")
    axes.set_axis_off()
