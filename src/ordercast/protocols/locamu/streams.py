"""Streams that a LoCaMu node knows: their numbers in its past, and all it derives from whom a vector numbers.

Spec: docs/protocols/locamu.md (LCM-H1, LCM-H2). Streams get small indices in the order in which a node first hears of
them, so that a past is a list of numbers and a snapshot of it a tuple.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from ordercast.protocols.locamu.neighbourhood import Neighbourhood
from ordercast.protocols.locamu.packets import SECOND, SECOND_BITS, Plain
from ordercast.protocols.locamu.parts import NodePart
from ordercast.protocols.locamu.vectors import Shape, Vector

News = Iterable[tuple[int, int]]
"""Streams, by their index here, and numbers."""


class Streams(NodePart):
    """The past of a node, the index of every stream and the shape of every vector that it has heard of."""

    durable: ClassVar[tuple[str, ...]] = ("index", "keys", "values", "shapes")
    here: Neighbourhood

    def __init__(self) -> None:
        self.index: dict[int, int] = {}
        self.keys: list[int] = []
        """The stream of each index; as its complement, if it does not belong to the past of this node."""
        self.values: list[int] = []
        self.shapes: dict[tuple[int, tuple[int, ...]], Shape] = {}

    # Streams

    def at(self, stream: int, inside: bool) -> int:
        """The index of a stream."""
        found = self.index.get(stream)
        if found is None:
            found = self.index[stream] = len(self.keys)
            self.keys.append(stream if inside else ~stream)
            self.values.append(0)
        return found

    def value(self, stream: int) -> int:
        found = self.index.get(stream)
        return 0 if found is None else self.values[found]

    def pairs(self, past: Sequence[int]) -> Iterator[tuple[int, int]]:
        """A past as streams and numbers."""
        return ((key, value) for key, value in zip(self.keys, past, strict=False) if value and key >= 0)

    def forget(self, node: int) -> None:
        """LCM-V6: drop the numbers of streams from and to a node that has left. Their indices stay taken."""
        for i, key in enumerate(self.keys):
            stream = key if key >= 0 else ~key
            if node in (stream >> SECOND_BITS, stream & SECOND):
                self.values[i] = 0

    # Vectors

    def shape(self, forwarder: int, nodes: tuple[int, ...]) -> Shape:
        """The meaning here of that forwarder's vector for these nodes."""
        key = (forwarder, nodes)
        shape = self.shapes.get(key)
        if shape is None:
            shape = self.shapes[key] = self._derive(forwarder, nodes, len(self.shapes))
        return shape

    def _derive(self, forwarder: int, nodes: tuple[int, ...], code: int) -> Shape:
        distance, radii = self.here.distance, self.here.radii
        row = forwarder << SECOND_BITS
        near = forwarder in distance
        streams = tuple([self.at(row | node, near and node in distance) for node in nodes])
        inside = tuple([(i, streams[i]) for i, node in enumerate(nodes) if near and node in distance])
        watched = self.here.column.get(forwarder)
        return Shape(
            forwarder,
            nodes,
            code,
            distance.get(forwarder, radii.window + 1),
            streams,
            inside,
            tuple([stream for _, stream in inside]),
            nodes.index(watched) if watched in nodes else -1,
            tuple([(i, row | node) for i, node in enumerate(nodes) if 0 < distance.get(node, 0) <= radii.jump]),
        )

    def vector(self, told: Plain) -> Vector:
        flagged, nodes, numbers = told
        return (self.shape(flagged >> 1, nodes), numbers, flagged & 1)

    def see_anew(self) -> None:
        """Derive everything once more: the tree has changed."""
        for i, key in enumerate(self.keys):
            stream = key if key >= 0 else ~key
            self.keys[i] = stream if self.here.is_inside(stream) else ~stream
        self.shapes = {key: self._derive(*key, shape.code) for key, shape in self.shapes.items()}

    def seen_anew(self, vectors: Sequence[Vector]) -> tuple[Vector, ...]:
        """These vectors with what their shapes mean now."""
        return tuple([(self.shapes[shape.forwarder, shape.nodes], numbers, late) for shape, numbers, late in vectors])

    # The past

    def raise_to(self, told: News) -> list[int]:
        """Take over what is newer; the streams for which it was."""
        values = self.values
        changed = []
        for stream, value in told:
            if value > values[stream]:
                values[stream] = value
                changed.append(stream)
        return changed

    def raise_to_pairs(self, past: Iterable[tuple[int, int]]) -> list[int]:
        """The same for streams by their own names, as far as they belong to the past of this node."""
        return self.raise_to([(self.at(key, inside=True), value) for key, value in past if self.here.is_inside(key)])

    def raise_to_vectors(self, vectors: Sequence[Vector]) -> list[int]:
        """The same for the numbers of vectors, late or not: only printed rules do that."""
        return self.raise_to([
            (stream, numbers[position]) for shape, numbers, _ in vectors for position, stream in shape.inside
        ])  # fmt: skip

    def merge(self, vectors: Sequence[Vector]) -> None:
        """Take over the numbers of vectors that are not late."""
        values = self.values
        for shape, numbers, late in vectors:
            if not late:
                for position, stream in shape.inside:
                    if numbers[position] > values[stream]:
                        values[stream] = numbers[position]

    def number(self, targets: tuple[int, ...]) -> Vector:
        """LCM-M4: the next number of this node for each target."""
        shape = self.shape(self.here.me, targets)
        values = self.values
        numbers = []
        for stream in shape.streams:
            values[stream] = number = values[stream] + 1
            numbers.append(number)
        return (shape, tuple(numbers), 0)
