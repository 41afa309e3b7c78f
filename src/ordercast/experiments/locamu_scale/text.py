"""Numbers as the claims and figures say them."""

from __future__ import annotations

_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def size(value: float) -> str:
    """`540 B`, `1.04 MB`."""
    for scale, unit in _UNITS:
        if value >= 10 * scale or (scale > 1e3 and value >= scale):
            return f"{value / scale:.3g} {unit}"
    return f"{value:,.0f} B"
