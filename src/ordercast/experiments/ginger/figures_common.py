"""How the figures look: colours that the colour-blind tell apart, a sentence below every picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import pyarrow as pa

from ordercast.experiments.ginger.results import Estimate, Results

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE = {"eventual": ("#56b4e9", "s"), "causal": ("#0072b2", "o"), "total": ("#d55e00", "^")}
REFERENCE = "#555555"
_PANEL = (3.6, 3.4)
_LONG_NAMES = 60
"""Letters in a legend above which its names do not fit side by side."""
_LAST = ("mean",)
"""Comes after the names of what it is the mean of."""

Draw = Callable[[Results], "Figure"]


def drawn(table: pa.Table, directory: Path, pictures: Mapping[str, Draw]) -> list[Path]:
    """Draw every picture; the same results give the same bytes."""
    import matplotlib as mpl

    results = Results(table)
    paths = []
    with mpl.rc_context({"svg.hashsalt": "ordercast", "font.size": 9, "axes.spines.top": False,
                         "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3}):  # fmt: skip
        for name, draw in pictures.items():
            path = directory / f"{name}.svg"
            draw(results).savefig(path, metadata={"Date": None})
            paths.append(path)
    return paths


def panels(count: int, caption: str, *, width: float = _PANEL[0], rows: int = 1) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    columns = -(-count // rows)
    inches = max(width * columns, 6.0)
    figure = Figure(figsize=(inches, _PANEL[1] * rows + 0.5), layout="constrained")
    figure.supxlabel(fill(caption, int(inches * 16)), fontsize=8, color="#444444")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)[:count]


def bars(
    axes: Axes, groups: Sequence[str], series: Mapping[str, Sequence[Estimate | None]],
    colours: Mapping[str, str], references: Mapping[str, Sequence[float | None]] | None = None,
) -> None:  # fmt: skip
    """Grouped bars with 95 % confidence; references as short lines across their bars."""
    width = 0.8 / len(series)
    for i, (name, found) in enumerate(series.items()):
        places = [place + (i - (len(series) - 1) / 2) * width for place in range(len(groups))]
        axes.bar(
            places,
            [value.mean if value else 0.0 for value in found],
            width,
            yerr=[value.half if value else 0.0 for value in found],
            error_kw={"elinewidth": 0.8, "capsize": 2},
            color=colours[name],
            label=name,
        )
        for place, reference in zip(places, (references or {}).get(name, []), strict=False):
            if reference is not None:
                axes.plot([place - width / 2, place + width / 2], [reference, reference], color="black", linewidth=1.6)
    axes.set_xticks(range(len(groups)), list(groups))
    axes.grid(visible=False, axis="x")
    axes.set_ylim(bottom=0)


def legend(figure: Figure, *all_axes: Axes) -> None:
    """One legend above everything, each name once."""
    found: dict[str, Artist] = {}
    for axes in all_axes:
        handles, labels = axes.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    names = list(found) if len(all_axes) == 1 else sorted(found, key=lambda name: (name in _LAST, name))
    handles = [found[name] for name in names]
    columns = 2 if sum(map(len, names)) > _LONG_NAMES else len(names)
    figure.legend(handles, names, loc="outside upper center", ncols=columns, frameon=False)


def colours(names: Sequence[str]) -> dict[str, str]:
    return {name: STYLE[name][0] for name in names}
