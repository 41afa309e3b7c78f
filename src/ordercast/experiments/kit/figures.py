"""One look for the figures of all studies: panels, curves, bars and legends. The same results give the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ordercast.experiments.kit.results import Curve, Estimate
from ordercast.experiments.kit.study import Picture

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

REFERENCE = "#555555"
"""The colour of what others measured or stated."""
CONFIDENCE = "Error bars: 95 % confidence over the runs of a point, where there are several."
_SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "ordercast",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
}
_APART = 1.4
"""So many times the number before it a number is, if there is room for both beside each other."""
_LONG_NAMES = 60
"""Letters in a legend above which its names do not fit side by side."""

Results = TypeVar("Results")


class Look(msgspec.Struct, frozen=True):
    """The look of a curve: colours that the colour-blind tell apart, shapes and dashes for print without colour.

    A hollow marker is larger than a filled one: where two curves coincide, the one below still shows.
    """

    label: str
    colour: str
    marker: str = "o"
    style: Any = "-"
    hollow: bool = False


def drawn(
    results: Results, directory: Path, pictures: Mapping[str, Callable[[Results], Figure]]
) -> list[Picture]:  # fmt: skip
    """Draw every picture into the directory, under its name; what `panels` was told is the caption."""
    import matplotlib as mpl

    found = []
    with mpl.rc_context(_SETTINGS):
        for name, draw in pictures.items():
            figure = draw(results)
            caption, file = str(figure.get_label()), directory / f"{name}.svg"
            figure.savefig(file, metadata={"Date": None, "Description": caption})
            found.append(Picture(file, caption))
    return found


def panels(
    rows: int, columns: int, caption: str, *, width: float = 3.7, height: float = 3.3
) -> tuple[Figure, list[Axes]]:
    """A grid of panels; the caption says what is seen in them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(width * columns, 6.0), height * rows + 0.5), layout="constrained")
    figure.set_label(caption)
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def line(axes: Axes, points: Curve, look: Look, *, scale: float = 1.0) -> None:
    """One curve with the confidence of its points, where it has any."""
    if points:
        axes.errorbar(
            [point.x for point in points],
            [point.mean * scale for point in points],
            yerr=[point.error * scale for point in points] if any(point.error for point in points) else None,
            color=look.colour,
            marker=look.marker,
            markersize=8 if look.hollow else 4.5,
            markerfacecolor="none" if look.hollow else look.colour,
            linestyle=look.style,
            linewidth=1.4,
            capsize=2,
            label=look.label,
        )


def bars(
    axes: Axes, groups: Sequence[str], series: Mapping[str, Sequence[Estimate | None]], colours: Mapping[str, str],
    references: Mapping[str, Sequence[float]] | None = None, *, scale: float = 1.0,
) -> None:  # fmt: skip
    """Grouped bars with their confidence; references as short lines across their bars."""
    width = 0.8 / len(series)
    for i, (name, found) in enumerate(series.items()):
        places = [place + (i - (len(series) - 1) / 2) * width for place in range(len(groups))]
        halves = [value.half * scale if value else 0.0 for value in found]
        axes.bar(
            places,
            [value.mean * scale if value else 0.0 for value in found],
            width,
            yerr=halves if any(halves) else None,
            error_kw={"elinewidth": 0.8, "capsize": 2},
            color=colours[name],
            label=name,
        )
        for place, reference in zip(places, (references or {}).get(name, []), strict=False):
            axes.plot([place - width / 2, place + width / 2], [reference, reference], color="black", linewidth=1.6)
    axes.set_xticks(range(len(groups)), list(groups))
    axes.grid(visible=False, axis="x")
    axes.set_ylim(bottom=0)


def doubling(axes: Axes, values: Sequence[float]) -> None:
    """Steps on the horizontal axis are doublings, with a tick at each value; of two that are close one has a number."""
    axes.set_xscale("log", base=2)
    labels: list[str] = []
    last = 0.0
    for value in values:
        is_apart = value >= _APART * last
        labels.append(f"{value:,g}" if is_apart else "")
        last = value if is_apart else last
    axes.set_xticks(values, labels)
    axes.minorticks_off()


def label(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def own_legend(axes: Axes, **place: Any) -> None:
    """A legend inside the panel, if there is anything to name."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8, **place)


def legend(figure: Figure, *all_axes: Axes, columns: int = 3, last: Sequence[str] = ()) -> None:
    """One legend above everything, each name once; the `last` names come at its end, in this order."""
    found: dict[str, Artist] = {}
    for axes in all_axes:
        handles, labels = axes.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    names = [*(name for name in found if name not in last), *(name for name in last if name in found)]
    columns = len(names) if sum(map(len, names)) <= _LONG_NAMES else min(columns, len(names))
    figure.legend([found[name] for name in names], names, loc="outside upper center", ncols=columns, frameon=False)
