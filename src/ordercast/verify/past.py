"""Happened-before as the checks go through it: in the order of messages, one stretch of them after the other.

Each message has a row in a store of few rows, about everything in its past, which is made from the rows of its direct
predecessors. So whoever goes through happened-before needs one stretch and the store at a time, not the whole run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ordercast.verify.kernels import departed
from ordercast.verify.kernels.happened import known_marks, stored_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ordercast.verify.kernels.jit import Ints, Offsets


class MessageStretch(NamedTuple):
    """Messages that follow each other: `first` is the number of the first of them."""

    first: int
    pub: Ints
    place: Ints
    """Of each message: who published it, and at which place of its log."""
    row: Ints
    before: Ints
    edge_off: Offsets
    edges: Ints
    """Its row, the row that it goes on from (-1 for none), and the further rows that it reads.

    Where the order scope is `key` these are two a message: one with what its publisher had delivered, and its own.
    """

    @property
    def graph(self) -> tuple[Ints, Ints, Offsets, Ints]:
        return self.row, self.before, self.edge_off, self.edges


@dataclass(frozen=True)
class HappenedBefore:
    """Happened-before over all messages of a run, for columns that are about some of them."""

    messages: Ints
    """The numbers of those, rising."""
    rows: int
    """Of the store."""
    per_message: int
    stretches: Sequence[MessageStretch]

    def store(self, width: int) -> Ints:
        """Rows to begin with."""
        return np.empty((self.rows, width), np.int32)

    def forwards(self) -> Iterator[tuple[MessageStretch, int]]:
        """The stretches, each with the entry of `messages` at which it begins."""
        for stretch in self.stretches:
            yield stretch, int(np.searchsorted(self.messages, stretch.first))

    def marks_known(self, mark_off: Offsets, bit: Offsets, mark: Ints) -> Offsets:
        """Of each of `messages`, which of these marks are in its past: see kernels.happened.known_marks."""
        known = np.zeros(self.messages.size, np.int64)
        store = np.zeros(self.rows, np.int64)
        for stretch, at in self.forwards():
            known_marks(
                stretch.first, stretch.pub, stretch.place, *stretch.graph, mark_off, bit, mark, store,
                self.messages, at, known,
            )  # fmt: skip
        return known

    def passed_on(self, known: Offsets) -> Offsets:
        """Bits of each of `messages`, and of all that have it in their past: those of later ones put to them."""
        store = np.zeros(self.rows, np.int64)
        for stretch in reversed(self.stretches):
            last = stretch.first + stretch.row.size // self.per_message
            until = int(np.searchsorted(self.messages, last))
            departed.known_by(stretch.first, *stretch.graph, self.per_message, store, self.messages, until, known)
        return known


def whole_past(pub: Ints, place: Ints, prev: Ints, edge_off: Offsets, edges: Ints) -> HappenedBefore:
    """Happened-before in one stretch. Takes `prev` and `edges` over: they name rows afterwards."""
    row, rows = stored_rows(prev, edge_off, edges)
    per_message = prev.size // pub.size if pub.size else 1
    stretch = MessageStretch(0, pub, place, row, prev, edge_off, edges)
    return HappenedBefore(np.arange(pub.size, dtype=np.int32), rows, per_message, [stretch])


__all__ = ["HappenedBefore", "MessageStretch", "whole_past"]
