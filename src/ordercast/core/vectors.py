"""Comparisons of vectors: what everybody who keeps one does all the time."""

from __future__ import annotations

from collections.abc import Sequence
from operator import gt

from ordercast.core.compiled import also_in_c


@also_in_c
def ahead(one: Sequence[int], other: Sequence[int]) -> int:
    """The number of places, as far as both go, at which the first of two tuples or lists has the higher number."""
    return sum(map(gt, one, other))
