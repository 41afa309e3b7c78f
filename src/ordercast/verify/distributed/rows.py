"""Rows of a run as one task has them: all of some nodes, and of all others the few that concern everybody."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ordercast.trace.schema import KINDS
from ordercast.trace.store import TraceError
from ordercast.verify.arrow import filled, taken, where_equal, whole
from ordercast.verify.distributed.scan import NO_TIME, PLACED
from ordercast.verify.distributed.setup import AGAIN
from ordercast.verify.distributed.wire import shortened
from ordercast.verify.rows import KIND, Rows

if TYPE_CHECKING:
    from ordercast.verify.distributed.setup import Setup
    from ordercast.verify.kernels.jit import Ints, Offsets

_LOOSE = 8
"""Rows are put in their places by seq unless that would take more than this many places for each."""
_OTHER = KIND["link"]


@dataclass(frozen=True, slots=True)
class SomeRows(Rows):
    """As Rows; what is not a number is known of the rare rows only. `origin` is the code of a row's message."""

    rare: pa.Table
    rare_entry: Offsets
    """Where the rare rows stand among all."""

    def of_kind(self, *kinds: str) -> Offsets:
        wanted = np.zeros(len(KINDS) + AGAIN, bool)
        wanted[[KIND[kind] for kind in kinds]] = True
        return np.flatnonzero(wanted[self.kind])

    def column(self, name: str, entries: Offsets) -> list[Any]:
        values: list[Any] = taken(self.rare.column(name), self._rare(entries)).to_pylist()
        if name == "kind":
            return [KINDS[value] for value in values]
        return values

    def times(self, entries: Offsets, *, missing: int = 0) -> Offsets:
        """Of rare rows."""
        column = filled(self.rare.column("time_ns"), NO_TIME)
        found = np.asarray(column, dtype=np.int64)[self._rare(entries)]
        return np.where(found == NO_TIME, missing, found)

    def info(self, key: str) -> tuple[Offsets, list[str]]:
        maps = whole(self.rare.column("info"))
        offsets = np.asarray(maps.offsets)
        having = where_equal(maps.keys, key)
        having = having[(having >= offsets[0]) & (having < offsets[-1])]
        row = np.searchsorted(offsets, having, side="right") - 1
        return self.rare_entry[row], taken(maps.items, having).to_pylist() if having.size else []

    def _rare(self, entries: Offsets) -> Offsets:
        return np.searchsorted(self.rare_entry, entries)


@dataclass
class RowPiece:
    """Some rows as the second stage dealt them out, in any order: they are unpacked when they are asked for."""

    table: pa.Table
    """One row of INTERNED."""
    code: Ints
    """The message of each; below 0 for none."""
    base: int = 0
    """Where messages are counted from."""
    chosen: Offsets | None = None
    """Which of the rows are meant, if not all."""

    @property
    def nodes(self) -> Any:
        return self._column("node", np.int32)

    @property
    def columns(self) -> tuple[Any, ...]:
        """Node, seq, kind and message."""
        code = self.code if self.chosen is None else self.code[self.chosen]
        message = np.where(code >= 0, code + np.int32(self.base), np.int32(-1)) if self.base else code
        return *(self._column(name, dtype) for name, dtype in PLACED), message

    def _column(self, name: str, dtype: Any) -> Any:
        (numbers,) = shortened(self.table, name, dtype)
        return numbers if self.chosen is None else numbers[self.chosen]


def rare_rows(setup: Setup) -> SomeRows:
    """The rows that concern everybody, and no others."""
    return assembled(setup, [], np.zeros(len(setup.nodes.names), bool))


def assembled(setup: Setup, pieces: list[RowPiece], whole_nodes: np.ndarray[Any, np.dtype[np.bool_]]) -> SomeRows:
    """The rows in order. Of `whole_nodes` all rows are in `pieces`; to those of the others, the rare ones are added."""
    rare_node = np.asarray(whole(setup.rare.column("node")), dtype=np.int64)
    rare_seq = np.asarray(whole(setup.rare.column("seq")), dtype=np.int64)
    ordered = _in_order(setup, pieces, whole_nodes)
    entry, there = _entries(ordered[0], ordered[1], rare_node, rare_seq)
    missing = np.flatnonzero(~there)
    off, seq, kind, code = _with_rare(setup, ordered, missing, entry[missing], rare_node[missing])
    return SomeRows(
        table=setup.rare,
        nodes=setup.nodes.names,
        off=off,
        origin=code,
        seq=seq,
        kind=kind,
        msg=code,
        msg_names=pa.array([], pa.string()),
        holes="",
        rare=setup.rare,
        rare_entry=_entries(off, seq, rare_node, rare_seq)[0],
    )


