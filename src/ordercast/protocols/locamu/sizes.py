"""Header sizes as the source counts them, beside the bytes that the codec really needs.

Spec: docs/protocols/locamu.md ("Cost"). The source counts four bytes per node, number or skipped node.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import compress

from ordercast.core.state import State
from ordercast.overlay.extended import Routes
from ordercast.protocols.locamu.packets import SECOND_BITS
from ordercast.protocols.locamu.rules import Radii, radii
from ordercast.protocols.locamu.vectors import Past, Vector
from ordercast.protocols.shared.sizes import WORD


class Tally(State):
    """The cost of a node's copies by the source's count. The totals are of first copies."""

    def __init__(self) -> None:
        self.copies = 0
        self.vector_bytes = 0
        self.past_bytes = 0
        self.last = 0
        """Of the copy that was sent last, first or not."""
        self.bases: dict[int, Past] = {}
        """The past of the last first copy, per receiver: the source's reference."""
        self.around: dict[tuple[int, int], int] = {}
        """How many streams there are around a forwarder, in a tree of so many nodes."""

    def first(
        self, peer: int, vectors: Sequence[Vector], window: int, past: Past, keys: list[int], *, again: bool
    ) -> None:
        """Count a first copy to a node with so many nodes before it that count; `again`: its session goes on."""
        base = self.bases.get(peer, ()) if again else ()
        base += (0,) * (len(past) - len(base))
        changed = list(compress(keys, map(operator.ne, past, base)))
        self.bases[peer] = past
        self._count(vector_bytes(vectors, window), past_bytes(changed))

    def first_whole(self, vectors: Sequence[Vector], window: int, routes: Routes, node: int, reach: Radii) -> None:
        """Count a first copy with a whole past."""
        self.again(vectors, window, routes, node, reach)
        names = vector_bytes(vectors, window)
        self._count(names, self.last - names)

    def again(self, vectors: Sequence[Vector], window: int, routes: Routes, forwarder: int, reach: Radii) -> None:
        """A copy with a whole past: a word for every stream around its forwarder."""
        key = (forwarder, len(routes.nodes))
        if key not in self.around:
            self.around[key] = possible_streams(routes, forwarder, reach)
        self.last = vector_bytes(vectors, window) + WORD * self.around[key]

    def _count(self, names: int, past: int) -> None:
        self.copies += 1
        self.vector_bytes += names
        self.past_bytes += past
        self.last = names + past


def vector_bytes(vectors: Sequence[Vector], window: int) -> int:
    """Per vector its node and two words per entry; a word per skipped node of the window."""
    entries = 0
    for vector in vectors:
        entries += len(vector[1])
    return WORD * (window + 2 * entries)


def past_bytes(changed: list[int]) -> int:
    """Per first node of a changed stream a word, per stream two."""
    return WORD * (len({stream >> SECOND_BITS for stream in changed}) + 2 * len(changed))


def possible_streams(routes: Routes, node: int, reach: Radii) -> int:
    """How many streams there are around a node."""
    ball = routes.ball(node, reach.window)
    return sum(len(ball.keys() & routes.ball(other, reach.numbering).keys()) - 1 for other in ball)


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
    found = 0
    for depth in range(reach.window + 1):
        so_deep = degree * (degree - 1) ** (depth - 1) if depth else 1
        found += so_deep * _reached(degree, reach, depth)
    return found


def _reached(degree: int, reach: Radii, depth: int) -> int:
    """Streams from one node so far from the middle: up some hops, then down another branch, within the window."""
    found = 0
    for up in range(min(depth, reach.numbering) + 1):
        turn = depth - up
        branches = degree - (turn > 0) - (up > 0)
        found += up > 0
        for down in range(1, min(reach.numbering - up, reach.window - turn) + 1):
            found += branches * (degree - 1) ** (down - 1)
    return found


def _around(degree: int, radius: int) -> int:
    """Nodes within that many hops of one."""
    rim, found = degree, 0
    for _ in range(radius):
        found += rim
        rim *= degree - 1
    return found
