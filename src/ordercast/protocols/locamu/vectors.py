"""Vectors of numbers as a LoCaMu node sees them, and what they mean to it.

Spec: docs/protocols/locamu.md (LCM-H1, LCM-H2).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ordercast.protocols.locamu.packets import Plain

Name = tuple[int, int]
"""A message as one forwarder calls it: the forwarder, and its number on the stream that is looked at here."""
Past = tuple[int, ...]
"""LCM-H2: the highest number of each stream, by index; what is not there is 0."""


class Shape(msgspec.Struct, frozen=True, gc=False):
    """Everything about a vector but its numbers."""

    forwarder: int
    nodes: tuple[int, ...]
    """Whom it numbers."""
    code: int
    """What it is called within this node and in its sessions."""
    distance: int
    """Of the forwarder from this node."""
    streams: tuple[int, ...]
    """The index of the stream to each node."""
    inside: tuple[tuple[int, int], ...]
    """Position and index of the streams that belong to this node's past."""
    merged: tuple[int, ...]
    """The indices of these."""
    watched: int
    """The position whose number tells this node what it has processed (LCM-S1, LCM-S2); -1: none."""
    expected: tuple[tuple[int, int], ...]
    """Position and stream of linked nodes, which have to acknowledge."""


Vector = tuple[Shape, tuple[int, ...], int]
"""LCM-H1: shape, numbers, and whether it came late."""


def usable(vectors: Sequence[Vector]) -> list[Name]:
    """LCM-S1, LCM-S2: the numbers that tell this node something, by forwarder."""
    return [(shape.forwarder, numbers[shape.watched]) for shape, numbers, _ in vectors if shape.watched >= 0]


def plain(vectors: Sequence[Vector]) -> list[Plain]:
    """Vectors as they travel."""
    return [(2 * shape.forwarder + late, shape.nodes, numbers) for shape, numbers, late in vectors]
