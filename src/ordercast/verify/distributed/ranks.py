"""Exact values at given ranks among sorted numbers that lie in many pieces, none of which is brought here whole.

Every round asks how many numbers are below some edges, which says between which two each wanted number is. When few
enough are left between them, these are fetched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    Edges = dict[int, np.ndarray[Any, np.dtype[np.int64]]]
    """By group, rising."""

PIECES = 256
"""Into so many pieces each stretch is cut in a round."""
FETCHED = 200_000
"""So many numbers may be fetched in the end."""


@dataclass
class Stretch:
    """The bounds of a wanted number: its group and rank, and that it is neither below `low` nor above `high`."""

    group: int
    rank: int
    low: int
    high: int
    below: int
    """How many numbers of the group are below `low`."""
    upto: int
    """How many are not above `high`."""


def narrowed(
    wanted: list[Stretch],
    count_below: Callable[[Edges], Edges],
    fetch: Callable[[list[tuple[int, int, int]]], dict[tuple[int, int, int], np.ndarray[Any, Any]]],
) -> list[int]:
    """The wanted numbers, in their order.

    `count_below` says how many numbers of a group are below each edge; `fetch` brings those of a group from a low to a
    high one, both included, sorted.
    """
    while True:
        loose = {(one.group, one.low, one.high): one.upto - one.below for one in wanted if one.low < one.high}
        if sum(loose.values()) <= FETCHED:
            break
        edges = {group: _edges([one for one in wanted if one.group == group]) for group in {g for g, _, _ in loose}}
        counts = count_below(edges)
        for one in wanted:
            if one.low < one.high:
                _narrow(one, edges[one.group], counts[one.group])
    found = fetch(list(loose)) if loose else {}
    return [
        int(found[one.group, one.low, one.high][one.rank - one.below]) if one.low < one.high else one.low
        for one in wanted
    ]


def _edges(wanted: list[Stretch]) -> np.ndarray[Any, np.dtype[np.int64]]:
    cuts = {(one.low, one.high) for one in wanted if one.low < one.high}
    edges = {low + (high - low) * step // PIECES + 1 for low, high in cuts for step in range(PIECES)}
    return np.array(sorted(edges), np.int64)


def _narrow(one: Stretch, edges: Any, counts: Any) -> None:
    """To between the last edge that has at most `rank` numbers below it, and the next."""
    inside = slice(*np.searchsorted(edges, [one.low + 1, one.high + 1]))
    edges, counts = edges[inside], counts[inside]
    following = int(np.searchsorted(counts, one.rank, side="right"))
    if following > 0:
        one.low, one.below = int(edges[following - 1]), int(counts[following - 1])
    if following < edges.size:
        one.high, one.upto = int(edges[following]) - 1, int(counts[following])