def _with_rare(setup: Setup, ordered: tuple[Any, ...], rare: Any, before: Any, node: Any) -> tuple[Any, ...]:
    """The columns with these rare rows put in before the entries that follow them."""
    off, seq, kind, code = ordered
    if not rare.size:
        return ordered
    table = taken(setup.rare, rare)
    kinds = np.asarray(whole(table.column("kind")), dtype=np.int8).copy()
    kinds[np.isin(kinds, (KIND["publish"], KIND["deliver"]))] = _OTHER
    added = np.concatenate(([0], np.cumsum(np.bincount(node, minlength=off.size - 1))))
    seqs = np.asarray(whole(table.column("seq")), dtype=np.int32)
    seq, kind, code = np.insert(seq, before, seqs), np.insert(kind, before, kinds), np.insert(code, before, -1)
    return off + added, seq, kind, code


def _in_order(setup: Setup, pieces: list[RowPiece], whole_nodes: Any) -> tuple[Any, ...]:
    """Offsets by node, and the columns sorted by node and seq."""
    count = 0
    there = np.zeros(len(setup.nodes.names), bool)
    for piece in pieces:
        node = piece.nodes
        count += node.size
        there[node] = True
    room = np.where(there, np.where(whole_nodes, setup.nodes.ends, setup.nodes.published_until), 0)
    if int(room.sum()) > _LOOSE * count + _LOOSE:
        return _sorted(setup, pieces)
    begin = np.concatenate(([0], np.cumsum(room)))
    kind = np.full(int(begin[-1]), -1, np.int8)
    code = np.full(kind.size, -1, np.int32)
    for piece in pieces:
        node, seq, kinds, codes = piece.columns
        at = begin[node]
        at += seq
        kind[at] = kinds
        code[at] = codes
    empty = int((kind < 0).sum())
    if kind.size - empty < count:
        return _sorted(setup, pieces)  # Some seq came twice: it finds out which.
    return (begin, _counted(begin), kind, code) if not empty else _without_gaps(begin, kind, code)


def _counted(off: Offsets) -> Ints:
    """Numbers that begin anew, from 0, at each of these places."""
    numbers = np.empty(int(off[-1]), np.int32)
    for begin, end in pairwise(off.tolist()):
        numbers[begin:end] = np.arange(end - begin, dtype=np.int32)
    return numbers


def _without_gaps(begin: Offsets, kind: Any, code: Ints) -> tuple[Any, ...]:
    filled = np.flatnonzero(kind >= 0)
    off = np.searchsorted(filled, begin).astype(np.int64)
    seq = (filled - np.repeat(begin[:-1], np.diff(off))).astype(np.int32)
    return off, seq, kind[filled], code[filled]


def _sorted(setup: Setup, pieces: list[RowPiece]) -> tuple[Any, ...]:
    """The same, where the seqs of some nodes leave so many places empty that the rows have to be sorted."""
    none = np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int8), np.empty(0, np.int32)
    columns = zip(none, *(piece.columns for piece in pieces), strict=True)
    node, seq, kind, code = (np.concatenate(parts) for parts in columns)
    order = np.lexsort((seq, node))
    node, seq = node[order], seq[order]
    twice = np.flatnonzero((node[1:] == node[:-1]) & (seq[1:] == seq[:-1]))
    if twice.size:
        raise TraceError(f"{setup.path}: node {setup.nodes.names[node[twice[0]]]} has seq {seq[twice[0]]} twice")
    off = np.searchsorted(node, np.arange(len(setup.nodes.names) + 1)).astype(np.int64)
    return off, seq, kind[order], code[order]


def entries_of(rows: SomeRows, places: Offsets) -> Offsets:
    """Where the rows stand that setup.place numbers so, in rising order; all of them are there."""
    return _entries(rows.off, rows.seq, places >> 32, places & 0xFFFFFFFF)[0]


def _entries(off: Offsets, seq: Any, node: Any, wanted: Any) -> tuple[Offsets, Any]:
    """The places where rows of these nodes and seqs stand, or would; and whether they are there."""
    found = np.empty(node.size, np.int64)
    starts = [0, *(np.flatnonzero(np.diff(node)) + 1).tolist(), node.size] if node.size else []
    for begin, end in pairwise(starts):
        first, last = off[node[begin]], off[node[begin] + 1]
        found[begin:end] = first + np.searchsorted(seq[first:last], wanted[begin:end])
    there = found < off[node + 1] if node.size else np.empty(0, bool)
    there[there] = seq[found[there]] == wanted[there]
    return found, there
