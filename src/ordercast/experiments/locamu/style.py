"""How the figures look: colours that the colour-blind tell apart, shapes for print without colour."""

from __future__ import annotations

from typing import Any

import msgspec


class Look(msgspec.Struct, frozen=True):
    """How the curve of one protocol is drawn."""

    label: str
    colour: str
    marker: str


LOOKS = {
    "locamu": Look("LoCaMu", "#0072b2", "o"),
    "delta-neighbourhood": Look("Delta-Neighbourhood", "#e69f00", "s"),
    "cbcast": Look("CBCAST", "#d55e00", "^"),
    "causal-barriers": Look("Causal Barriers", "#009e73", "D"),
}
REFERENCE = "#555555"

FIGURE_SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "ordercast",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
}
"""For `matplotlib.rc_context`: the same results give the same bytes."""
