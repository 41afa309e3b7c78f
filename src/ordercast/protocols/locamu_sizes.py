"""Header sizes as the source counts them, beside the bytes that the codec really needs.

Spec: docs/protocols/locamu.md ("Cost"). The source counts four bytes per node, number or skipped node.
"""

from __future__ import annotations

from ordercast.core.state import State
from ordercast.protocols.locamu_packets import Columns, Vector
from ordercast.protocols.locamu_rules import Radii, radii

WORD = 4


class Tally(State):
    """What the first copies of a node would have cost by the source's count."""

    def __init__(self) -> None:
        self.copies = 0
        self.vector_bytes = 0
        self.past_bytes = 0

    def add(self, vectors: tuple[Vector, ...], window: int, past: Columns) -> None:
        """Count a copy to a node with so many nodes before it that count."""
        self.copies += 1
        self.vector_bytes += vector_bytes(vectors, window)
        self.past_bytes += past_bytes(past)


def vector_bytes(vectors: tuple[Vector, ...], window: int) -> int:
    """Per vector its node and two words per entry; a word per skipped node of the window."""
    named = sum(WORD + 2 * WORD * len(nodes) for _, nodes, _ in vectors)
    return named + WORD * (window - len(vectors))


def past_bytes(changes: Columns) -> int:
    """Per first node of a changed stream a word, per stream two."""
    return sum(WORD + 2 * WORD * (len(column) // 2) for column in changes)


def formula(degree: int, f: int) -> int:
    """The closed form that gives the size the source states, for a tree with that many neighbours a node."""
    around = _around(degree, f + 1)
    return WORD * around * around + 2 * WORD * (2 * f + 1) * around


def largest(degree: int, f: int, profile: str = "corrected") -> int:
    """The largest whole header that this protocol can have there: every stream, and the publisher within the window."""
    reach = radii(f, profile)
    ahead = _around(degree, reach.numbering) * (degree - 1) // degree
    first = WORD + 2 * WORD * _around(degree, reach.numbering)
    others = (reach.window - 1) * (WORD + 2 * WORD * ahead)
    return WORD * streams_around(degree, reach) + first + others


def streams_around(degree: int, reach: Radii) -> int:
    """How many streams a node in the middle of a large tree keeps track of."""
    near: list[list[int]] = [[]]
    rim = [0]
    for _ in range(reach.window):
        outer = []
        for node in rim:
            for _ in range(degree - len(near[node])):
                near[node].append(len(near))
                outer.append(len(near))
                near.append([node])
        rim = outer
    return sum(_reached(near, node, reach.numbering) for node in range(len(near)))


def _reached(near: list[list[int]], start: int, radius: int) -> int:
    found, rim = 0, [(start, -1)]
    for _ in range(radius):
        rim = [(other, node) for node, before in rim for other in near[node] if other != before]
        found += len(rim)
    return found


def _around(degree: int, radius: int) -> int:
    """Nodes within that many hops of one."""
    rim, found = degree, 0
    for _ in range(radius):
        found += rim
        rim *= degree - 1
    return found
