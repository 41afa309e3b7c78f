"""Figures as SVG that takes its colours from the page, so that one drawing suits light, dark and paper."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

from ordercast.report.html import Markup, tag
from ordercast.verify.metrics.values import QUANTILES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ordercast.verify.metrics.values import Distribution, RunMetrics, Slice, TimelineMark

SERIES = 8
"""As many lines as have colours of their own; more in one figure could not be told apart."""

# Matplotlib knows no CSS. It draws in these stand-ins, which nothing else uses, and we put the page's variables in.
STAND_INS = {
    "paper": "#010202",
    "ink": "#010203",
    "soft": "#010204",
    "line": "#010205",
    "bad": "#010206",
    "good": "#010207",
    "open": "#010208",
    **{f"s{index}": f"#0102{index + 16:02x}" for index in range(SERIES)},
}
# Kind of fault to colour, line and name.
_MARKS = {
    "crash": ("bad", "-", "crash"),
    "suspect": ("open", ":", "suspicion"),
    "recover": ("good", "--", "recovery"),
}
_WIDTH_IN = 8.2
_LONG_TAIL = 20
_LABEL_APART = 0.12
"""Share of the width that the name of a crash takes."""
_NAMED_TOGETHER = 4
_FONT = "DejaVu Sans"
DRAWING: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "ordercast",
    "font.family": [_FONT],
    "font.size": 10,
    "text.parse_math": False,  # a dollar in somebody's run name is a dollar
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.linewidth": 0.6,
    "grid.color": STAND_INS["line"],
    "axes.edgecolor": STAND_INS["soft"],
    "axes.labelcolor": STAND_INS["ink"],
    "text.color": STAND_INS["ink"],
    "xtick.color": STAND_INS["soft"],
    "ytick.color": STAND_INS["soft"],
    "legend.frameon": False,
}


def cumulative(name: str, spreads: Mapping[str, Distribution], axis: str, description: str) -> Markup:
    """For each named distribution the share of values at or below x; the axis is logarithmic if a tail is long."""
    import matplotlib as mpl

    with mpl.rc_context(DRAWING):
        figure, (axes,) = _figure(2.9)
        for index, (label, spread) in enumerate(spreads.items()):
            axes.plot(spread.curve, QUANTILES, color=STAND_INS[f"s{index}"], linewidth=1.8, label=label)
        if any(spread.p50 > 0 and spread.max > _LONG_TAIL * spread.p50 for spread in spreads.values()):
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(lambda value, _position: f"{value:g}")
            axes.xaxis.set_minor_formatter(lambda _value, _position: "")
        else:
            axes.set_xlim(left=0)
        axes.set_ylim(0, 1.03)
        axes.yaxis.set_major_formatter(lambda share, _position: f"{share:.0%}")
        axes.set(xlabel=axis, ylabel="share at or below")
        if len(spreads) > 1:
            axes.legend(loc="lower right")
        return element(figure, name, description)


def over_time(name: str, metrics: RunMetrics, description: str) -> Markup:
    """Deliveries per second and p99 latency along the run, with faults marked and repairs shaded."""
    import matplotlib as mpl

    slices = metrics.timeline or []
    with mpl.rc_context(DRAWING):
        figure, (rate, latency) = _figure(4.4, rows=2)
        _draw_slices(rate, latency, slices)
        for axes in (rate, latency):
            _draw_marks(axes, metrics.marks)
        if metrics.marks:
            rate.legend(loc="lower right", bbox_to_anchor=(1, 1.12), ncols=len(_MARKS) + 1, borderaxespad=0.2)
            name_crashes(rate, metrics.marks)
        return element(figure, name, description)


def _draw_slices(rate: Axes, latency: Axes, slices: Sequence[Slice]) -> None:
    starts = [step.start_s for step in slices]
    width_s = starts[1] - starts[0]
    edges = [*starts, starts[-1] + width_s]
    rates = [step.deliveries / width_s for step in slices]
    rate.stairs(rates, edges, color=STAND_INS["s0"], fill=True, alpha=0.3)
    rate.stairs(rates, edges, color=STAND_INS["s0"], linewidth=1.4)
    known = [(step.start_s + width_s / 2, step.p99_latency_ms) for step in slices if step.p99_latency_ms is not None]
    latency.plot(
        [time_s for time_s, _ in known],
        [p99 for _, p99 in known],
        color=STAND_INS["s1"],
        marker="o",
        markersize=3,
        linewidth=1.2,
    )
    rate.set(ylabel="deliveries per second", ylim=(0, None), xlim=(edges[0], edges[-1]))
    latency.set(ylabel="p99 latency, ms", ylim=(0, None), xlabel="seconds since the first event")


def _draw_marks(axes: Axes, marks: Sequence[TimelineMark]) -> None:
    for kind, (colour, line, label) in _MARKS.items():
        for time_s in sorted({mark.time_s for mark in marks if mark.kind == kind}):
            axes.axvline(time_s, color=STAND_INS[colour], linestyle=line, linewidth=1.2, label=label)
            label = "_nolegend_"  # noqa: PLW2901 - one entry in the legend for all of a kind
    label = "repair"
    for start_s, end_s in repair_spans(marks):
        axes.axvspan(start_s, end_s, color=STAND_INS["open"], alpha=0.18, linewidth=0, label=label)
        label = "_nolegend_"


def name_crashes(axes: Axes, marks: Sequence[TimelineMark]) -> None:
    """Above the drawing, who was killed where; one label for crashes that are too close for two."""
    left, right = axes.get_xlim()
    together: list[tuple[float, list[str]]] = []
    for mark in sorted((mark for mark in marks if mark.kind == "crash"), key=lambda mark: mark.time_s):
        if together and mark.time_s - together[-1][0] < _LABEL_APART * (right - left):
            together[-1][1].append(mark.node)
        else:
            together.append((mark.time_s, [mark.node]))
    for time_s, names in together:
        shown = (
            names if len(names) <= _NAMED_TOGETHER else [*names[:_NAMED_TOGETHER], f"+{len(names) - _NAMED_TOGETHER}"]
        )
        axes.text(
            time_s, 1.01, f"✕ {', '.join(shown)}", transform=axes.get_xaxis_transform(), color=STAND_INS["bad"],
            ha="left" if time_s < right - _LABEL_APART * (right - left) else "right", va="bottom", fontsize=8.5,
        )  # fmt: skip


def repair_spans(marks: Sequence[TimelineMark]) -> list[tuple[float, float]]:
    """When at least one repair was under way, as start and end; one that never ended is left out."""
    spans = []
    under_way: dict[tuple[str, str | None], float] = {}
    start_s = 0.0
    for mark in sorted(marks, key=lambda mark: mark.time_s):
        who = mark.node, mark.peer
        if mark.kind == "repair_start":
            start_s = start_s if under_way else mark.time_s
            under_way.setdefault(who, mark.time_s)
        elif mark.kind == "repair_end" and under_way.pop(who, None) is not None and not under_way:
            spans.append((start_s, mark.time_s))
    return spans


def _figure(height_in: float, rows: int = 1) -> tuple[Figure, Sequence[Axes]]:
    """A figure of its own: pyplot would keep it, and choose a display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH_IN, height_in), layout="constrained")
    axes: Any = figure.subplots(rows, 1, sharex=True, squeeze=False)
    return figure, list(axes[:, 0])


def element(figure: Figure, name: str, description: str) -> Markup:
    """The figure as an SVG element that may stand beside others: no prologue, ids of its own, colours of the page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", svg)
    for variable, stand_in in STAND_INS.items():
        svg = svg.replace(stand_in, f"var(--{variable})")
    svg = svg.replace(f"'{_FONT}'", "inherit")
    svg = svg.replace("<svg", f'<svg role="img" aria-labelledby="{name}-title"', 1)
    opening_end = svg.index(">") + 1
    return Markup(svg[:opening_end] + tag("title", description, id=f"{name}-title") + svg[opening_end:])
