"""A quick test that clears most states, so that the full definitions are checked for few of them only.

Who has delivered `a` but not yet `b`, which it must deliver too, will deliver `a` first. Whatever breaks prefix or
acyclic order shows as a cycle in the union of these relations over all nodes, which is a handful of bits.
"""

from __future__ import annotations

from ordercast.explore.promises.properties import History, delivered
from ordercast.explore.scope.configurations import Configuration


class Precedence:
    """The relation of one configuration: bit `a * messages + b` stands for "a before b"."""

    def __init__(self, configuration: Configuration) -> None:
        self._due = configuration.due
        self._size = configuration.messages
        self._acyclic: dict[int, bool] = {0: True}

    def bits(self, node: int, history: History) -> int:
        """The precedences in a node's history. A history that breaks integrity says that a message precedes itself."""
        order = delivered(history)
        due = self._due[node]
        if len(set(order)) < len(order) or not due.issuperset(order):
            return 1 << order[0] * (self._size + 1)
        left = set(due)
        bits = 0
        for message in order:
            left.discard(message)
            for later in left:
                bits |= 1 << message * self._size + later
        return bits

    def is_acyclic(self, union: int) -> bool:
        known = self._acyclic.get(union)
        if known is None:
            row = (1 << self._size) - 1
            after = closure([union >> message * self._size & row for message in range(self._size)])
            known = self._acyclic[union] = not any(bits >> message & 1 for message, bits in enumerate(after))
        return known


def closure(after: list[int]) -> tuple[int, ...]:
    """The transitive closure of a relation given as one row of bits for each message (Warshall's algorithm)."""
    for middle in range(len(after)):
        for message, bits in enumerate(after):
            if bits >> middle & 1:
                after[message] = bits | after[middle]
    return tuple(after)
