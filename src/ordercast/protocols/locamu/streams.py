"""What a LoCaMu node knows of streams: their numbers in its past, and all it derives from whom a vector numbers.

Spec: docs/protocols/locamu.md (H1, H2). Streams get small indices in the order in which a node first hears of them, so
that a past is a list of numbers and a snapshot of it a tuple.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import msgspec

from ordercast.core.state import State
from ordercast.protocols.locamu.packets import SECOND, SECOND_BITS, Plain

Past = tuple[int, ...]
"""H2: the highest number of each stream, by index; what is not there is 0."""


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
    """The position whose number tells this node what it has processed (S1, S2); -1: none."""
    expected: tuple[tuple[int, int], ...]
    """Position and stream of linked nodes, which have to acknowledge."""


Vector = tuple[Shape, tuple[int, ...], int]
"""H1: shape, numbers, and whether it came late."""


def plain(vectors: Sequence[Vector]) -> list[Plain]:
    return [(2 * shape.forwarder + late, shape.nodes, numbers) for shape, numbers, late in vectors]


class Streams(State):
    """The past of a node, and the index of every stream it has heard of."""

    durable: ClassVar[tuple[str, ...]] = ("index", "keys", "values")

    def __init__(self) -> None:
        self.index: dict[int, int] = {}
        self.keys: list[int] = []
        """The stream of each index; as its complement, if it does not belong to the past of this node."""
        self.values: list[int] = []

    def at(self, stream: int, inside: bool) -> int:
        """The index of a stream."""
        found = self.index.get(stream)
        if found is None:
            found = self.index[stream] = len(self.keys)
            self.keys.append(stream if inside else ~stream)
            self.values.append(0)
        return found

    def forget(self, node: int) -> None:
        """V6: the numbers of streams from and to a node that has left. Their indices stay taken."""
        for i, key in enumerate(self.keys):
            stream = key if key >= 0 else ~key
            if node in (stream >> SECOND_BITS, stream & SECOND):
                self.values[i] = 0

    def value(self, stream: int) -> int:
        found = self.index.get(stream)
        return 0 if found is None else self.values[found]

    def pairs(self, past: Past) -> Iterator[tuple[int, int]]:
        """A past as streams and numbers."""
        return ((key, value) for key, value in zip(self.keys, past, strict=False) if value and key >= 0)
