"""What the figures of these studies share: panels with a sentence below, and axes that double."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import pyarrow as pa

from ordercast.experiments.kit.curves import Curve
from ordercast.experiments.kit.study import Row
from ordercast.experiments.locamu.style import FIGURE_SETTINGS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Draw = Callable[[Sequence[Row]], "Figure"]
_LETTERS_PER_INCH = 17


def drawn(table: pa.Table, directory: Path, pictures: Mapping[str, Draw]) -> list[Path]:
    """Draw every picture; the same results give the same bytes."""
    import matplotlib as mpl

    rows: list[Row] = table.to_pylist()
    paths = []
    with mpl.rc_context(FIGURE_SETTINGS):
        for name, draw in pictures.items():
            path = directory / f"{name}.svg"
            draw(rows).savefig(path, metadata={"Date": None})
            paths.append(path)
    return paths


def panels(
    rows: int, columns: int, caption: str, *, width: float = 4.4, height: float = 3.3
) -> tuple[Figure, list[Axes]]:
    """A grid of panels above a caption."""
    from matplotlib.figure import Figure

    inches = width * columns
    figure = Figure(figsize=(inches, height * rows + 0.5), layout="constrained")
    figure.supxlabel(fill(caption, int(inches * _LETTERS_PER_INCH)), fontsize=8, color="#444444")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def line(
    axes: Axes, points: Curve, label: str, colour: str, marker: str, *, style: str = "-", scale: float = 1.0
) -> None:
    """One curve; a dashed one has hollow marks."""
    axes.plot(
        [point.x for point in points],
        [point.mean * scale for point in points],
        style,
        color=colour,
        marker=marker,
        markersize=5,
        markerfacecolor=colour if style == "-" else "white",
        linewidth=1.5,
        label=label,
    )


def double(axes: Axes, values: Sequence[float]) -> None:
    """Steps on the horizontal axis are doublings, with a tick at each value."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(values, [f"{value:,g}" for value in values])
    axes.minorticks_off()


def label(
    axes: Axes, title: str, x: str, y: str, *, legend: bool = True, corner: tuple[float, float] | None = None
) -> None:
    """Names for everything; `corner`: where the upper left of the legend goes, in shares of the panel."""
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if legend and axes.get_legend_handles_labels()[0]:
        place = {"loc": "best"} if corner is None else {"loc": "upper left", "bbox_to_anchor": corner}
        axes.legend(frameon=False, fontsize=8, **place)
