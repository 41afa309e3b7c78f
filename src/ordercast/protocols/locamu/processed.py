"""Which numbers a LoCaMu node has processed, and how an acknowledgement says so.

Spec: docs/protocols/locamu.md (LCM-S1, LCM-S2, LCM-D2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from ordercast.core.state import State
from ordercast.protocols.locamu.packets import Columns
from ordercast.protocols.locamu.vectors import Name

MOST_BEYOND = 4_096
"""So many numbers beyond a prefix are acknowledged at most: who says less is sent more, and that is all."""


class Processed(State):
    """LCM-S1, LCM-S2: the numbers processed here, per forwarder: all up to a prefix, and some beyond."""

    constant: ClassVar[tuple[str, ...]] = ("gapless",)
    durable: ClassVar[tuple[str, ...]] = ("prefix", "sparse", "holes")

    def __init__(self) -> None:
        self.gapless: frozenset[int] = frozenset()
        """Forwarders that number this node: gaps on their streams close."""
        self.prefix: dict[int, int] = {}
        self.sparse: dict[int, set[int]] = {}
        self.holes = 0
        """How many of the gapless streams have a gap right now."""

    def watch(self, near: Iterable[int], far: Iterable[int]) -> None:
        """Count what these forwarders number, from now on if they are new."""
        self.gapless = frozenset(near)
        for node in (*near, *far):
            self.prefix.setdefault(node, 0)
        self.holes = sum(node in self.gapless for node in self.sparse)

    def has_any(self, names: Iterable[Name]) -> bool:
        """Whether one of these numbers is processed."""
        prefix, sparse = self.prefix, self.sparse
        for forwarder, number in names:
            if number <= prefix[forwarder] or (forwarder in sparse and number in sparse[forwarder]):
                return True
        return False

    def add(self, names: Iterable[Name]) -> None:
        """These are processed."""
        prefix, sparse = self.prefix, self.sparse
        for forwarder, number in names:
            beyond = sparse.get(forwarder)
            reached = prefix[forwarder]
            if number == reached + 1 and forwarder in self.gapless:
                prefix[forwarder] = number if beyond is None else self._close(forwarder, beyond, number)
            elif number > reached:
                if beyond is None:
                    sparse[forwarder] = {number}
                    self.holes += forwarder in self.gapless
                else:
                    beyond.add(number)

    def _close(self, forwarder: int, beyond: set[int], prefix: int) -> int:
        """The end of the stream's gapless prefix, now that the number after the old prefix is there."""
        while prefix + 1 in beyond:
            prefix += 1
            beyond.discard(prefix)
        if not beyond:
            del self.sparse[forwarder]
            self.holes -= 1
        return prefix

    def raise_to(self, forwarder: int, floor: int) -> None:
        """LCM-D2: everything up to the floor counts as processed."""
        if floor > self.prefix[forwarder]:
            self.prefix[forwarder] = floor
            before = self.sparse.pop(forwarder, None)
            beyond = {number for number in before or () if number > floor}
            if beyond:
                self.sparse[forwarder] = beyond
            elif before and forwarder in self.gapless:
                self.holes -= 1

    def forget(self, forwarder: int) -> None:
        """LCM-V6: it has left, and everything of it is processed."""
        self.prefix.pop(forwarder, None)
        self.sparse.pop(forwarder, None)

    def columns(self) -> Columns:
        """The columns of an acknowledgement about the streams into this node."""
        sparse = self.sparse
        return tuple([
            (forwarder, prefix, *(in_runs(prefix, sorted(sparse[forwarder])) if forwarder in sparse else ()))
            for forwarder, prefix in self.prefix.items()
            if forwarder in self.gapless and (prefix or forwarder in sparse)
        ])  # fmt: skip


def in_runs(prefix: int, numbers: Sequence[int]) -> list[int]:
    """Rising numbers beyond a prefix, as runs: how many are left out, and how many follow."""
    runs: list[int] = []
    last = prefix
    for number in numbers[:MOST_BEYOND]:
        if number == last + 1 and runs:
            runs[-1] += 1
        else:
            runs += (number - last - 1, 1)
        last = number
    return runs


def of_runs(prefix: int, runs: Sequence[int]) -> list[int]:
    """The numbers that `in_runs` was given, from a peer: no more than there can be."""
    numbers: list[int] = []
    last = prefix
    for left_out, length in zip(runs[::2], runs[1::2], strict=False):
        start = last + left_out + 1
        last = start + min(length, MOST_BEYOND - len(numbers)) - 1
        numbers += range(start, last + 1)
    return numbers
